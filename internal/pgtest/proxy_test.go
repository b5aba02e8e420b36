package pgtest

import (
	"bufio"
	"encoding/binary"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
)

func behind(t *testing.T) *Proxy {
	t.Helper()
	url := Shared(t).Database(t)
	SQL(t, url, "CREATE TABLE steps (id INT PRIMARY KEY, done INT NOT NULL DEFAULT 0)",
		"INSERT INTO steps VALUES (1)")
	return NewProxy(t, url)
}

// stepping is a proxy, and a client behind it that has prepared a step.
func stepping(t *testing.T) (*Proxy, *client) {
	p := behind(t)
	c := connect(t, p.URL())
	require.NoError(t, c.prepare("step", takeStep))
	return p, c
}

const takeStep = "UPDATE steps SET done = done + 1 WHERE id = 1 RETURNING done"

// at does this once, to the next message of a type. The channel is closed when it was met.
func (p *Proxy) at(kind byte, do Action) <-chan struct{} {
	met := make(chan struct{})
	p.Next(func(msg byte) Action {
		if msg != kind {
			return Pass
		}
		p.next = nil // its lock is held while it is asked
		close(met)
		return do
	})
	return met
}

func (p *Proxy) done(t *testing.T) string {
	t.Helper()
	return SQL(t, p.upstream, "SELECT done FROM steps WHERE id = 1")
}

// Each message of a call can be met, by any client.
func TestNextIsAskedBeforeEachMessage(t *testing.T) {
	p := behind(t)
	var asked []byte
	p.Next(func(msg byte) Action {
		asked = append(asked, msg)
		if msg == 'E' {
			return CutBefore
		}
		return Pass
	})
	c := connect(t, p.URL())
	require.NoError(t, c.prepare("step", takeStep))
	require.Error(t, must.Err(c.call("step")))
	p.Next(func(byte) Action { return CutBefore })
	require.Equal(t, []byte{Startup, 'P', 'S', 'B', 'E'}, asked)
	require.Error(t, must.Err(tryConnect(t, p.URL())))

	p.Next(nil)
	require.NoError(t, connect(t, p.URL()).prepare("step", takeStep))
	require.Equal(t, "0", p.done(t))
}

// Answers to what was asked before the step that is cut are heard.
func TestEarlierAnswersAreHeard(t *testing.T) {
	p := behind(t)
	c := connect(t, p.URL())
	require.NoError(t, c.prepare("earlier", "SELECT pg_sleep(0.3)::TEXT || 'heard'"))
	require.NoError(t, c.prepare("step", takeStep))
	binds := 0
	p.Next(func(msg byte) Action {
		if msg == 'B' {
			binds++
		}
		if binds < 2 {
			return Pass
		}
		return CutAfter
	})
	require.NoError(t, c.send(bind("earlier"), execute, synced, bind("step"), execute, synced))
	require.Equal(t, "heard", must.Get(c.answer())(t))
	require.Error(t, must.Err(c.answer()))
	require.Equal(t, "1", p.done(t))
}

// Who has said everything still hears the answer.
func TestClientThatOnlyListensIsAnswered(t *testing.T) {
	p := behind(t)
	c := connect(t, p.URL())
	h := Hold(t, p.upstream, "SELECT 1 FROM steps FOR UPDATE")
	require.NoError(t, c.send([]byte("Q"+takeStep+"\x00")))
	endOfInput(c.Conn)
	WaitBlocked(t, p.upstream, 1)
	h.Release()
	require.Equal(t, "1", must.Get(c.answer())(t))
}

// A partition holds what was said, and it arrives when it ends, even if nobody waits for it any more.
func TestSilenceDeliversLate(t *testing.T) {
	p, c := stepping(t)
	p.Silence()
	require.NoError(t, c.send(bind("step"), execute, synced))
	c.Close()
	require.Equal(t, "0", p.done(t))
	p.Resume()
	waitFor(t, p.upstream, "1", "SELECT done FROM steps")
}

