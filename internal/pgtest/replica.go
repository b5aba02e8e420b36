package pgtest

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Replica starts a server that follows this one, asynchronously unless Quorum names it. It has no settings but
// this one's, and no port.
func (c *Cluster) Replica(t testing.TB) *Cluster {
	t.Helper()
	c.mu.Lock()
	name := "replica" + strconv.Itoa(len(c.replicas)+1)
	c.mu.Unlock()
	r, err := newCluster(name, c.bin)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.close)
	_, err = r.program("pg_basebackup", "-D", r.data(), "-R", "-X", "stream", "--checkpoint", "fast",
		"-h", c.dir, "-p", strconv.Itoa(c.port), "-U", superuser).run()
	if err != nil {
		t.Fatal(err)
	}
	err = r.configure("listen_addresses = ''", "synchronous_standby_names = ''")
	if err != nil {
		t.Fatal(err)
	}
	err = r.startServer()
	if err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	c.replicas = append(c.replicas, r)
	c.mu.Unlock()
	c.waitFor(t, "t", `SELECT count(*) = 1 FROM pg_stat_replication
		WHERE state = 'streaming' AND application_name = '`+name+`'`)
	return r
}

// Quorum lets a commit that is waited for wait until one of these replicas has it on disk, too. Without
// replicas nobody is waited for any longer.
func (c *Cluster) Quorum(t testing.TB, replicas ...*Cluster) {
	t.Helper()
	if len(replicas) == 0 {
		c.Set(t, "synchronous_standby_names = ''")
		c.waitFor(t, "t", "SELECT current_setting('synchronous_standby_names') = ''")
		return
	}
	names := make([]string, len(replicas))
	for i, r := range replicas {
		names[i] = r.name
	}
	c.Set(t, fmt.Sprintf("synchronous_standby_names = 'ANY 1 (%s)'", strings.Join(names, ", ")))
	c.waitFor(t, strconv.Itoa(len(names)), "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'quorum'")
}

// Promote makes a replica a server that takes writes, on a timeline of its own.
func (c *Cluster) Promote(t testing.TB) {
	t.Helper()
	c.SQL(t, superuser, "SELECT pg_promote(wait => false)")
	c.waitFor(t, "f", "SELECT pg_is_in_recovery()")
}

// StopReceiver lets nothing more reach a replica for a while, as a machine that hangs.
func (c *Cluster) StopReceiver(t testing.TB, d time.Duration) {
	t.Helper()
	pid, err := strconv.Atoi(c.SQL(t, superuser, "SELECT pid FROM pg_stat_wal_receiver"))
	if err != nil {
		t.Fatal("the replica receives nothing: ", err)
	}
	receiver, err := os.FindProcess(pid)
	if err != nil {
		t.Fatal(err)
	}
	err = receiver.Signal(pause)
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(d, func() { _ = receiver.Signal(resume) })
}

// waitFor asks until the server gives this answer.
func (c *Cluster) waitFor(t testing.TB, want, question string) {
	t.Helper()
	var said string
	var err error
	for late := time.Now().Add(patience); time.Now().Before(late); time.Sleep(10 * time.Millisecond) {
		said, err = c.psql(superuser, question)
		if err == nil && said == want {
			return
		}
	}
	t.Fatalf("%s: %q, not %q, after %v (%v)", question, said, want, patience, err)
}
