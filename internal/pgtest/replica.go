package pgtest

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Replica starts a server that follows this one, asynchronously unless Quorum names it. It has this one's
// settings, and no port. What it is sent goes through a proxy.
func (c *Cluster) Replica(t testing.TB) *Cluster {
	t.Helper()
	r, err := newCluster("replica"+strconv.Itoa(len(c.replicas)+1), c.bin)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	c.replicas = append(c.replicas, r)
	err = r.follow(c)
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, c.URL(superuser), "1", `SELECT count(*) FROM pg_stat_replication
		WHERE state = 'streaming' AND application_name = '`+r.name+`'`)
	return r
}

func (c *Cluster) follow(primary *Cluster) error {
	var err error
	c.wire, err = newProxy(primary.URL(superuser), c.dir)
	if err != nil {
		return err
	}
	err = c.owner.own(filepath.Join(c.dir, ".s.PGSQL."+wirePort))
	if err != nil {
		return err
	}
	err = c.program("pg_basebackup", "-D", c.data(), "-R", "-X", "fetch", "--checkpoint", "fast",
		"--no-sync", "-h", c.dir, "-p", wirePort, "-U", superuser)
	if err != nil {
		return err
	}
	err = c.configure("listen_addresses = ''", "synchronous_standby_names = ''")
	if err != nil {
		return err
	}
	return c.startServer()
}

// Quorum lets a commit that is waited for wait until one of these replicas has it on disk, too. Without
// replicas nobody is waited for any longer.
func (c *Cluster) Quorum(t testing.TB, replicas ...*Cluster) {
	t.Helper()
	names := make([]string, len(replicas))
	for i, r := range replicas {
		names[i] = r.name
	}
	setting := ""
	if len(names) > 0 {
		setting = fmt.Sprintf("ANY 1 (%s)", strings.Join(names, ", "))
	}
	c.Set(t, "synchronous_standby_names = '"+setting+"'")
	waitFor(t, c.URL(superuser), setting+"|"+strconv.Itoa(len(names)), `SELECT
		current_setting('synchronous_standby_names'), count(*) FILTER (WHERE sync_state = 'quorum')
		FROM pg_stat_replication`)
}

// CaughtUp returns when a replica has replayed everything that this server has written.
func (c *Cluster) CaughtUp(t testing.TB, replica *Cluster) {
	t.Helper()
	// what is written last ends where a record ends, and is on disk, so that it is sent
	said := c.SQL(t, superuser, "SELECT pg_logical_emit_message(true, 'pgtest', '')",
		"SELECT pg_current_wal_flush_lsn()")
	upTo := said[strings.LastIndex(said, "\n")+1:]
	waitFor(t, replica.URL(superuser), "t", "SELECT pg_last_wal_replay_lsn() >= '"+upTo+"'")
}

// Promote makes a replica a server that takes writes, on a timeline of its own. It hears no more of the
// other.
func (c *Cluster) Promote(t testing.TB) {
	t.Helper()
	c.SQL(t, superuser, "SELECT pg_promote(wait => false)")
	waitFor(t, c.URL(superuser), "f", "SELECT pg_is_in_recovery()")
}

// StopReceiver lets nothing reach a replica for a while, from now on. What it would have got is lost when the
// other server is killed or stopped before; so a test that wants that says a long while.
func (c *Cluster) StopReceiver(t testing.TB, d time.Duration) {
	t.Helper()
	if c.wire == nil {
		t.Fatal("the server follows none")
	}
	c.wire.Silence()
	if c.wakes != nil {
		c.wakes.Stop()
	}
	c.wakes = time.AfterFunc(d, c.wire.Resume)
}

// loseHeld loses what silent wires to replicas hold, as a machine does that crashes.
func (c *Cluster) loseHeld() {
	for _, r := range c.replicas {
		if r.wire.gate.isShut() {
			r.wire.Cut()
		}
	}
}
