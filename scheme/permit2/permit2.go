// Package permit2 has the two ways to pay by Permit2: exactly what is asked, where the seller asks for
// Permit2 (specs/schemes/exact), and up to that, where the seller charges after it served
// (specs/schemes/upto). Who signs reads them by package permit2/check.
//
// What must stay true: of upto all that was signed for counts until the chain shows the charge.
//
// The files: permit2.go (what a seller's offer needs), payer.go (whether it can be paid, funds, sign),
// approve.go (what Permit2 may move), status.go and settlement.go (what became of it).
package permit2

import (
	"context"
	"strconv"

	"x402-wallet/history"
	"x402-wallet/scheme"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/wire"
)

// Exact is a scheme.Way.
type Exact struct {
	scheme.Plain
	// ApprovalGas is, by network, what an approval may cost that a seller sends, in wei; missing: none is
	// signed.
	ApprovalGas map[string]money.Amount
}

// Upto is a scheme.Way.
type Upto struct {
	Exact
	// KnowsFacilitator reports whether an address is one that the owner's facilitators settle from. It is nil
	// if none is.
	KnowsFacilitator func(ctx context.Context, network, address string) bool
}

func (Exact) Name() string { return x402.Permit2 }

func (Upto) Name() string { return x402.Upto }

// AskChainAgain implements scheme.Way: sellers answer 412 permit2_allowance_required about a payment that
// they have settled.
func (Exact) AskChainAgain() bool { return true }

// SellerSettles implements scheme.Way: what a payment comes to only the seller knows.
func (Upto) SellerSettles() bool { return true }

// sponsoring is how a seller brings an approval of Permit2 to the chain together with a payment.
type sponsoring struct {
	bySignature   bool // eip2612GasSponsoring
	byTransaction bool // erc20ApprovalGasSponsoring, and the owner lets such be signed
	notLet        bool // erc20ApprovalGasSponsoring, and the owner does not
}

func (s sponsoring) isOffered() bool { return s.bySignature || s.byTransaction }

func (w Exact) sponsoringOf(o scheme.Option) (s sponsoring) {
	_, s.bySignature = o.Extensions[x402.EIP2612Sponsoring]
	_, offered := o.Extensions[x402.ERC20Sponsoring]
	s.byTransaction = offered && !w.ApprovalGas[o.Network].IsZero()
	s.notLet = offered && !s.byTransaction
	return s
}

// Spendable implements scheme.Way: it is what Permit2 may move, unless the seller brings an approval with the
// payment.
func (w Exact) Spendable(o scheme.Option, f x402.Funds) x402.Funds {
	if f.Permitted != nil && !w.sponsoringOf(o).isOffered() && f.Permitted.Cmp(f.Free) < 0 {
		f.Free = *f.Permitted
	}
	return f
}

// Lack implements scheme.Way, where only the approval of Permit2 stands in the way.
func (w Exact) Lack(o scheme.Option, f x402.Funds) error {
	s := w.sponsoringOf(o)
	if f.Permitted == nil || s.isOffered() || o.Amount.Cmp(*f.Permitted) <= 0 || o.Amount.Cmp(f.Balance) > 0 {
		return nil
	}
	return notApproved(o, f, s.notLet)
}

// Turns implements scheme.Way, for a payment that brings an approval: a token takes approvals (EIP-2612) in
// the order of their nonces, an account its transactions in the order of theirs, and each is used up by its
// own payment.
func (w Exact) Turns(o scheme.Option, f x402.Funds) []string {
	s := w.sponsoringOf(o)
	if !s.isOffered() || f.Permitted == nil || f.Permitted.Cmp(o.Amount) >= 0 {
		return nil
	}
	turns := []string{"approvals " + o.Network + " " + o.Token.Key().Address + " " + f.Source}
	if s.byTransaction {
		turns = append(turns, scheme.AccountTurn(o.Network))
	}
	return turns
}

// notApproved is the refusal of an option that Permit2 may not move, because the account that pays never
// approved it, or not so much.
func notApproved(o scheme.Option, funds x402.Funds, notLet bool) error {
	network := x402.Title(o.Network)
	code := x402.DelegationExhausted
	if funds.Permitted.IsZero() {
		code = x402.NoDelegation
	}
	amount := o.Amount.Units(o.Token.Decimals) + " " + o.Token.Symbol
	why := "the seller offers no signed approval (" + x402.EIP2612Sponsoring + ")"
	hint := "take another option or seller; or the owner approves it, for this payment or more: the " +
		"amount is a cap on all of them"
	if notLet {
		why = "the approval that the seller would send is a transaction of that account (" +
			x402.ERC20Sponsoring + "), and the owner's rules let none be signed"
		hint += "; or lets such be signed, each for one payment: approval_gas under [networks." +
			strconv.Quote(o.Network) + "] in config.toml is what its gas may cost"
	}
	return x402.Errorf(code, "the seller wants to be paid by Permit2, which may move %s from the agent's "+
		"account on %s, and the price is %s; %s",
		o.Token.Dollars(*funds.Permitted).Price(), network, o.Price.Price(), why).WithHint("%s", hint).
		WithDetail("layer", "chain").WithDetail("network", o.Network).WithDetail("asset", o.Token.Address).
		WithDetail("symbol", o.Token.Symbol).WithDetail("source", funds.Source).
		WithDetail("available", *funds.Permitted).WithDetail("requested", o.Amount).
		WithDetail("balance", funds.Balance).
		WithCommand(x402.Command("delegation", "permit2", "--network", o.Network, "--asset", o.Token.Symbol,
			"--amount", o.Amount.Units(o.Token.Decimals)),
			"Please have my account "+funds.Source+" approve Permit2 "+
				"(0x000000000022D473030F116dDEE9F6B43aC78BA3) for "+amount+" ("+o.Token.Address+") on "+
				network+", so that I can pay "+o.Price.Price()+".")
}

// AlwaysAsk implements scheme.Way. What a payment comes to is the word of who settles it: of a facilitator
// that the seller alone names it would be the seller's own.
func (w Upto) AlwaysAsk(ctx context.Context, r x402.Requirement) string {
	facilitator := r.ExtraString("facilitatorAddress")
	if w.KnowsFacilitator != nil && w.KnowsFacilitator(ctx, r.Network, facilitator) {
		return ""
	}
	return x402.StrangeFacilitator(facilitator)
}

func (Upto) ApprovalTerms(r x402.Requirement) []string {
	return []string{r.ExtraString("facilitatorAddress")}
}

// OpenDespite implements scheme.Way: a receipt says what was charged.
func (Upto) OpenDespite(r wire.Settlement, paid history.Payment) string {
	charged, err := money.ParseAmount(r.Amount)
	switch {
	case r.Amount == "" || (err == nil && !charged.IsZero() && charged.Cmp(paid.Amount) <= 0):
		return ""
	case err == nil && charged.IsZero():
		return "the seller charged nothing so far; what was signed for may be charged until it expires"
	}
	return "the receipt says that more was charged than was signed for, which cannot be"
}

func (Upto) Charged(p history.Payment) *money.Amount {
	if p.Receipt == nil {
		return nil
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

// NoReceipt implements scheme.Way: a receipt says what the chain showed that was charged.
func (Upto) NoReceipt(p history.Payment) error {
	if p.Proof == history.Chain {
		return nil
	}
	return x402.Errorf(x402.InvalidArgument, "what the payment came to rests on the seller's word").
		WithHint("x402-wallet reconcile asks the chain")
}
