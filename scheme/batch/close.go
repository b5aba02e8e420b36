package batch

import (
	"cmp"
	"context"
	"errors"
	"time"

	"x402-wallet/history"
	"x402-wallet/seller"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/onchain"
	"x402-wallet/x402/wire"
)

// The way out of a channel with a deposit: asked of its seller, who then gives back what it did not charge at
// once; or taken without it, by two transactions with the channel's delay between them. Either way the money
// goes to the account from which it came: the agent's, or that of the owner who funds the channel.

// Report is what is known of a channel with a deposit. Amounts are atomic units.
type Report struct {
	Server    string            `json:"server"`
	Network   string            `json:"network"`
	Channel   string            `json:"channel"`
	Asset     string            `json:"asset"`
	Receiver  string            `json:"receiver"`
	Payer     string            `json:"payer"`             // whose money it is, and comes back to
	IsOwners  bool              `json:"isOwners"`          // that is an owner, not the agent
	Vouchers  uint64            `json:"vouchers"`          // that were signed
	Deposited money.Amount      `json:"deposited"`         // and not given back
	Pending   money.Amount      `json:"pending,omitzero"`  // deposited, and not known to be on the chain
	Charged   money.Amount      `json:"charged"`           // by the seller, as it says
	Promised  money.Amount      `json:"promised"`          // the highest voucher: the most that it can claim
	Locked    money.Amount      `json:"locked"`            // what was not charged
	Left      money.Amount      `json:"left"`              // what is not promised, either
	Claimed   *money.Amount     `json:"claimed,omitempty"` // on the chain, where that was asked
	Delay     string            `json:"withdrawDelay"`
	Stopped   string            `json:"stopped,omitempty"`
	IsOver    bool              `json:"isOver,omitempty"` // an owner had back what was left of it
	Prices    map[string]string `json:"prices"`           // of deposited, charged, locked, left and claimed

	of channel
}

// List is every channel with a deposit that the ledger knows; host: those of one seller, as the chain
// has them, too.
func (b *Channels) List(ctx context.Context, host string) (list []Report, err error) {
	rows, err := b.Ledger.BatchChannels(ctx)
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		if host != "" && row.Server != host {
			continue
		}
		c, err := read(row)
		if err != nil {
			return nil, err
		}
		r := b.report(c)
		if host != "" {
			if chain, err := b.Chain.ReadChannel(ctx, row.Network, row.ID); err == nil {
				r.Claimed = &chain.Claimed
				r.Prices["claimed"] = b.priced(c, chain.Claimed)
			}
		}
		list = append(list, r)
	}
	if host != "" && list == nil {
		return nil, x402.Errorf(x402.InvalidArgument, "there is no channel with a deposit with %s",
			x402.Quote(host)).WithHint("x402-wallet channel list shows those that there are")
	}
	return list, nil
}

func (b *Channels) report(c channel) Report {
	config, holds := c.signed.Config, c.book.Holds()
	r := Report{Server: c.Server, Network: c.Network, Channel: c.ID, Asset: config.Token,
		Receiver: config.Receiver, Payer: config.Payer, IsOwners: c.signed.IsOwners(), Vouchers: c.Nonce,
		Deposited: holds, Charged: c.Claimed, Promised: c.Amount, Locked: c.unclaimed(),
		Left: holds.SubFloor(c.state().base()), Delay: delay(config), Stopped: c.book.Stopped,
		IsOver: c.book.Over, of: c}
	if c.book.Deposit != nil {
		r.Pending = c.book.Deposit.Amount
		r.Locked, _ = r.Locked.Add(r.Pending)
	}
	if d := c.book.Owners; d != nil && d.Signature != "" { // at the owner's account until a call brings it
		r.Pending = d.Value
	}
	r.Prices = map[string]string{"deposited": b.priced(c, r.Deposited), "charged": b.priced(c, r.Charged),
		"locked": b.priced(c, r.Locked), "left": b.priced(c, r.Left)}
	return r
}

// priced is an amount of a channel's token in dollars.
func (b *Channels) priced(c channel, amount money.Amount) string {
	asset, known := b.Assets.Asset(c.Network, c.signed.Config.Token)
	if !known {
		return amount.String()
	}
	return asset.Dollars(amount).Price()
}

