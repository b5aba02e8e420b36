package pgtest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// timeline is the server's history: another after each promotion.
const timeline = "SELECT substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)"

func TestPromotedReplicaHasWhatTheQuorumSaw(t *testing.T) {
	c := Start(t)
	url := c.Database(t)
	SQL(t, url, "CREATE TABLE x (n INT)")
	one, other := c.Replica(t), c.Replica(t)
	c.Quorum(t, one, other)
	SQL(t, url, "INSERT INTO x SELECT generate_series(1, 1000)")
	require.Equal(t, "00000001", c.SQL(t, superuser, timeline))
	c.CaughtUp(t, one)
	require.Equal(t, "1000", one.SQL(t, "t1", "SELECT count(*) FROM x"))
	_, err := psql(one.URL("t1"), "INSERT INTO x VALUES (0)")
	require.ErrorContains(t, err, "read-only transaction")

	c.Kill(t)
	one.Promote(t)
	require.Equal(t, "00000002", one.SQL(t, superuser, timeline))
	require.Equal(t, "1001", one.SQL(t, "t1", "INSERT INTO x VALUES (0)", "SELECT count(*) FROM x"))
}

// Without a quorum, what a replica had not got when the server died is lost.
func TestReplicaThatHungHasLostTheTail(t *testing.T) {
	c := Start(t)
	url := c.Database(t)
	SQL(t, url, "CREATE TABLE x (n INT)", "INSERT INTO x VALUES (1)")
	r := c.Replica(t)
	c.CaughtUp(t, r)
	r.StopReceiver(t, time.Hour)
	SQL(t, url, "INSERT INTO x VALUES (2)")
	require.Equal(t, "2", SQL(t, url, "SELECT max(n) FROM x"))
	c.Kill(t)
	r.Promote(t)
	require.Equal(t, "1", r.SQL(t, "t1", "SELECT max(n) FROM x"))
}

// With a quorum a commit is not acknowledged before the replica has it; one that only hung catches up.
func TestQuorumWaitsForAReplicaThatHangs(t *testing.T) {
	c := Start(t)
	url := c.Database(t)
	SQL(t, url, "CREATE TABLE x (n INT)")
	r := c.Replica(t)
	c.Quorum(t, r)
	r.StopReceiver(t, time.Hour)
	writer := connect(t, url)
	require.NoError(t, writer.send([]byte("QINSERT INTO x VALUES (1)\x00")))
	waitFor(t, url, "1", "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
	require.Equal(t, "0", SQL(t, url, "SELECT count(*) FROM x"))
	r.StopReceiver(t, time.Millisecond) // it ends the longer one
	_, err := writer.answer()
	require.NoError(t, err)
	require.Equal(t, "1", SQL(t, url, "SELECT count(*) FROM x"))

	c.Quorum(t)
	require.Equal(t, "", SQL(t, url, "SELECT sync_state FROM pg_stat_replication WHERE sync_state <> 'async'"))
}
