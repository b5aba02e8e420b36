package pgtest

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"x402-wallet/internal/must"
)

func TestMain(m *testing.M) {
	if os.Getenv("PGTEST") == "alone" {
		alone()
	}
	goleak.VerifyTestMain(Main(m))
}

// alone is a process of tests that start a server, and hang.
func alone() {
	c, err := Open()
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("server", c.server.Pid, c.dir)
	time.Sleep(patience)
}

func TestServerIsAsADatabaseShouldBe(t *testing.T) {
	url := Shared(t).Database(t)
	require.Equal(t, "on|on|UTF8|C||300|postgres", SQL(t, url, `SELECT current_setting('fsync'),
		current_setting('synchronous_commit'), current_setting('server_encoding'),
		current_setting('lc_collate'), current_setting('listen_addresses'),
		current_setting('max_connections'), current_user`))
	if os.Geteuid() == 0 {
		SQL(t, url, "CREATE TABLE who (name TEXT)", "COPY who FROM PROGRAM 'id -u'")
		require.NotEqual(t, "0", SQL(t, url, "SELECT name FROM who"))
	}
}

func TestDatabasesAreApart(t *testing.T) {
	one, other := Shared(t).Database(t), Shared(t).Database(t)
	SQL(t, one, "CREATE TABLE x AS SELECT 1 AS n")
	require.Equal(t, "1", SQL(t, one, "SELECT n FROM x"))
	require.Equal(t, "", SQL(t, other, "SELECT to_regclass('x')"))
}

func TestSettingsAndPort(t *testing.T) {
	c := Start(t, append([]string{TCP, "max_connections = 17"}, SlowFlush...)...)
	url := c.TCPURL(t, c.Database(t))
	settings := "SELECT current_setting('max_connections'), current_setting('commit_delay'), " +
		"current_setting('commit_siblings'), current_setting('work_mem'), inet_server_addr()"
	require.Equal(t, "17|2000|0|4MB|127.0.0.1", SQL(t, url, settings))

	c.Set(t, "work_mem = '5MB'")
	require.Equal(t, "17|2000|0|5MB|127.0.0.1", SQL(t, url, settings))
	c.Restart(t)
	require.Equal(t, "17|2000|0|5MB|127.0.0.1", SQL(t, url, settings), "the same URL")
	require.Contains(t, c.Log(), "ready to accept connections")
}

// What was committed is there after SIGKILL of all processes, and none of them runs on.
func TestKilledAndStartedAgain(t *testing.T) {
	c := Start(t)
	url := c.Database(t)
	SQL(t, url, "CREATE TABLE x AS SELECT 1 AS n")
	busy := connect(t, url) // with what does not notice that the postmaster is gone, but ends by itself
	const aMinute = "DO $$ BEGIN WHILE clock_timestamp() < now() + INTERVAL '1 minute' LOOP END LOOP; END $$"
	require.NoError(t, busy.send([]byte("Q"+aMinute+"\x00")))
	waitFor(t, url, "1", "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'DO %'")
	postmaster := c.server.Pid
	all := must.Get(children(postmaster))(t)
	require.True(t, all[int(busy.pid)], "the backend of a connection is a child: %v", all)

	c.Kill(t)
	require.Error(t, must.Err(busy.answer()))
	require.Zero(t, must.Get(living(all))(t))
	require.Error(t, must.Err(psql(url, "SELECT 1")))

	c.Restart(t)
	require.Contains(t, c.Log(), "was not properly shut down")
	require.Equal(t, "1", SQL(t, url, "SELECT n FROM x"))
}

func TestNothingIsLeft(t *testing.T) {
	c := must.Get(Open())(t)
	all := must.Get(children(c.server.Pid))(t)
	require.NotEmpty(t, all)
	require.FileExists(t, c.socket())
	c.Close()
	require.NoDirExists(t, c.dir)
	require.Zero(t, must.Get(living(all))(t))
}

func TestNewestProgramsAreTaken(t *testing.T) {
	dir := t.TempDir()
	for _, version := range []string{"9", "15", "14"} {
		bin := filepath.Join(dir, version, "bin")
		require.NoError(t, os.MkdirAll(bin, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(bin, "initdb"), nil, 0o700))
	}
	bin := must.Get(programs(filepath.Join(dir, "*", "bin")))(t)
	require.Equal(t, filepath.Join(dir, "15", "bin"), bin)

	t.Setenv("PATH", filepath.Join(dir, "14", "bin"))
	bin = must.Get(programs(filepath.Join(dir, "none")))(t)
	require.Equal(t, filepath.Join(dir, "14", "bin"), bin)
}

func TestMissingProgramsAreAFailure(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := programs(filepath.Join(t.TempDir(), "*", "bin"))
	require.ErrorIs(t, err, ErrNotInstalled)
	require.ErrorContains(t, err, "apt-get install -y --no-install-recommends postgresql postgresql-contrib")

	require.Equal(t, "failed", verdict(t, "false"))
	require.Equal(t, "skipped", verdict(t, "true"))
}

