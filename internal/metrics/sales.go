package metrics

import (
	"context"
	"io"
	"strconv"
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

// Sales counts a paywall's sales. The zero value is ready. It is safe for concurrent use.
type Sales struct{ set set }

// Sale counts one sale.
func (s *Sales) Sale(sale Sale) {
	s.set.increment("x402_wallet_sales_total", "tool", sale.Tool, "outcome", sale.Outcome, "code", sale.Code)
	if sale.Earned > 0 {
		s.set.add("x402_wallet_earned_dollars_total", dollars(sale.Earned), "tool", sale.Tool,
			"network", sale.Network)
	}
	for step, took := range sale.Steps {
		s.set.observe("x402_wallet_sale_step_seconds", took, "step", step)
	}
}

func (s *Sales) write(_ context.Context, w io.Writer) { s.set.writeTo(w) }

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

func (s Shop) write(ctx context.Context, w io.Writer) {
	var out set
	defer out.writeTo(w)
	load := s.Load()
	out.setGauge("x402_wallet_sales_running", float64(load.Running))
	out.setGauge("x402_wallet_paywall_sessions", float64(load.Sessions))
	setGauges(&out, "x402_wallet_paywall_calls", "by", load.Calls, whole)
	for status, n := range load.Refused {
		out.setCounter("x402_wallet_paywall_refused_total", n, "status", strconv.Itoa(status))
	}

	ctx, cancel := context.WithTimeout(ctx, readFor)
	defer cancel()
	owed, err := s.Owed(ctx)
	out.setGauge(ledgerReadable, flag(err == nil))
	if err != nil {
		return
	}
	now := time.Now()
	setGauges(&out, "x402_wallet_owed_channels", "network", owed,
		func(o Owed) float64 { return float64(o.Channels) })
	setGauges(&out, "x402_wallet_owed_dollars", "network", owed,
		func(o Owed) float64 { return dollars(o.Dollars) })
	setGauges(&out, "x402_wallet_owed_oldest_age_seconds", "network", owed,
		func(o Owed) float64 { return age(now, o.Since) })
}
