package metrics

import (
	"context"
	"sync"
	"time"

	"x402-wallet/x402/money"
)

// Call is what a call that may pay came to. Outcome and Code are words of ours.
type Call struct {
	Agent, Outcome, Code string
	Network              string        // where it paid; "": it did not
	Paid                 money.Dollars // what it cost
	Took                 time.Duration
}

// Calls counts what agents' calls came to. The zero value is ready.
type Calls struct {
	mu    sync.Mutex
	calls table[uint64]        // by agent, outcome, code
	paid  table[money.Dollars] // by agent, network
	took  table[histogram]     // of all
	steps table[histogram]     // by step
}

// Call counts one.
func (c *Calls) Call(call Call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*c.calls.at(call.Agent, call.Outcome, call.Code)++
	if call.Paid > 0 {
		*c.paid.at(call.Agent, call.Network) += call.Paid
	}
	c.took.at().add(call.Took)
}

// Step counts how long a step of a payment took, by a name of ours.
func (c *Calls) Step(step string, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.steps.at(step).add(took)
}

func (c *Calls) write(_ context.Context, t text) {
	c.mu.Lock()
	defer c.mu.Unlock()
	samples(t, "x402_wallet_payments_total", counter, "Calls that may pay, by what they came to.", &c.calls,
		count[uint64], "agent", "outcome", "code")
	samples(t, "x402_wallet_paid_dollars_total", counter, "What calls paid.", &c.paid, money.Dollars.String,
		"agent", "network")
	c.took.at() // a histogram without calls is one, too
	histograms(t, "x402_wallet_payment_seconds", "How long calls that may pay took.", &c.took)
	histograms(t, "x402_wallet_payment_step_seconds", "How long the steps of payments took.", &c.steps,
		"step")
}