// verdict is what becomes of a test without PostgreSQL, with or without -short.
func verdict(t *testing.T, short string) string {
	set := flag.Lookup("test.short")
	before := set.Value.String()
	require.NoError(t, set.Value.Set(short))
	defer func() { require.NoError(t, set.Value.Set(before)) }()
	test := &judged{TB: t}
	missing(test, ErrNotInstalled)
	return test.verdict
}

type judged struct {
	testing.TB
	verdict string // the first counts: a real test ends with it
}

func (j *judged) Skip(...any)  { j.verdict = cmp.Or(j.verdict, "skipped") }
func (j *judged) Fatal(...any) { j.verdict = cmp.Or(j.verdict, "failed") }

func TestProcessesAreSeen(t *testing.T) {
	sleep := exec.Command("sleep", "1000")
	require.NoError(t, sleep.Start())
	pid := sleep.Process.Pid
	mine := must.Get(children(os.Getpid()))(t)
	require.True(t, mine[pid], "%d of %v", pid, mine)
	require.Equal(t, 1, must.Get(living(map[int]bool{pid: true}))(t))

	require.NoError(t, sleep.Process.Kill())
	require.Eventually(t, func() bool { // a zombie until it is waited for
		n, err := living(map[int]bool{pid: true})
		return err == nil && n == 0
	}, patience, 10*time.Millisecond, strconv.Itoa(pid))
	_ = sleep.Wait()
}

// client speaks PostgreSQL's extended protocol, as a driver does.
type client struct {
	net.Conn
	in          *bufio.Reader
	pid, secret uint32
}

type code string

func (c code) Error() string { return string(c) }

func dial(t *testing.T, to string) net.Conn {
	t.Helper()
	u := must.Get(url.Parse(to))(t)
	network, address := "tcp", u.Host
	if u.Host == "" {
		network = "unix"
		address = filepath.Join(u.Query().Get("host"), ".s.PGSQL."+u.Query().Get("port"))
	}
	conn := must.Get(net.Dial(network, address))(t)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// connect gives a client whose connection is ready; for an error instead, tryConnect.
func connect(t *testing.T, to string) *client { return must.Get(tryConnect(t, to))(t) }

func tryConnect(t *testing.T, to string) (*client, error) {
	t.Helper()
	conn := dial(t, to)
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	c := &client{Conn: conn, in: bufio.NewReader(conn)}
	u := must.Get(url.Parse(to))(t)
	first := binary.BigEndian.AppendUint32(nil, 3<<16)
	for _, word := range []string{"user", superuser, "database", filepath.Base(u.Path), ""} {
		first = append(append(first, word...), 0)
	}
	_, err := c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(first)+4)), first...))
	if err != nil {
		return nil, err
	}
	_, err = c.answer()
	return c, err
}

func (c *client) send(messages ...[]byte) error {
	var all []byte
	for _, m := range messages {
		all = append(all, m[0])
		all = binary.BigEndian.AppendUint32(all, uint32(len(m)+3))
		all = append(all, m[1:]...)
	}
	return must.Err(c.Write(all))
}

func parse(name, text string) []byte { return []byte("P" + name + "\x00" + text + "\x00\x00\x00") }
func bind(name string) []byte        { return []byte("B\x00" + name + "\x00\x00\x00\x00\x00\x00\x00") }

var (
	execute = []byte("E\x00\x00\x00\x00\x00")
	synced  = []byte("S")
)

// prepare and call are one round trip each.
func (c *client) prepare(name, text string) error {
	err := c.send(parse(name, text), synced)
	if err != nil {
		return err
	}
	return must.Err(c.answer())
}

func (c *client) call(name string) (string, error) {
	err := c.send(bind(name), execute, synced)
	if err != nil {
		return "", err
	}
	return c.answer()
}

// query is the simple protocol's.
func (c *client) query(text string) (string, error) {
	err := c.send([]byte("Q" + text + "\x00"))
	if err != nil {
		return "", err
	}
	return c.answer()
}

// answer reads up to ReadyForQuery, and gives the last row's one column.
func (c *client) answer() (value string, err error) {
	for {
		m, broken := readMessage(c.in)
		if broken != nil {
			return "", errors.Join(err, broken)
		}
		body := m.raw[5:]
		switch m.kind {
		case 'K':
			c.pid, c.secret = binary.BigEndian.Uint32(body), binary.BigEndian.Uint32(body[4:])
		case 'D':
			value = string(body[6:])
		case 'E':
			err = stateOf(body)
		case 'Z':
			return value, err
		}
	}
}

func stateOf(fields []byte) code {
	for len(fields) > 1 {
		var end int
		for end = 1; fields[end] != 0; end++ {
			continue
		}
		if fields[0] == 'C' {
			return code(fields[1:end])
		}
		fields = fields[end+1:]
	}
	return "?"
}
