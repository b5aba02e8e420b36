package metrics

import (
	"context"
	"sync"
	"time"

	"x402-wallet/x402"
)

// Parties counts what was asked of facilitators and of networks' nodes, and how they answered. The zero value
// is ready.
type Parties struct {
	mu           sync.Mutex
	facilitators party
	nodes        party
}

// party is those of one kind.
type party struct {
	requests table[uint64]    // by name, request and outcome; by name and outcome
	took     table[histogram] // by name
	answered table[time.Time] // last, by name
}

func (p *party) add(name string, came x402.Contact, took time.Duration, labels ...string) {
	*p.requests.at(labels...)++
	p.took.at(name).add(took)
	if came == x402.Answered {
		*p.answered.at(name) = time.Now()
	}
}

// Facilitator counts a request to a facilitator of the owner's config, by its name there; request
// is a word of ours.
func (p *Parties) Facilitator(name, request string, came x402.Contact, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.facilitators.add(name, came, took, name, request, string(came))
}

// Node counts a question to the node of one of the owner's networks.
func (p *Parties) Node(network string, came x402.Contact, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.nodes.add(network, came, took, network, string(came))
}

func (p *Parties) write(_ context.Context, t text) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f, n := &p.facilitators, &p.nodes
	samples(t, "x402_wallet_facilitator_requests_total", counter, "Requests to facilitators.", &f.requests,
		count[uint64], "facilitator", "request", "outcome")
	histograms(t, "x402_wallet_facilitator_request_seconds", "How long facilitators took.", &f.took,
		"facilitator")
	samples(t, "x402_wallet_facilitator_answered_timestamp_seconds", gauge,
		"When a facilitator answered last, since 1970.", &f.answered, since1970, "facilitator")
	samples(t, "x402_wallet_node_requests_total", counter, "Questions to networks' nodes.", &n.requests,
		count[uint64], "network", "outcome")
	histograms(t, "x402_wallet_node_request_seconds", "How long networks' nodes took.", &n.took, "network")
	samples(t, "x402_wallet_node_answered_timestamp_seconds", gauge,
		"When a network's node answered last, since 1970.", &n.answered, since1970, "network")
}
