package main

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"x402-wallet/x402/money"
)

// A setting is who buys, how much, and what goes wrong.
type setting struct {
	agents, groups int
	databases      int     // that are children of a root ledger, where the shape is that
	perMinute      float64 // purchases of each agent
	length         instant
	seed           uint64
	capPercent     int // the budget, of what will be wanted

	service, step instant // how long a transaction has the last row it locks, and each row before it longer
	outageEvery   instant // of each group, on average; 0: never
	restartEvery  instant // of each database, on average; 0: never
	down          instant // as long then
	lost          float64 // of calls: half do not arrive, half of the answers do not
	failed        float64 // of payments: what was held is given back
	auditAlways   bool    // adds up every row after each step, not each second
}

// How wallets behave.
const (
	patience  = 200 * millisecond // a longer queue at a row is not joined
	callAgain = 200 * millisecond // after no answer
	tries     = 25
	settling  = 2 * second // until a payment that fails has
	heartbeat = 30 * second
)

const (
	evBuy       kind = iota // a group's next purchase
	evRow                   // a call goes on to the row above
	evCommit                // a call decides, and commits
	evUnlock                // a call that took leases back is through with that
	evAgain                 // a call is repeated
	evFail                  // a payment fails: its hold is given back
	evOrphan                // a hold's driver has not been heard of for a heartbeat
	evAudit                 // every second
	evStop                  // a group's machines stop: offline.go
	evWake                  // and run again
	evRestart               // a database stops
	evUp                    // and is there again
	evAsk                   // from here on: remote.go. A message reaches the root ledger
	evGrant                 // which commits it
	evGranted               // its answer reaches the database
	evNoAnswer              // or none came in time
	evRootStops             // the root ledger stops
	evRootUp                // and is there again
	evDeath                 // a database is lost for good
)

// A call is a wallet's payment at the ledger: its hold, and where it fails, the end of that. It is one
// transaction, which locks the leaf's row and what is above it, one after the other, and lets go of all
// of them when it commits; and it is the same call again until an answer is heard.
type call struct {
	leaf        *node
	locks       [4]*node
	locked      int8
	tries       int8
	shards      int8 // asked so far
	state       state
	team, agent int32
	price       money.Dollars
	since       instant
	epoch       uint32 // of its database
}

type state uint8

const (
	asking state = iota
	refused
	held
	returning
	returned
)

// A world is a run of one shape.
type world struct {
	setting
	shape shape
	clock
	random    *rand.Rand
	groups    []*group
	databases []*database
	shards    []*node // of one budget; one, but where the shape is that
	leaves    []*node // of groups, or of agents
	remote    *remote
	holdings  []holding
	calls     []call
	free      []int32
	judge     judge
	stats     stats
	err       error
}

// A database has rows; where it is one of several, remote.go has the rest of it.
type database struct {
	nodes []*node
	down  bool
	dead  bool
	epoch uint32
	child
}

// run plays the shape until all is settled. It fails when a cap was passed or money got lost.
func (w *world) run() error {
	for i := range w.groups {
		w.nextPurchase(int32(i), 0)
	}
	for i := range w.databases {
		w.restartLater(int32(i))
	}
	w.after(second, evAudit, 0, 0)
	for w.err == nil {
		e, some := w.next()
		if !some {
			break
		}
		w.happen(e)
	}
	if w.err == nil {
		w.err = w.settle()
	}
	if w.err != nil {
		return fmt.Errorf("%s, seed %d, at %.6f s: %w", w.shape.name, w.seed, w.now.seconds(), w.err)
	}
	return nil
}

func (w *world) happen(e event) {
	switch e.kind {
	case evBuy:
		w.buy(e.who)
	case evRow, evCommit, evUnlock:
		w.goOn(e)
	case evAgain:
		w.again(e.who)
	case evFail:
		w.calls[e.who].state = returning
		w.begin(e.who)
	case evOrphan:
		w.orphan(e.who)
	case evAudit:
		w.audit()
	case evStop:
		w.stop(e.who)
	case evWake:
		w.wake(e.who)
	case evRestart:
		w.restart(e.who, w.down)
	case evUp:
		w.databases[e.who].down = false
	default:
		w.remote.happen(w, e)
	}
}

func (w *world) nextPurchase(g int32, from instant) {
	if at := w.groups[g].next(from); at < w.length {
		w.after(at-w.now, evBuy, g, 0)
	}
}

func (w *world) buy(g int32) {
	agent, price := w.groups[g].pick()
	w.stats.wanted++
	w.nextPurchase(g, w.now)
	if w.shape.offline != nil && w.buyOffline(g, agent, price) {
		return
	}
	c := w.newCall()
	w.calls[c] = call{team: g, agent: agent, price: price, leaf: w.leafOf(g, agent)}
	w.begin(c)
}

