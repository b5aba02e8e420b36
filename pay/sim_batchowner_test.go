//go:build !race

package pay

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"x402-wallet/history"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// ownersWorld is a world with channels that an owner funds: their deposits, which calls bring, and what they
// take back without this wallet's knowing.
type ownersWorld struct {
	funded   bool // an owner may fund channels
	deposits []*ownersDeposit
	funding  bool // just now
}

// ownersDeposit is one that an owner signed.
type ownersDeposit struct {
	salt   string
	value  uint64
	before time.Time // when it is too old
	seen   bool      // by anybody but the wallet
	made   time.Time // zero: it is not on the chain
}

const simSeal = "the owner's seal"

// owner is whose account it is.
func (s *sim) owner() string { return s.host(7) }

func (c *simChannel) isOwners() bool { return c.config.Payer != c.config.PayerAuthorizer }

// isOwners reports whether it is a voucher in a channel of an owner's.
func (g *signature) isOwners() bool { return g.promise != nil && g.promise.channel.isOwners() }

// isUnclaimed reports whether it is one that can be claimed when its owner funds the channel again.
func (g *signature) isUnclaimed() bool {
	return g.isOwners() && g.promise.ceiling > g.promise.channel.claimed
}

// drawOwners draws whether an owner funds channels, after everything else. More is bought there, because a
// deposit is for many calls.
func (s *sim) drawOwners(urls int) {
	s.funded = s.chance(40)
	if !s.funded {
		return
	}
	s.mix.ticks = append(s.mix.ticks, 16*time.Minute) // more than withdrawDelay
	s.mix.steps += 600
	if s.chance(80) { // the trouble is that answers are lost and processes die, so that more is bought
		m := &s.mix
		m.clock, m.blind, m.leave, m.kill = 0, 0, min(m.leave, 1), m.kill*s.rng.IntN(2)
		m.node, m.power, m.tick = m.node/3, m.power/2, 0
		for _, list := range [][]choice{m.ask, m.funds, m.sign, m.save} {
			for i := range list[1:] {
				list[i+1].weight /= 4
			}
		}
	}
	for n := range urls {
		for range 1 + s.rng.IntN(5) {
			s.purchases = append(s.purchases, &purchase{n: len(s.purchases) + 1,
				url: fmt.Sprintf("https://%s/%d", s.host(n%2), n)})
		}
	}
}

func (s *sim) ownersDeposit(salt string) *ownersDeposit {
	for _, d := range s.deposits {
		if d.salt == salt {
			return d
		}
	}
	return nil
}

// bring is what the contract does with an owner's deposit: once, before it is too old.
func (s *sim) bring(c *simChannel, d *ownersDeposit) bool {
	if !d.made.IsZero() || !s.now().Before(d.before) {
		return false
	}
	d.made = s.now()
	c.balance += d.value
	c.put += d.value
	s.markChannel(c)
	s.say("      the owner's %d are in %s", d.value, c.id[:8])
	return true
}

// takeDeposit settles the deposit that a payment brings.
func (s *sim) takeDeposit(g *signature) bool {
	if d := g.promise.brings; d != nil {
		return s.bring(g.promise.channel, d)
	}
	return s.take(g, "the seller")
}

// isBrought reports whether the chain has the deposit that a payment brings.
func (g *signature) isBrought() bool {
	if d := g.promise.brings; d != nil {
		return !d.made.IsZero()
	}
	return g.promise.deposits && g.settled
}

func (c *simChannels) OwnersUsed(ctx context.Context, _ string, _ x402.ChannelConfig, d x402.OwnersDeposit) (
	bool, error) {
	return c.isMade(ctx, d.Salt)
}

func (c *simChannels) IsBrought(ctx context.Context, _ string, payload json.RawMessage) (bool, error) {
	var p struct{ Owners string }
	if err := json.Unmarshal(payload, &p); err != nil || p.Owners == "" {
		return false, err
	}
	return c.isMade(ctx, p.Owners)
}

func (c *simChannels) isMade(ctx context.Context, salt string) (bool, error) {
	s := c.s
	drawn := s.at(ctx, c.p, "an owner's deposit?", s.mix.funds...)
	if drawn == "no answer" || s.node.down || ctx.Err() != nil {
		return false, x402.Errorf(x402.RPCError, "the node is down")
	}
	d := s.ownersDeposit(salt)
	return !d.made.IsZero() && !d.made.After(s.now().Add(-s.node.lag)), nil
}

func (c *simChannels) DraftOwners(amount money.Amount, now time.Time) (x402.OwnersDeposit, error) {
	value, _ := amount.Uint64()
	before := now.Add([]time.Duration{2 * time.Minute, 24 * time.Hour}[c.s.rng.IntN(2)]).Truncate(time.Second)
	d := &ownersDeposit{salt: fmt.Sprintf("0x%064x", len(c.s.deposits)+1), value: value, before: before}
	c.s.deposits = append(c.s.deposits, d)
	return x402.OwnersDeposit{Value: amount, ValidBefore: before.Unix(), Salt: d.salt}, nil
}

func (*simChannels) TypedData(x402.AssetInfo, x402.ChannelConfig, x402.OwnersDeposit) (json.RawMessage,
	error) {
	return nil, nil
}

func (*simChannels) Signed(_ x402.AssetInfo, _ x402.ChannelConfig, d x402.OwnersDeposit, _ [65]byte) (
	x402.OwnersDeposit, error) {
	d.Signature = "0x01"
	return d, nil
}

