package scheme

import (
	"context"
	"encoding/json"

	"x402-wallet/history"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/onchain"
	"x402-wallet/x402/wire"
)

// Channelled is a way whose payments go through channels that hold money. Each has a book: what was promised
// to its seller, and what that has charged. One call at a time uses a channel, of all processes, from before
// its money is held until its end is written down.
type Channelled interface {
	Way
	// KeptTo says how a host is paid with which an owner funds a channel. It is nil where none does.
	KeptTo(ctx context.Context, host string) (Kept, error)
	// Channel names the channel that an agent pays an option through with its own deposits.
	Channel(o Option, agent string) (id string, err error)
	// Lock waits for its turn with a channel, and with all others of its host.
	Lock(ctx context.Context, network, host, channel string) (unlock func(), err error)
	// Propose says what a call takes of its channel. Without save nothing is written, and no payment is
	// looked up.
	Propose(ctx context.Context, c ChannelCall, save bool) (*ChannelUse, error)
	// ShownAgain is the payload by which a payment is shown to its seller once more.
	ShownAgain(ctx context.Context, p history.Payment) json.RawMessage
	// Count writes down what a seller's answer to a payment says of the channel. The channel is this call's.
	Count(ctx context.Context, p history.Payment, a ChannelAnswer) (Counted, error)
	// EndVoucher ends a payment by a voucher that moved nothing by itself: charged, as the seller's books
	// show, or not, so that the purchase may begin anew; false: it stays as it is.
	EndVoucher(ctx context.Context, p history.Payment, charged bool) bool
	// IsEmptied reports whether a state of the chain ends a payment by a voucher: nothing is left for it
	// there, after all that was deposited.
	IsEmptied(ctx context.Context, p history.Payment, s x402.Status) bool
}

// Kept says which channel of an owner's an option is paid through, or why it is not paid.
type Kept func(o Option) (channel string, why *x402.Error, err error)

// ChannelCall is a call that would be paid through a channel.
type ChannelCall struct {
	Option
	Agent, Host string       // as the owner's rules name them
	URL         string       // as the ledger keeps it
	Channel     string       // of an owner's, which it is kept to; "": the agent pays with its own deposits
	Most        money.Amount // that one deposit may be, by per_call and by the caller's offer
	// Beyond refuses the least deposit that would do, where these are against it, and not that there is so
	// little room for deposits with the host.
	Beyond func(least money.Amount, room money.Dollars) error
}

// ChannelUse is what a call takes of its channel.
type ChannelUse struct {
	Channel   string       // its id, to which a person's approval is bound
	Price     money.Amount // of the call
	Amount    money.Amount // that is held: the price, or a deposit
	Funds     x402.Funds   // that it is taken of
	Prepaid   bool         // it counts nothing in the owner's windows, where it was counted before
	AlwaysAsk string       // as Way.AlwaysAsk
	Order     onchain.ChannelOrder
	// Signed is the channel's row after a voucher was signed for a payment.
	Signed func(payment string, v x402.ChannelVoucher) (history.Channel, error)
}

// ChannelAnswer is what a seller answered to a payment.
type ChannelAnswer struct {
	Settlement *wire.Settlement // it is nil if none came
	Challenge  *wire.Challenge  // likewise
	Again      bool             // the payment may have been shown before
}

// Counted is what a seller's answer means for the payment that was shown.
type Counted string

// What it can mean.
const (
	CountNothing  Counted = ""         // it says nothing that binds: the voucher may be charged still
	CountCharged  Counted = "charged"  // it was, by this call
	CountBefore   Counted = "before"   // it was, by an earlier call
	CountRejected Counted = "rejected" // it was not, and the book is right now
	CountTooMuch  Counted = "too much" // charged, and more than its price: nothing more is signed
)
