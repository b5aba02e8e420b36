package metrics

import (
	"context"
	"io"
	"time"

	"x402-wallet/x402/observe"
)

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
