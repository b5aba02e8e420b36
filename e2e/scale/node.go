package main

import (
	"fmt"
	"math"

	"x402-wallet/x402/money"
)

// A node is a row of a budget: what may be used of it, and what is. Payments are held at leaves. A
// leaf that is not leased takes every payment's price from its parent too; a leased one takes grants,
// and asks its parent only when its grant does not cover a price.
//
// The methods say what a transaction does that has locked what it changes. They know nothing of queues
// or crashes: world.go does.
type node struct {
	parent   *node
	children []*node
	policy   *policy // how its leased children are granted money; nil without any

	cap  money.Dollars // the owner's, and in a database that is a child of a root ledger, its share
	used money.Dollars // held or spent here, and granted to leased children

	leased  bool
	granted money.Dollars // what the parent counts for this node, used or not
	until   instant       // when the parent may take back what is not used
	demand  demand

	open  bool          // there may be a lease with a rest below
	due   instant       // before then, none of those may be taken back by its time
	rests money.Dollars // at most so much can be taken back below

	lock lock
}

// A policy says what a lease is.
type policy struct {
	slice  money.Dollars // of this size; 0: of the child's own demand
	demand instant       // of as long
	term   instant       // until the rest may be taken back
	direct int           // nothing is leased when less than so many percent of the cap are left
	shrink bool          // at most half of an equal share of what is left
	recall bool          // whoever finds the parent full takes back every rest, before its time too
}

func newNode(parent *node, limit money.Dollars, leased bool, p *policy) *node {
	n := &node{parent: parent, cap: limit, leased: leased, policy: p, due: never}
	if parent != nil {
		parent.children = append(parent.children, n)
	}
	return n
}

// rest is what a leased node was granted and did not use.
func (n *node) rest() money.Dollars { return n.granted - n.used }

// left is what can be had from this row alone.
func (n *node) left() money.Dollars {
	if n.leased {
		return min(n.cap-n.used, n.rest())
	}
	return n.cap - n.used
}

// hold takes price at n and above, or nothing, and then full is the row that has no room.
func (n *node) hold(price money.Dollars, now instant) (full *node, rows int) {
	if n.leased {
		n.demand.add(price, now)
	}
	if n.used+price > n.cap {
		rows = n.takeBack(now)
		if n.used+price > n.cap {
			return n, rows
		}
	}
	var more int
	switch {
	case n.leased && n.rest() >= price, n.parent == nil:
	case n.leased:
		full, more = n.draw(price, now)
	default:
		full, more = n.parent.hold(price, now)
	}
	rows += more
	if full == nil {
		n.used += price
	}
	return full, rows
}

// hopeless is the row that has no room for price, as it is read without a lock: what a wallet refuses by
// itself costs no row anything. nil: it must be tried.
func (n *node) hopeless(price money.Dollars, now instant) *node {
	switch {
	case n.open && !n.recalls() && n.due <= now, n.mayRecall(price):
		return nil
	case n.used+price > n.cap:
		return n
	case n.parent == nil:
		return nil
	case n.leased:
		price -= n.rest()
	}
	if price <= 0 {
		return nil
	}
	return n.parent.hopeless(price, now)
}

// draw makes n's rest cover price: by a grant, else by exactly what is missing, else by what n's own
// children leave.
func (n *node) draw(price money.Dollars, now instant) (full *node, rows int) {
	missing := price - n.rest()
	amount := n.parent.grantTo(n, missing, now)
	full, rows = n.parent.hold(amount, now)
	if full != nil && amount > missing {
		amount = missing
		var more int
		full, more = n.parent.hold(amount, now)
		rows += more
	}
	if full == nil {
		n.granted += amount
		n.until = now + n.parent.policy.term
		if amount > missing {
			n.parent.opened(n.until, amount-missing)
		}
		return nil, rows
	}
	rows += n.takeBack(now)
	if n.rest() >= price {
		return nil, rows
	}
	if n.parent.policy.recall { // refused: what it has is for others, whose prices may be smaller
		n.giveUp()
	}
	return full, rows
}

