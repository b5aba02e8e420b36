package main

import (
	"fmt"

	"x402-wallet/x402/money"
)

// A remote is a root ledger over several databases. Each of these has a share of the budget, and only
// grants and returns cross, never payments. There is no transaction over two databases: the root first
// counts what the child then has, a child first lets go of what the root then no longer counts, and both
// are messages with a number, repeated until they are answered and done once.
type remote struct {
	policy  policy
	forgets instant // to show why: what a restart of the root loses of its grants, whose answers have left
	dies    bool    // one database is lost for good

	root   *node
	shares []share
	free   instant // when the root's row is through with all that wait for it
	down   bool
	epoch  uint32
	recent []loan // where it forgets
}

// A share is the root's row of a child.
type share struct {
	counted money.Dollars // in the child's database, or on the way to or from it
	id      uint32        // of the last message that was done
}

type loan struct {
	at     instant
	child  int32
	amount money.Dollars
}

// A child is a database's side of that. Its top row's cap is what it has of the root.
type child struct {
	top     *node
	demand  demand
	waiting []int32       // calls that found no room
	missing money.Dollars // for these

	asking    bool // message id is on its way, and is repeated until it is answered
	id        uint32
	sent      uint32        // the root's epoch when it arrived there
	want      money.Dollars // what it asks for
	need      money.Dollars // at least
	back      money.Dollars // or what it returns
	answer    money.Dollars
	fullUntil instant // the root had no room: it is not asked before
}

const (
	latency  = 20 * millisecond // of a message
	flush    = 2 * millisecond  // a grant is on disk before its answer leaves: that is for another database
	answerIn = second           // else the message is repeated
	fullFor  = second           // a root that had no room is not asked again for

	rootEvery  = 100 * second // the root restarts, on average
	restarting = 2 * second   // in so long
)

// waits keeps a call that its database has no room for until the root has answered; false when the root
// is known to be full.
func (r *remote) waits(w *world, i int32) bool {
	c := &w.calls[i]
	d := w.databases[w.databaseOf(c.team)]
	if w.now < d.fullUntil {
		return false
	}
	d.waiting = append(d.waiting, i)
	d.missing += c.price
	r.ask(w, w.databaseOf(c.team))
	return true
}

// ahead asks for more before the share is used up.
func (r *remote) ahead(w *world, number int32, price money.Dollars) {
	d := w.databases[number]
	d.demand.add(price, w.now)
	if d.top.left() < d.demand.in(r.policy.demand, w.now)/2 && w.now >= d.fullUntil {
		r.ask(w, number)
	}
}

// surplus returns what a database has that it does not need.
func (r *remote) surplus(w *world) {
	for i, d := range w.databases {
		own := d.demand.in(r.policy.demand, w.now)
		if more := d.top.left() - 3*own; more > 0 && !d.asking && !d.down {
			d.back = more
			d.top.cap -= more
			r.ask(w, int32(i))
		}
	}
}

func (r *remote) ask(w *world, number int32) {
	d := w.databases[number]
	if d.asking {
		return
	}
	d.asking = true
	d.id++
	d.need = d.missing
	d.want = max(d.need, d.demand.in(r.policy.demand, w.now))
	r.send(w, number)
}

func (r *remote) send(w *world, number int32) {
	d := w.databases[number]
	r.message(w, evAsk, number, d.id)
	w.after(answerIn, evNoAnswer, number, d.id)
}

// message sends one of the two ways. Some are lost, and some come after they were repeated.
func (r *remote) message(w *world, k kind, number int32, id uint32) {
	switch {
	case !w.chance(w.lost):
		w.after(latency, k, number, id)
	case w.chance(0.5):
		w.after(answerIn+instant(w.random.Int64N(int64(answerIn))), k, number, id)
	}
}

