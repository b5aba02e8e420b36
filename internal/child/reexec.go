package child

import (
	"errors"
	"os"
	"time"
)

const (
	// closedTimeout is how long a child may take to start and close itself.
	closedTimeout = 30 * time.Second
	// maxSecret bounds what is handed over: more than any passphrase.
	maxSecret = 4 << 10
	// handoverFD is where the child finds the socket on which it says that it is closed.
	handoverFD = 3
)

// closedMessage is what a child says when no other program of its user can look into it any more. With
// it comes the socket for the secret.
const closedMessage = "closed"

// errPeer says that the other end of a socket is another process than expected.
var errPeer = errors.New("the other end of the socket is another process")

// Handed is this program again, in a session of its own, with files that somebody else handed over. It is
// closed to other programs of its user as Reexec's is.
type Handed struct {
	Args, Env []string
	Files     []*os.File // stdin, stdout, stderr, and a terminal where there is one
}

// Where that program finds what it was given besides its streams: a connection to who started it, and the
// terminal.
const (
	HandedControl  = 3
	HandedTerminal = 4
)