func (w *world) leafOf(g, agent int32) *node {
	switch {
	case len(w.shards) > 1:
		return w.shards[w.random.IntN(len(w.shards))]
	case w.shape.tree:
		return w.leaves[agent]
	}
	return w.leaves[g]
}

func (w *world) newCall() int32 {
	if n := len(w.free); n > 0 {
		c := w.free[n-1]
		w.free = w.free[:n-1]
		return c
	}
	w.calls = append(w.calls, call{})
	return int32(len(w.calls) - 1)
}

func (w *world) databaseOf(team int32) int32 {
	return team / int32(len(w.groups)/len(w.databases))
}

func (w *world) chance(p float64) bool { return w.random.Float64() < p }

// begin sends the call to its database.
func (w *world) begin(i int32) {
	c := &w.calls[i]
	d := w.databases[w.databaseOf(c.team)]
	c.locked, c.epoch, c.since = 0, d.epoch, w.now
	if d.dead { // and so are its repetitions
		w.turnAway(i)
		return
	}
	if d.down || w.chance(w.lost/2) {
		w.repeat(i)
		return
	}
	if c.state != returning && c.leaf.hopeless(c.price, w.now) != nil {
		c.state = refused
		w.committed(i)
		return
	}
	w.lock(i, c.leaf)
}

// repeat is for a call that got no answer: it is made again, the same.
func (w *world) repeat(i int32) {
	c := &w.calls[i]
	if c.tries < tries || c.state == returning {
		c.tries++
		w.after(callAgain+instant(w.random.Int64N(int64(callAgain))), evAgain, i, 0)
		return
	}
	if c.state == held { // the wallet does not know, so nothing leaves; the hold ends with its heartbeat
		w.after(heartbeat, evFail, i, 0)
		return
	}
	w.turnAway(i)
}

// again is what the ledger does about a call that it may have had before: what was done stands.
func (w *world) again(i int32) {
	switch c := &w.calls[i]; c.state {
	case held:
		w.hear(i)
	case returned:
		w.end(i)
	default:
		w.begin(i)
	}
}

func (w *world) turnAway(i int32) {
	w.stats.turnedAway++
	w.end(i)
}

func (w *world) end(i int32) { w.free = append(w.free, i) }

// lock waits for the row n, and takes it.
func (w *world) lock(i int32, n *node) {
	if !n.lock.busy {
		w.take(i, n)
		return
	}
	if w.calls[i].state != returning && instant(n.lock.queue())*w.service > patience {
		w.unlock(i)
		w.turnAway(i)
		return
	}
	n.lock.push(i)
}

// take has the row: the call goes on to the row above, or decides.
func (w *world) take(i int32, n *node) {
	c := &w.calls[i]
	n.lock.busy, n.lock.owner = true, i
	c.locks[c.locked] = n
	c.locked++
	if n.parent == nil && w.remote == nil {
		w.asked()
	}
	if c.needsParent(n) {
		w.after(w.step, evRow, i, c.epoch)
		return
	}
	// nine tenths of the time are the same each time, as the one wallet's p99 and p50 were measured
	took := 0.8*float64(w.service) + 0.2*float64(w.service)*w.random.ExpFloat64()
	w.after(instant(took), evCommit, i, c.epoch)
}

func (w *world) asked() {
	w.stats.asks++
	w.stats.asksThisSecond++
}

// needsParent reports whether a call that has locked n has to lock what is above n too.
func (c *call) needsParent(n *node) bool {
	switch {
	case n.parent == nil:
		return false
	case c.state == returning:
		return !n.leased || n.goesUp()
	case n.used+c.price > n.cap && !n.open:
		return false // refused here
	}
	return !n.leased || n.rest() < c.price
}

// goOn is a call's next step in its database; where that was restarted, what was not committed is
// undone, and the wallet hears nothing.
func (w *world) goOn(e event) {
	c := &w.calls[e.who]
	switch {
	case c.epoch != w.databases[w.databaseOf(c.team)].epoch:
		w.repeat(e.who)
	case e.kind == evUnlock:
		w.committed(e.who)
	case c.needsParent(c.locks[c.locked-1]):
		w.lock(e.who, c.locks[c.locked-1].parent)
	default:
		w.commit(e.who)
	}
}

// commit decides, with all rows locked that it changes but for leases taken back.
func (w *world) commit(i int32) {
	c := &w.calls[i]
	rows := 0
	if c.state == returning {
		c.leaf.giveBack(c.price)
		w.judge.release(c.team, c.agent, c.price)
		c.state = returned
	} else {
		rows = w.decide(c)
	}
	w.check(i, c)
	if rows > 0 {
		w.after(instant(rows)*w.step, evUnlock, i, c.epoch)
		return
	}
	w.committed(i)
}

