// Package allowance is paying from an owner's account that lets the agent take from it (ERC-20): a float is
// moved to the agent's own account, and that pays. Who signs reads the transfer by package allowance/check.
//
// What must stay true: what is taken buys nothing, and counts in no window of the owner's.
package allowance

import (
	"x402-wallet/history"
	"x402-wallet/scheme"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/remedy"
)

// Texts explain to people what is in the way of a float.
type Texts struct{}

// Name is how the ledger names the transfers.
func (Texts) Name() string { return x402.Allowance }

// Lack explains that an owner's account does not cover a price: the agent may take too little of
// it, or too little is there.
func (Texts) Lack(o scheme.Option, funds x402.Funds, lack *history.ShortOfFunds) error {
	a := *funds.Allowance
	dollars := func(amount money.Amount) string { return o.Token.Dollars(amount).Price() }
	tokens := func(amount money.Amount) string {
		return amount.Units(o.Token.Decimals) + " " + o.Token.Symbol
	}
	needed, _ := lack.Held.Add(o.Amount)
	missing := needed.SubFloor(a.Float) // what would have to come from the owner
	price, network := o.Price.Price(), x402.Title(o.Network)
	var e *x402.Error
	if a.Approved.Cmp(missing) < 0 || a.Balance.Cmp(missing) >= 0 {
		e = x402.Errorf(x402.DelegationExhausted, "what the owner lets the agent take on %s does not cover "+
			"the price %s: %s may still be taken, and the agent has %s", network, price, dollars(a.Approved),
			dollars(a.Float)).
			WithDetail("short", missing.SubFloor(a.Approved)).
			WithHint("the owner has to let the agent take at least %s", tokens(missing)).
			WithCommand(remedy.Delegate(o.Token, a.Owner, missing),
				"Please let me take at least "+tokens(missing)+
					" from your account "+a.Owner+" on "+network+
					"; it replaces what you allowed before, and "+
					"FILE is your own key's.")
	} else {
		short := missing.SubFloor(a.Balance)
		e = x402.Errorf(x402.InsufficientFunds, "the owner's account on %s does not cover the price %s: %s "+
			"is there, and the agent has %s", network, price, dollars(a.Balance), dollars(a.Float)).
			WithDetail("short", short).WithHint("the owner needs at least %s more there", tokens(short)).
			WithCommand(x402.Command("delegation", "show", "--network", o.Network,
				"--token-account", a.Owner),
				"Please send at least "+tokens(short)+" ("+o.Token.Address+") on "+network+" to your "+
					"account "+
					a.Owner+" so that I can pay "+price+".")
	}
	return e.WithDetail("layer", "chain").WithDetail("network", o.Network).
		WithDetail("asset", o.Token.Address).WithDetail("symbol", o.Token.Symbol).
		WithDetail("source", a.Owner).WithDetail("available", lack.Free.SubFloor(lack.Held)).
		WithDetail("held", lack.Held).WithDetail("requested", o.Amount).WithDetail("balance", a.Balance).
		WithDetail("delegated", a.Approved).WithDetail("float", a.Float)
}

// Explain says what a person has to do so that a float can be moved.
func (Texts) Explain(err error, asset x402.AssetInfo, a x402.OwnerAllowance, amount money.Amount) error {
	coded := x402.AsError(err)
	network := x402.Title(asset.Network)
	switch coded.Code {
	case x402.InsufficientFunds:
		return coded.WithHint("the owner sends some of the network's coin to %s, for gas", a.Agent).
			WithCommand(x402.Command("address", "--qr"), "I have too little of "+network+"'s coin to pay "+
				"the gas of taking "+asset.Dollars(amount).Price()+" from your account: please send a "+
				"little of it to "+
				a.Agent+".")
	case x402.PolicyDenied:
		return coded.WithHint("the owner raises max_gas under [networks.%q] in config.toml, or waits until "+
			"gas is cheaper", asset.Network).
			WithCommand(x402.Command("policy", "seal"), x402.Sentence(coded.Message)+" Please raise max_gas "+
				"in config.toml if you want that, and seal the rules.")
	case x402.DelegationExhausted:
		return coded.WithHint("the owner looks at what the account allows").
			WithCommand(x402.Command("delegation", "show", "--network", asset.Network,
				"--token-account", a.Owner),
				x402.Sentence(coded.Message)+" Please look whether the account still allows it.")
	}
	return coded
}
