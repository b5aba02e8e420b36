package pgtest

import (
	"fmt"
	"testing"
	"time"
)

// Fault is a way in which one step of a client may fail.
type Fault struct {
	Name string
	Do   Action
	// Done says what the server has done with the step when the client hears of the fault.
	Done Done
}

// Done is what became of a step.
type Done int

// A step whose connection was cut while it ran will be done, unless it fails by itself: NotKnown.
const (
	NotDone Done = iota
	IsDone
	NotKnown
)

// Partition is how long the network is silent in Faults: longer than a step takes, shorter than a timeout.
const Partition = 1500 * time.Millisecond

// Faults are those that each step has to stand, from none at all on.
var Faults = []Fault{
	{"nothing", Pass, IsDone},
	{"cut before the server has it", CutBefore, NotDone},
	{"cut after it was done", CutAfter, IsDone},
	{"cut while it runs", CutWhile, NotKnown},
	{"silence", Silent(Partition), IsDone},
	{"backend ended", EndBackend, NotDone},
}

// EndRandom ends the server's process of one connection to a database, whichever and whatever it does; not
// one of this package's. It reports whether there was one.
func EndRandom(t testing.TB, url string) bool {
	t.Helper()
	return SQL(t, url, `SELECT count(pg_terminate_backend(pid)) FROM (SELECT pid FROM pg_stat_activity
		WHERE datname = current_database() AND backend_type = 'client backend'
			AND application_name <> '`+ourName+`'
		ORDER BY random() LIMIT 1) AS one`) == "1"
}

// terminate ends one process of a server, and returns when it has ended.
func terminate(url string, pid int32) error {
	const wait = 60_000 // ms
	said, err := psql(url, fmt.Sprintf("SELECT pg_terminate_backend(%d, %d)", pid, wait))
	if err == nil && said != "t" {
		err = fmt.Errorf("process %d is none of the server's, or does not end", pid)
	}
	return err
}
