package batch

import (
	"context"
	"encoding/json"
	"errors"

	"x402-wallet/history"
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
	of     channel
}

// FindOwners asks the seller at a URL, and the chain, about the channel that an owner may fund with it;
// network "": any. Nothing is written.
func (b *Channels) FindOwners(ctx context.Context, url, owner, network string) (c OwnersChannel, err error) {
	ctx, cancel := context.WithTimeout(ctx, b.Deadline)
	defer cancel()
	o, host, err := b.Engine.Offered(ctx, b.Name(), url, network)
	if err != nil {
		return c, err
	}
	if o == nil {
		return c, x402.Errorf(x402.InvalidArgument, "%s does not ask to be paid through a channel with a "+
			"deposit", x402.Brief(host)).
			WithHint("the URL is that of something the seller sells by batch-settlement")
	}
	if err := channelterms.ForOwners(o.Requirement); err != nil {
		return c, err
	}
	asked, err := channelterms.Of(o.Requirement)
	if err != nil {
		return c, err
	}
	config, id, err := b.Chain.Config(o.Requirement, o.Token, owner, "")
	if err != nil {
		return c, err
	}
	if config.Payer == config.PayerAuthorizer || config.Payer == config.Receiver {
		return c, x402.Errorf(x402.InvalidArgument, "%s is the agent's own account, or the seller's",
			config.Payer).WithHint("--owner is the account of a person who funds the channel; the agent's " +
			"own deposits with its first call")
	}
	chain, err := b.Chain.ReadChannel(ctx, o.Network, id)
	if err != nil {
		return c, err
	}
	c = OwnersChannel{Server: host, Network: o.Network, Channel: id, Owner: config.Payer,
		Agent: config.PayerAuthorizer, Receiver: config.Receiver, Asset: o.Token.Address,
		ReceiverAuthorizer: config.ReceiverAuthorizer, WithdrawDelay: delay(config), Symbol: o.Token.Symbol,
		Price: o.Price.Price(), MinDeposit: asked.MinDeposit, Balance: chain.Balance, Claimed: chain.Claimed,
		Token: o.Token, Config: config}
	c.of, err = b.find(ctx, id, c.Agent)
	switch {
	case errors.Is(err, history.ErrNotFound):
		c.of, err = newChannel(host, o.Network, id, config, chain), nil
	case err == nil && c.of.Server != host:
		err = x402.Errorf(x402.InvalidArgument, "the channel is one with %s", x402.Brief(c.of.Server)).
			WithHint("a channel is paid through at the host at which its owner funded it")
	case err == nil:
		c.IsKnown = true
	}
	c.Promised = c.of.Amount
	return c, err
}

// FundOwners writes down that an owner funds a channel: seal makes their seal, where the ledger does not know
// the channel. d is their deposit, signed or to be signed; nil: there is none, and what lies there is enough.
// It takes the place of one that no call has brought yet.
func (b *Channels) FundOwners(ctx context.Context, c OwnersChannel, d *x402.OwnersDeposit,
	seal func(history.Channel) ([]byte, error)) error {
	fresh := c.of
	if !c.IsKnown { // a person may be asked, while other calls go on
		var err error
		fresh.signed.Seal, err = seal(fresh.WithBook(fresh.book))
		if err != nil {
			return err
		}
		fresh.Channel = fresh.WithSigned(fresh.signed)
	}
	unlock, err := b.Lock(ctx, c.Network, c.Server, c.Channel)
	if err != nil {
		return err
	}
	defer unlock()
	now, err := b.find(ctx, c.Channel, c.Agent)
	if errors.Is(err, history.ErrNotFound) {
		now, err = fresh, nil
	}
	if err == nil {
		now, err = b.readOwners(ctx, now)
	}
	if err != nil {
		return err
	}
	chain, err := b.Chain.ReadChannel(ctx, c.Network, c.Channel)
	if err != nil {
		return err
	}
	now, isNewer := now.seen(chain)
	if isNewer && chain.WithdrawBegan.IsZero() && now.book.Stopped == withdrawn {
		now.book.Stopped = ""
	}
	if now.book.Stopped != "" {
		return now.stopped()
	}
	now.book.Over = false
	if d != nil {
		now.book.Owners = d
	}
	return b.save(ctx, now)
}

// DraftOwners is a deposit for the owner of a channel to sign.
func (b *Channels) DraftOwners(amount money.Amount) (x402.OwnersDeposit, error) {
	return b.Chain.DraftOwners(amount, b.Now())
}

// TypedData is what the owner of a channel signs for a deposit (eth_signTypedData_v4).
func (b *Channels) TypedData(c OwnersChannel, d x402.OwnersDeposit) (json.RawMessage, error) {
	return b.Chain.TypedData(c.Token, c.Config, d)
}

// SignedOwners is a deposit with its owner's signature, if it is that.
func (b *Channels) SignedOwners(c OwnersChannel, d x402.OwnersDeposit, signature [65]byte) (
	x402.OwnersDeposit, error) {
	return b.Chain.Signed(c.Token, c.Config, d, signature)
}

// Unsigned is the deposit of a channel that waits for its owner's signature.
func (c OwnersChannel) Unsigned() (x402.OwnersDeposit, error) {
	d := c.of.book.Owners
	if !c.IsKnown || d == nil || d.Signature != "" {
		return x402.OwnersDeposit{}, x402.Errorf(x402.InvalidArgument, "no deposit of %s into the channel "+
			"with %s waits for a signature", c.Owner, x402.Brief(c.Server)).
			WithHint("x402-wallet channel deposit URL --owner %s --amount TOKENS prints one", c.Owner)
	}
	return *d, nil
}
