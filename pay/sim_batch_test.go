//go:build !race

package pay

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"x402-wallet/internal/must"
	"x402-wallet/scheme/batch"
	"x402-wallet/x402"
	"x402-wallet/x402/channelterms"
	"x402-wallet/x402/money"
	"x402-wallet/x402/onchain"
)

// channelWorld is a world with sellers that are paid through channels with a deposit (batch-settlement): the
// contract, and what the wallet signs for it. sim_batchseller_test.go is what such sellers do,
// sim_batchumpire_test.go what must stay true.
type channelWorld struct {
	batches    [3]bool       // sellers that ask for it
	besides    bool          // they take exact payments, too
	shops      int           // receiverAuthorizers that a seller uses, one after the other as it likes
	shared     bool          // all hosts are one seller's, with the same channels
	least      uint64        // deposit that they want; 0: they name none
	most       uint64        // policy.channel_deposit
	lying      bool          // some of them count otherwise than they should
	channels   []*simChannel // in the order in which they were first signed for
	locks      map[channelName]*simLock
	askingBack bool // money of a channel, just now
	ownersWorld
}

// simChannel is one channel: the contract's part, its seller's, and the umpire's.
type simChannel struct {
	agent    string // who deposits
	id, host string
	config   x402.ChannelConfig

	balance, claimed uint64 // of what was deposited and not returned
	withdrawing      uint64
	began            time.Time
	returned         uint64
	past             []channelMoment

	charged uint64               // in all
	newest  *x402.ChannelVoucher // that it charged
	held    []*signature         // vouchers that were shown to it
	stops   string               // the seller said that it charged too much, and that was written down

	promised uint64 // the highest voucher on disk

	// of one that an owner funds: what they deposited in all, and since when it alone is paid through
	put  uint64
	kept time.Time
}

// channelMoment is a channel from some time on.
type channelMoment struct {
	at                            time.Time
	balance, claimed, withdrawing uint64
	began                         time.Time
}

// promise is the voucher of a payment.
type promise struct {
	channel  *simChannel
	number   uint64
	ceiling  uint64
	price    uint64
	call     int    // in which it was signed
	text     string // its signature
	kept     bool   // it is on disk
	charged  bool
	deposits bool // a deposit comes with it
	brings   *ownersDeposit
	alone    bool // and was left out when it was shown last
}

func (s *sim) channel(id string) *simChannel {
	for _, c := range s.channels {
		if c.id == id {
			return c
		}
	}
	return nil
}

// markChannel notes how a channel stands now.
func (s *sim) markChannel(c *simChannel) {
	c.past = append(c.past, channelMoment{s.now(), c.balance, c.claimed, c.withdrawing, c.began})
}

// seen is a channel as the node has it.
func (s *sim) seenChannel(id string) (was channelMoment) {
	view := s.now().Add(-s.node.lag)
	if c := s.channel(id); c != nil {
		for _, m := range c.past {
			if !m.at.After(view) {
				was = m
			}
		}
	}
	return was
}

// blockOf is the number of the block of a time.
func blockOf(at time.Time) uint64 { return uint64(at.UnixNano()) }

// seenBlock is the newest block of the node.
func (s *sim) seenBlock() uint64 { return blockOf(s.now().Add(-s.node.lag)) }

// deposit is what the contract does with a deposit that is settled.
func (s *sim) deposit(g *signature) {
	c := g.promise.channel
	c.balance += g.moved
	s.markChannel(c)
}

// giveBack moves what nobody can claim of a channel to its payer's account.
func (s *sim) giveBack(c *simChannel, amount uint64) {
	amount = min(amount, c.balance-c.claimed)
	c.balance -= amount
	c.returned += amount
	s.markChannel(c)
	s.say("      %d of the channel %s comes back", amount, c.id[:8])
	if c.isOwners() {
		return
	}
	s.balance += amount
	s.returned = append(s.returned, refund{s.now(), amount})
	if s.floats {
		s.own += amount
	}
	s.mark()
}

// refund is money that came back.
type refund struct {
	at     time.Time
	amount uint64
}

// returnedBy is what had come back of all channels at a time.
func (s *sim) returnedBy(at time.Time) (sum uint64) {
	for _, r := range s.returned {
		if !r.at.After(at) {
			sum += r.amount
		}
	}
	return sum
}

// simChannels is a process's signer and node for channels.
type simChannels struct{ simScheme }

// VoucherAlone says so beside what a payment goes by.
func (*simChannels) VoucherAlone(_ string, payload json.RawMessage) (json.RawMessage, error) {
	return json.RawMessage(strings.Replace(string(payload), "{", aloneMark, 1)), nil
}

const aloneMark = `{"alone":true,`

