package pay

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/history"
	"x402-wallet/history/alerts"
	"x402-wallet/history/historytest"
	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

func (b *bench) alerts(t *testing.T, kind alerts.Kind) (list []alerts.Alert) {
	t.Helper()
	all := must.Get(alerts.List(t.Context(), b.store, 100))(t)
	for _, a := range all {
		if a.Kind == kind {
			list = append(list, a)
		}
	}
	return list
}

// limited is a chain on which less may be spent than is there.
type limited struct {
	*chain
	delegated, allowance *money.Amount
}

func (c limited) Funds(ctx context.Context, network string, asset x402.AssetInfo) (x402.Funds, error) {
	f, err := c.chain.Funds(ctx, network, asset)
	if c.delegated != nil {
		f.Delegated, f.Free = c.delegated, *c.delegated
	}
	if c.allowance != nil {
		f.Allowance = &x402.OwnerAllowance{}
	}
	return f, err
}

// The owner is told, where they want that, when a payment leaves less than they said, and of what.
func TestLittleIsLeft(t *testing.T) {
	b := newBench(t, "10000", honest) // of a million
	b.Policy.LowFunds = 980_000
	pays := func(query string) []alerts.Alert {
		t.Helper()
		b.mustPay(t, testURL+"?"+query)
		return b.alerts(t, alerts.Funds)
	}
	require.Empty(t, pays("1"), "0.99 are left")
	require.Empty(t, pays("2"), "0.98 are")
	list := pays("3")
	require.Len(t, list, 1)
	require.Equal(t, alerts.Detail{Source: "balance", Left: 970_000, Symbol: "USDC",
		Network: "eip155:84532", Account: "0xagent"}, list[0].Detail)
	require.Len(t, pays("4"), 1, "once a day")

	few := money.NewAmount(500_000)
	b.Schemes[exactEVM] = limited{chain: b.chain, delegated: &few}
	require.Equal(t, "delegation", pays("5")[0].Detail.Source)
	b.Schemes[exactEVM] = limited{chain: b.chain, allowance: &few}
	require.Equal(t, "allowance", pays("6")[0].Detail.Source)

	v, vault := newVaultBench(t, honest)
	v.Policy.LowFunds = 50_000
	v.mustPay(t, testURL)
	require.Equal(t, money.Dollars(vault.available-10_000), v.alerts(t, alerts.Funds)[0].Detail.Left)
	require.Equal(t, "vault", v.alerts(t, alerts.Funds)[0].Detail.Source)

	b = newBench(t, "10000", honest)
	require.Empty(t, pays("1"), "nobody wants to hear of it")
}

// The owner is told, once, of a payment of which the chain says nothing long after its end.
func TestAPaymentLongAfterItsEnd(t *testing.T) {
	b := newBench(t, "10000", silent)
	b.mustRefuse(t, x402.OutcomeUnknown, testURL)
	p := b.only(t)
	end := p.Evidence.ExpiresAt
	b.localExpiries = localExpiries{} // as after a restart
	for _, c := range []struct {
		after time.Duration
		told  int
	}{{-time.Minute, 0}, {overdueAfter - time.Second, 0}, {overdueAfter, 1}, {time.Hour, 1}} {
		b.Now = func() time.Time { return end.Add(c.after) }
		b.reconcile(t)
		require.Len(t, b.alerts(t, alerts.Payment), c.told, c.after)
	}
	a := b.alerts(t, alerts.Payment)[0]
	require.Equal(t, p.ID, a.Subject)
	require.Equal(t, alerts.Detail{Price: p.Price, Host: p.Host, Network: p.Network, Expires: end},
		a.Detail)
}

func TestARolledBackLedgerIsTold(t *testing.T) {
	b := newBench(t, "10000", honest)
	b.Guard = unchecked{historytest.Guard{Store: b.store}}
	for range 2 {
		b.mustRefuse(t, x402.LedgerCorrupt, testURL)
	}
	list := b.alerts(t, alerts.Ledger)
	require.Len(t, list, 1)
	require.Equal(t, "rolled back", list[0].Detail.Why)
}

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
