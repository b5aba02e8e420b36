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

func (p *Proxy) done(t *testing.T) string {
	return SQL(t, p.upstream, "SELECT done FROM steps WHERE id = 1")
}

func TestProxyCountsMessages(t *testing.T) {
	p, c := stepping(t)
	for range 3 {
		must.Get(c.call("step"))(t)
	}
	must.Get(c.query("SELECT 1"))(t)
	for msg, n := range map[byte]int{Startup: 1, 'P': 1, 'B': 3, 'E': 3, 'S': 4, 'Q': 1, 'D': 0} {
		require.Equal(t, n, p.Count(msg), "%q", msg)
	}
	require.Equal(t, "3", p.done(t))
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

// A statement is met by its text, whatever its name is, once.
func TestStatementIsMetByItsText(t *testing.T) {
	p := behind(t)
	c := connect(t, p.URL())
	require.NoError(t, c.prepare("other", "SELECT 7"))
	require.NoError(t, c.prepare("step", takeStep))
	met := p.At("UPDATE steps", CutAfter)
	require.Equal(t, "7", must.Get(c.call("other"))(t))
	select {
	case <-met:
		t.Fatal("it was met by another")
	default:
	}
	require.Error(t, must.Err(c.call("step")))
	<-met
	require.Equal(t, "1", p.done(t))

	simple := connect(t, p.URL())
	must.Get(simple.query(takeStep))(t)
	met = p.At("UPDATE steps", CutBefore)
	require.Error(t, must.Err(simple.query(takeStep)))
	<-met
	require.Equal(t, "2", p.done(t))
}

// Answers to what was asked before the step that is cut are heard.
func TestEarlierAnswersAreHeard(t *testing.T) {
	p := behind(t)
	c := connect(t, p.URL())
	require.NoError(t, c.prepare("earlier", "SELECT pg_sleep(0.3)::TEXT || 'heard'"))
	require.NoError(t, c.prepare("step", takeStep))
	p.At("UPDATE steps", CutAfter)
	require.NoError(t, c.send(bind("earlier"), execute, synced, bind("step"), execute, synced))
	require.Equal(t, "heard", must.Get(c.answer())(t))
	require.Error(t, must.Err(c.answer()))
	require.Equal(t, "1", p.done(t))
	require.Equal(t, 4, p.Count('S'), "also what follows a message that is met is counted")
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

// A round trip is delayed, not each of the messages in it.
func TestDelayIsOfARoundTrip(t *testing.T) {
	p, c := stepping(t)
	const d, calls, together = 100 * time.Millisecond, 3, 1_000
	p.Delay(d)
	start := time.Now()
	for range calls {
		must.Get(c.call("step"))(t)
	}
	require.GreaterOrEqual(t, time.Since(start), calls*d)

	var many [][]byte
	for range together {
		many = append(many, bind("step"), execute)
	}
	start = time.Now()
	require.NoError(t, c.send(append(many, synced)...))
	require.Equal(t, "1003", must.Get(c.answer())(t))
	require.GreaterOrEqual(t, time.Since(start), d)
	require.Less(t, time.Since(start), together*d)
}

func TestProxyListensAsItsServerDoes(t *testing.T) {
	c := Start(t, TCP)
	p := NewProxy(t, c.TCPURL(t, c.Database(t)))
	require.Contains(t, p.URL(), "postgresql://postgres@127.0.0.1:")
	require.Equal(t, "127.0.0.1", SQL(t, p.URL(), "SELECT host(inet_server_addr())"))
	require.Equal(t, 1, p.Count('Q'))

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
	require.Equal(t, 1, p.Count(Cancel))
	require.ErrorIs(t, must.Err(bufio.NewReader(conn).ReadByte()), io.EOF)
}

// Each fault does what it says: what the client hears, and what the server has done by then.
func TestFaults(t *testing.T) {
	for _, fault := range Faults {
		t.Run(fault.Name, func(t *testing.T) {
			p, c := stepping(t)
			met := p.At("UPDATE steps", fault.Do)
			began := time.Now()
			value, err := c.call("step")
			<-met
			switch fault.Do.what {
			case pass:
				require.NoError(t, err)
			case beSilent:
				require.NoError(t, err)
				require.GreaterOrEqual(t, time.Since(began), Partition)
			case endBackend:
				require.ErrorIs(t, err, code("57P01"))
			default:
				require.Error(t, err)
				require.NotErrorAs(t, err, new(code), "the server's, and not the wire's")
			}
			if err == nil {
				require.Equal(t, "1", value)
			}
			switch fault.Done {
			case IsDone:
				require.Equal(t, "1", p.done(t))
			case NotDone:
				waitFor(t, p.upstream, "1", sessions) // nobody is left who could still do it
				require.Equal(t, "0", p.done(t))
			case NotKnown:
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
	p.At("UPDATE steps", CutWhile)
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
	p.At("UPDATE steps", CutAfter)
	require.NoError(t, c.send(bind("step"), execute, synced))
	WaitBlocked(t, p.upstream, 1)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
	require.ErrorContains(t, must.Err(c.in.Peek(1)), "timeout", "it is not cut yet, and hears nothing")
	require.NoError(t, c.SetReadDeadline(time.Now().Add(patience)))
	h.Release()
	require.Error(t, must.Err(c.answer()))
	require.Equal(t, "1", p.done(t))
}

func TestRandomBackendIsEnded(t *testing.T) {
	p := behind(t)
	h := Hold(t, p.upstream, "SELECT 1 FROM steps FOR UPDATE")
	require.False(t, EndRandom(t, p.upstream), "the third party is ours")
	c := connect(t, p.URL())
	require.NoError(t, c.send([]byte("Q"+takeStep+"\x00")))
	WaitBlocked(t, p.upstream, 1)
	require.True(t, EndRandom(t, p.upstream))
	require.ErrorIs(t, must.Err(c.answer()), code("57P01"))
	h.Release()
	require.Equal(t, "0", p.done(t))
}

func TestThirdPartyLetsGoByItself(t *testing.T) {
	p := behind(t)
	const d = 200 * time.Millisecond
	began := time.Now()
	HoldFor(t, d, p.upstream, "UPDATE steps SET done = 100")
	require.Equal(t, "1", SQL(t, p.upstream, takeStep), "and changes nothing")
	require.GreaterOrEqual(t, time.Since(began), d)

	require.ErrorContains(t, must.Err(hold(p.upstream, []string{"SELECT 1 FROM nowhere"})), "nowhere")
}
