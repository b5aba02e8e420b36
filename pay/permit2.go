package pay

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"

	"x402-wallet/history"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/wire"
)

// ways are the ways of paying that there are, the simpler first: the more of a payment is in what is signed,
// the less anybody has to be believed.
var ways = []string{x402.Exact, x402.MPP, x402.Permit2, x402.Upto, x402.BatchSettlement}

// checkWay refuses a way of paying that this wallet does not know, or that its owner left out of its rules.
func (e *Engine) checkWay(way string) error {
	switch {
	case way == x402.BatchSettlement && e.Rules.Account != "":
		return x402.Errorf(x402.InvalidRequirement, "%s is paid by the wallet's own account alone, and "+
			"not by the account %q", way, e.Rules.Account).
			WithHint("nothing was signed; take another option or seller")
	case slices.Contains(e.Policy.Schemes, way):
		return nil
	case slices.Contains(ways, way):
		return x402.Errorf(x402.InvalidRequirement, "the owner's rules do not have anything paid by %s "+
			"(policy.schemes)", way).WithHint("nothing was signed; take another option or seller")
	}
	return x402.Errorf(x402.InvalidRequirement, "the scheme %s is not one this wallet pays by",
		x402.Quote(way))
}

// byPermit2 reports whether a payment is one by Permit2.
func byPermit2(p history.Payment) bool { return p.Scheme == x402.Permit2 || p.Scheme == x402.Upto }

// whyAlwaysAsked is why a person is asked about an option whatever it costs; "": for no such reason. What an
// upto payment comes to is the word of whoever settles it: of a facilitator that the seller alone names it
// would be the seller's own.
func (e *Engine) whyAlwaysAsked(ctx context.Context, o option) string {
	facilitator := o.ExtraString("facilitatorAddress")
	if o.Way() != x402.Upto || (e.KnowsFacilitator != nil && e.KnowsFacilitator(ctx, o.Network,
		facilitator)) {
		return ""
	}
	return x402.StrangeFacilitator(facilitator)
}

// judgeUpto is judgeReceipt for upto, where a receipt says what was charged.
func judgeUpto(r wire.Settlement, f facts) verdict {
	v := judgeReceipt(r, f.served())
	charged, err := money.ParseAmount(r.Amount)
	switch {
	case r.Amount == "" || (err == nil && !charged.IsZero() && charged.Cmp(f.paid.Amount) <= 0):
		return v
	case err == nil && charged.IsZero():
		v.note = "the seller charged nothing so far; what was signed for may be charged until it expires"
	default:
		v.note = "the receipt says that more was charged than was signed for, which cannot be"
	}
	v.state, v.proof, v.transaction = history.Unknown, "", ""
	if !v.served {
		v.code = x402.OutcomeUnknown
	}
	return v
}

// charged is what an upto payment came to: by the chain, or by its receipt while that is all there is; nil:
// nothing says so.
func charged(p history.Payment) *money.Amount {
	if p.Charged != nil || p.Scheme != x402.Upto || p.Receipt == nil {
		return p.Charged
	}
	r, err := wire.DecodeSettlement(p.Receipt)
	if err != nil || !r.Success {
		return nil
	}
	amount, err := money.ParseAmount(r.Amount)
	if err != nil || amount.Cmp(p.Amount) > 0 {
		return nil
	}
	return &amount
}

// sponsoring is how a seller brings an approval of Permit2 to the chain together with a payment.
type sponsoring struct {
	bySignature   bool // eip2612GasSponsoring
	byTransaction bool // erc20ApprovalGasSponsoring, and the owner lets such be signed
	notLet        bool // erc20ApprovalGasSponsoring, and the owner does not
}

func (s sponsoring) isOffered() bool { return s.bySignature || s.byTransaction }

func (e *Engine) sponsoringOf(extensions map[string]json.RawMessage, network string) (s sponsoring) {
	_, s.bySignature = extensions[x402.EIP2612Sponsoring]
	_, offered := extensions[x402.ERC20Sponsoring]
	s.byTransaction = offered && !e.Policy.ApprovalGas[network].IsZero()
	s.notLet = offered && !s.byTransaction
	return s
}

// within is what of funds the option can be paid with: by Permit2 what the payer approved, unless the seller
// brings an approval with the payment.
func (o option) within(funds x402.Funds) x402.Funds {
	if funds.Permitted != nil && !o.sponsoring.isOffered() && funds.Permitted.Cmp(funds.Free) < 0 {
		funds.Free = *funds.Permitted
	}
	return funds
}

// isShortOfAllowance reports whether only the approval of Permit2 stands in an option's way.
func (o option) isShortOfAllowance(funds x402.Funds) bool {
	return funds.Permitted != nil && !o.sponsoring.isOffered() && o.Amount.Cmp(*funds.Permitted) > 0 &&
		o.Amount.Cmp(funds.Balance) <= 0
}

// notApproved is the refusal of an option that Permit2 may not move, because the account that pays never
// approved it, or not so much.
func notApproved(o option, funds x402.Funds) error {
	network := x402.Title(o.Network)
	code := x402.DelegationExhausted
	if funds.Permitted.IsZero() {
		code = x402.NoDelegation
	}
	amount := o.Amount.Units(o.asset.Decimals) + " " + o.asset.Symbol
	why := "the seller offers no signed approval (" + x402.EIP2612Sponsoring + ")"
	hint := "take another option or seller; or the owner approves it, for this payment or more: the " +
		"amount is a cap on all of them"
	if o.sponsoring.notLet {
		why = "the approval that the seller would send is a transaction of that account (" +
			x402.ERC20Sponsoring + "), and the owner's rules let none be signed"
		hint += "; or lets such be signed, each for one payment: approval_gas under [networks." +
			strconv.Quote(o.Network) + "] in config.toml is what its gas may cost"
	}
	return x402.Errorf(code, "the seller wants to be paid by Permit2, which may move %s from the agent's "+
		"account on %s, and the price is %s; %s",
		o.asset.Dollars(*funds.Permitted).Price(), network, o.price.Price(), why).WithHint("%s", hint).
		WithDetail("layer", "chain").WithDetail("network", o.Network).WithDetail("asset", o.asset.Address).
		WithDetail("symbol", o.asset.Symbol).WithDetail("source", funds.Source).
		WithDetail("available", *funds.Permitted).WithDetail("requested", o.Amount).
		WithDetail("balance", funds.Balance).
		WithCommand(x402.Command("delegation", "permit2", "--network", o.Network, "--asset", o.asset.Symbol,
			"--amount", o.Amount.Units(o.asset.Decimals)),
			"Please have my account "+funds.Source+" approve Permit2 "+
				"(0x000000000022D473030F116dDEE9F6B43aC78BA3) for "+amount+" ("+o.asset.Address+") on "+
				network+", so that I can pay "+o.price.Price()+".")
}

// awaitTurn waits until no payment before this one is under way whose approval would be in the way of this
// one's: a token takes approvals (EIP-2612) in the order of their nonces, an account its transactions in the
// order of theirs, and each is used up by its own payment. It lasts until the purchase ends.
func (p *Purchase) awaitTurn(ctx context.Context) (err error) {
	if !p.option.needsTurn {
		return nil
	}
	p.endTurn, err = p.engine.approvals.begin(ctx, p.Payment.Network+" "+p.Payment.Asset+" "+p.Payment.Source)
	if err != nil || !p.option.sponsoring.byTransaction {
		return err
	}
	endToken := p.endTurn
	endAccount, err := p.engine.transactions.begin(ctx, p.Payment.Network)
	if err == nil {
		p.endTurn = func() { endAccount(); endToken() }
	}
	return err
}