// ownersMoves are what owners do: they fund channels by the wallet, and take their money back without it.
func (s *sim) ownersMoves(alive []*process, may func(int, func())) {
	if !s.funded {
		return
	}
	for n, is := range s.batches {
		if is && !s.funding && len(alive) > 0 && len(s.deposits) < 6 {
			p, weight := alive[len(s.trace)%len(alive)], 3
			if len(s.deposits) == 0 {
				weight = 30
			}
			may(weight, func() { s.fund(p, fmt.Sprintf("https://%s/%d", s.host(n%2), n)) })
		}
	}
	for _, c := range s.channels {
		switch {
		case !c.isOwners():
		case !c.began.IsZero() && s.now().Sub(c.began) >= 900*time.Second:
			may(2, func() { s.takeBack(c) })
		case c.began.IsZero() && c.balance > c.claimed:
			may(s.mix.withdraw, func() {
				c.withdrawing, c.began = c.balance-c.claimed, s.now()
				s.say("      the owner asks %d of %s back", c.withdrawing, c.id[:8])
				s.markChannel(c)
			})
		}
	}
	for _, g := range s.sigs {
		if p := g.promise; p != nil && p.brings != nil && p.brings.seen && p.brings.made.IsZero() {
			may(s.mix.thief, func() { s.bring(p.channel, p.brings) })
		}
	}
}

// takeBack is the second step of taking a channel's money back.
func (s *sim) takeBack(c *simChannel) {
	s.giveBack(c, c.withdrawing)
	c.withdrawing, c.began = 0, time.Time{}
	s.markChannel(c)
}

// fund is the owner's writing down a channel, and mostly a deposit into it.
func (s *sim) fund(p *process, url string) {
	amount := []uint64{5, 10, 20, 60}[s.rng.IntN(4)]
	s.funding = true
	s.background(p, "fund "+url, func(ctx context.Context) error {
		defer func() { s.funding = false }()
		c, err := p.channels.FindOwners(ctx, url, s.owner(), "")
		if err != nil {
			return err
		}
		var deposit *x402.OwnersDeposit
		if s.chance(90) {
			draft, err := p.channels.DraftOwners(money.NewAmount(amount))
			if err != nil {
				return err
			}
			signed, err := p.channels.SignedOwners(c, draft, [65]byte{})
			if err != nil {
				return err
			}
			deposit = &signed
		}
		return p.channels.FundOwners(ctx, c, deposit, func(history.Channel) ([]byte, error) {
			s.at(ctx, p, "the owner seals")
			return []byte(simSeal), nil
		})
	})
}

// What must stay true of channels that an owner funds, besides what holds for all payments, which count what
// such a voucher counts (I1, I4, I6), and for all channels (B1, B2, B4, B5, B7):
//
//	O1  no voucher promises more than the owner deposited, with what it brings
//	O2  a voucher that promises more than any before counts its price, another one nothing; what can be
//	    claimed was counted
//	O3  a host with which an owner funds a channel is paid through that alone, by calls that begin then
//	O4  the owner said so of each channel that is signed in

// submittedOwners is told of each voucher in such a channel that comes on disk.
func (s *sim) submittedOwners(g *signature, row history.Channel) {
	p, c := g.promise, g.promise.channel
	most := c.put
	if d := p.brings; d != nil && d.made.IsZero() {
		most += d.value
	}
	if p.ceiling > most {
		s.fail("O1: %d is promised in %s, and its owner deposited %d", p.ceiling, c.id[:8], most)
	}
	if p.ceiling > c.promised {
		g.counts = p.price
	}
	held, err := s.eye.Payment(context.Background(), g.row)
	if err != nil || held.Price != money.Dollars(g.counts) {
		s.fail("O2: a voucher of %d after %d in %s counts %s: %v", p.ceiling, c.promised, c.id[:8],
			held.Price, err)
	}
	if signed, _, err := row.Batch(); err != nil || string(signed.Seal) != simSeal {
		s.fail("O4: the owner did not say that they fund %s", c.id[:8])
	}
}

// keepsTo is told of each payment that comes on disk.
func (s *sim) keepsTo(g *signature, by *call) {
	for _, c := range s.channels {
		isKept := c.isOwners() && c.host == s.hostOf(g.url) && !c.kept.IsZero() && c.kept.Before(by.began)
		if isKept && !g.isOwners() {
			s.fail("O3: an owner funds %s with %s, which is paid otherwise", c.id[:8], c.host)
		}
	}
}

// bookedOwners is told of each row of such a channel that is written.
func (s *sim) bookedOwners(row history.Channel, signed history.BatchSigned, book history.BatchBook) {
	c := s.channel(row.ID)
	if c == nil {
		c = &simChannel{id: row.ID, host: row.Server, config: signed.Config}
		s.channels = append(s.channels, c)
		s.markChannel(c)
	}
	switch {
	case book.Over:
		c.kept = time.Time{}
	case c.kept.IsZero():
		c.kept = s.now()
	}
}

// checkOwners is O2, after every step.
func (s *sim) checkOwners() {
	for _, c := range s.channels {
		var counted uint64
		for _, g := range s.sigs {
			if g.promise != nil && g.promise.channel == c {
				counted += g.counts
			}
		}
		if c.isOwners() && max(c.promised, c.claimed) > counted {
			s.fail("O2: %d of %s can be claimed, and %d was counted", c.promised, c.id[:8], counted)
		}
	}
}

// withOwners is a payload that brings an owner's deposit.
func withOwners(payload json.RawMessage, salt string) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`%s,"owners":%q}`, strings.TrimSuffix(string(payload), "}"), salt))
}
