// Package selling has the words in which the paywall asks about the ways to be paid. Each way is a folder
// beside this one, and its package sell is the seller's side of it: what it adds to an offer, how a payment
// is read and compared with its offer, and what is counted and claimed later.
//
// What must stay true: what is read of a payment is compared with all of what was asked: network, asset,
// amount and payee. Its unique key is the same for every spelling of it. A way knows no other way, and no
// paywall: the order of a sale's steps and the table of its ends are the paywall's, the same for all.
package selling

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"x402-wallet/facilitator"
	"x402-wallet/paywall/book"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// What a sale can fail with.
var (
	ErrRejected   = errors.New("the payment is not valid for this")
	ErrInvalid    = errors.New("the payment cannot be parsed")
	ErrNotSettled = errors.New("the payment was not settled")
	ErrBook       = errors.New("the book of sales could not be read or written")
)

// Why a payment is not what was asked for, in the reference server's words where it has any.
var (
	ErrPayee   = fmt.Errorf("%w: it pays another payee", ErrRejected)
	ErrAmount  = fmt.Errorf("%w: it pays another amount", ErrRejected)
	ErrAsset   = fmt.Errorf("%w: it pays in another asset", ErrRejected)
	ErrNotYet  = fmt.Errorf("%w: it is not valid yet", ErrRejected)
	ErrExpired = fmt.Errorf("%w: it has expired, or is about to", ErrRejected)
)

// Way is a way to be paid. Embed Plain for what is not special about it. It is safe for concurrent use.
type Way interface {
	Traits() Traits
	// SettlerIn names the member of an offer's extra that says who alone can settle a payment on a network.
	// It is "" where whoever knows the scheme can.
	SettlerIn(network string) string
	// Complete takes what else the seller says into an option whose price is known, and refuses what cannot
	// be sold by it.
	Complete(o *Option, said Said, s Shop) error
	// Extra adds to an offer's extra. k is the only kind that settles it; it is zero where there are others.
	Extra(o Option, k facilitator.Kind, extra map[string]json.RawMessage) error
	// Extension returns what a challenge declares beside its options because of this one. The name is ""
	// where that is nothing.
	Extension(o Option) (name string, declaration json.RawMessage)
	// Accepted are the terms of an offer as a buyer accepted them, where those are ours, too.
	Accepted(ours x402.Requirement, theirs json.RawMessage) x402.Requirement
	// Read reads a payment, and compares it with what was asked. What it returns with ErrExpired is complete,
	// because the payment may have had its run.
	Read(p Shown, s Shop) (Signed, error)
}

// Traits say of a way what the paywall has to know.
type Traits struct {
	Name   string // in the book of sales
	Scheme string // in offers
	// IsByPermit2: the seller may ask that Permit2 moves the money, and tokens without EIP-3009 need it.
	IsByPermit2 bool
	// IsNewer: it is for EVM networks and version 2 alone.
	IsNewer bool
	// IsMPPAlone: it is asked for by a Protocol, and no option of x402.
	IsMPPAlone bool
	// IsMetered: what is signed is the most that a call can cost, and what it does cost is settled.
	IsMetered bool
	// DoubtsRefusals: the refusal of a settlement proves nothing, because a payment that was used before is
	// refused for other reasons, too.
	DoubtsRefusals bool
}

// Claimer is a way that counts what it sells, and whose money is claimed later.
type Claimer interface {
	// Claim claims all that is owed. What is not done with an error is tried again by the next call.
	Claim(ctx context.Context, s Shop) ([]Claim, error)
	// IsClaimDue reports whether something that is owed is as old as age, or cannot wait, or whether all that
	// is owed comes to above. An above of 0 is never reached.
	IsClaimDue(ctx context.Context, s Shop, age time.Duration, above money.Dollars) bool
}

// Claim has all that was claimed and paid out at once, for one payee.
type Claim struct {
	Network, PayTo, Asset string
	Channels              int
	Amount                money.Amount // claimed now, in atomic units
	Transactions          []string     // the claims', then of the payment
}

// Said has the seller's words about an option, besides its price.
type Said struct {
	Scheme        string
	ByPermit2     bool // the seller asks for it, or the token has no EIP-3009
	MinDeposit    string
	WithdrawDelay time.Duration
	IsUpfront     bool          // it is settled before the call runs
	MaxTimeout    time.Duration // how long the call may run
}

// Option is one way to pay for something.
type Option struct {
	Way     Way
	Network string
	PayTo   string
	Amount  money.Amount
	Price   money.Dollars
	Asset   x402.AssetInfo
	// Of channels: the least deposit, and how long a buyer's money stays after they asked it back.
	MinDeposit    money.Amount
	WithdrawDelay time.Duration
}

// Shown is a payment that a buyer shows.
type Shown struct {
	Option  Option           // that it is for, as it says
	Asked   x402.Requirement // its terms in the payment's version
	Version int
	Raw     json.RawMessage // the PaymentPayload
	Payload json.RawMessage // its payload
	Nonce   *[32]byte       // the only one that is taken; nil where any is
}