// Each does something with each channel of a seller that still holds money, as the only one that uses
// them; it fails where there is none.
func (b *Channels) Each(ctx context.Context, host string, f func(Report) error) error {
	if err := b.Guard.CheckConfig(ctx); err != nil {
		return err
	}
	list, err := b.List(ctx, host)
	for _, r := range list {
		if err == nil {
			err = b.with(ctx, host, r.of, f)
		}
	}
	return err
}

// with does something with one channel, as the only one that uses it, after its book was brought up to date.
func (b *Channels) with(ctx context.Context, host string, c channel, f func(Report) error) error {
	unlock, err := b.Lock(ctx, c.Network, host, c.ID)
	if err != nil {
		return err
	}
	defer unlock()
	c, err = b.find(ctx, c.Service, c.Key)
	if err == nil && c.signed.IsOwners() {
		c, err = b.readOwners(ctx, c)
	}
	if err == nil {
		err = b.proveDeposits(ctx, c.book)
	}
	if err == nil {
		c, err = b.updateBook(ctx, c)
	}
	if err != nil {
		return err
	}
	return f(b.report(c))
}

// proveDeposits asks the chain about the deposits that are there by their seller's word.
func (b *Channels) proveDeposits(ctx context.Context, book history.BatchBook) error {
	for _, d := range book.Taken {
		p, err := b.Ledger.Payment(ctx, d.Payment)
		if err != nil {
			return err
		}
		if p.State == history.Settled && p.Proof != history.Chain {
			b.Engine.AskChain(ctx, p)
		}
	}
	return nil
}

// Refund is what became of asking a seller for what it did not charge.
type Refund struct {
	Channel     string       `json:"channel"`
	Payer       string       `json:"payer"`    // whom it came back to
	IsOwners    bool         `json:"isOwners"` // that is an owner, not the agent
	Refunded    money.Amount `json:"refunded"`
	Price       string       `json:"price"`
	Transaction string       `json:"transaction,omitempty"`
}

// Refund asks a seller to give back what lies in its channels and was not charged. It shows the newest
// voucher that was charged, and promises nothing new. What came back the chain says.
func (b *Channels) Refund(ctx context.Context, host string) (list []Refund, err error) {
	list = []Refund{}
	err = b.Each(ctx, host, func(r Report) error {
		if r.Locked.IsZero() {
			return nil
		}
		refund, err := b.askBack(ctx, r)
		if err == nil {
			list = append(list, refund)
		}
		return err
	})
	return list, err
}

func (b *Channels) askBack(ctx context.Context, r Report) (out Refund, err error) {
	out.Channel, out.Payer, out.IsOwners = r.Channel, r.Payer, r.IsOwners
	config, book := r.of.signed.Config, r.of.book
	instead := func(format string, args ...any) error {
		command := x402.Command("channel", "withdraw", r.Server)
		return x402.Errorf(x402.PaymentRejected, format, args...).
			WithHint("it comes back without the seller in %s by: %s", r.Delay, command).
			WithCommand(command, "The seller did not give back the deposit: please take it back without it.")
	}
	if book.Charged == nil || book.Charged.Ceiling != r.Charged || len(book.Vouchers) > 0 {
		return out, instead("what the seller charged last is not known to the unit, and then it gives " +
			"nothing back")
	}
	p, err := b.Ledger.Payment(ctx, r.of.signed.Payment)
	if err != nil {
		return out, err
	}
	if seller.IsMCP(p.Method) {
		return out, instead("a seller over MCP is not asked to give a deposit back")
	}
	asked, err := x402.DecodeRequirement(p.Requirement, 2)
	if err != nil {
		return out, err
	}
	payload, err := b.Chain.Refund(r.Network, config, *book.Charged)
	if err != nil {
		return out, err
	}
	asked.Dialect = p.Dialect
	payment, err := wire.EncodePayload(&wire.Challenge{Version: 2, Dialect: p.Dialect}, asked, payload, nil)
	if err != nil {
		return out, err
	}
	before, err := b.Chain.ReadChannel(ctx, r.Network, r.Channel)
	if err != nil {
		return out, err
	}
	if before.Block < book.Block {
		return out, r.of.nodeBehind(before)
	}
	answer, err := b.Sellers.Present(ctx, seller.Request{Method: p.Method, URL: cmp.Or(p.Target, p.URL)},
		wire.Attach(p.Dialect, payment))
	if err != nil {
		return out, instead("the seller could not be asked: %v", x402.AsError(err).Message)
	}
	defer answer.Release()
	after, err := b.sync(ctx, r.of)
	if err != nil {
		return out, err
	}
	out.Refunded = before.Balance.SubFloor(after.Balance)
	out.Price = b.priced(r.of, out.Refunded)
	if answer.Settlement != nil {
		out.Transaction = answer.Settlement.Transaction
	}
	if out.Refunded.IsZero() {
		return out, instead("the seller gave nothing back (status %d)", answer.Status)
	}
	return out, nil
}

