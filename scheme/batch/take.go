package batch

import (
	"context"
	"errors"
	"time"

	"x402-wallet/history"
	"x402-wallet/scheme"
	"x402-wallet/x402"
	"x402-wallet/x402/channelterms"
	"x402-wallet/x402/money"
	"x402-wallet/x402/onchain"
)

func (b *Channels) Propose(ctx context.Context, call scheme.ChannelCall, save bool) (*scheme.ChannelUse,
	error) {
	c, changed, err := b.open(ctx, call, save)
	if err != nil {
		return nil, err
	}
	asked, err := channelterms.Of(call.Requirement)
	if err != nil {
		return nil, err
	}
	state := c.state()
	state.price, state.minDeposit = call.Amount, asked.MinDeposit
	if c.signed.IsOwners() {
		return b.proposeOwners(call, c, state)
	}
	room, lies, err := b.roomWith(ctx, call.Host, c)
	if err != nil {
		return nil, err
	}
	state.most = call.Token.Units(room)
	if call.Most.Cmp(state.most) < 0 {
		state.most = call.Most
	}
	ceiling, deposit, err := state.plan()
	switch {
	case errors.Is(err, errDepositOpen):
		return nil, b.depositOpen(ctx, call.Option, *c.book.Deposit)
	case err != nil:
		if err := call.Beyond(deposit, room); err != nil {
			return nil, err
		}
		return nil, b.depositTooMuch(call, call.Token.Dollars(deposit), lies)
	}
	use := c.use(call, onchain.ChannelOrder{Salt: saltOf(call.Agent), Ceiling: ceiling, Deposit: deposit})
	use.AlwaysAsk = changed
	if deposit.IsZero() {
		use.Prepaid = true // it was counted with its deposit
		use.Funds = b.fundsIn(c, c.unclaimed())
		return use, nil
	}
	use.Amount = deposit
	funds, err := b.Chain.DepositFunds(ctx, call.Requirement, call.Token)
	call.Amount = deposit
	use.Funds = b.Spendable(call.Option, funds)
	return use, err
}

func (c channel) use(call scheme.ChannelCall, order onchain.ChannelOrder) *scheme.ChannelUse {
	order.Config, order.Number, order.Shown = c.signed.Config, c.Nonce+1, c.book.Shown
	return &scheme.ChannelUse{Channel: c.ID, Price: call.Amount, Amount: call.Amount, Order: order,
		Signed: func(payment string, v x402.ChannelVoucher) (history.Channel, error) {
			return c.WithBook(c.book).WithVoucher(payment, v, order.Deposit)
		}}
}

func (b *Channels) fundsIn(c channel, left money.Amount) x402.Funds {
	return x402.Funds{Source: c.Source, Balance: left, Free: left, ReadAt: b.Now()}
}

// open is the channel that a call is paid through, with its book brought up to date. changed says what a
// person has to be asked about: that a seller with which there is a channel wants another one.
func (b *Channels) open(ctx context.Context, call scheme.ChannelCall, save bool) (c channel, changed string,
	err error) {
	if call.Channel == "" {
		c, changed, err = b.ofAgent(ctx, call)
	} else {
		c, err = b.find(ctx, call.Channel, b.Chain.Address())
		if err == nil {
			c, err = b.readOwners(ctx, c)
		}
	}
	if err == nil && save {
		c, err = b.updateBook(ctx, c)
		if err == nil {
			c.Server = call.Host
			err = b.save(ctx, c)
		}
	}
	if err == nil && c.book.Stopped != "" {
		err = c.stopped()
	}
	return c, changed, err
}

// ofAgent is the channel that an agent deposits in for an option: as it is known, or, where it is not, as the
// chain has it.
func (b *Channels) ofAgent(ctx context.Context, call scheme.ChannelCall) (c channel, changed string,
	err error) {
	config, id, err := b.Chain.Config(call.Requirement, call.Token, "", saltOf(call.Agent))
	if err != nil {
		return c, "", err
	}
	c, err = b.find(ctx, id, b.Chain.Address())
	if errors.Is(err, history.ErrNotFound) {
		var chain onchain.ChannelBalance
		chain, err = b.Chain.ReadChannel(ctx, call.Network, id)
		c = newChannel(call.Host, call.Network, id, config, chain)
	}
	if err != nil {
		return c, "", err
	}
	if c.signed.Config != config {
		return c, "", x402.Errorf(x402.LedgerCorrupt, "the channel %s has another config", c.ID)
	}
	changed, err = b.otherChannel(ctx, call.Host, c)
	return c, changed, err
}

// newChannel is a channel that the ledger does not know. What the chain knows of it was promised by a lost
// ledger's wallet: no less was charged.
func newChannel(host, network, id string, config x402.ChannelConfig, chain onchain.ChannelBalance) channel {
	c := channel{Channel: history.Channel{Service: id, Key: config.PayerAuthorizer, Server: host,
		Network: network, Source: config.Payer, ID: id, Amount: chain.Claimed, Claimed: chain.Claimed},
		signed: history.BatchSigned{Config: config},
		book:   history.BatchBook{Funds: chain.Balance, Block: chain.Block}}
	if !chain.WithdrawBegan.IsZero() {
		c.book.Stopped = withdrawn
	}
	if c.signed.IsOwners() {
		c.Source = id
	}
	c.Channel = c.WithSigned(c.signed)
	return c
}

