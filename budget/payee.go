package budget

import (
	"math/big"
	"slices"
	"strconv"
	"strings"

	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// Payee is who would be paid, for what. Addresses are as the seller wrote them.
type Payee struct {
	Network string // CAIP-2
	Asset   string
	PayTo   string
	// what is bought: method, host and path. A query is an argument and not another thing to buy.
	Resource string
}

// PayeeHistory is what the ledger knows of a payee and of a price. A payment counts as paid from
// the moment its signed bytes are on disk until it is proven never to have happened.
type PayeeHistory struct {
	Paid     bool // the payTo was paid before on this network, for whatever host
	PaidHere bool // and for this host and asset
	// the payTo that was last paid, or is being paid, for this host, network and asset in its
	// place; "": none
	Other     string
	LastPrice *money.Dollars // what was paid last for this resource; nil: never bought
	SignedIn  bool           // the wallet signed in at this host before
}

// Changed reports whether others were paid in this payee's place, and it never was.
func (h PayeeHistory) Changed() bool { return h.Other != "" && !h.PaidHere }

type reason struct {
	Rule string `json:"rule"` // its key in config.toml
	Text string `json:"text"`
}

// unusual compares a payment with what is known. It refuses what the owner wants refused, and
// otherwise says why a person has to be asked:
//
//	rule           it is unusual that
//	payees         this payTo is not on the owner's list, which is refused
//	new_payee      this payTo was never paid on this network
//	payee_change   others were paid for this host, network and asset, and this payTo never was
//	price_jump     the price rose, to at least this many times what was paid last for the same resource
//	approve_above  the price is above it, and it is no subscription's, whose own max the owner sealed
//	always         it is of a kind that a person is asked about whatever it costs (Ask.Always)
//
// A payTo that was paid once is no change any more: hosts that sell for several payees are asked
// about once for each. Prices are compared in dollars, whatever the networks and assets.
func (r Rules) unusual(a Ask, known PayeeHistory) (reasons []reason, err error) {
	if a.SignIn {
		return r.signIn(a, known.SignedIn)
	}
	isListed, err := r.checkPayees(a)
	if err != nil {
		return nil, err
	}
	known.Paid = known.Paid || isListed
	payTo, other := x402.Brief(a.Payee.PayTo), x402.Brief(known.Other)
	switch {
	case known.Changed() && r.PayeeChange == RuleRefuse:
		return nil, x402.Errorf(x402.PayeeChanged, "%s was paid at %s before and now wants to be paid at %s",
			x402.Brief(a.Host), other, payTo).
			WithHint("tell the person: either the seller moved, or somebody else asks for its money").
			WithDetail("payTo", payTo).WithDetail("paidBefore", other).
			WithCommand(x402.Command("policy"), x402.Brief(a.Host)+" was paid at "+other+" before and now "+
				"asks to be paid at "+payTo+", which your rules refuse (payee_change): please ask the "+
				"seller whether it moved.")
	case !known.Paid && r.NewPayee == RuleRefuse:
		return nil, x402.Errorf(x402.PolicyDenied,
			"%s was never paid before, and the owner allows no new payees", payTo).
			WithHint("tell the person who wants to be paid; sellers that were paid before can be paid").
			WithDetail("payTo", payTo).
			WithCommand(x402.Command("policy"), x402.Brief(a.Host)+" wants to be paid at "+payTo+", which "+
				"was never paid before, and your rules allow no new payees (new_payee).")
	}
	add := func(unusual bool, rule string, text ...string) {
		if unusual {
			reasons = append(reasons, reason{Rule: rule, Text: strings.Join(text, "")})
		}
	}
	add(a.Always != "", "always", a.Always)
	add(a.Price > r.ApproveAbove && !a.isSubscription(), "approve_above",
		"the price ", a.Price.Price(), " is above what is paid without asking, ", r.ApproveAbove.Price())
	add(known.Changed() && r.PayeeChange == RuleAsk, "payee_change",
		x402.Brief(a.Host), " was paid at ", other, " before, and now wants to be paid at ", payTo)
	add(!known.Paid && r.NewPayee == RuleAsk, "new_payee", payTo, " was never paid before")
	if last := known.LastPrice; last != nil {
		add(r.jumps(*last, a.Price), "price_jump",
			"the price ", a.Price.Price(), " is at least ", decimal(r.PriceJump), " times the last one, ",
			last.Price())
	}
	return reasons, nil
}

// mostPayees is how many of the owner's payees a refusal names.
const mostPayees = 10

// checkPayees refuses who is not one of the owner's payees, where there is a list of them.
func (r Rules) checkPayees(a Ask) (isListed bool, err error) {
	if len(r.Payees) == 0 || slices.ContainsFunc(r.Payees, a.Payee.is) {
		return len(r.Payees) > 0, nil
	}
	payTo, network := x402.Brief(a.Payee.PayTo), x402.Title(a.Payee.Network)
	return false, x402.Errorf(x402.PolicyDenied, "%s on %s is not one of the %d payees that the owner allows",
		payTo, network, len(r.Payees)).
		WithHint("another seller may be paid; who is one is the owner's to say").
		WithDetail("payTo", payTo).WithDetail("network", a.Payee.Network).
		WithDetail("payees", r.Payees[:min(len(r.Payees), mostPayees)]).
		WithCommand(x402.Command("policy"), x402.Brief(a.Host)+" wants to be paid at "+payTo+" on "+network+
			", which is not among payees in your config.toml: please add it there if you want what is sold.")
}

// is reports whether an entry of the owner's names the payee.
func (p Payee) is(entry string) bool {
	address := strings.TrimPrefix(entry, p.Network+":")
	if strings.HasPrefix(p.Network, "eip155:") {
		return strings.EqualFold(address, p.PayTo)
	}
	return address == p.PayTo
}

// signIn is unusual of a sign-in: nobody is paid, and the site learns that this wallet is there.
func (r Rules) signIn(a Ask, known bool) (reasons []reason, err error) {
	switch {
	case r.SignIn == RuleRefuse:
		return nil, x402.Errorf(x402.PolicyDenied, "the owner does not let the wallet sign in anywhere").
			WithHint("what asks to sign in is not had; what is for sale is paid for").
			WithCommand(x402.Command("policy"), x402.Brief(a.Host)+" asks to sign in with the wallet, which "+
				"your rules refuse (sign_in).")
	case r.SignIn == RuleAsk && !known:
		return []reason{{Rule: "sign_in", Text: "the wallet never signed in at " + x402.Brief(a.Host) +
			" before"}}, nil
	}
	return nil, nil
}

// jumps compares in decimal, as the owner wrote the factor: 1.1 times $0.10 is $0.11 and not a hair
// more. The same price never jumps.
func (r Rules) jumps(last, price money.Dollars) bool {
	factor, ok := r.jumpFactor()
	if !ok || price <= last {
		return false
	}
	limit := factor.Mul(factor, new(big.Rat).SetInt64(int64(last)))
	return new(big.Rat).SetInt64(int64(price)).Cmp(limit) >= 0
}

// jumpFactor is PriceJump in decimal; false: there is no such rule.
func (r Rules) jumpFactor() (*big.Rat, bool) {
	factor, ok := new(big.Rat).SetString(decimal(r.PriceJump))
	return factor, ok && r.PriceJump != 0
}

func decimal(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// askPerson is the answer where a person is needed, and nobody has approved yet.
func askPerson(a Ask, reasons []reason) error {
	return x402.Errorf(x402.ApprovalRequired, "%s", texts(reasons)).
		WithHint("a person has to approve this payment").WithDetail("requested", a.Price).
		WithDetail("reasons", reasons).WithDetail("payTo", x402.Brief(a.Payee.PayTo))
}