func (w *world) decide(c *call) (rows int) {
	full, rows := c.leaf.hold(c.price, w.now)
	switch {
	case full == nil:
		w.judge.hold(c.team, c.agent, c.price)
		c.state = held
		if w.remote != nil {
			w.remote.ahead(w, w.databaseOf(c.team), c.price)
		}
		if w.shape.offline != nil {
			w.remember(c.team)
		}
	case full.mayRecall(c.price):
		c.state = asking // a row that is locked has a rest: it is asked once more
	default:
		c.state = refused
	}
	return rows
}

// check is made after every step.
func (w *world) check(i int32, c *call) {
	if w.shape.offline != nil {
		return // breaks its cap: that is measured
	}
	for _, n := range c.locks[:c.locked] {
		if err := n.check(); err != nil {
			w.err = err
		}
		if !n.lock.busy || n.lock.owner != i {
			w.err = errors.New("a transaction has written what it has not locked")
		}
	}
	if w.judge.broken > 0 {
		w.err = fmt.Errorf("a cap was passed by %s", w.judge.broken.Price())
	}
	if w.auditAlways {
		w.auditSums()
	}
}

func (w *world) unlock(i int32) {
	c := &w.calls[i]
	locks, n := c.locks, c.locked
	c.locked = 0
	for _, l := range locks[:n] {
		l.lock.busy = false
		w.handOn(l)
	}
}

// handOn gives a row to the first who waits for it and has patience left.
func (w *world) handOn(n *node) {
	for n.lock.queue() > 0 && !n.lock.busy {
		i := n.lock.pop()
		if c := &w.calls[i]; c.state != returning && w.now-c.since > patience {
			w.unlock(i)
			w.turnAway(i)
			continue
		}
		w.take(i, n)
	}
}

// committed lets go of the rows, and answers.
func (w *world) committed(i int32) {
	w.unlock(i)
	c := &w.calls[i]
	lost := w.chance(w.lost / 2)
	switch {
	case c.state == refused && w.remote != nil && w.remote.waits(w, i):
	case c.state == refused && int(c.shards)+1 < w.shape.tries:
		w.nextShard(i)
	case c.state == refused && !lost:
		w.refuse(i)
	case lost:
		if c.state == refused { // leaves nothing in the ledger
			c.state = asking
		}
		w.repeat(i)
	case c.state == asking:
		w.begin(i)
	case c.state == held:
		w.hear(i)
	default:
		w.end(i)
	}
}

func (w *world) nextShard(i int32) {
	c := &w.calls[i]
	c.shards++
	for k, s := range w.shards {
		if s == c.leaf {
			c.leaf = w.shards[(k+1)%len(w.shards)]
			break
		}
	}
	c.state = asking
	w.begin(i)
}

func (w *world) refuse(i int32) {
	c := &w.calls[i]
	w.stats.refused++
	if w.judge.hasRoom(c.team, c.agent, c.price) {
		w.stats.needless++
		w.stats.left = max(w.stats.left, w.judge.cap-w.judge.spent)
	}
	w.end(i)
}

// hear is the wallet's: it pays what is held.
func (w *world) hear(i int32) {
	c := &w.calls[i]
	if w.groups[c.team].upAt(w.now) != w.now {
		w.after(heartbeat, evOrphan, i, 0)
		return
	}
	w.stats.waits.add(w.now - c.since)
	if w.chance(w.failed) {
		w.stats.failed++
		w.after(settling, evFail, i, 0)
		return
	}
	w.stats.paid++
	w.stats.spent += c.price
	w.end(i)
}

// orphan ends a hold whose driver is not there, as anybody may; who woke before goes on with it.
func (w *world) orphan(i int32) {
	c := &w.calls[i]
	if w.groups[c.team].upAt(w.now) == w.now {
		w.hear(i)
		return
	}
	c.state = returning
	w.begin(i)
}

func (w *world) restartLater(d int32) {
	if w.restartEvery == 0 {
		return
	}
	if in := instant(w.random.ExpFloat64() * float64(w.restartEvery)); w.now+in < w.length {
		w.after(in, evRestart, d, 0)
	}
}

// restart ends every transaction of a database. Who waited for a row asks again; who had one notices at
// its next step.
func (w *world) restart(number int32, span instant) {
	d := w.databases[number]
	d.down = true
	d.epoch++
	for _, n := range d.nodes {
		n.lock.busy = false
		for n.lock.queue() > 0 {
			w.repeat(n.lock.pop())
		}
	}
	for _, i := range d.waiting {
		w.repeat(i)
	}
	d.waiting, d.missing = nil, 0
	if span == never {
		return
	}
	w.after(span, evUp, number, 0)
	w.restartLater(number)
}
