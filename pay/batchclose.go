package pay

import (
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

// BatchReport is what is known of a channel with a deposit. Amounts are atomic units.
type BatchReport struct {
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

	row    history.Channel
	config x402.ChannelConfig
}

// BatchList is every channel with a deposit that the ledger knows; host: those of one seller, as the chain
// has them, too.
func (e *Engine) BatchList(ctx context.Context, host string) (list []BatchReport, err error) {
	rows, err := e.ChannelBook.BatchChannels(ctx)
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		if host != "" && row.Server != host {
			continue
		}
		r, err := e.batchReport(row)
		if err != nil {
			return nil, err
		}
		if host != "" {
			if chain, err := e.Channels.ReadChannel(ctx, row.Network, row.ID); err == nil {
				r.Claimed = &chain.Claimed
				r.Prices["claimed"] = e.priced(row, chain.Claimed)
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

func (e *Engine) batchReport(row history.Channel) (r BatchReport, err error) {
	signed, book, err := row.Batch()
	if err != nil {
		return r, err
	}
	r = BatchReport{Server: row.Server, Network: row.Network, Channel: row.ID, Asset: signed.Config.Token,
		Receiver: signed.Config.Receiver, Payer: signed.Config.Payer, IsOwners: signed.IsOwners(),
		Vouchers: row.Nonce, Deposited: book.Holds(), Charged: row.Claimed,
		Promised: row.Amount, Locked: book.Holds().SubFloor(row.Claimed), Delay: delay(signed.Config),
		Stopped: book.Stopped, IsOver: book.Over, row: row, config: signed.Config}
	base := batchState{promised: row.Amount, charged: row.Claimed, book: book}.base()
	r.Left = book.Holds().SubFloor(base)
	if book.Deposit != nil {
		r.Pending = book.Deposit.Amount
		r.Locked, _ = r.Locked.Add(r.Pending)
	}
	if d := book.Owners; d != nil && d.Signature != "" { // at the owner's account until a call brings it
		r.Pending = d.Value
	}
	r.Prices = map[string]string{"deposited": e.priced(row, r.Deposited), "charged": e.priced(row, r.Charged),
		"locked": e.priced(row, r.Locked), "left": e.priced(row, r.Left)}
	return r, nil
}

// priced is an amount of a channel's token in dollars.
func (e *Engine) priced(row history.Channel, amount money.Amount) string {
	signed, _, err := row.Batch()
	asset, known := e.Assets.Asset(row.Network, signed.Config.Token)
	if err != nil || !known {
		return amount.String()
	}
	return asset.Dollars(amount).Price()
}

// withBatch does something with each channel of a seller that still holds money, as the only one that uses
// them; it fails where there is none.
func (e *Engine) withBatch(ctx context.Context, host string, f func(BatchReport) error) error {
	if err := e.Guard.CheckConfig(ctx); err != nil {
		return err
	}
	list, err := e.BatchList(ctx, host)
	if err != nil {
		return err
	}
	for _, r := range list {
		err := func() error {
			unlock, err := e.lockChannels(ctx, r.Network, host, r.Channel)
			if err != nil {
				return err
			}
			defer unlock()
			row, err := e.ChannelBook.Channel(ctx, r.row.Service, r.row.Key)
			if err != nil {
				return err
			}
			signed, book, err := row.Batch()
			if err != nil {
				return err
			}
			if signed.IsOwners() {
				row, book, err = e.readOwners(ctx, row, book)
				if err != nil {
					return err
				}
			}
			if err := e.proveDeposits(ctx, book); err != nil {
				return err
			}
			row, book, err = e.updateBook(ctx, row, book)
			if err != nil {
				return err
			}
			now, err := e.batchReport(row.WithBook(book))
			if err == nil {
				err = f(now)
			}
			return err
		}()
		if err != nil {
			return err
		}
	}
	return nil
}

// proveDeposits asks the chain about the deposits that are there by their seller's word.
func (e *Engine) proveDeposits(ctx context.Context, book history.BatchBook) error {
	for _, d := range book.Taken {
		p, err := e.Store.Payment(ctx, d.Payment)
		if err != nil {
			return err
		}
		if p.State == history.Settled && p.Proof != history.Chain {
			e.askChain(ctx, p)
		}
	}
	return nil
}

// BatchRefund is what became of asking a seller for what it did not charge.
type BatchRefund struct {
	Channel     string       `json:"channel"`
	Payer       string       `json:"payer"`    // whom it came back to
	IsOwners    bool         `json:"isOwners"` // that is an owner, not the agent
	Refunded    money.Amount `json:"refunded"`
	Price       string       `json:"price"`
	Transaction string       `json:"transaction,omitempty"`
}

// RefundBatch asks a seller to give back what lies in its channels and was not charged. It shows the newest
// voucher that was charged, and promises nothing new. What came back the chain says.
func (e *Engine) RefundBatch(ctx context.Context, host string) (list []BatchRefund, err error) {
	list = []BatchRefund{}
	err = e.withBatch(ctx, host, func(r BatchReport) error {
		if r.Locked.IsZero() {
			return nil
		}
		refund, err := e.refund(ctx, r)
		if err == nil {
			list = append(list, refund)
		}
		return err
	})
	return list, err
}

func (e *Engine) refund(ctx context.Context, r BatchReport) (out BatchRefund, err error) {
	out.Channel, out.Payer, out.IsOwners = r.Channel, r.Payer, r.IsOwners
	signed, book, err := r.row.Batch()
	if err != nil {
		return out, err
	}
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
	p, err := e.Store.Payment(ctx, signed.Payment)
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
	payload, err := e.Channels.Refund(r.Network, r.config, *book.Charged)
	if err != nil {
		return out, err
	}
	asked.Dialect = p.Dialect
	payment, err := wire.EncodePayload(&wire.Challenge{Version: 2, Dialect: p.Dialect}, asked, payload, nil)
	if err != nil {
		return out, err
	}
	before, err := e.Channels.ReadChannel(ctx, r.Network, r.Channel)
	if err != nil {
		return out, err
	}
	if before.Block < book.Block {
		return out, nodeBehind(r.row, book, before)
	}
	answer, err := e.Transport.Present(ctx, e.target(intent{Request: Request{Request: seller.Request{
		Method: p.Method, URL: p.URL}}}, p), wire.Attach(p.Dialect, payment))
	if err != nil {
		return out, instead("the seller could not be asked: %v", x402.AsError(err).Message)
	}
	defer answer.Release()
	after, err := e.syncBatch(ctx, r)
	if err != nil {
		return out, err
	}
	out.Refunded = before.Balance.SubFloor(after.Balance)
	out.Price = e.priced(r.row, out.Refunded)
	if answer.Settlement != nil {
		out.Transaction = answer.Settlement.Transaction
	}
	if out.Refunded.IsZero() {
		return out, instead("the seller gave nothing back (status %d)", answer.Status)
	}
	return out, nil
}

// syncBatch reads a channel from the chain into its book: what came back is no longer there. A channel of an
// owner's, of which nothing is left to come back, is over until they fund it again. With errBehind nothing is
// written.
func (e *Engine) syncBatch(ctx context.Context, r BatchReport) (chain onchain.ChannelBalance, err error) {
	chain, err = e.Channels.ReadChannel(ctx, r.Network, r.Channel)
	if err != nil {
		return chain, err
	}
	signed, book, err := r.row.Batch()
	if err != nil {
		return chain, err
	}
	row, book, isNewer := seen(r.row, book, chain)
	if !isNewer {
		return chain, nodeBehind(row, book, chain)
	}
	isOut := chain.Balance == chain.Claimed && chain.WithdrawBegan.IsZero() && book.IsProven()
	if isOut && book.Stopped == withdrawn {
		book.Stopped = ""
	}
	if isOut && signed.IsOwners() {
		book.Over, book.Owners = true, nil
	}
	return chain, e.ChannelBook.SaveChannel(ctx, row.WithBook(book))
}

// withdrawn is why nothing is signed in a channel whose money was asked back.
const withdrawn = "its money was asked back"

// BatchWithdrawal is one step of taking a channel's money back without its seller.
type BatchWithdrawal struct {
	Channel     string                   `json:"channel"`
	Config      x402.ChannelConfig       `json:"config"`
	Amount      money.Amount             `json:"amount"`
	Price       string                   `json:"price"`
	Ready       time.Time                `json:"ready,omitzero"` // when the next step can be made; zero: now
	Transaction onchain.OwnerTransaction `json:"-"`
	IsLast      bool                     `json:"isLast"` // it takes what was asked back
}

// WithdrawBatch is the next step for each channel with a seller that still holds money. From then on nothing
// more is signed in it. do makes the transaction, or prints it; byAgent says that the agent's account makes
// it, also out of a channel that an owner funds, and else it is the payer's.
func (e *Engine) WithdrawBatch(ctx context.Context, host string, byAgent bool,
	do func(BatchWithdrawal) error) error {
	return e.withBatch(ctx, host, func(r BatchReport) error {
		chain, err := e.syncBatch(ctx, r)
		left := chain.Balance.SubFloor(chain.Claimed)
		if err != nil || left.IsZero() {
			return err
		}
		w := BatchWithdrawal{Channel: r.Channel, Config: r.config, Amount: left, Price: e.priced(r.row, left)}
		if began := chain.WithdrawBegan; !began.IsZero() {
			w.Amount, w.IsLast = chain.Withdrawing, true
			w.Price = e.priced(r.row, w.Amount)
			ready := began.Add(time.Duration(r.config.WithdrawDelay) * time.Second)
			if ready.After(chain.At) {
				w.Ready = ready
				return do(w)
			}
		}
		row, err := e.ChannelBook.Channel(ctx, r.row.Service, r.row.Key)
		if err != nil {
			return err
		}
		_, book, err := row.Batch()
		if err != nil {
			return err
		}
		book.Stopped = withdrawn
		if err := e.ChannelBook.SaveChannel(ctx, row.WithBook(book)); err != nil {
			return err
		}
		from := r.config.Payer
		if byAgent {
			from = r.config.PayerAuthorizer
		}
		w.Transaction, err = e.Channels.Withdrawal(ctx, r.Network, from, r.config, chain)
		if err != nil {
			return err
		}
		if err := do(w); err != nil {
			return err
		}
		r.row = row.WithBook(book)
		_, err = e.syncBatch(ctx, r)
		if errors.Is(err, context.Canceled) || errors.Is(err, errBehind) { // the next step reads it again
			return nil
		}
		return err
	})
}
