package metrics

import (
	"context"
	"strconv"
	"sync"
	"time"

	"x402-wallet/x402/money"
)

// Sale is how a request for something that a paywall sells ended. Outcome and Code are words of ours.
type Sale struct {
	Tool          string // a name of the owner's
	Outcome, Code string
	Network       string
	Earned        money.Dollars // 0: nothing was paid by it
	// how long its steps took, by names of ours; those that were not made are missing
	Steps map[string]time.Duration
}

// Sales counts a paywall's sales. The zero value is ready.
type Sales struct {
	mu     sync.Mutex
	sales  table[uint64]        // by tool, outcome, code
	earned table[money.Dollars] // by tool, network
	steps  table[histogram]     // by step
}

// Sale counts one.
func (s *Sales) Sale(sale Sale) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*s.sales.at(sale.Tool, sale.Outcome, sale.Code)++
	if sale.Earned > 0 {
		*s.earned.at(sale.Tool, sale.Network) += sale.Earned
	}
	for step, took := range sale.Steps {
		s.steps.at(step).add(took)
	}
}

func (s *Sales) write(_ context.Context, t text) {
	s.mu.Lock()
	defer s.mu.Unlock()
	samples(t, "x402_wallet_sales_total", counter, "Requests for what is sold, by what they came to.",
		&s.sales, count[uint64], "tool", "outcome", "code")
	samples(t, "x402_wallet_earned_dollars_total", counter, "What was paid for sales.", &s.earned,
		money.Dollars.String, "tool", "network")
	histograms(t, "x402_wallet_sale_step_seconds", "How long the steps of sales took.", &s.steps, "step")
}

// Owed is what was charged in channels of one network and not claimed.
type Owed struct {
	Channels int
	Dollars  money.Dollars
	Since    time.Time // the oldest of it
}

// Load is what a paywall has at a moment.
type Load struct {
	Running  int            // sales
	Sessions int            // of clients over HTTP
	Calls    map[string]int // concurrent requests over HTTP, by who makes them
	Refused  map[int]uint64 // requests that found no place, by HTTP status
}

// Shop is how a paywall stands, read when it is asked for.
type Shop struct {
	Load func() Load
	Owed func(context.Context) (map[string]Owed, error) // by network
}

func (s Shop) write(ctx context.Context, t text) {
	load := s.Load()
	t.number("x402_wallet_sales_running", "Sales under way.", count(load.Running))
	t.number("x402_wallet_paywall_sessions", "Sessions of clients over HTTP.", count(load.Sessions))
	var calls table[int]
	for by, n := range load.Calls {
		*calls.at(by) = n
	}
	samples(t, "x402_wallet_paywall_calls", gauge, "Requests over HTTP under way.", &calls, count[int], "by")
	var refused table[uint64]
	for status, n := range load.Refused {
		*refused.at(strconv.Itoa(status)) = n
	}
	samples(t, "x402_wallet_paywall_refused_total", counter, "Requests over HTTP that found no place.",
		&refused, count[uint64], "status")
	ctx, cancel := context.WithTimeout(ctx, readFor)
	defer cancel()
	owed, err := s.Owed(ctx)
	readable(t, err == nil)
	if err != nil {
		return
	}
	var by table[Owed]
	for network, o := range owed {
		*by.at(network) = o
	}
	now := time.Now()
	samples(t, "x402_wallet_owed_channels", gauge, "Channels with charges that are not claimed.", &by,
		func(o Owed) string { return count(o.Channels) }, "network")
	samples(t, "x402_wallet_owed_dollars", gauge, "What was charged in channels and is not claimed.", &by,
		func(o Owed) string { return o.Dollars.String() }, "network")
	samples(t, "x402_wallet_owed_oldest_age_seconds", gauge,
		"How old the oldest of these charges is; 0: none.", &by,
		func(o Owed) string { return age(now, o.Since) }, "network")
}
