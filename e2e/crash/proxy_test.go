package crash

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"x402-wallet/internal/must"

	"github.com/stretchr/testify/require"
)

// side is where on the wire something breaks.
type side string

const (
	request  side = "request"
	response side = "response"
)

// how a connection breaks.
type how string

const (
	fin   how = "FIN"   // it is closed in good order
	rst   how = "RST"   // it is reset
	stall how = "stall" // nothing more comes through, until somebody loses patience
)

// breakage is what happens to an exchange: of this side's bytes, the first at bytes come through.
// Of the other side's, all do that are sent before. Exchanges that the connection carried before are whole.
type breakage struct {
	side side
	at   int
	how  how
}

// proxy stands between the wallet and a party, and breaks one connection at one byte.
type proxy struct {
	url, target string
	mark        string // the connection breaks on which these words come first, at the request that has them
	breakage    breakage

	listener *net.TCPListener

	mu     sync.Mutex
	broke  bool
	passed map[side][]byte // what came through on the connection that broke
	open   map[net.Conn]bool
	closed bool
}

func newProxy(target, mark string, b breakage) (*proxy, error) {
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, err
	}
	p := &proxy{url: "http://" + listener.Addr().String(), target: strings.TrimPrefix(target, "http://"),
		listener: listener,
		mark:     mark, breakage: b, passed: map[side][]byte{}, open: map[net.Conn]bool{}}
	go p.accept()
	return p, nil
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.AcceptTCP()
		if err != nil {
			return
		}
		go p.carry(client)
	}
}

// refuse makes further connections impossible.
func (p *proxy) refuse() { _ = p.listener.Close() }

// breaks reports whether this is the request whose exchange breaks.
func (p *proxy) breaks(text []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.broke || p.mark == "" || !bytes.Contains(text, []byte(p.mark)) {
		return false
	}
	p.broke = true
	return true
}

func (p *proxy) carry(client *net.TCPConn) {
	conn, err := net.Dial("tcp", p.target)
	if err != nil {
		client.Close()
		return
	}
	server := conn.(*net.TCPConn)
	if !p.keep(client, server) {
		return
	}
	// of the two sides one breaks while the other may be saying something: that came through, or not
	var turn sync.Mutex
	broken, isCut := false, false
	// counts reports whether these bytes are of the side and the exchange that break.
	counts := func(s side, text []byte) bool {
		turn.Lock()
		defer turn.Unlock()
		if s == request && !broken {
			broken = p.breaks(text)
		}
		return broken && p.breakage.side == s
	}
	cut := func() {
		turn.Lock()
		defer turn.Unlock()
		isCut = true
		switch p.breakage.how {
		case rst:
			_ = client.SetLinger(0)
			_ = server.SetLinger(0)
		case stall:
			return // both stay open, and nobody reads
		}
		client.Close()
		server.Close()
	}
	say := func(to *net.TCPConn, s side, text []byte) bool {
		turn.Lock()
		defer turn.Unlock()
		if isCut {
			return false
		}
		if broken { // before it is written: its reader may be done, and the case judged, right after
			p.mu.Lock()
			p.passed[s] = append(p.passed[s], text...)
			p.mu.Unlock()
		}
		_, err := to.Write(text)
		return err == nil
	}
	done := make(chan struct{}, 2)
	pipe := func(from io.Reader, to *net.TCPConn, s side) {
		defer func() { done <- struct{}{} }()
		left := p.breakage.at
		buffer := make([]byte, 32<<10)
		for {
			// also where nothing of it comes through: it breaks when there is something to say
			n, err := from.Read(buffer)
			isCounted := counts(s, buffer[:n])
			if isCounted {
				n = min(n, left)
			}
			if n > 0 && !say(to, s, buffer[:n]) {
				return
			}
			if isCounted {
				left -= n
				if left == 0 {
					cut()
					return
				}
			}
			if err != nil {
				_ = to.CloseWrite()
				return
			}
		}
	}
	go pipe(client, server, request)
	go pipe(server, client, response)
	<-done
	<-done
	if broken && p.breakage.how == stall {
		return // Close ends it
	}
	client.Close()
	server.Close()
}

// keep notes connections, so that Close can end those that hang.
func (p *proxy) keep(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		if p.closed {
			c.Close()
		}
		p.open[c] = true
	}
	return !p.closed
}

func (p *proxy) hasBroken() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.broke
}

// bytes is what came through of one side, on the connection that broke.
func (p *proxy) bytes(s side) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	return bytes.Clone(p.passed[s])
}

// Close ends everything.
func (p *proxy) Close() {
	p.listener.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for c := range p.open {
		c.Close()
	}
}

// headersEnd is where the headers of an HTTP message end; -1 when they do not.
func headersEnd(message []byte) int {
	if i := bytes.Index(message, []byte("\r\n\r\n")); i >= 0 {
		return i + 4
	}
	return -1
}

// whole reports whether an HTTP answer came through to its end.
func whole(answer []byte) bool {
	end := headersEnd(answer)
	if end < 0 {
		return false
	}
	for line := range strings.SplitSeq(string(answer[:end]), "\r\n") {
		if value, ok := strings.CutPrefix(strings.ToLower(line), "content-length: "); ok {
			n, err := strconv.Atoi(value)
			return err == nil && len(answer)-end >= n
		}
	}
	return false
}

// The proxy is exact to the byte, on both sides and in all ways to break.
func TestProxyIsExact(t *testing.T) {
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer listener.Close()
	got := make(chan []byte, 1)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			var all []byte
			buffer := make([]byte, 100)
			for {
				n, err := conn.Read(buffer)
				all = append(all, buffer[:n]...)
				if err != nil {
					break
				}
				if bytes.HasSuffix(all, []byte("\n")) {
					conn.Write([]byte("0123456789"))
				}
			}
			got <- all
			conn.Close()
		}
	}()
	for i, b := range []breakage{{request, 0, fin}, {request, 3, fin}, {request, 3, rst}, {request, 3, stall},
		{request, 6, fin},
		{response, 0, fin}, {response, 4, fin}, {response, 4, rst}, {response, 4, stall},
		{response, 10, fin}} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			p, err := newProxy("http://"+listener.Addr().String(), "hello", b)
			require.NoError(t, err)
			client, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
			require.NoError(t, err)
			client.Write([]byte("hello\n"))
			limit := 10 * time.Second
			if b.how == stall {
				limit = 300 * time.Millisecond
			}
			client.SetReadDeadline(time.Now().Add(limit))
			var back []byte
			buffer := make([]byte, 100)
			for err == nil {
				var n int
				n, err = client.Read(buffer)
				back = append(back, buffer[:n]...)
			}
			client.Close()
			p.Close()
			arrived := <-got
			if b.side == request {
				require.Equal(t, "hello\n"[:b.at], string(arrived), b)
			} else {
				require.Equal(t, "0123456789"[:b.at], string(back), b)
			}
			switch b.how {
			case rst:
				require.ErrorContains(t, err, "reset", b)
			case stall:
				require.ErrorContains(t, err, "timeout", b)
			case fin:
				require.ErrorContains(t, err, "EOF", b)
			}
		})
	}
}
