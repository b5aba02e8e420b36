package pgtest

import (
	"testing"
	"time"

	"x402-wallet/internal/must"

	"github.com/stretchr/testify/require"
)

// timeline is the server's history: another after each promotion.
const timeline = "SELECT substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)"

// With a quorum a commit is acknowledged when one of the replicas has it, and not before; so the one that has
// it loses nothing when the server dies.
func TestQuorum(t *testing.T) {
	c := Start(t)
	url := c.Database(t)
	SQL(t, url, "CREATE TABLE x (n INT)")
	one, other := c.Replica(t), c.Replica(t)
	c.Quorum(t, one, other)
	one.StopReceiver(t, time.Hour)
	SQL(t, url, "INSERT INTO x VALUES (1)")

	other.StopReceiver(t, time.Hour)
	writer := connect(t, url)
	require.NoError(t, writer.send([]byte("QINSERT INTO x VALUES (2)\x00")))
	waitFor(t, url, "1", "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
	require.Equal(t, "1", SQL(t, url, "SELECT max(n) FROM x"))
	other.StopReceiver(t, time.Millisecond) // no longer than that
	must.Get(writer.answer())(t)

	c.CaughtUp(t, other)
	require.Equal(t, "2", SQL(t, other.Same(t, url), "SELECT max(n) FROM x"))
	_, err := psql(other.Same(t, url), "INSERT INTO x VALUES (0)")
	require.ErrorContains(t, err, "read-only transaction")
	require.Equal(t, "00000001", c.SQL(t, superuser, timeline))
	c.Kill(t)
	other.Promote(t)
	require.Equal(t, "00000002", other.SQL(t, superuser, timeline))
	require.Equal(t, "2", SQL(t, other.Same(t, url), "INSERT INTO x VALUES (0)", "SELECT max(n) FROM x"))
}

// Without a quorum, what a replica had not got when the server died is lost.
func TestReplicaThatHungHasLostTheTail(t *testing.T) {
	c := Start(t)
	url := c.Database(t)
	SQL(t, url, "CREATE TABLE x (n INT)", "INSERT INTO x VALUES (1)")
	r := c.Replica(t)
	c.Quorum(t, r)
	c.CaughtUp(t, r)
	r.StopReceiver(t, time.Hour)
	c.Quorum(t) // nobody is waited for
	SQL(t, url, "INSERT INTO x VALUES (2)")
	require.Equal(t, "2", SQL(t, url, "SELECT max(n) FROM x"))
	c.Kill(t)
	r.wire.Resume() // too late
	r.Promote(t)
	require.Equal(t, "1", SQL(t, r.Same(t, url), "SELECT max(n) FROM x"))
}
