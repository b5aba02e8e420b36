// Package batch is the way to pay from a deposit by vouchers (specs/schemes/batch-settlement): what a call
// takes of its channel, a voucher alone or a deposit with it; the book of what the seller says it charged;
// channels that an owner funds; and the way out. Who signs reads vouchers by package batch/check.
//
// A deposit of the agent's counts in the owner's windows in full, as any payment, from the moment it is
// held: it is money that left. Vouchers move nothing that was not deposited, so they count in no window
// again, and what comes back is not given back to the windows either. So in no window more can leave than
// its limit, whatever sellers claim. All other rules (per_call, approval, payees, rate) hold for each
// voucher at its price.
//
// What must stay true: the seller alone claims what vouchers promise, and for one call it gets one voucher
// more at most, whatever it says.
//
// The contract: authorize.go, message.go and ownersdeposit.go (what is signed for it), contract.go (what it
// says). The book: batch.go, book.go, plan.go, take.go (a call), owners.go, fund.go, read.go, and close.go
// (the way out).
package batch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"x402-wallet/history"
	"x402-wallet/scheme"
	"x402-wallet/scheme/permit2"
	"x402-wallet/seller"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/onchain"
	"x402-wallet/x402/wire"
)

// Channels are all channels with a deposit: a scheme.Channelled. Its zero value has none. All fields are set
// before its first use and not changed afterwards; it is safe for concurrent use.
type Channels struct {
	scheme.Plain
	Chain      Chain
	ByPermit2  permit2.Exact // knows what Permit2 may move, for deposits by it
	MayPermit  bool          // the owner's rules have Permit2
	Ledger     Ledger        // it is nil where there are no channels
	Guard      Guard
	Sellers    Sellers
	Engine     Engine
	Assets     *x402.Registry
	MaxDeposit money.Dollars // that may lie in the channels of one seller (policy.channel_deposit)
	Deadline   time.Duration // for asking a seller and its chain about one channel
	Now        func() time.Time
	Log        *slog.Logger
}

// Chain is the contract of the channels, and what is signed for it: Contract.
type Chain interface {
	// DepositFunds are those that the agent deposits from as r asks for it.
	DepositFunds(ctx context.Context, r x402.Requirement, asset x402.AssetInfo) (x402.Funds, error)
	// Config is the channel with who asks in r, funded by payer, and its id; "": by this wallet. Of several
	// that are the same but for it salt tells which is meant: 0x and 64 hex digits, or "" for zeros. It asks
	// nobody.
	Config(r x402.Requirement, asset x402.AssetInfo, payer, salt string) (x402.ChannelConfig, string, error)
	// OwnVoucher reports whether a voucher of a channel is signed by this wallet.
	OwnVoucher(network, id string, v x402.ChannelVoucher) bool
	ReadChannel(ctx context.Context, network, id string) (onchain.ChannelBalance, error)
	// OwnersUsed reports whether an owner's deposit was made, or taken back.
	OwnersUsed(ctx context.Context, network string, c x402.ChannelConfig, d x402.OwnersDeposit) (bool, error)
	// DraftOwners is a deposit for an owner to sign, TypedData what they sign, and Signed the deposit with
	// their signature, if it is that.
	DraftOwners(amount money.Amount, now time.Time) (x402.OwnersDeposit, error)
	TypedData(asset x402.AssetInfo, c x402.ChannelConfig, d x402.OwnersDeposit) (json.RawMessage, error)
	Signed(asset x402.AssetInfo, c x402.ChannelConfig, d x402.OwnersDeposit, signature [65]byte) (
		x402.OwnersDeposit, error)
	Address() string
	// Refund is the payload by which a seller is asked to give back what it did not charge.
	Refund(network string, c x402.ChannelConfig, v x402.ChannelVoucher) (json.RawMessage, error)
	// VoucherAlone is a payload without its deposit, and IsBrought reports whether the chain has that.
	VoucherAlone(network string, payload json.RawMessage) (json.RawMessage, error)
	IsBrought(ctx context.Context, network string, payload json.RawMessage) (bool, error)
	// Withdrawal is the transaction that asks the rest of a channel back, or takes it: from is its payer, or
	// who signs its vouchers.
	Withdrawal(ctx context.Context, network, from string, c x402.ChannelConfig, b onchain.ChannelBalance) (
		onchain.OwnerTransaction, error)
}

// Ledger is its part about channels, and the ends of their payments: locks.Book.
type Ledger interface {
	LockChannel(ctx context.Context, service, key string) (unlock func(), err error)
	Channel(ctx context.Context, service, key string) (history.Channel, error)
	BatchChannels(ctx context.Context) ([]history.Channel, error)
	BatchChannelsWith(ctx context.Context, host string) ([]history.Channel, error)
	SaveChannel(ctx context.Context, c history.Channel) error

	Payment(ctx context.Context, id string) (history.Payment, error)
	Finish(ctx context.Context, id string, o history.Outcome) (history.Payment, error)
	Deliver(ctx context.Context, id string) error
}

