package nuwa

import (
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// further is s as far as the later of two: after a lost state that may be what the chain knows.
func (s subRAV) further(nonce uint64, amount money.Amount) subRAV {
	s.Nonce = max(s.Nonce, nonce)
	if amount.Cmp(s.Amount) > 0 {
		s.Amount = amount
	}
	return s
}

type bounds struct {
	Cost *money.Amount // what the service said this call costs; nil: a call whose answer was lost
	// what it was told that the call may cost; nil: unknown, and the owner's limits alone decide
	MaxCost *money.Amount
	Hub     money.Amount // what lies in the hub for this channel
	Claimed money.Amount // what the payee has taken of the channel already: it is no longer in the hub
}

// guard is the table of wrong proposals. It is pure. Nothing that it refuses is ever signed; what
// it lets pass still has to be held in the owner's budgets before it is.
//
//	 #  the proposal                                   code
//	 1  names another chain                            INVALID_REQUIREMENT
//	 2  names another channel                          INVALID_REQUIREMENT
//	 3  names another epoch                            INVALID_REQUIREMENT
//	 4  names another key                              INVALID_REQUIREMENT
//	 5  repeats the last nonce                         INVALID_REQUIREMENT
//	 6  goes back behind it                            INVALID_REQUIREMENT
//	 7  skips one                                      INVALID_REQUIREMENT
//	 8  is below what was signed for                   INVALID_REQUIREMENT
//	 9  grows by something else than the call's cost   INVALID_REQUIREMENT
//	10  grows by more than the call's maxAmount        AMOUNT_EXCEEDS_MAX
//	11  is more than the channel's funds               INSUFFICIENT_FUNDS
//	 –  anything else                                  passes
//
// last names our chain, channel, epoch and key, and how far this wallet signed for it or the chain
// has seen it claimed. delta is what the proposal costs.
func guard(p, last subRAV, b bounds) (delta money.Amount, err error) {
	delta = p.Amount.SubFloor(last.Amount)
	switch {
	case p.ChainID != last.ChainID:
		return delta, wrong("chain", last.ChainID, p.ChainID)
	case p.Channel != last.Channel:
		return delta, wrong("channel", objectID(last.Channel).String(), objectID(p.Channel).String())
	case p.Epoch != last.Epoch:
		return delta, wrong("epoch", last.Epoch, p.Epoch)
	case p.Fragment != last.Fragment:
		return delta, wrong("key", last.Fragment, x402.Brief(p.Fragment))
	case p.Nonce != last.Nonce+1 || last.Nonce+1 == 0:
		return delta, wrong("nonce", last.Nonce+1, p.Nonce)
	case p.Amount.Cmp(last.Amount) < 0:
		return delta, wrong("amount", last.Amount, p.Amount)
	case b.Cost != nil && delta != *b.Cost:
		return delta, wrong("cost", *b.Cost, delta)
	case b.MaxCost != nil && delta.Cmp(*b.MaxCost) > 0:
		return delta, x402.Errorf(x402.AmountExceedsMax,
			"the service wants %s for a call that may cost %s", dollars(delta), dollars(*b.MaxCost)).
			WithHint("nothing was signed: the service asks for more than it was told").
			WithDetail("requested", dollars(delta)).WithDetail("maxAmount", dollars(*b.MaxCost)).
			WithDetail("amount", delta)
	}
	if open := p.Amount.SubFloor(b.Claimed); open.Cmp(b.Hub) > 0 {
		return delta, x402.Errorf(x402.InsufficientFunds,
			"the channel would owe %s, and %s is there for it", dollars(open), dollars(b.Hub)).
			WithHint("the owner has to put more into the payment hub").WithDetail("layer", "channel").
			WithDetail("available", dollars(b.Hub)).WithDetail("requested", dollars(open)).
			WithDetail("amount", open)
	}
	return delta, nil
}

// wrong is the refusal of a proposal that no honest service makes.
func wrong(what string, ours, theirs any) *x402.Error {
	return x402.Errorf(x402.InvalidRequirement, "the service proposes a payment with another %s than it "+
		"may: nothing was signed", what).
		WithHint("the service is faulty or dishonest; the evidence is kept, see x402-wallet channel show").
		WithDetail("guard", what).WithDetail("expected", ours).WithDetail("proposed", theirs)
}
