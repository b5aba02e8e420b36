package pgtest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// Cluster is a PostgreSQL server with a directory of its own. Its superuser is "postgres", trusted without a
// password. Its methods may be called from several goroutines, but those that stop or start it.
type Cluster struct {
	name     string
	bin      string // the folder of the programs
	dir      string // sockets, and data in it
	owner    *owner // nil: whoever runs the tests
	port     int
	tcp      bool
	last     atomic.Int64 // of the databases' numbers
	mu       sync.Mutex
	server   *process // nil: it is down
	replicas []*Cluster
	wire     *Proxy // nil: it is no replica
	wakes    *time.Timer
}

const (
	superuser = "postgres"
	unixPort  = 5432 // a part of the socket's name, where no port is listened at
)

// A server answers within a second or so, and after a crash when it has read its log; on a busy machine
// everything takes longer.
const patience = 2 * time.Minute

// Open starts a server where there is no test, as for a demo. It is ErrNotInstalled without PostgreSQL's
// programs.
func Open(settings ...string) (*Cluster, error) {
	bin, err := programs(debian)
	if err != nil {
		return nil, err
	}
	c, err := newCluster("primary", bin)
	if err != nil {
		return nil, err
	}
	err = c.initialize(settings)
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (c *Cluster) initialize(settings []string) error {
	err := c.program("initdb", "--no-sync", "-A", "trust", "-U", superuser, "-E", "UTF8", "--locale", "C",
		"-D", c.data())
	if err != nil {
		return err
	}
	err = c.configure(append([]string{"listen_addresses = ''"}, settings...)...)
	if err != nil {
		return err
	}
	return c.startServer()
}

// newCluster makes a directory that the server's user owns. A socket's path has to be short, so it is not in
// a directory with the test's name.
func newCluster(name, bin string) (*Cluster, error) {
	who, err := serverUser()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "pg-")
	if err != nil {
		return nil, err
	}
	c := &Cluster{name: name, bin: bin, dir: dir, owner: who, port: unixPort}
	const longest = 103 // bytes of a socket's path on macOS; on Linux 107
	if len(c.socket()) > longest {
		_ = os.RemoveAll(dir)
		return nil, fmt.Errorf("TMPDIR is too long for a socket: %s", c.socket())
	}
	return c, who.own(dir)
}

func (c *Cluster) data() string   { return filepath.Join(c.dir, "data") }
func (c *Cluster) socket() string { return filepath.Join(c.dir, ".s.PGSQL."+strconv.Itoa(c.port)) }

// Dir is the server's directory, with its socket.
func (c *Cluster) Dir() string { return c.dir }

// configure adds lines to postgresql.conf, where the last of a name counts. A server that runs has to be
// told.
func (c *Cluster) configure(settings ...string) error {
	path := filepath.Join(c.data(), "postgresql.conf")
	conf, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = conf.WriteString("\n" + strings.Join(settings, "\n") + "\n")
	if err != nil {
		conf.Close()
		return err
	}
	for _, s := range settings {
		if strings.HasPrefix(s, "listen_addresses") {
			c.tcp = s == TCP
		}
	}
	return conf.Close()
}

// startServer starts what is down, and returns when it answers. Which port is free is known only when it was
// taken, so the first time another is tried; later it keeps its own, which URLs name.
func (c *Cluster) startServer() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.server != nil {
		return errors.New("the server runs")
	}
	tries := 1
	if c.tcp && c.port == unixPort {
		tries = 10
	}
	var err error
	for range tries {
		if tries > 1 {
			c.port = freePort()
		}
		c.server, err = c.startProcess("-D", c.data(), "-k", c.dir, "-p", strconv.Itoa(c.port),
			"-c", "cluster_name="+c.name)
		if err == nil || !strings.Contains(err.Error(), "could not bind") {
			break
		}
	}
	return err
}

// freePort is a port of 127.0.0.1 below those that Linux gives to connections that leave.
func freePort() int {
	for {
		port := 20_000 + rand.IntN(12_000)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			l.Close()
			return port
		}
	}
}

// Database makes an empty database and gives its URL, which leads to the server's socket.
func (c *Cluster) Database(t testing.TB) string {
	t.Helper()
	name := "t" + strconv.FormatInt(c.last.Add(1), 10)
	c.SQL(t, superuser, "CREATE DATABASE "+name+" TEMPLATE template0")
	return c.URL(name)
}

// URL leads to a database by the server's socket. A wallet's rules take it.
func (c *Cluster) URL(database string) string {
	at := url.Values{"host": {c.dir}, "port": {strconv.Itoa(c.port)}}
	return (&url.URL{Scheme: "postgres", User: url.User(superuser), Path: "/" + database,
		RawQuery: at.Encode()}).String()
}

// Same leads to the database of this name at this server: a replica's, of a URL of what it follows.
func (c *Cluster) Same(t testing.TB, as string) string {
	t.Helper()
	u, err := url.Parse(as)
	if err != nil {
		t.Fatal(err)
	}
	return c.URL(strings.TrimPrefix(u.Path, "/"))
}

// TCPURL leads to the same database as a URL of this server does, by 127.0.0.1: the server has the setting
// TCP.
func (c *Cluster) TCPURL(t testing.TB, to string) string {
	t.Helper()
	u, err := url.Parse(to)
	if err != nil || !c.tcp {
		t.Fatalf("the server does not listen on 127.0.0.1, or %q is no URL: %v", to, err)
	}
	u.User, u.Host = url.User(superuser), net.JoinHostPort("127.0.0.1", strconv.Itoa(c.port))
	u.RawQuery = "sslmode=disable"
	return u.String()
}

// Set changes settings of the server that runs, as far as a server that runs takes them; see Restart.
func (c *Cluster) Set(t testing.TB, settings ...string) {
	t.Helper()
	err := c.configure(settings...)
	if err != nil {
		t.Fatal(err)
	}
	c.SQL(t, superuser, "SELECT pg_reload_conf()")
}

// Restart stops the server, if it runs, and starts it again at the same place.
func (c *Cluster) Restart(t testing.TB) {
	t.Helper()
	c.Stop()
	err := c.startServer()
	if err != nil {
		t.Fatal(err)
	}
}

// Stop stops the server in order: connections are ended, what was done is on disk.
func (c *Cluster) Stop() { c.stop(os.Interrupt) }

func (c *Cluster) stop(how os.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.loseHeld()
	if c.server != nil {
		c.server.stop(how)
	}
	c.server = nil
}

// Log is the end of what the server logged since it was started last.
func (c *Cluster) Log() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.server == nil {
		return "(it does not run)"
	}
	return c.server.log.String()
}

// Close stops a server that Open started, and removes its files.
func (c *Cluster) Close() {
	if c.wakes != nil {
		c.wakes.Stop()
	}
	if c.wire != nil {
		c.wire.close()
	}
	c.stop(syscall.SIGQUIT)
	_ = os.RemoveAll(c.dir)
}
