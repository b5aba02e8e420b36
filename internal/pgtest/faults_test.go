package pgtest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

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
			p := behind(t)
			c := connect(t, p.URL())
			require.NoError(t, c.prepare("step", takeStep))
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
			_, err = connect(t, p.URL()).query("SELECT 1")
			require.NoError(t, err, "the fault is over")
		})
	}
}

// A server that does what a client no longer waits for goes on.
func TestCutWhileItWaitsForALock(t *testing.T) {
	p := behind(t)
	c := connect(t, p.URL())
	require.NoError(t, c.prepare("step", takeStep))
	h := Hold(t, p.upstream, "SELECT 1 FROM steps FOR UPDATE")
	p.at('B', CutWhile)
	_, err := c.call("step")
	require.Error(t, err)
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
	p.at('B', CutAfter)
	require.NoError(t, c.send(bind("step"), execute, synced))
	WaitBlocked(t, p.upstream, 1)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
	_, err := c.in.Peek(1)
	require.ErrorContains(t, err, "timeout", "it is not cut yet, and hears nothing")
	require.NoError(t, c.SetReadDeadline(time.Now().Add(patience)))
	h.Release()
	_, err = c.answer()
	require.Error(t, err)
	require.Equal(t, "1", p.done(t))
}
