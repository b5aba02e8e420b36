package pgtest

import "time"

// Action is what a proxy does when a message of a client comes.
type Action struct {
	what   what
	silent time.Duration
}

type what int

const (
	pass what = iota
	cutBefore
	cutWhile
	cutAfter
	beSilent
	endBackend
)

var (
	// Pass is the wire as it should be.
	Pass = Action{what: pass}
	// CutBefore cuts the connection, and the server never gets the message.
	CutBefore = Action{what: cutBefore}
	// CutWhile cuts it as soon as the server has the message and those up to the client's Sync. The server
	// does what it was told, to the end, and then finds nobody to tell.
	CutWhile = Action{what: cutWhile}
	// CutAfter cuts it when the server has said that it is done, and the client does not hear that.
	CutAfter = Action{what: cutAfter}
	// EndBackend ends the server's process of this connection by pg_terminate_backend; then the message is
	// dropped. The client hears of it (57P01).
	EndBackend = Action{what: endBackend}
)

// Silent lets nothing pass on this connection for a while, and then everything: also what a client that is
// gone by then had said.
func Silent(d time.Duration) Action { return Action{beSilent, d} }
