package pay

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/history"
	"x402-wallet/internal/must"
	"x402-wallet/x402"
)

// A node that says, with latest and finalized block in agreement, that a payment has expired which is
// alive, releases nothing: neither at once, nor for the call made again, nor when the machine's clock
// is set forward while the process runs, nor after a restart before its time.
func TestALyingNodeReleasesNothing(t *testing.T) {
	b := newBench(t, "10000", silent)
	b.mustRefuse(t, x402.OutcomeUnknown, testURL)
	b.chain.dead[b.only(t).Evidence.Nonce] = true // by the node's word
	stays := func(e *Engine) {
		t.Helper()
		report := must.Get(e.Reconcile(t.Context()))(t)
		require.Equal(t, Report{Checked: 1, Open: 1}, report)
		require.Equal(t, history.Unknown, b.only(t).State)
	}
	stays(b.Engine)
	_, err := b.Pay(t.Context(), get(testURL))
	require.Error(t, err)
	require.Equal(t, 1, b.chain.signed, "the same bytes, and no others")
	stays(b.Engine)
	b.clockForward()
	stays(b.Engine)

	require.NoError(t, b.store.Close())
	again := openBench(t, b.home, b.chain, "10000", silent)
	b.store = again.store
	stays(again.Engine)
	end := b.only(t).Evidence.ExpiresAt
	var said bytes.Buffer
	again.Log = slog.New(slog.NewTextHandler(&said, nil))
	lies := map[time.Duration]bool{-time.Second: true, 0: false, maxSkew - time.Second: false}
	for early, isLie := range lies {
		said.Reset()
		again.Now = func() time.Time { return end.Add(early) }
		stays(again.Engine)
		require.Equal(t, isLie, strings.Contains(said.String(), "by this machine's clock it has not"), early)
	}
	again.Now = func() time.Time { return end.Add(maxSkew) }
	report := must.Get(again.Reconcile(t.Context()))(t)
	require.Equal(t, Report{Checked: 1, Failed: 1}, report)
	require.Equal(t, history.Failed, b.only(t).State)
}

// What this process signed is over when its time is, and only then; the list of them is bounded.
func TestLocalExpiries(t *testing.T) {
	var s localExpiries
	require.True(t, s.passed("another process's"))
	s.note("live", time.Hour)
	s.note("dead", -time.Nanosecond)
	require.False(t, s.passed("live"))
	require.True(t, s.passed("dead"))
	for range maxLocalExpiries {
		s.note(history.NewID(time.Now()), time.Hour)
	}
	require.LessOrEqual(t, len(s.until), maxLocalExpiries)
}
