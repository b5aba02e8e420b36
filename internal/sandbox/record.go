package sandbox

import (
	"crypto/sha256"
	"sync"
	"time"
)

// Settlement is a payment that really moved play money on one of the chains.
type Settlement struct {
	Network     string
	Transaction string // EVM hash or Solana signature
	Payer       string // whose money: EVM address, or Solana token account
	Signer      string // who signed it: on Solana the owner of the account or its delegate
	PayTo       string // EVM address, or Solana token account
	Amount      uint64
	At          time.Time
}

// Presentation is a signed payment as it reached the seller or the facilitator.
type Presentation struct {
	To      string // "seller" or "facilitator"
	Path    string // seller: what it was to pay for
	Payment [sha256.Size]byte
	At      time.Time
}

// records is what the parties wrote down.
type records struct {
	mu            sync.Mutex
	settlements   []Settlement
	presentations []Presentation
	redeemed      map[string]bool // transactions that the seller has served for (seed dialects)
	asked         map[string]int  // seller: requests per path, paid or not
	served        map[string]int  // seller: answers with content per path
}

func (r *records) settle(s Settlement) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.settlements = append(r.settlements, s)
}

// present notes a signed payment by the hash of its scheme's payload: the same bytes are the same
// payment.
func (r *records) present(to, path string, payload []byte, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.presentations = append(r.presentations, Presentation{To: to, Path: path,
		Payment: sha256.Sum256(payload), At: at})
}

// redeem takes a transaction for a purchase; false when it has paid for one already.
func (r *records) redeem(transaction string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.redeemed == nil {
		r.redeemed = map[string]bool{}
	}
	if r.redeemed[transaction] {
		return false
	}
	r.redeemed[transaction] = true
	return true
}

func (r *records) count(which *map[string]int, path string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if *which == nil {
		*which = map[string]int{}
	}
	(*which)[path]++
}

// Settlements lists what really moved, oldest first, as the chains know it.
func (s *Sandbox) Settlements() []Settlement {
	s.records.mu.Lock()
	defer s.records.mu.Unlock()
	return append([]Settlement(nil), s.records.settlements...)
}

// Presentations lists every time a signed payment reached the seller or the facilitator (the
// seller's own calls to the facilitator are not counted again).
func (s *Sandbox) Presentations() []Presentation {
	s.records.mu.Lock()
	defer s.records.mu.Unlock()
	return append([]Presentation(nil), s.records.presentations...)
}

// Signatures is how many different signed payments the seller and the facilitator have ever seen: a
// wallet that signs again instead of presenting the same bytes again shows here.
func (s *Sandbox) Signatures() int {
	different := map[[sha256.Size]byte]bool{}
	for _, p := range s.Presentations() {
		different[p.Payment] = true
	}
	return len(different)
}

// Asked is how many requests the seller got for a path, with or without payment.
func (s *Sandbox) Asked(path string) int {
	s.records.mu.Lock()
	defer s.records.mu.Unlock()
	return s.records.asked[path]
}

// Served is how many times the seller delivered what a path sells.
func (s *Sandbox) Served(path string) int {
	s.records.mu.Lock()
	defer s.records.mu.Unlock()
	return s.records.served[path]
}
