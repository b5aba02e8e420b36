package main

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"x402-wallet/x402/money"
)

// Any tree of rows, and anything done to it: no row's cap and no grant is passed, and every row has used
// what its children have. A refusal is right: there is no room at the row that refused, and where rests are
// recalled, none anywhere below it.
func TestNoRowIsPassed(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		tree := drawTree(rt)
		now := instant(0)
		type payment struct {
			leaf  *node
			price money.Dollars
		}
		var holds []payment
		spent := map[*node]money.Dollars{} // by the test's own sum, at every row
		count := func(n *node, price money.Dollars) {
			for ; n != nil; n = n.parent {
				spent[n] += price
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"hold": func(rt *rapid.T) {
				leaf := rapid.SampledFrom(tree.leaves).Draw(rt, "leaf")
				price := money.Dollars(rapid.IntRange(1, 40).Draw(rt, "price"))
				hopeless := leaf.hopeless(price, now)
				full := holdLocked(leaf, price, now)
				for range 5 { // a row of its own path that it had locked had a rest
					if full != nil && full.mayRecall(price) {
						full = holdLocked(leaf, price, now)
					}
				}
				if full == nil {
					require.Nil(rt, hopeless, "what has room was said to be hopeless")
					holds = append(holds, payment{leaf, price})
					count(leaf, price)
					return
				}
				requireFull(rt, leaf, full, spent, price, now)
			},
			"give back": func(rt *rapid.T) {
				if len(holds) == 0 {
					rt.Skip("nothing is held")
				}
				i := rapid.IntRange(0, len(holds)-1).Draw(rt, "payment")
				holds[i].leaf.giveBack(holds[i].price)
				count(holds[i].leaf, -holds[i].price)
				holds = append(holds[:i], holds[i+1:]...)
			},
			"time": func(rt *rapid.T) {
				now += instant(rapid.Int64Range(1, int64(40*second)).Draw(rt, "span"))
			},
			"take back": func(rt *rapid.T) {
				rapid.SampledFrom(tree.all).Draw(rt, "row").takeBack(now)
			},
			"": func(rt *rapid.T) {
				for _, n := range tree.all {
					require.NoError(rt, n.check())
					require.NoError(rt, n.checkSum())
					require.LessOrEqual(rt, spent[n], n.cap)
					require.LessOrEqual(rt, spent[n], n.used)
				}
			},
		})
		now += 31 * second
		for range 3 { // a rest goes up by one row each time
			for _, n := range tree.all {
				n.takeBack(now)
			}
		}
		for _, n := range tree.all {
			require.Equal(rt, spent[n], n.used, "money is lost")
		}
	})
}

// holdLocked is a transaction: it has the rows from the leaf up.
func holdLocked(leaf *node, price money.Dollars, now instant) *node {
	for n := leaf; n != nil; n = n.parent {
		n.lock.busy = true
	}
	full, _ := leaf.hold(price, now)
	for n := leaf; n != nil; n = n.parent {
		n.lock.busy = false
	}
	return full
}

// A dead holder's rest is there for others when its time has passed, and not before. Who wakes then finds
// nothing in its lease, and asks as anybody does.
func TestADeadHoldersRestIsTakenBack(t *testing.T) {
	p := &policy{slice: 40, term: 30 * second}
	root := newNode(nil, 100, false, p)
	dead, other := newNode(root, 100, true, nil), newNode(root, 100, true, nil)
	asker := newNode(root, 100, true, nil)
	require.Nil(t, holdLocked(dead, 1, 0))
	require.Nil(t, holdLocked(other, 1, 20*second))
	require.Equal(t, root, holdLocked(asker, 30, 29*second))
	require.Equal(t, root, asker.hopeless(30, 29*second))
	require.Nil(t, asker.hopeless(30, 30*second))
	require.Nil(t, holdLocked(asker, 30, 30*second))
	require.EqualValues(t, 39, other.rest(), "its time has not come")
	require.Zero(t, dead.rest())
	require.Equal(t, root, holdLocked(dead, 30, 31*second))
	require.Nil(t, holdLocked(dead, 20, 31*second))
	require.EqualValues(t, 21, dead.used)
}

// requireFull checks a refusal.
func requireFull(rt *rapid.T, leaf, full *node, spent map[*node]money.Dollars, price money.Dollars,
	now instant) {
	require.Less(rt, full.cap-full.used, price, "it has room")
	for _, n := range leaseRows(full) {
		if n.until <= now && !above(leaf, n) {
			require.Zero(rt, n.rest(), "a rest past its time was not taken back")
		}
	}
	if full.recalls() {
		require.Less(rt, full.cap-spent[full], price, "refused needlessly")
	}
}

// above reports whether a payment at leaf has n locked; what that has is used first.
func above(leaf, n *node) bool {
	for ; leaf != nil; leaf = leaf.parent {
		if leaf == n {
			return true
		}
	}
	return false
}

func leaseRows(n *node) (all []*node) {
	for _, c := range n.children {
		if c.leased {
			all = append(all, c)
		}
		all = append(all, leaseRows(c)...)
	}
	return all
}

type tree struct{ all, leaves []*node }

func drawTree(rt *rapid.T) *tree {
	p := &policy{demand: 10 * second, term: 30 * second,
		direct: rapid.SampledFrom([]int{0, 10}).Draw(rt, "direct"),
		slice:  money.Dollars(rapid.SampledFrom([]int{0, 0, 25}).Draw(rt, "slice")),
		shrink: rapid.Bool().Draw(rt, "shrink"), recall: rapid.Bool().Draw(rt, "recall")}
	tr := &tree{}
	var grow func(parent *node, depth int)
	grow = func(parent *node, depth int) {
		limit := money.Dollars(rapid.IntRange(20, 600).Draw(rt, "cap"))
		n := newNode(parent, limit, parent != nil && rapid.Bool().Draw(rt, "leased"), p)
		tr.all = append(tr.all, n)
		below := 0
		if depth < 3 {
			below = rapid.IntRange(1, 3).Draw(rt, "children")
		}
		if below == 0 {
			tr.leaves = append(tr.leaves, n)
		}
		for range below {
			grow(n, depth+1)
		}
	}
	grow(nil, 1)
	return tr
}