// Guard is that of the payments: seal.Guard.
type Guard interface {
	CheckConfig(ctx context.Context) error // before a seller is asked, or a node
	Expire(ctx context.Context, p history.Payment, status x402.Status) (history.Payment, error)
}

// Sellers are asked for money back: seller.Client.
type Sellers interface {
	Present(ctx context.Context, r seller.Request, with wire.Attachment) (*seller.Answer, error)
}

// Engine is the life of the payments: pay.Engine.
type Engine interface {
	// Offered is the option of a way that the seller at a URL offers and that could be paid, and its host;
	// network "": on any. It is nil where the seller offers none.
	Offered(ctx context.Context, way, url, network string) (o *scheme.Option, host string, err error)
	// AskChain asks the chain what became of a payment, and writes down what that proves.
	AskChain(ctx context.Context, p history.Payment) history.Payment
	// Detached is a context for writing down how a call ended: it goes on a little when the call's is over.
	Detached(ctx context.Context) (context.Context, context.CancelFunc)
}

var _ scheme.Channelled = (*Channels)(nil)

func (*Channels) Name() string { return x402.BatchSettlement }

func (*Channels) OwnAccountOnly() bool { return true }

// SellerSettles implements scheme.Way: the seller counts what a channel holds.
func (*Channels) SellerSettles() bool { return true }

// WhyNot implements scheme.Way: an owner who leaves Permit2 out has no deposit by it either.
func (b *Channels) WhyNot(_ scheme.Call, o scheme.Option) error {
	if !o.ByPermit2() || b.MayPermit {
		return nil
	}
	return x402.Errorf(x402.InvalidRequirement, "the seller takes deposits by Permit2, and the owner's "+
		"rules do not have that (policy.schemes)").
		WithHint("nothing was signed; take another option or seller")
}

func (b *Channels) Spendable(o scheme.Option, f x402.Funds) x402.Funds {
	return b.ByPermit2.Spendable(o, f)
}

func (b *Channels) Lack(o scheme.Option, f x402.Funds) error { return b.ByPermit2.Lack(o, f) }

func (b *Channels) Turns(o scheme.Option, f x402.Funds) []string { return b.ByPermit2.Turns(o, f) }

// NoReceipt implements scheme.Way: a voucher is for all that its channel's seller charged.
func (*Channels) NoReceipt(p history.Payment) error {
	return x402.Errorf(x402.InvalidArgument, "it was paid through a channel with a deposit, of which no "+
		"receipt is made: a voucher is for all that the seller charged").
		WithHint("its voucher and what the seller said are in x402-wallet show %s", p.ID)
}

// channel is one of them: its row in the ledger, and what is in it. The row's own book may be older.
type channel struct {
	history.Channel
	signed history.BatchSigned
	book   history.BatchBook
}

func read(row history.Channel) (c channel, err error) {
	c.Channel = row
	c.signed, c.book, err = row.Batch()
	return c, err
}

// find is the channel with an id in which a key signs vouchers; history.ErrNotFound: the ledger knows none.
func (b *Channels) find(ctx context.Context, id, key string) (c channel, err error) {
	row, err := b.Ledger.Channel(ctx, id, key)
	if err != nil {
		return c, err
	}
	return read(row)
}

func (b *Channels) save(ctx context.Context, c channel) error {
	return b.Ledger.SaveChannel(ctx, c.WithBook(c.book))
}

// unclaimed is what lies in the channel and was not charged.
func (c channel) unclaimed() money.Amount { return c.book.Holds().SubFloor(c.Claimed) }

func (b *Channels) Channel(o scheme.Option, agent string) (id string, err error) {
	_, id, err = b.Chain.Config(o.Requirement, o.Token, "", saltOf(agent))
	return id, err
}

// saltOf tells an agent's channels with deposits from those of others with the same seller: what is deposited
// counts in the windows of who deposits it, so nobody else spends it. It follows from the name, so that a
// lost book is no lost channel.
func saltOf(agent string) string {
	if agent == "" {
		return ""
	}
	sum := sha256.Sum256([]byte("x402-wallet agent " + agent))
	return "0x" + hex.EncodeToString(sum[:])
}

// Lock implements scheme.Channelled. It waits for its turn with the channels of a host, because what lies
// with a seller is added up, and then with the channel that is used, because a voucher builds on the one
// before: other hosts of the same seller have it, too.
func (b *Channels) Lock(ctx context.Context, network, host, channel string) (unlock func(), err error) {
	ofHost, err := b.Ledger.LockChannel(ctx, b.Name()+" "+network, host)
	if err == nil {
		var ofChannel func()
		ofChannel, err = b.Ledger.LockChannel(ctx, channel, b.Chain.Address())
		if err == nil {
			return sync.OnceFunc(func() { ofChannel(); ofHost() }), nil
		}
		ofHost()
	}
	if ctx.Err() != nil {
		return nil, x402.Errorf(x402.Timeout, "other calls to the seller use its channel, one at a time").
			WithHint("make the same call again; nothing was held or signed for it")
	}
	return nil, err
}
