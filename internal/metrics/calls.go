package metrics

import (
	"context"
	"io"
	"time"

	"x402-wallet/x402/money"
	"x402-wallet/x402/observe"
)

// Call is the result of a call that may pay. Outcome and Code are words of ours.
type Call struct {
	Agent, Outcome, Code string
	Network              string        // where it paid; empty if it paid nothing
	Paid                 money.Dollars // what it cost
	Took                 time.Duration
}

// Calls counts agents' calls. The zero value is ready. It is safe for concurrent use.
type Calls struct{ set set }

// Call counts one call.
func (c *Calls) Call(call Call) {
	c.set.increment("x402_wallet_payments_total", "agent", call.Agent, "outcome", call.Outcome,
		"code", call.Code)
	if call.Paid > 0 {
		c.set.add("x402_wallet_paid_dollars_total", dollars(call.Paid), "agent", call.Agent,
			"network", call.Network)
	}
	c.set.observe(paymentSeconds, call.Took)
}

// Step counts how long a step of a payment took, by a name of ours.
func (c *Calls) Step(step string, took time.Duration) {
	c.set.observe("x402_wallet_payment_step_seconds", took, "step", step)
}

const paymentSeconds = "x402_wallet_payment_seconds"

func (c *Calls) write(_ context.Context, w io.Writer) {
	c.set.histogram(paymentSeconds) // also before the first call
	c.set.writeTo(w)
}

// Parties counts requests to facilitators and to networks' nodes, and their answers. The zero value is ready.
// It is safe for concurrent use.
type Parties struct{ set set }

// Facilitator counts a request to a facilitator of the owner's config, by its name there. The request is a
// word of ours.
func (p *Parties) Facilitator(name, request string, came observe.Outcome, took time.Duration) {
	p.set.increment("x402_wallet_facilitator_requests_total", "facilitator", name, "request", request,
		"outcome", string(came))
	p.set.observe("x402_wallet_facilitator_request_seconds", took, "facilitator", name)
	if came == observe.Answered {
		p.set.setGauge("x402_wallet_facilitator_answered_timestamp_seconds", timestamp(time.Now()),
			"facilitator", name)
	}
}

// Node counts a request to the node of one of the owner's networks.
func (p *Parties) Node(network string, came observe.Outcome, took time.Duration) {
	p.set.increment("x402_wallet_node_requests_total", "network", network, "outcome", string(came))
	p.set.observe("x402_wallet_node_request_seconds", took, "network", network)
	if came == observe.Answered {
		p.set.setGauge("x402_wallet_node_answered_timestamp_seconds", timestamp(time.Now()),
			"network", network)
	}
}

func (p *Parties) write(_ context.Context, w io.Writer) { p.set.writeTo(w) }