func TestSilenceHoldsAnswersToo(t *testing.T) {
	p := behind(t)
	c := connect(t, p.URL())
	h := Hold(t, p.upstream, "SELECT 1 FROM steps FOR UPDATE")
	require.NoError(t, c.send([]byte("Q"+takeStep+"\x00")))
	WaitBlocked(t, p.upstream, 1)
	p.Silence()
	h.Release()
	waitFor(t, p.upstream, "1", "SELECT done FROM steps")
	require.NoError(t, c.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
	require.ErrorContains(t, must.Err(c.in.Peek(1)), "timeout")

	require.NoError(t, c.SetReadDeadline(time.Now().Add(patience)))
	p.Resume()
	require.Equal(t, "1", must.Get(c.answer())(t))
}

func TestCutLosesWhatWasHeld(t *testing.T) {
	p, c := stepping(t)
	p.Silence()
	require.NoError(t, c.send(bind("step"), execute, synced))
	p.Cut()
	require.Error(t, must.Err(c.answer()))
	p.Resume()
	waitFor(t, p.upstream, "1", sessions) // that of psql itself
	require.Equal(t, "0", p.done(t))
}

const sessions = `SELECT count(*) FROM pg_stat_activity
	WHERE datname = current_database() AND backend_type = 'client backend'`

func TestServerThatIsDown(t *testing.T) {
	p := behind(t)
	c := connect(t, p.URL())
	p.Down()
	require.Error(t, must.Err(c.query("SELECT 1")))
	require.Error(t, must.Err(tryConnect(t, p.URL())))
	p.Up()
	must.Get(connect(t, p.URL()).query("SELECT 1"))(t)
}

func TestProxyListensAsItsServerDoes(t *testing.T) {
	c := Start(t, TCP)
	p := NewProxy(t, c.TCPURL(t, c.Database(t)))
	require.Contains(t, p.URL(), "postgres://postgres@127.0.0.1:")
	met := p.at('Q', Pass)
	require.Equal(t, "127.0.0.1", SQL(t, p.URL(), "SELECT host(inet_server_addr())"))
	<-met

	conn := dial(t, p.URL()) // a client that would rather speak TLS
	for _, code := range []uint32{80877103, 80877104} {
		must.Get(conn.Write(binary.BigEndian.AppendUint32([]byte{0, 0, 0, 8}, code)))(t)
		answer := make([]byte, 1)
		must.Get(io.ReadFull(conn, answer))(t)
		require.Equal(t, "N", string(answer))
	}
}

func TestCancelPasses(t *testing.T) {
	p := behind(t)
	c := connect(t, p.URL())
	h := Hold(t, p.upstream, "SELECT 1 FROM steps FOR UPDATE")
	defer h.Release()
	require.NoError(t, c.send([]byte("Q"+takeStep+"\x00")))
	WaitBlocked(t, p.upstream, 1)
	conn := dial(t, p.URL())
	request := []byte{0, 0, 0, 16}
	for _, n := range []uint32{80877102, c.pid, c.secret} {
		request = binary.BigEndian.AppendUint32(request, n)
	}
	must.Get(conn.Write(request))(t)
	_, err := c.answer()
	require.Equal(t, code("57014"), err)
	require.ErrorIs(t, must.Err(bufio.NewReader(conn).ReadByte()), io.EOF)
}

// What became of a step. notKnown: the server still does it, and nobody hears when.
const (
	notDone = iota
	isDone
	notKnown
)

// Each fault does what it says: what the client hears, and what the server has done by then.
func TestFaults(t *testing.T) {
	for name, fault := range map[string]struct {
		do   Action
		done int
	}{
		"nothing":                      {Pass, isDone},
		"cut before the server has it": {CutBefore, notDone},
		"cut after it was done":        {CutAfter, isDone},
		"cut while it runs":            {CutWhile, notKnown},
		"backend ended":                {EndBackend, notDone},
	} {
		t.Run(name, func(t *testing.T) {
			p, c := stepping(t)
			met := p.at('B', fault.do)
			value, err := c.call("step")
			<-met
			switch fault.do {
			case Pass:
				require.NoError(t, err)
			case EndBackend:
				require.ErrorIs(t, err, code("57P01"))
			default:
				require.Error(t, err)
				require.NotErrorAs(t, err, new(code), "the server's, and not the wire's")
			}
			if err == nil {
				require.Equal(t, "1", value)
			}
			switch fault.done {
			case isDone:
				require.Equal(t, "1", p.done(t))
			case notDone:
				waitFor(t, p.upstream, "1", sessions) // nobody is left who could still do it
				require.Equal(t, "0", p.done(t))
			case notKnown:
				waitFor(t, p.upstream, "1", "SELECT done FROM steps")
			}
			require.NoError(t, must.Err(connect(t, p.URL()).query("SELECT 1")), "the fault is over")
		})
	}
}

// A server that does what a client no longer waits for goes on.
func TestCutWhileItWaitsForALock(t *testing.T) {
	p, c := stepping(t)
	h := Hold(t, p.upstream, "SELECT 1 FROM steps FOR UPDATE")
	p.at('B', CutWhile)
	require.Error(t, must.Err(c.call("step")))
	WaitBlocked(t, p.upstream, 1)
	require.Equal(t, "0", p.done(t))
	h.Release()
	waitFor(t, p.upstream, "1", "SELECT done FROM steps")
}

// Its answer is dropped only when there is one.
func TestCutAfterWaitsForTheServer(t *testing.T) {
	p, c := stepping(t)
	h := Hold(t, p.upstream, "SELECT 1 FROM steps FOR UPDATE")
	p.at('B', CutAfter)
	require.NoError(t, c.send(bind("step"), execute, synced))
	WaitBlocked(t, p.upstream, 1)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
	require.ErrorContains(t, must.Err(c.in.Peek(1)), "timeout", "it is not cut yet, and hears nothing")
	require.NoError(t, c.SetReadDeadline(time.Now().Add(patience)))
	h.Release()
	require.Error(t, must.Err(c.answer()))
	require.Equal(t, "1", p.done(t))
}
