// Package scheme has the words by which the engine (package pay) asks about the ways to pay. Each way is a
// folder beside this file: what it makes of a challenge, why it cannot be paid, and the check of what is
// signed.
//
// What must stay true: a way says what is special about it, and decides nothing about money. The rules, the
// hold, the verdict and the states are the engine's, the same for all. A way with channels keeps their books,
// and ends vouchers by what those show.
package scheme

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"x402-wallet/history"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/wire"
)

// Call is a request to a seller that would be paid for.
type Call struct {
	IsMCP  bool // it is made to an MCP server
	Header http.Header
	Body   []byte
	Host   string // that asked to be paid, with its port
	Now    time.Time
}

// Option is one way to pay that a seller offers.
type Option struct {
	x402.Requirement
	Token x402.AssetInfo // of the registry
	Price money.Dollars
	// Extensions are what the challenge says beside its options.
	Extensions map[string]json.RawMessage
}

// Way is a way to pay. Embed Plain for what is not special about it. It is safe for concurrent use.
type Way interface {
	// Name is how policy.schemes and the ledger name it.
	Name() string
	// WhyNot says why an option cannot be paid for a call, beside what the chain's part says. It is nil if it
	// can be paid.
	WhyNot(c Call, o Option) error
	// AlwaysAsk says why a person is asked about an option, whatever it costs; "": for no such reason.
	AlwaysAsk(ctx context.Context, r x402.Requirement) string
	// ApprovalTerms are what a person's approval of an option is bound to, beside the terms of all options.
	ApprovalTerms(r x402.Requirement) []string
	// Spendable is what of funds an option can be paid with.
	Spendable(o Option, f x402.Funds) x402.Funds
	// Lack explains that the funds do not cover an option; nil where that is explained as for other ways.
	Lack(o Option, f x402.Funds) error
	// Turns name what a payment has to have to itself until it ends, in the order in which it is taken.
	Turns(o Option, f x402.Funds) []string
	// Fee is the most that an option may cost its buyer beside the price, in units of the option's token.
	Fee(o Option) money.Amount
	// OwnAccountOnly reports whether the wallet's own account alone can pay by it, and none of its others.
	OwnAccountOnly() bool
	// SellerSettles reports whether nobody else can settle: the wallet brings no payment to a facilitator.
	SellerSettles() bool
	// AskChainAgain reports whether the chain is asked about a payment that was shown again and refused,
	// because sellers refuse one that they have settled.
	AskChainAgain() bool
	// OpenDespite says why a payment is open although its receipt says that it was settled; "": it is not.
	OpenDespite(r wire.Settlement, paid history.Payment) string
	// Charged is what a payment came to by its receipt. It is nil if that is not known, or is what was signed
	// for.
	Charged(p history.Payment) *money.Amount
	// NoReceipt says why no receipt is made of a settled payment. It is nil if one is.
	NoReceipt(p history.Payment) error
}

// AccountTurn names the turn of the agent's own account on a network, whose transactions come one after
// another.
func AccountTurn(network string) string { return "account " + network }

// Plain is a Way with nothing special about it.
type Plain struct{}

func (Plain) WhyNot(Call, Option) error { return nil }

func (Plain) AlwaysAsk(context.Context, x402.Requirement) string { return "" }

func (Plain) ApprovalTerms(x402.Requirement) []string { return nil }

func (Plain) Spendable(_ Option, f x402.Funds) x402.Funds { return f }

func (Plain) Lack(Option, x402.Funds) error { return nil }

func (Plain) Turns(Option, x402.Funds) []string { return nil }

func (Plain) Fee(Option) money.Amount { return money.Amount{} }

func (Plain) OwnAccountOnly() bool { return false }

func (Plain) SellerSettles() bool { return false }

func (Plain) AskChainAgain() bool { return false }

func (Plain) OpenDespite(wire.Settlement, history.Payment) string { return "" }

func (Plain) Charged(history.Payment) *money.Amount { return nil }

func (Plain) NoReceipt(history.Payment) error { return nil }

// Source is an account of the owner's that pays in place of the agent's own, by signatures of the agent's
// key.
type Source interface {
	// Name is how alerts and metrics name it.
	Name() string
	// Account is its address on a network; "": there is none.
	Account(network string) string
	// Pays reports whether an option can be paid from it.
	Pays(r x402.Requirement) bool
	// Lack explains that it does not cover an option.
	Lack(o Option, f x402.Funds, lack *history.ShortOfFunds) error
	// Explain says what a person does about an error of reading it.
	Explain(err error, network string) error
}

// TooMuchAtOnce reports whether a price is above what one payment may be.
func TooMuchAtOnce(o Option, f x402.Funds) bool {
	return f.MaxPayment != nil && o.Amount.Cmp(*f.MaxPayment) > 0
}
