package metrics

import (
	"context"
	"maps"
	"slices"
	"time"

	"x402-wallet/x402/money"
)

// Open is what has no end yet, of one agent.
type Open struct {
	Count   int
	Dollars money.Dollars
	Oldest  time.Time // zero: there is none
	Overdue int       // of Count: what should have had its end by now
}

// Add adds one that began then.
func (o Open) Add(worth money.Dollars, began time.Time, isOverdue bool) Open {
	o.Count++
	o.Dollars += worth
	if o.Oldest.IsZero() || began.Before(o.Oldest) {
		o.Oldest = began
	}
	if isOverdue {
		o.Overdue++
	}
	return o
}

// Budget is one of the owner's limits, and what of it is spent or held.
type Budget struct {
	Window      string // session, day or month
	Agent, Host string // whose; both "": of everything
	Limit       *money.Dollars
	Used        money.Dollars
}

// Balance is what may be spent on a network, as its node said last, when something was paid there.
type Balance struct {
	Network, Asset, Source string
	Dollars                money.Dollars
	Read                   time.Time
}

// Standing is how a wallet stands now; maps are by agent.
type Standing struct {
	Now                    time.Time // the ledger's
	Held, Unknown, Waiting map[string]Open
	Sessions               map[string]int // who is connected; nil: it is no service
	Frozen                 bool
	FrozenAccounts         int
	Budgets                []Budget
	Balances               []Balance
	Working, InQueue       int // calls of this process that are made, and that wait for their turn
}

// Ledger is a wallet's standing, read when it is asked for. With an error it still has the sessions.
type Ledger struct {
	Read func(context.Context) (Standing, error)
}

func (l Ledger) write(ctx context.Context, t text) {
	ctx, cancel := context.WithTimeout(ctx, readFor)
	defer cancel()
	s, err := l.Read(ctx)
	if s.Sessions != nil {
		byAgent(t, "x402_wallet_sessions", "Sessions of agents.", s.Sessions, count[int])
	}
	readable(t, err == nil)
	if err != nil {
		return
	}
	counted := func(o Open) string { return count(o.Count) }
	worth := func(o Open) string { return o.Dollars.String() }
	oldest := func(o Open) string { return age(s.Now, o.Oldest) }
	byAgent(t, "x402_wallet_held_payments", "Payments under way.", s.Held, counted)
	byAgent(t, "x402_wallet_held_dollars", "Held for payments under way.", s.Held, worth)
	byAgent(t, "x402_wallet_unknown_payments", "Payments whose outcome is not known.", s.Unknown, counted)
	byAgent(t, "x402_wallet_unknown_dollars", "Held for payments whose outcome is not known.", s.Unknown,
		worth)
	byAgent(t, "x402_wallet_unknown_overdue_payments",
		"Payments whose outcome is not known although their validity is over.", s.Unknown,
		func(o Open) string { return count(o.Overdue) })
	byAgent(t, "x402_wallet_unknown_oldest_age_seconds",
		"How old the oldest payment is whose outcome is not known; 0: there is none.", s.Unknown, oldest)
	byAgent(t, "x402_wallet_approvals_waiting", "Approvals that wait for a person.", s.Waiting, counted)
	byAgent(t, "x402_wallet_approvals_oldest_age_seconds",
		"How long the oldest approval waits for a person; 0: there is none.", s.Waiting, oldest)
	t.number("x402_wallet_frozen", "Whether everything is frozen: 0 or 1.", digit(s.Frozen))
	t.number("x402_wallet_frozen_accounts", "Accounts from which nothing is paid.", count(s.FrozenAccounts))
	s.writeBudgets(t)
	s.writeBalances(t)
	t.number("x402_wallet_calls_working", "Calls that are being made.", count(s.Working))
	t.number("x402_wallet_calls_waiting", "Calls that wait for their turn.", count(s.InQueue))
}

func readable(t text, is bool) {
	t.number("x402_wallet_ledger_readable", "Whether the ledger could be read: 0 or 1.", digit(is))
}

func (s Standing) writeBudgets(t text) {
	labels := func(b Budget) []string {
		return []string{"window", b.Window, "agent", b.Agent, "host", b.Host}
	}
	const limit, used = "x402_wallet_budget_limit_dollars", "x402_wallet_budget_used_dollars"
	t.family(limit, gauge, "The owner's limits.")
	for _, b := range s.Budgets {
		if b.Limit != nil {
			t.sample(limit, b.Limit.String(), labels(b)...)
		}
	}
	t.family(used, gauge, "What is spent or held in the windows of the owner's limits.")
	for _, b := range s.Budgets {
		t.sample(used, b.Used.String(), labels(b)...)
	}
}

func (s Standing) writeBalances(t text) {
	labels := func(b Balance) []string {
		return []string{"network", b.Network, "asset", b.Asset, "source", b.Source}
	}
	const left, read = "x402_wallet_balance_dollars", "x402_wallet_balance_read_timestamp_seconds"
	t.family(left, gauge, "What could be spent on a network when its node was asked last.")
	for _, b := range s.Balances {
		t.sample(left, b.Dollars.String(), labels(b)...)
	}
	t.family(read, gauge, "When that was, since 1970.")
	for _, b := range s.Balances {
		t.sample(read, since1970(b.Read), labels(b)...)
	}
}

// byAgent writes a gauge by agent, for maxSeries agents at most.
func byAgent[V any](t text, name, help string, of map[string]V, value func(V) string) {
	t.family(name, gauge, help)
	agents := slices.Sorted(maps.Keys(of))
	for _, agent := range agents[:min(len(agents), maxSeries)] {
		t.sample(name, value(of[agent]), "agent", agent)
	}
}
