// Package vault is paying out of an owner's contract (chain/evm/vault/AgentVault.sol), which takes the
// agent's signatures down to a floor that the owner sets. What is signed is what the scheme exact signs.
//
// What must stay true: only the vault that the owner's sealed rules name pays.
package vault

import (
	"x402-wallet/history"
	"x402-wallet/scheme"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// Source is a scheme.Source.
type Source struct {
	// On is the address of the vault that the owner named on a network; "": none.
	On func(network string) string
}

func (Source) Name() string { return "vault" }

func (s Source) Account(network string) string { return s.On(network) }

// Pays implements scheme.Source. Servers of MPP take no signature of a contract.
func (Source) Pays(r x402.Requirement) bool { return r.Way() == x402.Exact && r.Charge == nil }

func (Source) Explain(err error, network string) error {
	coded := x402.AsError(err)
	if coded.Code != x402.NoDelegation && coded.Code != x402.DelegateMismatch {
		return err
	}
	return coded.WithCommand(x402.Command("vault", "show", "--network", network),
		x402.Sentence(coded.Message)+" Only you can change that, with your own key.")
}

// Lack implements scheme.Source: the price is above what one payment may be, more than lies there, or
// above what the owner allows until now.
func (Source) Lack(o scheme.Option, funds x402.Funds, lack *history.ShortOfFunds) error {
	dollars := func(a money.Amount) string { return o.Token.Dollars(a).Price() }
	price, network := o.Price.Price(), x402.Title(o.Network)
	needed, _ := lack.Held.Add(o.Amount)
	left, yours := lack.Free.SubFloor(lack.Held), "your vault "+funds.Source+" on "+network
	allow := x402.Command("vault", "allow", "--network", o.Network)
	var e *x402.Error
	switch {
	case scheme.TooMuchAtOnce(o, funds):
		most := dollars(*funds.MaxPayment)
		e = x402.Errorf(x402.DelegationExhausted,
			"the vault on %s lets one payment be %s at most, and the price is %s", network, most, price).
			WithDetail("perPayment", *funds.MaxPayment).WithHint("%s or less would pass", most).
			WithCommand(allow, "One payment from "+yours+" may be "+most+" at most, and this one costs "+
				price+": please allow more for one payment, if you want it bought.")
	case funds.Balance.Cmp(needed) < 0:
		short := dollars(needed.SubFloor(funds.Balance))
		e = x402.Errorf(x402.InsufficientFunds,
			"what lies in the vault on %s does not cover the price %s: %s is there", network, price,
			dollars(funds.Balance)).
			WithDetail("short", needed.SubFloor(funds.Balance)).
			WithHint("the owner has to deposit at least %s", short).
			WithCommand(x402.Command("vault", "deposit", "--network", o.Network), "Please deposit at least "+
				short+" in "+yours+" so that I can pay "+price+".")
	default:
		hint := "the owner has to allow more"
		if !funds.MoreAt.IsZero() {
			hint = "the vault allows more from " + x402.Stamp(funds.MoreAt) + ", or when the owner does"
		}
		e = x402.Errorf(x402.DelegationExhausted,
			"what the vault on %s lets the agent spend now does not cover the price %s: %s is left", network,
			price, dollars(left)).
			WithDetail("delegated", funds.Free).WithHint("%s", hint).
			WithCommand(allow, "What I may spend now from "+yours+" is used up ("+dollars(left)+
				" is left, this costs "+price+"): "+hint+".")
	}
	return e.WithDetail("layer", "chain").WithDetail("network", o.Network).
		WithDetail("asset", o.Token.Address).WithDetail("symbol", o.Token.Symbol).
		WithDetail("source", funds.Source).WithDetail("available", left).WithDetail("held", lack.Held).
		WithDetail("requested", o.Amount).WithDetail("balance", funds.Balance)
}