var _ batch.Chain = (*simChannels)(nil)

func (c *simChannels) Address() string { return c.s.host(9) }

func (c *simChannels) Config(r x402.Requirement, asset x402.AssetInfo, payer, salt string) (
	config x402.ChannelConfig, id string, err error) {
	t, err := channelterms.Of(r)
	if err != nil {
		return config, "", err
	}
	config = x402.ChannelConfig{Payer: cmp.Or(payer, c.Address()), PayerAuthorizer: c.Address(),
		Receiver: r.PayTo, ReceiverAuthorizer: t.ReceiverAuthorizer, Token: asset.Address,
		WithdrawDelay: int64(t.WithdrawDelay / time.Second), Salt: cmp.Or(salt, "0x00")}
	text, err := json.Marshal(config)
	return config, fmt.Sprintf("0x%x", sha256.Sum256(text)), err
}

// voucherText is what stands for the signature of a voucher: nobody else can make it.
func voucherText(seed uint64, id string, ceiling uint64) string {
	return fmt.Sprintf("0x%x", sha256.Sum256(fmt.Appendf(nil, "the key of %d: %s %d", seed, id, ceiling)))
}

func (c *simChannels) DepositFunds(ctx context.Context, r x402.Requirement, asset x402.AssetInfo) (x402.Funds,
	error) {
	return c.Funds(ctx, r.Network, asset)
}

func (c *simChannels) OwnVoucher(_, id string, v x402.ChannelVoucher) bool {
	ceiling, _ := v.Ceiling.Uint64()
	return v.Signature == voucherText(c.s.seed, id, ceiling)
}

func (c *simChannels) ReadChannel(ctx context.Context, _, id string) (b onchain.ChannelBalance, err error) {
	s := c.s
	if s.at(ctx, c.p, "ReadChannel", s.mix.funds...) == "no answer" || s.node.down || ctx.Err() != nil {
		return b, x402.Errorf(x402.RPCError, "the node is down")
	}
	m := s.seenChannel(id)
	return onchain.ChannelBalance{Balance: money.NewAmount(m.balance), Claimed: money.NewAmount(m.claimed),
		Withdrawing: money.NewAmount(m.withdrawing), WithdrawBegan: m.began, Block: s.seenBlock(),
		At: s.now().Add(-s.node.lag)}, nil
}

func (c *simChannels) Refund(_ string, of x402.ChannelConfig, v x402.ChannelVoucher) (json.RawMessage,
	error) {
	ceiling, _ := v.Ceiling.Uint64()
	for _, known := range c.s.channels {
		if known.config == of {
			return json.RawMessage(fmt.Sprintf(`{"refund":%q,"ceiling":"%d","signature":%q}`, known.id, ceiling,
				v.Signature)), nil
		}
	}
	return nil, errors.New("no such channel")
}

func (c *simChannels) Withdrawal(ctx context.Context, _, _ string, of x402.ChannelConfig,
	_ onchain.ChannelBalance) (onchain.OwnerTransaction, error) {
	c.s.at(ctx, c.p, "Withdrawal")
	return onchain.OwnerTransaction{From: of.Payer}, nil
}

// Authorize signs the voucher that o.Channel orders, and its deposit.
func (c *simChannels) Authorize(ctx context.Context, o onchain.Order) (a onchain.Authorization, err error) {
	s, of := c.s, o.Channel
	deposit, _ := of.Deposit.Uint64()
	ceiling, _ := of.Ceiling.Uint64()
	price, _ := o.Requirement.Amount.Uint64()
	a, err = c.simScheme.Authorize(ctx, o)
	if err != nil {
		return a, err
	}
	_, id, err := c.Config(o.Requirement, o.Asset, of.Config.Payer, of.Salt)
	if err != nil {
		return a, err
	}
	at := s.channel(id)
	if at == nil {
		at = &simChannel{id: id, agent: actorOf(ctx).call.of.agent,
			host: s.hostOf(actorOf(ctx).call.of.url), config: of.Config}
		s.channels = append(s.channels, at)
		s.markChannel(at)
	}
	g := s.sigs[len(s.sigs)-1]
	if at.agent != g.agent && of.Config.Payer == c.Address() { // what an owner deposits is for all agents
		s.fail("I7: %q spends what %q deposited", g.agent, at.agent)
	}
	g.amount = deposit
	g.promise = &promise{channel: at, number: of.Number, ceiling: ceiling, price: price,
		call: actorOf(ctx).id, text: voucherText(s.seed, id, ceiling), deposits: deposit > 0}
	s.say("      with voucher %d of %s: %d for %d", of.Number, id[:8], ceiling, price)
	if d := of.Owners; d != nil {
		g.promise.brings = s.ownersDeposit(d.Salt)
		a.Payload = withOwners(a.Payload, d.Salt)
	}
	a.Evidence.Payer = of.Config.Payer
	a.Voucher = &x402.ChannelVoucher{Ceiling: of.Ceiling, Signature: g.promise.text}
	a.Evidence.Channel, a.Evidence.Ceiling, a.Evidence.Number = id, of.Ceiling, of.Number
	a.Evidence.Amount = of.Deposit
	if deposit == 0 {
		g.validBefore = time.Time{} // it moves nothing
		a.Evidence.Amount = o.Requirement.Amount
		a.Evidence.Nonce, a.Evidence.ExpiresAt = "", time.Time{}
	}
	return a, nil
}

