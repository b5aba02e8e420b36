package history

import (
	"encoding/binary"

	"x402-wallet/budget"
	"x402-wallet/x402/money"
)

// What the owner's rules about payees and prices go by is what was signed, whatever became of it: a
// person who agreed to a payee is not asked again because that payment expired.

func payeeKey(network, payTo string) []byte {
	return memoryKey("payee", network, payee(network, payTo))
}

func sellerKey(host, network, asset string) []byte { return memoryKey("seller", host, network, asset) }

func paidHereKey(host, network, asset, payTo string) []byte {
	return memoryKey("paid here", host, network, asset, payee(network, payTo))
}

func priceKey(resource string) []byte { return memoryKey("price", resource) }

// idempotencyKey is an agent's; callers without a name have theirs in common.
func idempotencyKey(agent, key string) []byte { return memoryKey("idempotency key", key, agent) }

func signInKey(host string) []byte { return memoryKey("signed in", host) }

func expiredKey(payment string) []byte { return memoryKey("expired", payment) }
func chargedKey(payment string) []byte { return memoryKey("charged", payment) }

// remembered is what a signature adds to the memory.
func remembered(payment string, g signature) []entry {
	yes := []byte{1}
	if g.PayTo == "" { // a sign-in: nobody is paid, and no price is one to compare with
		return []entry{{signInKey(g.Host), yes}}
	}
	entries := []entry{
		{payeeKey(g.Network, g.PayTo), yes},
		{paidHereKey(g.Host, g.Network, g.Asset, g.PayTo), yes},
		{sellerKey(g.Host, g.Network, g.Asset), []byte(g.PayTo)},
	}
	if g.Price > 0 { // a voucher's was counted with its deposit, and is no price to compare with
		entries = append(entries,
			entry{priceKey(g.Resource), binary.BigEndian.AppendUint64(nil, uint64(g.Price))})
	}
	if g.Key != "" {
		entries = append(entries, entry{idempotencyKey(g.Agent, g.Key), []byte(payment)})
	}
	if g.Voucher != nil {
		entries = append(entries, g.Voucher.entry())
	}
	return entries
}

func remember(m *memory, payment string, g signature) error {
	for _, e := range remembered(payment, g) {
		if err := m.put(e.key, e.value); err != nil {
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
		before, err = get(signInKey(q.Host))
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
		{&known, payeeKey(p.Network, p.PayTo)},
		{&here, paidHereKey(host, p.Network, p.Asset, p.PayTo)},
		{&other, sellerKey(host, p.Network, p.Asset)},
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
	value, err := get(priceKey(resource))
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
func (t *tx) keyIsFree(m *memory, p Payment) error {
	if p.IdempotencyKey == "" {
		return nil
	}
	owner, err := m.get(idempotencyKey(p.Agent, p.IdempotencyKey))
	if err != nil || owner == nil {
		return err
	}
	return corrupt("its idempotency key was signed for already, for payment %s", owner)
}
