package pgtest

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"sync"
)

// wire is one connection through a proxy: two sockets, and who is to hear what.
type wire struct {
	p              *Proxy
	client, server net.Conn
	isCut          chan struct{}
	once           sync.Once

	mu        sync.Mutex
	asked     int   // how many times the server has been told to say that it is ready
	ready     int   // how many times it has said so
	backend   int32 // the server's process
	deaf      bool  // the client hears nothing after it has heard the answers that it waited for before
	heard     int   // deaf: the number of those
	endsAfter int   // cut when the server has been ready so many times; 0: never
}

func (w *wire) cut() {
	w.once.Do(func() {
		w.client.Close()
		w.server.Close()
		close(w.isCut) // last, because it lets go what a gate holds, and that must find the sockets closed
	})
}

func (w *wire) run() {
	defer w.p.forget(w)
	defer w.cut()
	var both sync.WaitGroup
	both.Go(func() { w.toServer(); endOfInput(w.server) })
	both.Go(func() { w.toClient(); w.cut() })
	both.Wait()
}

// endOfInput says that nothing more comes, while what is still said the other way can be heard.
func endOfInput(c net.Conn) {
	half, ok := c.(interface{ CloseWrite() error })
	if ok {
		_ = half.CloseWrite()
	}
}

// toServer carries what the client says, and does to it what the proxy is told. It ends when the client
// has, or after a cut.
func (w *wire) toServer() {
	in := bufio.NewReader(w.client)
	m, err := readStartup(in, w.client)
	if err != nil {
		return
	}
	if m.kind == Cancel {
		w.pass(m)
		return // the server answers nothing, and hangs up
	}
	for err == nil {
		if !w.step(in, m) {
			return
		}
		m, err = readMessage(in)
	}
}

// step does to one message what the proxy is told, and reports whether the connection goes on.
func (w *wire) step(in *bufio.Reader, m message) bool {
	switch w.p.ask(m) {
	case CutBefore:
		w.cut()
		return false
	case CutWhile:
		if w.passToSync(in, m) {
			w.cut()
		}
		return false
	case CutAfter:
		w.mu.Lock()
		w.deaf, w.heard = true, w.asked
		w.mu.Unlock()
		if w.passToSync(in, m) {
			w.mu.Lock()
			w.endsAfter = w.asked
			w.mu.Unlock()
			w.cutIfDone()
		}
		return false
	case EndBackend:
		w.mu.Lock()
		pid := w.backend
		w.mu.Unlock()
		err := terminate(w.p.upstream, pid)
		if err != nil {
			fmt.Fprintln(os.Stderr, "pgtest: end a backend:", err)
			w.cut()
		}
		return false // toClient carries the server's last words
	}
	return w.pass(m)
}

// pass sends a message on when nothing holds it. A server that does not take it is heard by toClient.
func (w *wire) pass(m message) bool {
	w.p.gate.wait(w.isCut)
	if m.asks() {
		w.mu.Lock()
		w.asked++
		w.mu.Unlock()
	}
	_, err := w.server.Write(m.raw)
	return err == nil
}

// passToSync sends on a message and those behind it, up to the one that the server answers with
// ReadyForQuery.
func (w *wire) passToSync(in *bufio.Reader, m message) bool {
	for {
		if !w.pass(m) {
			return false
		}
		if m.asks() {
			return true
		}
		var err error
		m, err = readMessage(in)
		if err != nil {
			return false
		}
	}
}

// toClient carries what the server says. It ends when the server has, or after a cut.
func (w *wire) toClient() {
	in := bufio.NewReader(w.server)
	for {
		m, err := readMessage(in)
		if err != nil {
			return
		}
		w.p.gate.wait(w.isCut)
		if w.hears(m) {
			_, err = w.client.Write(m.raw)
			if err != nil {
				return
			}
		}
		if m.kind == 'Z' {
			w.cutIfDone()
		}
	}
}

// hears notes what a message of the server says of the connection, and whether the client is to have it.
func (w *wire) hears(m message) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	hears := !w.deaf || w.ready < w.heard
	switch m.kind {
	case 'K':
		const pid = 5 // where it is
		w.backend = int32(binary.BigEndian.Uint32(m.raw[pid:]))
	case 'Z':
		w.ready++
	}
	return hears
}

// cutIfDone is the end of a connection whose last answer was dropped.
func (w *wire) cutIfDone() {
	w.mu.Lock()
	done := w.endsAfter > 0 && w.ready >= w.endsAfter
	w.mu.Unlock()
	if done {
		w.cut()
	}
}

// terminate ends one process of a server, and returns when it has ended.
func terminate(url string, pid int32) error {
	const wait = 60_000 // ms
	said, err := psql(url, fmt.Sprintf("SELECT pg_terminate_backend(%d, %d)", pid, wait))
	if err == nil && said != "t" {
		err = fmt.Errorf("process %d is none of the server's, or does not end", pid)
	}
	return err
}
