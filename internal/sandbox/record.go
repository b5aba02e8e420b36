package sandbox

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	"x402-wallet/x402/money"
)

// Settlement is a payment that really moved play money on one of the chains.
type Settlement struct {
	Network     string
	Transaction string // EVM hash or Solana signature
	Payer       string // whose money: EVM address, or Solana token account
	Signer      string // who signed it: on Solana the owner of the account or its delegate
	PayTo       string // EVM address, or Solana token account
	Amount      uint64 // atomic units
	Nonce       string // on EVM what makes the authorization one, 0x-hex; on Solana its memo, if it has one
	Path        string // of the seller, where it settled for what it sells there; else ""
	At          time.Time
}

// String says all of it in a line.
func (p Settlement) String() string {
	text := fmt.Sprintf("$%s on %s from %s to %s, nonce %s, transaction %s", money.Dollars(p.Amount),
		p.Network, p.Payer, p.PayTo, p.Nonce, p.Transaction)
	if p.Path != "" {
		text += ", for " + p.Path
	}
	return text
}

// book writes a payment into the books, and tells who wants to hear of it.
func (s *Sandbox) book(done Settlement) {
	s.telling.Lock()
	defer s.telling.Unlock()
	done.At = s.Now()
	s.mu.Lock()
	s.settlements = append(s.settlements, done)
	s.mu.Unlock()
	if s.options.OnPayment != nil {
		s.options.OnPayment(done)
	}
}

// Present notes a signed payment by the hash of its scheme's payload: the same bytes are the same
// payment.
func (s *Sandbox) Present(payload []byte) {
	if s.extra.Unpaid != nil && s.extra.Unpaid(payload) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.presentations++
	s.presented[sha256.Sum256(payload)] = true
}

func (s *Sandbox) count(which map[string]int, path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	which[path]++
}

// Settlements lists what really moved, oldest first, as the chains know it.
func (s *Sandbox) Settlements() []Settlement {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.settlements)
}

// Presentations is how many times a signed payment reached the seller or the facilitator (the
// seller's own calls to the facilitator are not counted again).
func (s *Sandbox) Presentations() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.presentations
}

// Signatures is how many different signed payments the seller and the facilitator have ever seen: a
// wallet that signs again instead of presenting the same bytes again shows here.
func (s *Sandbox) Signatures() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.presented)
}

// Requests is how many requests the seller got for a path, with or without payment, and how many
// times it delivered what the path sells.
func (s *Sandbox) Requests(path string) (asked, served int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[path], s.served[path]
}
