package paywall

import (
	"hash/maphash"
	"sync"
)

// seenPayments says of a payment whether it may have had its run here: then the sale store is asked before a
// facilitator is. Of a payment that was not seen it is asked afterwards: OpenSale refuses what was used, and
// what a facilitator does not take is looked up (saleRun.verify). So nearly every payment, being a new one,
// costs no look-up; one that was used in another process, or before this one, costs a facilitator's answer.
type seenPayments struct {
	seed maphash.Seed

	mu         sync.Mutex
	now, older map[uint64]struct{} // by the hash of their unique keys: two of one hash cost a look-up
}

// maxSeen is how many are remembered at least.
const maxSeen = 1 << 15

func newSeenPayments() *seenPayments {
	return &seenPayments{seed: maphash.MakeSeed(), now: map[uint64]struct{}{}}
}

// add remembers a payment, and forgets the oldest ones.
func (p *seenPayments) add(uniqueKey string) {
	hash := maphash.String(p.seed, uniqueKey)
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.now) >= maxSeen {
		p.now, p.older = map[uint64]struct{}{}, p.now
	}
	p.now[hash] = struct{}{}
}

func (p *seenPayments) has(uniqueKey string) bool {
	hash := maphash.String(p.seed, uniqueKey)
	p.mu.Lock()
	defer p.mu.Unlock()
	_, isNew := p.now[hash]
	_, isOlder := p.older[hash]
	return isNew || isOlder
}
