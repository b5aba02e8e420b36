//go:build !race

package pay

import (
	"context"
	"fmt"
	"slices"

	"x402-wallet/history"
	"x402-wallet/x402/money"
)

// Batches in the simulation: the next calls of several purchases are made as one. What must stay true of each
// is what must stay true of a call that is made by itself; and no more is held for all than their ceiling.

// manyEvery-th seeds have batches, the others are as they were before.
const manyEvery = 4

func (s *sim) drawMany() {
	if s.seed%manyEvery != 1 {
		return
	}
	s.mix.many, s.mix.leave = 5+s.rng.IntN(20), s.mix.leave/3 // so that more is held
	for n := range 1 + s.rng.IntN(3) {
		if s.prices[n] == 0 {
			s.prices[n] = 5
		}
		of := s.purchases[s.rng.IntN(len(s.purchases))]
		s.purchases = append(s.purchases, &purchase{n: len(s.purchases) + 1, agent: of.agent,
			url: fmt.Sprintf("https://%s/%d", s.host(n%2), n)})
	}
}

// batchable are purchases that one batch may make: one client's, of different URLs, at one process.
func (s *sim) batchable() (list []*purchase) {
	var urls []string
	for _, pu := range s.purchases {
		isIdle := pu.call == nil && !pu.done && !pu.gaveUp && pu.key == "" && len(s.living()) > 0
		if !isIdle || slices.Contains(urls, pu.url) || (len(list) > 0 && list[0].agent != pu.agent) {
			continue
		}
		if pu.home != nil && len(list) > 0 && list[0].home != pu.home {
			continue
		}
		if pu.home == nil || pu.home.dead.Load() {
			if len(list) > 0 && list[0].home != nil {
				pu.home = list[0].home
			} else {
				pu.home = s.living()[0]
			}
		}
		urls, list = append(urls, pu.url), append(list, pu)
	}
	return list
}

func (s *sim) beginMany(list []*purchase) {
	client := new(Call)
	ceiling := []uint64{9, 12, 25, 1000}[s.rng.IntN(4)]
	q := Many{MaxAmount: fmt.Sprintf("$0.%06d", ceiling)}
	var calls []*call
	for _, pu := range list {
		calls = append(calls, s.newCall(pu, client))
		q.Requests = append(q.Requests, get(pu.url))
	}
	for _, c := range calls {
		c.batch, c.ceiling = calls, ceiling
		s.say("%d/%d in a batch for %s: %s", c.actor.id, c.p.id, q.MaxAmount, c.of.told())
	}
	first := calls[0]
	s.running++
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), actorKey{}, &first.actor))
	ctx = WithAgent(WithCall(ctx, client), first.of.agent)
	go func() {
		defer func() {
			for _, c := range calls {
				c.over = true
			}
			s.running--
			cancel()
		}()
		b, err := first.p.engine.PayMany(ctx, q)
		first.p.survive()
		for i, c := range calls {
			if err != nil {
				s.returns(c, Result{}, err)
			} else {
				s.returns(c, b.Rows[i].Result, b.Rows[i].Err)
			}
		}
		if err == nil && !first.cancelled {
			s.at(ctx, first.p, "written")
			s.deliverMany(ctx, calls, b)
		}
		for i, c := range calls {
			why := err
			if err == nil {
				why = b.Rows[i].Err
			}
			c.ends(why)
		}
	}()
}

// deliverMany is when a batch's answer reaches its client, or does not.
func (s *sim) deliverMany(ctx context.Context, calls []*call, b Bought) {
	first := calls[0]
	for _, c := range calls {
		c.written = true
	}
	if first.cancelled {
		first.p.engine.LostMany(ctx, b)
		return
	}
	first.client.Deliver()
	for i, c := range calls {
		if row := b.Rows[i]; row.Err == nil {
			c.of.done = row.Result.Status != StatusUnserved
		}
	}
	first.p.engine.DeliveredMany(ctx, b)
}

// ofRow follows each request of a batch as a call of its own.
func ofRow(ctx context.Context, n int) context.Context {
	if c := actorOf(ctx).call; c != nil && c.batch != nil {
		return context.WithValue(ctx, actorKey{}, &c.batch[n].actor)
	}
	return ctx
}

// callOf is whose payment it is that a call holds.
func (s *sim) callOf(ctx context.Context, p history.Payment) *call {
	c := actorOf(ctx).call
	for _, one := range c.batch {
		if one.of.url == p.URL {
			return one
		}
	}
	return c
}

// withinCeiling: what a batch holds comes to its ceiling at most.
func (s *sim) withinCeiling(ctx context.Context, holds []history.Hold) {
	var sum money.Dollars
	for _, h := range holds {
		sum = sum.Add(h.Payment.Price)
	}
	if most := actorOf(ctx).call.ceiling; uint64(sum) > most {
		s.fail("M1: a batch holds %s, its ceiling is %d", sum, most)
	}
}
