package pgtest

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// Proxy stands between clients and a server. It knows PostgreSQL's messages, and can cut a connection before
// any of a client's.
type Proxy struct {
	upstream string // URL
	dial     func() (net.Conn, error)
	url      string
	listener net.Listener
	running  sync.WaitGroup

	mu    sync.Mutex
	down  bool
	wires map[*wire]bool
	gate  gate

	asking sync.Mutex // held while next is asked, and so is one message at a time
	next   func(msg byte) Action
}

// NewProxy starts a proxy in front of a database, which listens as its server does: at a socket, or at a port
// of 127.0.0.1. TLS is refused.
func NewProxy(t testing.TB, upstream string) *Proxy {
	t.Helper()
	dir, err := os.MkdirTemp("", "pgw-")
	if err != nil {
		t.Fatal(err)
	}
	p, err := newProxy(upstream, dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.close()
		_ = os.RemoveAll(dir)
	})
	return p
}

// newProxy listens in a directory if the server has a socket.
func newProxy(upstream, dir string) (*Proxy, error) {
	u, err := url.Parse(upstream)
	if err != nil {
		return nil, err
	}
	p := &Proxy{upstream: upstream, wires: map[*wire]bool{}}
	query := u.Query()
	network, to, at := "tcp", u.Host, "127.0.0.1:0"
	if u.Host == "" {
		name := ".s.PGSQL." + query.Get("port")
		network, to = "unix", filepath.Join(query.Get("host"), name)
		query.Set("port", wirePort)
		query.Set("host", dir)
		at = filepath.Join(dir, ".s.PGSQL."+wirePort)
	}
	p.dial = func() (net.Conn, error) { return net.Dial(network, to) }
	p.listener, err = net.Listen(network, at)
	if err != nil {
		return nil, fmt.Errorf("listen before the server: %w", err)
	}
	if u.Host != "" {
		u.Host = p.listener.Addr().String()
		query.Set("sslmode", "disable")
	}
	u.RawQuery = query.Encode()
	p.url = u.String()
	p.running.Go(p.accept)
	return p, nil
}

// wirePort is in the name of a proxy's socket, another than in those of servers.
const wirePort = "5433"

// URL leads to the database through the proxy.
func (p *Proxy) URL() string { return p.url }

// Next lets f say from now on what happens to each message of any client, Startup among them; nil passes all.
// It is asked one message at a time, but not those that follow one that is cut, up to its Sync.
func (p *Proxy) Next(f func(msg byte) Action) {
	p.asking.Lock()
	defer p.asking.Unlock()
	p.next = f
}

// Silence lets nothing pass on any connection until Resume, as a network that has lost the way. New
// connections are taken, and are as silent.
func (p *Proxy) Silence() { p.gate.shut() }

// Resume ends a Silence. What was held passes.
func (p *Proxy) Resume() { p.gate.open() }

// Cut cuts all connections. What a Silence held is lost.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for w := range p.wires {
		w.cut()
	}
}

// Down cuts all connections and takes no new ones until Up.
func (p *Proxy) Down() {
	p.mu.Lock()
	p.down = true
	p.mu.Unlock()
	p.Cut()
}

func (p *Proxy) Up() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = false
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		if p.isDown() { // a server asked for nothing but this would be busy long after Up
			client.Close()
			continue
		}
		server, err := p.dial()
		if err != nil {
			client.Close() // what a client of a server that is down sees, too
			continue
		}
		w := &wire{p: p, client: client, server: server, isCut: make(chan struct{})}
		p.mu.Lock()
		p.wires[w] = true
		if p.down {
			w.cut()
		}
		p.mu.Unlock()
		p.running.Go(w.run)
	}
}

func (p *Proxy) isDown() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.down
}

func (p *Proxy) forget(w *wire) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.wires, w)
}

// ask says what happens to a message.
func (p *Proxy) ask(m message) Action {
	p.asking.Lock()
	defer p.asking.Unlock()
	if p.next == nil {
		return Pass
	}
	return p.next(m.kind)
}

func (p *Proxy) close() {
	p.listener.Close()
	p.Down()
	p.running.Wait()
}

type gate struct {
	mu     sync.Mutex
	opened chan struct{} // nil: it is open
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.opened == nil {
		g.opened = make(chan struct{})
	}
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.opened != nil {
		close(g.opened)
	}
	g.opened = nil
}

// isShut reports whether wait would wait.
func (g *gate) isShut() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.opened != nil
}

// wait returns when the gate is open, or the connection cut.
func (g *gate) wait(cut <-chan struct{}) {
	g.mu.Lock()
	opened := g.opened
	g.mu.Unlock()
	if opened == nil {
		return
	}
	select {
	case <-opened:
	case <-cut:
	}
}