func (r *remote) happen(w *world, e event) {
	d := w.databases[e.who]
	switch e.kind {
	case evAsk:
		if !r.down {
			d.sent = r.epoch
			r.free = max(r.free, w.now) + w.service + flush
			w.after(r.free-w.now, evGrant, e.who, e.id)
		}
	case evGrant:
		if r.epoch == d.sent && !r.down {
			r.grant(w, e)
		}
	case evGranted:
		if d.asking && e.id == d.id && !d.down {
			r.granted(w, e.who)
		}
	case evNoAnswer:
		if d.asking && e.id == d.id && !d.dead {
			r.send(w, e.who)
		}
	case evRootStops:
		r.restart(w)
	case evRootUp:
		r.down = false
	case evDeath:
		d.dead = true
		w.restart(e.who, never)
	}
}

// grant does at the root what message e asks for, unless that was done.
func (r *remote) grant(w *world, e event) {
	w.asked()
	d, s := w.databases[e.who], &r.shares[e.who]
	if e.id != d.id || e.id < s.id {
		return // an old message that came late: its answer was heard
	}
	if e.id > s.id {
		d.answer = -d.back
		if d.back == 0 {
			d.answer = r.amount(d)
			if r.forgets > 0 {
				r.recent = append(r.recent, loan{w.now, e.who, d.answer})
			}
		}
		s.id = e.id
		s.counted += d.answer
		r.root.used += d.answer
	}
	if err := r.root.check(); err != nil {
		w.err = err
	}
	r.message(w, evGranted, e.who, e.id)
}

// amount is what the root grants: what d wants, less and less near the cap, and what d needs if there is
// so much.
func (r *remote) amount(d *database) money.Dollars {
	left, want := r.root.left(), d.want
	if r.policy.shrink {
		want = min(want, left/money.Dollars(2*len(r.shares)))
	}
	if left < r.root.cap/100*money.Dollars(r.policy.direct) {
		want = d.need
	}
	return min(max(want, d.need), left)
}

// granted is the root's answer: who waited tries again.
func (r *remote) granted(w *world, number int32) {
	d := w.databases[number]
	d.asking = false
	if d.back > 0 {
		d.back = 0
	} else {
		d.top.cap += d.answer
		if d.answer < d.need || d.answer == 0 {
			d.fullUntil = w.now + fullFor
		}
	}
	waiting := d.waiting
	d.waiting, d.missing = nil, 0
	for _, i := range waiting {
		w.calls[i].state = asking
		w.begin(i)
	}
}

// restart loses what waits at the root.
func (r *remote) restart(w *world) {
	r.down, r.free = true, 0
	r.epoch++
	for _, l := range r.recent {
		if l.at > w.now-r.forgets {
			r.shares[l.child].counted -= l.amount
			r.root.used -= l.amount
		}
	}
	r.recent = nil
	w.after(restarting, evRootUp, 0, 0)
	w.rootStopsLater()
}

func (w *world) rootStopsLater() {
	if in := instant(w.random.ExpFloat64() * float64(rootEvery)); w.restartEvery > 0 && w.now+in < w.length {
		w.after(in, evRootStops, 0, 0)
	}
}

// audit compares what the root counts with what its children have: never less, and the difference is on
// its way.
func (r *remote) audit(w *world) {
	var sum money.Dollars
	for i, s := range r.shares {
		sum += s.counted
		if d := w.databases[i]; s.counted < d.top.cap && r.forgets == 0 {
			w.err = fmt.Errorf("database %d has %s, and the root counts %s", i, d.top.cap.Price(),
				s.counted.Price())
		}
	}
	if sum != r.root.used {
		w.err = fmt.Errorf("the root has %s used, and its children %s", r.root.used.Price(), sum.Price())
	}
}

// settle returns what databases have left; what a lost one had is stranded.
func (r *remote) settle(w *world) (stranded money.Dollars) {
	for i, d := range w.databases {
		rest := r.shares[i].counted - d.top.used
		if d.dead {
			stranded += rest
			continue
		}
		if r.shares[i].counted != d.top.cap {
			w.err = fmt.Errorf("%s are on their way at the end", (r.shares[i].counted - d.top.cap).Price())
		}
		r.shares[i].counted -= rest
		r.root.used -= rest
		d.top.cap -= rest
	}
	return stranded
}
