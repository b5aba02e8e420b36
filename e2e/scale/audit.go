package main

import (
	"fmt"

	"x402-wallet/x402/money"
)

// audit adds up every row, and notes what lies idle.
func (w *world) audit() {
	w.auditSums()
	w.stats.asksPeak = max(w.stats.asksPeak, w.stats.asksThisSecond)
	w.stats.asksThisSecond = 0
	w.stats.idle = max(w.stats.idle, w.counted()-w.judge.spent)
	if w.remote != nil {
		w.remote.surplus(w)
	}
	if w.now < w.length {
		w.after(second, evAudit, 0, 0)
	}
}

// counted is what the budget's top rows say is used.
func (w *world) counted() (sum money.Dollars) {
	if w.remote != nil {
		return w.remote.root.used
	}
	for _, s := range w.shards {
		sum += s.used
	}
	return sum
}

func (w *world) auditSums() {
	if w.shape.offline != nil {
		return
	}
	for _, d := range w.databases {
		for _, n := range d.nodes {
			for _, err := range []error{n.check(), n.checkSum()} {
				if err != nil {
					w.err = err
				}
			}
		}
	}
	for i, l := range w.leaves {
		sums := w.judge.teams
		if w.shape.tree {
			sums = w.judge.agents
		}
		if l.parent != nil && l.used != sums[i] {
			w.err = fmt.Errorf("leaf %d has %s used, and holds and releases come to %s", i, l.used.Price(),
				sums[i].Price())
		}
	}
	if w.counted() < w.judge.spent {
		w.err = fmt.Errorf("%s is counted, and %s was held", w.counted().Price(), w.judge.spent.Price())
	}
	if w.remote != nil {
		w.remote.audit(w)
	}
}

// settle is after the last event: every lease is past its time, and every payment has ended. What is
// counted then is what was paid, to the unit.
func (w *world) settle() error {
	w.auditSums()
	w.now += 2 * heartbeat
	for _, d := range w.databases {
		for _, n := range d.nodes {
			n.takeBack(w.now)
			if n.leased && n.rest() != 0 && w.shape.offline == nil {
				return fmt.Errorf("%s of a lease are left", n.rest().Price())
			}
		}
	}
	w.auditSums()
	stranded := money.Dollars(0)
	if w.remote != nil {
		stranded = w.remote.settle(w)
	}
	if stranded == 0 && w.judge.spent != w.stats.spent {
		return fmt.Errorf("%s is held at the end, and %s was paid", w.judge.spent.Price(),
			w.stats.spent.Price())
	}
	if w.shape.offline == nil && w.err == nil && w.counted() != w.judge.spent+stranded {
		w.err = fmt.Errorf("%s is counted at the end, and %s was paid", w.counted().Price(),
			w.judge.spent.Price())
	}
	return w.err
}
