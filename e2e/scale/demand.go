package main

import (
	"math"
	"math/rand/v2"

	"x402-wallet/x402/money"
)

// prices is what things cost, in micro-dollars, of how many in a thousand: the most frequent is a tenth of a
// cent, and a third of the money goes to one in a hundred. Their mean is $0.04435.
var prices = []struct {
	price   money.Dollars
	permill int
}{{1_000, 400}, {5_000, 200}, {10_000, 200}, {50_000, 99}, {100_000, 60}, {500_000, 30},
	{1_000_000, 10}, {5_000_000, 1}}

// A group is some agents that buy: a team, or all that run on a node. Each buys by itself at random times
// (Poisson). The sum of such buyers is one such buyer with the sum of the rates, and which of them a
// purchase is is an even draw; so ten million agents need no object each, and nothing is lost by that.
//
// Groups with an even number follow the day, which the run is; the others buy four times as much for ten
// seconds in a minute.
type group struct {
	random  *rand.Rand
	rate    float64 // purchases in a microsecond, on average
	length  instant // of the day
	phase   float64
	bursty  bool
	high    bool
	toggle  instant
	agents  int32
	first   int32 // its first agent's number
	outages []outage
}

// An outage is when the group's machines do not run: stopped until to, or dead, never to come back.
type outage struct{ from, to instant }

func newGroup(s setting, number int) *group {
	size := s.agents / s.groups
	g := &group{random: rand.New(rand.NewPCG(s.seed, uint64(number))), length: s.length, agents: int32(size),
		first: int32(number * size), rate: float64(size) * s.perMinute / 60 / float64(second)}
	g.bursty, g.phase = number%2 == 1, 0.2*g.random.Float64()
	for t := instant(0); s.outageEvery > 0 && t < s.length; {
		from := t + g.exp(1/float64(s.outageEvery))
		to := from + g.exp(1/float64(60*second))
		if g.random.IntN(2) == 0 {
			to = never
		}
		g.outages = append(g.outages, outage{from, to})
		t = to
	}
	return g
}

func (g *group) exp(rate float64) instant { return 1 + instant(g.random.ExpFloat64()/rate) }

// next is when the group buys next after t; never when it is dead by then.
func (g *group) next(t instant) instant {
	for {
		if g.bursty {
			t = g.burst(t)
		} else {
			t = g.daily(t)
		}
		back := g.upAt(t)
		if back == t || back == never {
			return back
		}
		t = back
	}
}

// daily draws from the highest rate, and keeps of that what the hour has.
func (g *group) daily(t instant) instant {
	for {
		t += g.exp(1.5 * g.rate)
		hour := math.Sin(2 * math.Pi * (float64(t)/float64(g.length) + g.phase - 0.25))
		if g.random.Float64() < (1+0.5*hour)/1.5 {
			return t
		}
	}
}

func (g *group) burst(t instant) instant {
	for {
		if t >= g.toggle {
			g.high = !g.high && g.toggle > 0
			span := 50 * second
			if g.high {
				span = 10 * second
			}
			g.toggle = t + g.exp(1/float64(span))
		}
		rate := 0.4 * g.rate
		if g.high {
			rate = 4 * g.rate
		}
		at := t + g.exp(rate)
		if at < g.toggle {
			return at
		}
		t = g.toggle
	}
}

// upAt is t if the group runs at t, else when it wakes.
func (g *group) upAt(t instant) instant {
	for _, o := range g.outages {
		if o.from <= t && t < o.to {
			return o.to
		}
	}
	return t
}

// pick is who buys, and for how much.
func (g *group) pick() (agent int32, price money.Dollars) {
	n := g.random.IntN(1000)
	for _, p := range prices {
		if n < p.permill {
			price = p.price
			break
		}
		n -= p.permill
	}
	return g.first + g.random.Int32N(g.agents), price
}

// wanted is what all groups will want in the run: the same purchases come to every shape.
func wanted(s setting) (count int64, sum money.Dollars) {
	for i := range s.groups {
		g := newGroup(s, i)
		for t := g.next(0); t < s.length; t = g.next(t) {
			_, price := g.pick()
			count, sum = count+1, sum+price
		}
	}
	return count, sum
}
