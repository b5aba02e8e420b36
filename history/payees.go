package history

import (
	"encoding/binary"

	"x402-wallet/budget"
	"x402-wallet/history/internal/audit"
	"x402-wallet/history/internal/memory"
	"x402-wallet/history/internal/seals"
	"x402-wallet/x402/money"
)

// recall returns the value of an entry of the memory, as the table has it; nil: there is none.
func (t *tx) recall(key []byte) ([]byte, error) { return memory.Recall(t.Tx, key) }

func remember(m *memory.Memory, g seals.Signature) error {
	for _, e := range g.Remembered() {
		if err := m.Put(e.Key, e.Value); err != nil {
			return err
		}
	}
	return nil
}

// historyFor is what a query wants to know of a payee.
func historyFor(get func(key []byte) ([]byte, error), q budget.Query) (h budget.PayeeHistory, err error) {
	switch {
	case q.SignIn:
		var before []byte
		before, err = get(seals.SignInKey(q.Host))
		h.SignedIn = before != nil
	case q.Payee.PayTo != "":
		return payeeHistory(get, q.Host, q.Payee)
	}
	return h, err
}

// payeeHistory is what is known of a payee, and what a resource cost last.
func payeeHistory(get func(key []byte) ([]byte, error), host string, p budget.Payee) (h budget.PayeeHistory,
	err error) {
	var known, here, other []byte
	for _, read := range []struct {
		into *[]byte
		key  []byte
	}{
		{&known, seals.PayeeKey(p.Network, p.PayTo)},
		{&here, seals.PaidHereKey(host, p.Network, p.Asset, p.PayTo)},
		{&other, seals.SellerKey(host, p.Network, p.Asset)},
	} {
		*read.into, err = get(read.key)
		if err != nil {
			return h, err
		}
	}
	h.Paid, h.PaidHere = known != nil, here != nil
	if !h.PaidHere {
		h.Other = string(other)
	}
	h.LastPrice, err = lastPrice(get, p.Resource)
	return h, err
}

// lastPrice is what was signed last for a resource; nil: it was never bought.
func lastPrice(get func(key []byte) ([]byte, error), resource string) (*money.Dollars, error) {
	value, err := get(seals.PriceKey(resource))
	if len(value) != 8 || err != nil {
		return nil, err
	}
	price := money.Dollars(binary.BigEndian.Uint64(value))
	return &price, nil
}

// sellerAsDecided refuses a payment, with ErrMoved, when the history of its payee or the resource's
// last price is no longer as its decision needs it.
func (t *tx) sellerAsDecided(d budget.Decision, p Payment) error {
	if !d.PayeeKnown && !d.PayeeUnchanged && d.MinLastPrice == nil {
		return nil
	}
	h, err := payeeHistory(t.recall, p.Host,
		budget.Payee{Network: p.Network, Asset: p.Asset, PayTo: p.PayTo, Resource: p.Resource()})
	if err != nil {
		return err
	}
	if (d.PayeeKnown && !h.Paid) || (d.PayeeUnchanged && h.Changed()) {
		return moved("the payee's history changed")
	}
	if d.MinLastPrice != nil && h.LastPrice != nil && *h.LastPrice < *d.MinLastPrice {
		return moved("the last price changed")
	}
	return nil
}

// keyIsFree refuses a payment whose idempotency key was signed for before, unless that expired.
func (t *tx) keyIsFree(m *memory.Memory, p Payment) error {
	if p.IdempotencyKey == "" {
		return nil
	}
	owner, err := m.Get(seals.IdempotencyKey(p.Agent, p.IdempotencyKey))
	if err != nil || owner == nil {
		return err
	}
	return audit.Corrupt("its idempotency key was signed for already, for payment %s", owner)
}
