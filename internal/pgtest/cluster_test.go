package pgtest

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { os.Exit(Main(m).Run()) }

func TestStart(t *testing.T) {
	c := Start(t, append([]string{TCP, "max_connections = 17"}, SlowFlush...)...)
	require.Equal(t, "on|17|2000|0", c.SQL(t, superuser, `SELECT current_setting('fsync'),
		current_setting('max_connections'), current_setting('commit_delay'), current_setting('commit_siblings')`))
	one := c.Database(t)
	require.NotEqual(t, one, c.Database(t))
	t.Log(one, c.TCPURL(t, one))
	c.Restart(t)
	c.Kill(t)
	c.Restart(t)
	r := c.Replica(t)
	c.Quorum(t, r)
	c.SQL(t, superuser, "CREATE TABLE x AS SELECT 1 AS n")
	c.Kill(t)
	r.Promote(t)
	require.Equal(t, "1", r.SQL(t, superuser, "SELECT n FROM x"))
}
