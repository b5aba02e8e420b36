package main

import "x402-wallet/x402/money"

// An offline lease: its holder decides by what it remembers of it and by its own clock, and tells the ledger
// what it paid. Here to show that such leases break the cap; none are built.
type offline struct {
	skew   instant // clocks are up to so much wrong, either way
	margin instant // the holder stops so much before the lease ends; so much after that it is taken back
	pause  bool    // a holder that is stopped had decided on a payment, and pays when it wakes
}

// A holding is what a group remembers of its lease.
type holding struct {
	left   money.Dollars
	until  instant // the ledger takes the rest back then
	skew   instant
	agent  int32 // who paid last, and how much
	price  money.Dollars
	paused bool // the next such payment is decided
}

func (w *world) newHoldings() {
	w.holdings = make([]holding, len(w.groups))
	for i, g := range w.groups {
		w.holdings[i].skew = instant((2*w.random.Float64() - 1) * float64(w.shape.offline.skew))
		for _, o := range g.outages {
			w.after(o.from, evStop, int32(i), 0)
			if o.to != never {
				w.after(o.to, evWake, int32(i), 0)
			}
		}
	}
}

// buyOffline pays from memory if that has enough, and its time has not come.
func (w *world) buyOffline(g, agent int32, price money.Dollars) bool {
	if !w.remembers(g, price) {
		return false
	}
	h := &w.holdings[g]
	h.left -= price
	h.agent, h.price = agent, price
	w.payOffline(g)
	return true
}

func (w *world) remembers(g int32, price money.Dollars) bool {
	h := w.holdings[g]
	return h.left >= price && w.now+h.skew < h.until-2*w.shape.offline.margin
}

// payOffline pays, and tells the ledger, which has to count it, with or without room.
func (w *world) payOffline(g int32) {
	h, n := &w.holdings[g], w.leaves[g]
	n.used += h.price
	if over := n.used - n.granted; over > 0 {
		n.granted += over
		n.parent.used += over
	}
	w.judge.hold(g, h.agent, h.price)
	c := w.newCall()
	w.calls[c] = call{team: g, agent: h.agent, price: h.price, since: w.now, leaf: n, state: held}
	w.hear(c)
}

// remember is the answer of the ledger.
func (w *world) remember(g int32) {
	w.holdings[g].left, w.holdings[g].until = w.leaves[g].rest(), w.leaves[g].until
}

func (w *world) stop(g int32) {
	h := &w.holdings[g]
	h.paused = w.shape.offline.pause && h.price > 0 && w.remembers(g, h.price)
	if h.paused {
		h.left -= h.price
	}
}

func (w *world) wake(g int32) {
	if w.holdings[g].paused {
		w.holdings[g].paused = false
		w.payOffline(g)
	}
}