// grantTo is how much p grants to a child that misses so much.
func (p *node) grantTo(n *node, missing money.Dollars, now instant) money.Dollars {
	if !p.leases() {
		return missing
	}
	left := p.left()
	want := p.policy.slice
	if want == 0 {
		want = n.demand.in(p.policy.demand, now)
	}
	if p.policy.shrink {
		want = min(want, left/money.Dollars(2*len(p.children)))
	}
	return max(missing, min(want, left, n.cap-n.granted))
}

// leases reports whether p is far enough from its cap to grant more than a price.
func (p *node) leases() bool {
	return p.left() > 0 && p.left() >= p.cap/100*money.Dollars(p.policy.direct)
}

// opened notes at p and above that a lease below has a rest, which may be taken back from until on.
func (p *node) opened(until instant, rest money.Dollars) {
	for ; p != nil; p = p.parent {
		p.open, p.due, p.rests = true, min(p.due, until), p.rests+rest
	}
}

// mayRecall reports whether n has room for price if what may lie in leases below is taken back.
func (n *node) mayRecall(price money.Dollars) bool {
	return n.open && n.recalls() && n.left()+n.rests >= price
}

// takeBack gives the rests of leases below n back to n: those past their time, and where the policy
// recalls, all. A row that is locked is in use, and skipped: n stays open. rows says how many it took.
func (n *node) takeBack(now instant) (rows int) {
	if !n.open || (n.due > now && !n.recalls()) {
		return 0
	}
	n.open, n.due, n.rests = false, never, 0
	for _, c := range n.children {
		rows += c.takeBack(now)
		if c.open {
			n.open, n.due, n.rests = true, min(n.due, c.due), n.rests+c.rests
		}
		if !c.leased || c.rest() == 0 {
			continue
		}
		if c.lock.busy || (c.until > now && !n.recalls()) {
			n.open, n.due, n.rests = true, min(n.due, c.until), n.rests+c.rest()
			continue
		}
		c.giveUp()
		rows++
	}
	return rows
}

func (n *node) recalls() bool { return n.policy != nil && n.policy.recall }

// giveUp returns the rest of n's lease.
func (n *node) giveUp() {
	rest := n.rest()
	n.granted -= rest
	n.parent.giveBack(rest)
}

// giveBack undoes a hold, whose payment failed, or a grant.
func (n *node) giveBack(price money.Dollars) {
	n.used -= price
	switch {
	case n.parent == nil:
	case !n.leased:
		n.parent.giveBack(price)
	case n.goesUp():
		n.granted -= price
		n.parent.giveBack(price)
	default:
		n.parent.opened(n.until, price)
	}
}

// goesUp reports whether what is given back at a leased node is its parent's at once: where nothing is
// leased any more, nobody but that node's next payment would find it.
func (n *node) goesUp() bool {
	p := n.parent
	return (p.policy.direct > 0 && !p.leases()) || (p.policy.recall && !p.open)
}

// check says what is not as it must be at n.
func (n *node) check() error {
	switch {
	case n.used < 0 || n.used > n.cap:
		return fmt.Errorf("%s used of a cap of %s", n.used.Price(), n.cap.Price())
	case n.leased && n.used > n.granted:
		return fmt.Errorf("%s used of %s granted", n.used.Price(), n.granted.Price())
	}
	return nil
}

// checkSum compares what n has used with what its children have of it.
func (n *node) checkSum() error {
	var sum money.Dollars
	for _, c := range n.children {
		if c.leased {
			sum += c.granted
		} else {
			sum += c.used
		}
	}
	if len(n.children) > 0 && sum != n.used {
		return fmt.Errorf("%s used, and the children have %s", n.used.Price(), sum.Price())
	}
	return nil
}

// A demand is what a node was asked for a second, of the last ten seconds or so.
type demand struct {
	rate float64 // micro-dollars a second
	at   instant
}

const memory = 10 * second

func (d *demand) add(price money.Dollars, now instant) {
	d.rate = d.rate*math.Exp(-float64(now-d.at)/float64(memory)) + float64(price)/memory.seconds()
	d.at = now
}

func (d *demand) in(span, now instant) money.Dollars {
	rate := d.rate * math.Exp(-float64(now-d.at)/float64(memory))
	return money.Dollars(rate * span.seconds())
}