// sync reads a channel from the chain into its book: what came back is no longer there. A channel of an
// owner's, of which nothing is left to come back, is over until they fund it again. With errBehind nothing is
// written.
func (b *Channels) sync(ctx context.Context, c channel) (chain onchain.ChannelBalance, err error) {
	chain, err = b.Chain.ReadChannel(ctx, c.Network, c.ID)
	if err != nil {
		return chain, err
	}
	c, isNewer := c.seen(chain)
	if !isNewer {
		return chain, c.nodeBehind(chain)
	}
	isOut := chain.Balance == chain.Claimed && chain.WithdrawBegan.IsZero() && c.book.IsProven()
	if isOut && c.book.Stopped == withdrawn {
		c.book.Stopped = ""
	}
	if isOut && c.signed.IsOwners() {
		c.book.Over, c.book.Owners = true, nil
	}
	return chain, b.save(ctx, c)
}

// withdrawn is why nothing is signed in a channel whose money was asked back.
const withdrawn = "its money was asked back"

// Withdrawal is one step of taking a channel's money back without its seller.
type Withdrawal struct {
	Channel     string                   `json:"channel"`
	Config      x402.ChannelConfig       `json:"config"`
	Amount      money.Amount             `json:"amount"`
	Price       string                   `json:"price"`
	Ready       time.Time                `json:"ready,omitzero"` // when the next step can be made; zero: now
	Transaction onchain.OwnerTransaction `json:"-"`
	IsLast      bool                     `json:"isLast"` // it takes what was asked back
}

// Withdraw is the next step for each channel with a seller that still holds money. From then on nothing
// more is signed in it. do makes the transaction, or prints it; byAgent says that the agent's account makes
// it, also out of a channel that an owner funds, and else it is the payer's.
func (b *Channels) Withdraw(ctx context.Context, host string, byAgent bool,
	do func(Withdrawal) error) error {
	return b.Each(ctx, host, func(r Report) error {
		c, config := r.of, r.of.signed.Config
		chain, err := b.sync(ctx, c)
		left := chain.Balance.SubFloor(chain.Claimed)
		if err != nil || left.IsZero() {
			return err
		}
		w := Withdrawal{Channel: r.Channel, Config: config, Amount: left, Price: b.priced(c, left)}
		if began := chain.WithdrawBegan; !began.IsZero() {
			w.Amount, w.IsLast = chain.Withdrawing, true
			w.Price = b.priced(c, w.Amount)
			ready := began.Add(time.Duration(config.WithdrawDelay) * time.Second)
			if ready.After(chain.At) {
				w.Ready = ready
				return do(w)
			}
		}
		c, err = b.find(ctx, c.Service, c.Key)
		if err != nil {
			return err
		}
		c.book.Stopped = withdrawn
		if err := b.save(ctx, c); err != nil {
			return err
		}
		from := config.Payer
		if byAgent {
			from = config.PayerAuthorizer
		}
		w.Transaction, err = b.Chain.Withdrawal(ctx, r.Network, from, config, chain)
		if err == nil {
			err = do(w)
		}
		if err != nil {
			return err
		}
		_, err = b.sync(ctx, c)
		if errors.Is(err, context.Canceled) || errors.Is(err, errBehind) { // the next step reads it again
			return nil
		}
		return err
	})
}
