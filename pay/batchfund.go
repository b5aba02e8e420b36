package pay

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"x402-wallet/history"
	"x402-wallet/seller"
	"x402-wallet/x402"
	"x402-wallet/x402/channelterms"
	"x402-wallet/x402/money"
)

// An owner funds a channel with a seller: it is found by what the seller asks, written down with the owner's
// seal, and their deposit waits there for the next call, which brings it. Nothing is spent by that, and
// nothing is sent.

// OwnersChannel is a channel that an owner may fund, as its seller, the ledger and the chain have it. Amounts
// are atomic units.
type OwnersChannel struct {
	Server             string       `json:"server"`
	Network            string       `json:"network"`
	Channel            string       `json:"channel"`
	Owner              string       `json:"owner"` // whose money it is: the channel's payer
	Agent              string       `json:"agent"` // who signs its vouchers
	Receiver           string       `json:"receiver"`
	ReceiverAuthorizer string       `json:"receiverAuthorizer"`
	WithdrawDelay      string       `json:"withdrawDelay"`
	Asset              string       `json:"asset"`
	Symbol             string       `json:"symbol"`
	Price              string       `json:"price"`               // of this call
	MinDeposit         money.Amount `json:"minDeposit,omitzero"` // that the seller asks for
	Balance            money.Amount `json:"balance"`             // on the chain
	Claimed            money.Amount `json:"claimed"`             // likewise
	Promised           money.Amount `json:"promised"`            // the highest voucher that the ledger knows
	IsKnown            bool         `json:"isKnown"`             // to the ledger

	Token  x402.AssetInfo     `json:"-"`
	Config x402.ChannelConfig `json:"-"`
	row    history.Channel
}

// FindOwners asks the seller at a URL, and the chain, about the channel that an owner may fund with it;
// network "": any. Nothing is written.
func (e *Engine) FindOwners(ctx context.Context, url, owner, network string) (c OwnersChannel, err error) {
	in, err := Request{Request: seller.Request{Method: http.MethodGet, URL: url}, Network: network}.
		parse(AgentFrom(ctx))
	if err != nil {
		return c, err
	}
	if err := e.Guard.CheckConfig(ctx); err != nil {
		return c, err
	}
	if err := e.mayAsk(ctx, in.Request.Request, in.host); err != nil {
		return c, err
	}
	ctx, cancel := context.WithTimeout(ctx, e.Policy.Deadline)
	defer cancel()
	o, err := e.batchOption(ctx, in)
	if err != nil {
		return c, err
	}
	if err := channelterms.ForOwners(o.Requirement); err != nil {
		return c, err
	}
	asked, err := channelterms.Of(o.Requirement)
	if err != nil {
		return c, err
	}
	config, id, err := e.Channels.Config(o.Requirement, o.asset, owner, "")
	if err != nil {
		return c, err
	}
	if config.Payer == config.PayerAuthorizer || config.Payer == config.Receiver {
		return c, x402.Errorf(x402.InvalidArgument, "%s is the agent's own account, or the seller's",
			config.Payer).WithHint("--owner is the account of a person who funds the channel; the agent's " +
			"own deposits with its first call")
	}
	chain, err := e.Channels.ReadChannel(ctx, o.Network, id)
	if err != nil {
		return c, err
	}
	c = OwnersChannel{Server: in.host, Network: o.Network, Channel: id, Owner: config.Payer,
		Agent: config.PayerAuthorizer, Receiver: config.Receiver,
		ReceiverAuthorizer: config.ReceiverAuthorizer,
		WithdrawDelay:      delay(config), Asset: o.asset.Address, Symbol: o.asset.Symbol,
		Price:      o.price.Price(),
		MinDeposit: asked.MinDeposit, Balance: chain.Balance, Claimed: chain.Claimed, Token: o.asset,
		Config: config}
	c.row, err = e.ChannelBook.Channel(ctx, id, c.Agent)
	switch {
	case errors.Is(err, history.ErrNotFound):
		c.row, err = newBatchRow(in.host, o.Network, id, config, chain), nil
	case err == nil && c.row.Server != in.host:
		err = x402.Errorf(x402.InvalidArgument, "the channel is one with %s", x402.Brief(c.row.Server)).
			WithHint("a channel is paid through at the host at which its owner funded it")
	case err == nil:
		c.IsKnown = true
	}
	c.Promised = c.row.Amount
	return c, err
}