// Signed has what a payment's own signature covers, as far as a way reads it.
type Signed struct {
	UniqueKey string // the nonce or message hash: the same for every spelling of this payment
	Payer     string // "" where it is not read
	Expires   time.Time
	Evidence  x402.Evidence // what the chain can be asked by; zero where it cannot be
	Tab       Tab           // nil where the payment is settled by itself
}

// IsRefund reports whether the buyer asks money back, and buys nothing.
func (s Signed) IsRefund() bool { return s.Tab != nil && s.Tab.IsRefund() }

// Tab counts a payment in something of the buyer's that lasts, such as a channel, in the order of these
// methods. One sale has it, in one goroutine.
type Tab interface {
	IsRefund() bool
	// Count compares the payment with what was counted before.
	Count(ctx context.Context) error
	// Check says why the payment is not good, by what a facilitator says that found it valid.
	Check(ctx context.Context, said map[string]json.RawMessage) (refusal string, err error)
	// Open opens the sale that it pays for: no other request counts until it is released.
	Open(ctx context.Context, sale book.Sale) (book.Sale, error)
	// Settle counts the payment; as is how a facilitator is given it. What was counted is on disk when it
	// returns.
	Settle(ctx context.Context, as func() facilitator.Submission, sale *book.Sale) Counted
	// Refund gives back what is left, instead of Open and Settle.
	Refund(ctx context.Context, as func() facilitator.Submission) (Counted, error)
	// Release ends what Open began for a sale, where nothing was counted.
	Release(ctx context.Context, sale string)
	// Corrected are an offer's terms with what was counted, for a buyer who counts otherwise.
	Corrected(o Option, terms json.RawMessage) json.RawMessage
}

// Counted is how a settlement in a Tab ended.
type Counted struct {
	facilitator.Result
	Extra  json.RawMessage // of its receipt
	Answer map[string]any  // to who asked money back
}

// Refusal is why a Tab does not take a payment: Reason is for the buyer.
type Refusal struct {
	Reason string
	Cause  error
}

func (r *Refusal) Error() string { return r.Reason }

func (r *Refusal) Unwrap() error { return r.Cause }

// Settler verifies and settles payments. A Way that does so itself needs no facilitator. All methods are
// called concurrently.
type Settler interface {
	Verify(ctx context.Context, s facilitator.Submission) (facilitator.Verdict, error)
	Settle(ctx context.Context, s facilitator.Submission) facilitator.Result
}

// Facilitators verify and settle payments; *facilitator.Client does. All methods are called concurrently.
type Facilitators interface {
	Settler
	Supported(ctx context.Context, network string) ([]facilitator.Kind, error)
}

// Channels are where channels are written. Each is held by one request at a time, in whatever process.
type Channels interface {
	// SoldChannel is a channel as it stands, or book.ErrNotFound.
	SoldChannel(ctx context.Context, network, id string) (book.SoldChannel, error)
	// OwedChannels are those out of which not all that was charged has been paid out.
	OwedChannels(ctx context.Context) ([]book.SoldChannel, error)
	// OpenChannelSale opens a sale that holds the channel: see book.Book.
	OpenChannelSale(ctx context.Context, sale book.Sale, c book.SoldChannel, until time.Time) (
		book.Sale, error)
	// HoldChannel gives the channel to a request that is no sale.
	HoldChannel(ctx context.Context, c book.SoldChannel, holder string, until time.Time) error
	// ChargeChannel settles the sale by its voucher. It is durable when it returns.
	ChargeChannel(ctx context.Context, sale book.Sale, c book.SoldChannel) error
	// UpdateSoldChannel changes what is known of a channel, and ends the hold of holder.
	UpdateSoldChannel(ctx context.Context, network, id, holder string,
		change func(*book.SoldChannel)) error
}

// Shop has all that a way needs of its paywall.
type Shop struct {
	Channels
	Facilitators
	Assets      *x402.Registry
	VerifyOnly  bool // it settles nothing
	SharedPayTo bool // others sell for the same payee with another book
	Now         func() time.Time
	Margin      time.Duration // what settling needs before a payment expires
	Patience    time.Duration // how long a buyer waits to hear whether a payment was settled
	WakeClaims  func()        // has it look at once whether a claim is due
	Log         *slog.Logger
}

// Plain is a Way with nothing special about it.
type Plain struct{}

func (Plain) SettlerIn(string) string { return "" }

func (Plain) Complete(_ *Option, said Said, _ Shop) error {
	if said.MinDeposit != "" || said.WithdrawDelay != 0 {
		return errors.New("a least deposit and a delay are for the scheme batch-settlement")
	}
	return nil
}

func (Plain) Extension(Option) (string, json.RawMessage) { return "", nil }

func (Plain) Accepted(ours x402.Requirement, _ json.RawMessage) x402.Requirement { return ours }
