package main

import (
	"math"

	"x402-wallet/x402/money"
)

// What a run counted.
type stats struct {
	wanted, paid, failed, refused, needless int64
	turnedAway                              int64         // the row was too busy, or the database not there
	asks, asksThisSecond, asksPeak          int64         // transactions that locked the top row
	spent                                   money.Dollars // for what was paid
	idle                                    money.Dollars // counted, and held by no payment
	left                                    money.Dollars // of the budget, at a needless refusal
	waits                                   histogram     // from asking to the answer
}

// A histogram has eight buckets to each doubling, of microseconds.
type histogram struct {
	buckets [256]int64
	n       int64
}

func (h *histogram) add(t instant) {
	h.buckets[min(255, int(8*math.Log2(float64(t+1))))]++
	h.n++
}

// quantile is the upper end of the bucket that it is in.
func (h *histogram) quantile(q float64) instant {
	seen := int64(0)
	for i, n := range h.buckets {
		seen += n
		if float64(seen) >= q*float64(h.n) {
			return instant(math.Exp2(float64(i+1) / 8))
		}
	}
	return never
}