// batchOption is the option of this scheme that a seller offers and that could be paid.
func (e *Engine) batchOption(ctx context.Context, in intent) (o option, err error) {
	found, err := e.quote(ctx, in)
	if err != nil {
		return o, err
	}
	defer found.answer.Release()
	var options []option
	if found.challenge != nil {
		options = e.judge(found, in)
	}
	for _, o := range options {
		if o.isBatch() && o.why == nil {
			return o, nil
		}
		if o.isBatch() && err == nil {
			err = o.why
		}
	}
	if err == nil {
		err = x402.Errorf(x402.InvalidArgument, "%s does not ask to be paid through a channel with a deposit",
			x402.Brief(in.host)).WithHint("the URL is that of something the seller sells by batch-settlement")
	}
	return o, err
}

// FundOwners writes down that an owner funds a channel: seal makes their seal, where the ledger does not know
// the channel. d is their deposit, signed or to be signed; nil: there is none, and what lies there is enough.
// It takes the place of one that no call has brought yet.
func (e *Engine) FundOwners(ctx context.Context, c OwnersChannel, d *x402.OwnersDeposit,
	seal func(history.Channel) ([]byte, error)) error {
	fresh := c.row
	if !c.IsKnown { // a person may be asked, while other calls go on
		signed, _, err := fresh.Batch()
		if err != nil {
			return err
		}
		signed.Seal, err = seal(fresh)
		if err != nil {
			return err
		}
		fresh = fresh.WithSigned(signed)
	}
	unlock, err := e.lockChannels(ctx, c.Network, c.Server, c.Channel)
	if err != nil {
		return err
	}
	defer unlock()
	row, err := e.ChannelBook.Channel(ctx, c.Channel, c.Agent)
	if errors.Is(err, history.ErrNotFound) {
		row, err = fresh, nil
	}
	if err != nil {
		return err
	}
	_, book, err := row.Batch()
	if err != nil {
		return err
	}
	if row, book, err = e.readOwners(ctx, row, book); err != nil {
		return err
	}
	chain, err := e.Channels.ReadChannel(ctx, c.Network, c.Channel)
	if err != nil {
		return err
	}
	row, book, isNewer := seen(row, book, chain)
	if isNewer && chain.WithdrawBegan.IsZero() && book.Stopped == withdrawn {
		book.Stopped = ""
	}
	if book.Stopped != "" {
		return e.stopped(row, book)
	}
	book.Over = false
	if d != nil {
		book.Owners = d
	}
	return e.ChannelBook.SaveChannel(ctx, row.WithBook(book))
}

// DraftOwners is a deposit for the owner of a channel to sign.
func (e *Engine) DraftOwners(amount money.Amount) (x402.OwnersDeposit, error) {
	return e.Channels.DraftOwners(amount, e.Now())
}

// TypedData is what the owner of a channel signs for a deposit (eth_signTypedData_v4).
func (e *Engine) TypedData(c OwnersChannel, d x402.OwnersDeposit) (json.RawMessage, error) {
	return e.Channels.TypedData(c.Token, c.Config, d)
}

// SignedOwners is a deposit with its owner's signature, if it is that.
func (e *Engine) SignedOwners(c OwnersChannel, d x402.OwnersDeposit, signature [65]byte) (x402.OwnersDeposit,
	error) {
	return e.Channels.Signed(c.Token, c.Config, d, signature)
}

// Unsigned is the deposit of a channel that waits for its owner's signature.
func (c OwnersChannel) Unsigned() (x402.OwnersDeposit, error) {
	_, book, err := c.row.Batch()
	if err != nil {
		return x402.OwnersDeposit{}, err
	}
	if !c.IsKnown || book.Owners == nil || book.Owners.Signature != "" {
		return x402.OwnersDeposit{}, x402.Errorf(x402.InvalidArgument, "no deposit of %s into the channel "+
			"with %s waits for a signature", c.Owner, x402.Brief(c.Server)).
			WithHint("x402-wallet channel deposit URL --owner %s --amount TOKENS prints one", c.Owner)
	}
	return *book.Owners, nil
}
