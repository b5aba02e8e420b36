package metrics

import (
	"context"
	"io"
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

func (l Ledger) write(ctx context.Context, w io.Writer) {
	var out set
	defer out.writeTo(w)
	ctx, cancel := context.WithTimeout(ctx, readFor)
	defer cancel()
	s, err := l.Read(ctx)
	setGauges(&out, "x402_wallet_sessions", "agent", s.Sessions, whole)
	out.setGauge(ledgerReadable, flag(err == nil))
	if err != nil {
		return
	}
	s.setPayments(&out)
	out.setGauge("x402_wallet_frozen", flag(s.Frozen))
	out.setGauge("x402_wallet_frozen_accounts", float64(s.FrozenAccounts))
	s.setBudgets(&out)
	s.setBalances(&out)
	out.setGauge("x402_wallet_calls_working", float64(s.Working))
	out.setGauge("x402_wallet_calls_waiting", float64(s.InQueue))
}

const ledgerReadable = "x402_wallet_ledger_readable"

func (s Standing) setPayments(out *set) {
	count := func(o Open) float64 { return float64(o.Count) }
	sum := func(o Open) float64 { return dollars(o.Dollars) }
	overdue := func(o Open) float64 { return float64(o.Overdue) }
	oldest := func(o Open) float64 { return age(s.Now, o.Oldest) }
	setGauges(out, "x402_wallet_held_payments", "agent", s.Held, count)
	setGauges(out, "x402_wallet_held_dollars", "agent", s.Held, sum)
	setGauges(out, "x402_wallet_unknown_payments", "agent", s.Unknown, count)
	setGauges(out, "x402_wallet_unknown_dollars", "agent", s.Unknown, sum)
	setGauges(out, "x402_wallet_unknown_overdue_payments", "agent", s.Unknown, overdue)
	setGauges(out, "x402_wallet_unknown_oldest_age_seconds", "agent", s.Unknown, oldest)
	setGauges(out, "x402_wallet_approvals_waiting", "agent", s.Waiting, count)
	setGauges(out, "x402_wallet_approvals_oldest_age_seconds", "agent", s.Waiting, oldest)
}

func (s Standing) setBudgets(out *set) {
	for _, b := range s.Budgets {
		labels := []string{"window", b.Window, "agent", b.Agent, "host", b.Host}
		if b.Limit != nil {
			out.setGauge("x402_wallet_budget_limit_dollars", dollars(*b.Limit), labels...)
		}
		out.setGauge("x402_wallet_budget_used_dollars", dollars(b.Used), labels...)
	}
}

func (s Standing) setBalances(out *set) {
	for _, b := range s.Balances {
		labels := []string{"network", b.Network, "asset", b.Asset, "source", b.Source}
		out.setGauge("x402_wallet_balance_dollars", dollars(b.Dollars), labels...)
		out.setGauge("x402_wallet_balance_read_timestamp_seconds", timestamp(b.Read), labels...)
	}
}
