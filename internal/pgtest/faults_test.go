package pgtest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
)

// Each fault does what it says: what the client hears, and what the server has done by then.
func TestFaults(t *testing.T) {
	for _, fault := range Faults {
		t.Run(fault.Name, func(t *testing.T) {
			p := behind(t)
			c := connect(t, p.URL())
			require.NoError(t, c.prepare("step", takeStep))
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
	p := behind(t)
	c := connect(t, p.URL())
	require.NoError(t, c.prepare("step", takeStep))
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
	p := behind(t)
	c := connect(t, p.URL())
	require.NoError(t, c.prepare("step", takeStep))
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