// Status is what the chain says of a deposit, or of a voucher.
func (c *simChannels) Status(ctx context.Context, e x402.Evidence) (x402.Status, error) {
	if !e.IsVoucher() {
		return c.simScheme.Status(ctx, e)
	}
	s := c.s
	switch drawn := s.at(ctx, c.p, "Status of a voucher", s.mix.status...); {
	case drawn == "nonsense with an error":
		return x402.Status{State: x402.Expired}, errors.New("nonsense")
	case drawn == "no answer" || s.node.down || ctx.Err() != nil:
		return x402.Status{}, errors.New("no answer")
	}
	m := s.seenChannel(e.Channel)
	switch ceiling, _ := e.Ceiling.Uint64(); {
	case m.claimed >= ceiling:
		return x402.Status{State: x402.Settled}, nil
	case m.claimed == m.balance && e.Payer == c.Address():
		return x402.Status{State: x402.Expired, Block: s.seenBlock(),
			Note: "nothing is left in the channel"}, nil
	}
	return x402.Status{}, nil
}

// channelMoves are what happens to channels beside calls: sellers claim, and money is asked back.
func (s *sim) channelMoves(alive []*process, may func(int, func())) {
	s.ownersMoves(alive, may)
	for _, c := range s.channels {
		if c.best() > c.claimed {
			may(1, func() { s.claim(c) })
		}
		if s.askingBack || len(alive) == 0 {
			continue
		}
		p := alive[len(s.trace)%len(alive)]
		may(s.mix.refund, func() {
			s.askBack(p, "refund", func(ctx context.Context) error {
				return must.Err(p.channels.Refund(ctx, c.host))
			})
		})
		may(s.mix.withdraw, func() { s.withdraw(p, c.host) })
	}
}

// askBack is a command of the owner's by which money comes back; they give one at a time.
func (s *sim) askBack(p *process, what string, do func(context.Context) error) {
	s.askingBack = true
	s.background(p, what, func(ctx context.Context) error {
		defer func() { s.askingBack = false }()
		return do(ctx)
	})
}

// best is the most that the seller of a channel may claim.
func (c *simChannel) best() (ceiling uint64) {
	for _, g := range c.held {
		ceiling = max(ceiling, g.promise.ceiling)
	}
	return min(ceiling, c.balance)
}

func (s *sim) claim(c *simChannel) {
	amount := c.charged
	if s.lying {
		amount = c.best()
	}
	c.claimed = max(c.claimed, min(amount, c.best()))
	s.markChannel(c)
	s.say("      the seller has claimed %d of %s", c.claimed, c.id[:8])
}

// withdraw is the owner's taking what is left in the channels with a host, in two steps.
func (s *sim) withdraw(p *process, host string) {
	s.askBack(p, "withdraw", func(ctx context.Context) error {
		return p.channels.Withdraw(ctx, host, false, func(w batch.Withdrawal) error {
			if !w.Ready.IsZero() {
				return nil
			}
			s.at(ctx, p, "the owner's transaction")
			c := s.channel(w.Channel)
			switch {
			case !w.IsLast:
				c.withdrawing, _ = w.Amount.Uint64()
				c.began = s.now()
				s.markChannel(c)
			case !c.began.IsZero(): // its owner may have taken it meanwhile
				s.takeBack(c)
			}
			return nil
		})
	})
}

// background is something that a process does beside calls.
func (s *sim) background(p *process, what string, do func(context.Context) error) {
	s.actors++
	a := &actor{id: s.actors}
	s.running++
	s.say("%d/%d %s", a.id, p.id, what)
	go func() {
		defer func() { s.running-- }()
		ctx := context.WithValue(context.Background(), actorKey{}, a)
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		err := do(ctx)
		p.survive()
		s.say("%d/%d %s: %v", a.id, p.id, what, err)
	}()
}

func quoted(n uint64) string { return strconv.Quote(strconv.FormatUint(n, 10)) }
