//go:build !race

package pay

import (
	"context"
	"fmt"
	"slices"

	"x402-wallet/history"
	"x402-wallet/scheme/batch"
	"x402-wallet/x402/money"
)

// batchUmpire is what must stay true of channels with a deposit, besides what holds for all payments:
//
//	B1  the highest voucher that a seller has seen promises, for each call that signed in its channel, the
//	    price once at most
//	B2  an honest seller charges no purchase twice
//	B3  what lies with a host and was not promised is never above channel_deposit
//	B4  nothing is signed in a channel that is stopped, and one is stopped whose seller said that it charged
//	    more than the price
//	B5  a deposit that settled is in the book, and none is on its way at the end
//	B6  no deposit is less than the price of its call, which the owner's rules are asked about by it
//	B7  no channel of an honest seller is stopped, but by what its owner does (one that serves a voucher
//	    again, as no reference server does, may say of it what it charged later)
type batchUmpire struct {
	taken    []*signature // that honest sellers charged
	returned []refund
}

// submittedVoucher is told of each voucher that comes on disk, before it may leave.
func (s *sim) submittedVoucher(g *signature) {
	c := g.promise.channel
	row, err := s.eye.Channel(context.Background(), c.id, s.host(9))
	if err != nil {
		s.fail("B4: the channel %s has no row: %v", c.id[:8], err)
		return
	}
	if _, book, _ := row.Batch(); book.Stopped != "" {
		s.fail("B4: signed in the channel %s, which is stopped: %s", c.id[:8], book.Stopped)
	}
	if c.isOwners() {
		s.submittedOwners(g, row)
	}
	if g.promise.deposits && g.amount < g.promise.price {
		s.fail("B6: a deposit of %d carries a voucher for %d", g.amount, g.promise.price)
	}
	g.promise.kept = true
	c.promised = max(c.promised, g.promise.ceiling)
}

// booked is told of each row of a channel that is written.
func (s *sim) booked(row history.Channel) {
	signed, book, err := row.Batch()
	if err == nil && signed.IsOwners() {
		s.bookedOwners(row, signed, book)
	}
	if !s.lying && !s.mix.remembers && book.Stopped != "" && book.Stopped != "its money was asked back" {
		s.fail("B7: an honest seller's channel %s is stopped: %s", row.ID[:8], book.Stopped)
	}
	if c := s.channel(row.ID); err == nil && book.Stopped != "" && c != nil {
		c.stops = book.Stopped
	}
}

// presented is told of each voucher that a seller sees.
func (s *sim) presented(g *signature) {
	c := g.promise.channel
	if !slices.Contains(c.held, g) {
		c.held = append(c.held, g)
	}
	prices := map[int]uint64{}
	var highest, sum uint64
	for _, o := range s.sigs {
		if o.promise != nil && o.promise.channel == c && o.promise.kept {
			prices[o.promise.call] = max(prices[o.promise.call], o.promise.price)
		}
	}
	for _, price := range prices {
		sum += price
	}
	for _, o := range c.held {
		highest = max(highest, o.promise.ceiling)
	}
	if highest > sum {
		s.fail("B1: the seller of %s may claim %d, and calls for %d were made", c.id[:8], highest, sum)
	}
}

// refundShown: what asks for money back shows a voucher that the seller has, and promises nothing new.
func (s *sim) refundShown(c *simChannel, ceiling, text string) {
	isHeld := slices.ContainsFunc(c.held, func(g *signature) bool {
		return fmt.Sprint(g.promise.ceiling) == ceiling && g.promise.text == text
	})
	if !isHeld {
		s.fail("B1: the seller of %s is asked for money by a voucher of %s that it never saw", c.id[:8],
			ceiling)
	}
}

// checkBatch is B2 and B3, after every step.
func (s *sim) checkBatch() {
	s.checkCharges()
	s.checkOwners()
	lies := map[string]uint64{}
	for _, c := range s.channels {
		if c.isOwners() {
			continue
		}
		in := c.balance
		for _, g := range s.sigs {
			if g.promise != nil && g.promise.channel == c && !g.settled && s.live(g) {
				in += g.amount
			}
		}
		known := c.promised
		if !s.lying {
			known = c.charged
		}
		lies[c.host] += in - min(in, known)
	}
	for _, host := range []string{s.host(0), s.host(1)} {
		if lies[host] > s.most && !s.shared {
			s.fail("B3: %d lies with %s, and the owner allows %d", lies[host], host, s.most)
		}
	}
}

func (s *sim) checkCharges() {
	times := map[string]int{}
	for _, g := range s.taken {
		times[whose(g.agent, g.url)]++
		if g.key != "" {
			times[g.key]++
		}
	}
	for _, g := range s.sigs { // those that were paid exactly instead
		if g.promise == nil && s.batches[urlNumber(g.url)] && s.live(g) {
			times[whose(g.agent, g.url)]++
		}
	}
	for what, n := range times {
		most, isURL := s.begun[what]
		if !isURL {
			most = 1
		}
		if n > most && !s.lying {
			s.fail("B2: %d purchases of %s were charged %d times", most, what, n)
		}
	}
}

// answeredBatch is B4 for a call that ended.
func (s *sim) answeredBatch(c *call) {
	if c.stops != nil && c.stops.stops == "" && !c.unsaved {
		s.fail("B4: the seller said that it charged more than the price, and %s goes on", c.stops.id[:8])
	}
}

// compareBooks is B5, at the end.
func (s *sim) compareBooks() {
	p := s.living()[0]
	for _, host := range []string{s.host(0), s.host(1)} {
		s.background(p, "look at the channels", func(ctx context.Context) error {
			return p.channels.Each(ctx, host, func(r batch.Report) error {
				c := s.channel(r.Channel)
				if c == nil {
					return nil
				}
				in := money.NewAmount(c.balance)
				switch {
				case !r.Pending.IsZero() && !r.IsOwners:
					s.fail("B5: a deposit of %s into %s is still on its way", r.Pending, c.id[:8])
				case r.Deposited.Cmp(in) < 0:
					s.fail("B5: %d lies in %s, and the book has %s", c.balance, c.id[:8], r.Deposited)
				case !s.lying && c.returned == 0 && r.Deposited != in:
					s.fail("B5: %d lies in %s, and the book has %s", c.balance, c.id[:8], r.Deposited)
				}
				return nil
			})
		})
		s.drain()
	}
}

// closeChannels: at the end sellers claim what they can, and the rest goes back, so that the chain knows what
// became of each voucher.
func (s *sim) closeChannels() {
	for _, c := range s.channels {
		c.claimed = max(c.claimed, c.best())
		s.giveBack(c, c.balance)
	}
}
