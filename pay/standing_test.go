package pay

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/history"
	"x402-wallet/x402/money"
)

func TestWhoIsInTheQueue(t *testing.T) {
	e := &Engine{}
	stands := func(wantWorking, wantWaiting int) {
		t.Helper()
		working, waiting := e.Queue()
		require.Equal(t, [2]int{wantWorking, wantWaiting}, [2]int{working, waiting})
	}
	stands(0, 0)
	var leave []func()
	for range maxInside {
		_, left, err := e.gate.enter(t.Context(), "a.example")
		require.NoError(t, err)
		leave = append(leave, left)
	}
	stands(maxInside, 0)
	ctx, cancel := context.WithCancel(t.Context())
	waiting := make(chan error)
	for _, host := range []string{"a.example", "a.example", "b.example"} {
		go func() {
			_, _, err := e.gate.enter(ctx, host)
			waiting <- err
		}()
	}
	require.Eventually(t, func() bool { _, n := e.Queue(); return n == 3 }, time.Minute, time.Millisecond)
	stands(maxInside, 3)
	cancel()
	for range 3 {
		require.Error(t, <-waiting)
	}
	for _, left := range leave {
		left()
	}
	stands(0, 0)
}

// What could be spent is remembered as it was read for the last payment, before that was made.
func TestTheLastFunds(t *testing.T) {
	b := newBench(t, "1000", honest)
	require.Empty(t, b.LastFunds())
	b.chain.balance = 5_000_000
	b.mustPay(t, testURL)
	require.Len(t, b.LastFunds(), 1)
	last := b.LastFunds()[0]
	require.Equal(t, LastFunds{Network: testNetwork, Asset: "USDC", Source: "agent", Dollars: 5_000_000,
		Read: last.Read}, last)
	require.False(t, last.Read.IsZero())
	b.chain.balance = 4_000_000
	b.mustPay(t, testURL+"?again")
	require.Equal(t, []money.Dollars{4_000_000}, []money.Dollars{b.LastFunds()[0].Dollars})
}

func TestWhatIsOverdue(t *testing.T) {
	now := time.Now()
	e := &Engine{Now: func() time.Time { return now }}
	is := func(end time.Time) bool {
		var p history.Payment
		p.Evidence.ExpiresAt = end
		return e.IsOverdue(p)
	}
	require.False(t, is(time.Time{}), "it has no end of its own")
	require.False(t, is(now))
	require.False(t, is(now.Add(time.Second-maxSkew)))
	require.True(t, is(now.Add(-maxSkew)))
}
