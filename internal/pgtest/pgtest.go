// Package pgtest is a real PostgreSQL for tests: a server of their own, with databases, replicas and ways to
// fail. Only tests and the demo of a fleet import it; no program that is given to anybody contains it.
//
// What must stay true: fsync stays on, so that a server that is killed loses what a real one would lose, and
// nothing else, but where a test that kills none says "fsync = off"; and no server outlives the tests that
// started it.
//
// Order of reading: pgtest.go, cluster.go, process.go, kill.go, psql.go; proxy.go,
// action.go, carry.go, wire.go; replica.go.
package pgtest

import (
	"errors"
	"sync"
	"testing"
)

// TCP lets a server listen on 127.0.0.1, too. URLs of its databases still name its socket; TCPURL names the
// port.
const TCP = "listen_addresses = '127.0.0.1'"

// SlowFlush are the settings that let each commit wait for 2 ms, as for a disk in a cloud.
var SlowFlush = []string{"commit_delay = 2000", "commit_siblings = 0"}

// Start starts a server for this test. Settings are lines of postgresql.conf, as "max_connections = 300".
func Start(t testing.TB, settings ...string) *Cluster {
	t.Helper()
	c, err := Open(settings...)
	if err != nil {
		missing(t, err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of the server's log:\n%s", c.Log())
		}
		c.Close()
	})
	return c
}

var shared struct {
	sync.Mutex
	c   *Cluster
	err error
}

// Shared is one server for all tests of a package, started by the first that asks. Main stops it. Whoever
// kills it, or changes settings that others see, uses Start instead.
func Shared(t testing.TB) *Cluster {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.c == nil && shared.err == nil {
		shared.c, shared.err = Open("max_connections = 300")
	}
	if shared.err != nil {
		missing(t, shared.err)
	}
	return shared.c
}

// Main makes the tests of a package stop their shared server:
//
//	func TestMain(m *testing.M) { os.Exit(pgtest.Main(m).Run()) }
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }
func Main(m *testing.M) interface{ Run() int } { return stopping{m} }

type stopping struct{ m *testing.M }

func (s stopping) Run() int {
	defer stopShared()
	return s.m.Run()
}

func stopShared() {
	shared.Lock()
	defer shared.Unlock()
	if shared.c != nil {
		shared.c.Close()
	}
	shared.c, shared.err = nil, nil
}

// missing ends a test that has no server: a failure with what to install, but for `go test -short`.
func missing(t testing.TB, err error) {
	t.Helper()
	if testing.Short() && errors.Is(err, ErrNotInstalled) {
		t.Skip(err)
	}
	t.Fatal(err)
}