// otherChannel says what differs from the newest channel with the same seller that still holds money; "":
// nothing, or there is none. Of a channel that was signed in nobody is asked again.
func (b *Channels) otherChannel(ctx context.Context, host string, c channel) (string, error) {
	if c.Nonce > 0 {
		return "", nil
	}
	rows, err := b.Ledger.BatchChannels(ctx)
	for _, row := range rows {
		other, err := read(row)
		if err != nil || other.Server != host || other.ID == c.ID || other.Network != c.Network ||
			other.signed.Config.Token != c.signed.Config.Token || other.unclaimed().IsZero() ||
			other.signed.IsOwners() {
			continue
		}
		if what := differs(other.signed.Config, c.signed.Config); what != "" {
			return "there is a channel with " + x402.Brief(host) + " that still holds money, and it " +
				"wants a deposit in another one: " + what, nil
		}
	}
	return "", err
}

// differs is the first difference of two channels in what a seller asks, as a person is told it; "": none.
func differs(was, is x402.ChannelConfig) string {
	for _, field := range []struct{ name, was, is string }{
		{"receiver", was.Receiver, is.Receiver},
		{"receiverAuthorizer", was.ReceiverAuthorizer, is.ReceiverAuthorizer},
		{"withdrawDelay", delay(was), delay(is)},
		{"token", was.Token, is.Token},
	} {
		if field.was != field.is {
			return field.name + " was " + field.was + " and is " + field.is
		}
	}
	return ""
}

func delay(c x402.ChannelConfig) string {
	return (time.Duration(c.WithdrawDelay) * time.Second).String()
}

// roomWith is how much more may be deposited with a host, in dollars: what policy.channel_deposit leaves of
// what lies in its channels. Whoever asks for a new channel each time gets no more by that.
func (b *Channels) roomWith(ctx context.Context, host string, c channel) (room, lies money.Dollars,
	err error) {
	rows, err := b.Ledger.BatchChannels(ctx)
	if err != nil {
		return 0, 0, err
	}
	for _, row := range rows {
		other, err := read(row)
		if err != nil {
			return 0, 0, err
		}
		if (other.Server != host && other.ID != c.ID) || other.signed.IsOwners() {
			continue
		}
		asset, known := b.Assets.Asset(other.Network, other.signed.Config.Token)
		if !known {
			return 0, 0, x402.Errorf(x402.UntrustedAsset, "the token of the channel with %s is no longer in "+
				"config.toml", x402.Brief(other.Server))
		}
		left := other.unclaimed()
		if d := other.book.Deposit; d != nil { // on its way
			left, _ = left.Add(d.Amount)
		}
		lies = lies.Add(asset.Dollars(left))
	}
	return b.MaxDeposit.SubFloor(lies), lies, nil
}

// depositTooMuch refuses a deposit for which the owner leaves too little room.
func (b *Channels) depositTooMuch(call scheme.ChannelCall, wants, lies money.Dollars) error {
	needed := lies.Add(wants)
	return x402.Errorf(x402.PolicyDenied, "the seller is paid from a deposit of %s at least, %s lies with "+
		"it already, and the owner lets %s lie with one seller", wants.Price(), lies.Price(),
		b.MaxDeposit.Price()).
		WithHint("channel_deposit = %q under [policy] would pass", needed.String()).
		WithDetail("layer", "channel_deposit").WithDetail("limit", b.MaxDeposit).
		WithDetail("spent", lies).WithDetail("requested", wants).WithDetail("needed", needed).
		WithCommand(x402.Command("policy", "seal"), x402.Brief(call.Host)+" wants a deposit of "+
			wants.Price()+": please set channel_deposit = \""+needed.String()+"\" under [policy] in "+
			"config.toml, and seal the rules, if so much may lie with it.")
}

// depositOpen refuses a call that needs a deposit while another one is on its way.
func (b *Channels) depositOpen(ctx context.Context, o scheme.Option, d history.BatchOpen) error {
	refused := x402.Errorf(x402.InsufficientFunds, "a deposit into the channel with the seller is on its "+
		"way, and what is in it does not cover the price %s", o.Price.Price()).
		WithHint("make the same call again when the chain has it, or shows that it cannot have it any more").
		WithDetail("deposit", d.Amount)
	refused.FixedBy, refused.PaymentID = x402.ByTime, d.Payment
	until := b.Now().Add(minWait)
	if p, err := b.Ledger.Payment(ctx, d.Payment); err == nil && p.Evidence.ExpiresAt.After(until) {
		until = p.Evidence.ExpiresAt
	}
	return refused.WaitUntil(until, "")
}

// minWait is how long a deposit takes to be final, about.
const minWait = time.Minute

// stopped refuses whatever would be signed in a channel whose seller did not keep to its terms, or whose
// money was asked back.
func (c channel) stopped() error {
	command := x402.Command("channel", "withdraw", c.Server)
	return x402.Errorf(x402.PolicyDenied, "nothing more is signed in the channel with %s: %s",
		x402.Brief(c.Server), c.book.Stopped).
		WithHint("the owner gets back what is left in it by: %s", command).
		WithDetail("channel", c.ID).
		WithCommand(command, "The channel with "+x402.Brief(c.Server)+" is stopped ("+c.book.Stopped+
			"): please ask back what is left in it.")
}
