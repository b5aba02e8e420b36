package schemes

import (
	"cmp"
	"encoding/json"
	"slices"
)

// Channel is what a channel of batch-settlement came to, in atomic units: as the chain has it, and as the
// seller counted.
type Channel struct {
	ID      string `json:"id"`
	Payer   string `json:"payer"`
	Balance uint64 `json:"balance"` // on the chain: deposited and not given back
	Claimed uint64 `json:"claimed"` // on the chain, of that: the seller's
	Charged uint64 `json:"charged"` // by the seller, for calls that it took to be paid
	// the highest voucher that was shown to it: the most that it could claim
	Claimable uint64 `json:"claimable"`
	// how far a voucher promised more than was charged when it was shown, at most
	Ahead    uint64 `json:"ahead"`
	Vouchers int    `json:"vouchers"` // different ones that were shown
}

// channelBook is a Channel as it is kept.
type channelBook struct {
	Channel
	shown map[uint64]bool
}

// Channels lists those in which anything was shown to the seller, by their ids.
func (s *World) Channels() (list []Channel) {
	s.chain.Lock()
	defer s.chain.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, book := range s.books {
		c := book.Channel
		at := s.chain.channel(id)
		c.Balance, c.Claimed, c.Vouchers = at.balance, at.claimed, len(book.shown)
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b Channel) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

// shown is the book of a channel. Whoever calls it holds the lock.
func (s *World) shown(id, payer string) *channelBook {
	book := s.books[id]
	if book == nil {
		book = &channelBook{Channel: Channel{ID: id, Payer: payer}, shown: map[uint64]bool{}}
		s.books[id] = book
	}
	return book
}

// noteVoucher notes what the seller could claim by a voucher, if it is one: whether it takes it or not.
func (s *World) noteVoucher(payload json.RawMessage) {
	p, err := readBatch(payload)
	if err != nil || p.Voucher.ID != s.chain.batchData().channelID(p.Config) ||
		!isBy(p.Config.PayerAuthorizer, s.chain.batchData().voucher(p.Voucher.ID, p.ceiling),
			p.Voucher.Signature) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	book := s.shown(p.Voucher.ID, p.Config.Payer)
	book.shown[p.ceiling] = true
	book.Claimable = max(book.Claimable, p.ceiling)
	if p.ceiling > book.Charged {
		book.Ahead = max(book.Ahead, p.ceiling-book.Charged)
	}
}

// asksBack reports whether a payload shows an older voucher to ask a channel's rest back: nothing was signed
// for it.
func asksBack(payload []byte) bool {
	var said struct{ Type string }
	return json.Unmarshal(payload, &said) == nil && said.Type == batchRefund
}

// Claim has the seller claim all that it charged, and be paid it.
func (s *World) Claim() error {
	var claims []channelClaim
	s.mu.Lock()
	for _, record := range s.records {
		claims = append(claims, record.claim())
	}
	s.mu.Unlock()
	s.chain.Lock()
	defer s.chain.Unlock()
	signature := signedBy(s.authorizer, s.chain.batchData().claims(claims))
	_, err := s.chain.executeClaims(s.Settler, claims, signature)
	if err == nil {
		s.chain.payOut(s.Settler, claims[0].config.Receiver)
	}
	return err
}
