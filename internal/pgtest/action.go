package pgtest

// Action is what a proxy does when a message of a client comes.
type Action int

const (
	// Pass is the wire as it should be.
	Pass Action = iota
	// CutBefore cuts the connection, and the server never gets the message.
	CutBefore
	// CutWhile cuts it as soon as the server has the message and those up to the client's Sync. The server
	// does what it was told, to the end, and then finds nobody to tell.
	CutWhile
	// CutAfter cuts it when the server has said that it is done, and the client does not hear that.
	CutAfter
	// EndBackend ends the server's process of this connection by pg_terminate_backend; then the message is
	// dropped. The client hears of it (57P01).
	EndBackend
)
