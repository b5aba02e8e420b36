package main

import (
	"math/rand/v2"

	"x402-wallet/x402/money"
)

// A shape is how a budget is held. Without anything it is one row that every payment locks.
type shape struct {
	name    string
	tree    bool // agent → team → organisation, each with a cap, each row locked
	shards  int  // rows of one budget, each with its part
	tries   int  // how many of these are asked before a payment is refused
	leases  *policy
	offline *offline
	remote  *remote
	parts   int // a lease is such a part of the budget, where it is not of its holder's demand
}

const perHolder = -1 // as many parts as there are holders

// ownDemand is ten seconds of the holder's own demand; a rest is taken back after half a minute.
var ownDemand = policy{demand: 10 * second, term: 30 * second}

func changed(p policy, change func(*policy)) *policy {
	change(&p)
	return &p
}

var (
	plain   = changed(ownDemand, func(*policy) {})
	direct  = changed(ownDemand, func(p *policy) { p.direct = 10 })
	shrinks = changed(ownDemand, func(p *policy) { p.shrink, p.recall = true, true })
	later   = changed(ownDemand, func(p *policy) { p.direct, p.term = 10, p.term+2*second })
)

// Of these, a group's lease is a row of the ledger.
var shapes = []shape{
	{name: "one row"},
	{name: "tree", tree: true},
	{name: "16 shards, one asked", shards: 16, tries: 1},
	{name: "16 shards, all asked", shards: 16, tries: 16},
	{name: "slices of 5 %", leases: plain, parts: 20},
	{name: "slices of 1/holders", leases: plain, parts: perHolder},
	{name: "leases", leases: plain},
	{name: "leases, direct below 10 %", leases: direct},
	{name: "leases that shrink", leases: shrinks},
}

var offlineShapes = []shape{
	{name: "offline leases, clocks ±2 s", leases: plain, offline: &offline{skew: 2 * second}},
	{name: "the same, direct below 10 %", leases: direct, offline: &offline{skew: 2 * second}},
	{name: "the same, 2 s kept clear", leases: later,
		offline: &offline{skew: 2 * second, margin: 2 * second}},
	{name: "the same, stopped in between", leases: later,
		offline: &offline{skew: 2 * second, margin: 2 * second, pause: true}},
}

var remoteShapes = []shape{
	{name: "databases, shares that shrink", leases: shrinks, remote: &remote{policy: *shrinks}},
	{name: "databases, direct below 10 %", leases: shrinks, remote: &remote{policy: *direct}},
	{name: "databases, one lost for good", leases: shrinks, remote: &remote{policy: *shrinks, dies: true}},
}

// notOnDisk is a root ledger that answers before its grant is on disk: it breaks the cap.
var notOnDisk = shape{name: "databases, grants not on disk", leases: shrinks,
	remote: &remote{policy: *shrinks, forgets: second}}

// newWorld lays out the rows of a shape, for a demand of which wanted is known.
func newWorld(s setting, sh shape, sum money.Dollars) *world {
	w := &world{setting: s, shape: sh, random: rand.New(rand.NewPCG(s.seed, 1<<32))}
	budget := sum / 100 * money.Dollars(s.capPercent)
	w.judge = judge{cap: budget, teamCap: money.MaxDollars, teams: make([]money.Dollars, s.groups)}
	for i := range s.groups {
		w.groups = append(w.groups, newGroup(s, i))
	}
	switch {
	case sh.tree:
		w.layTree(budget)
	case sh.shards > 1:
		w.layShards(budget)
	case sh.remote != nil:
		w.layDatabases(budget)
	default:
		w.layOne(budget)
	}
	if sh.offline != nil {
		w.newHoldings()
	}
	return w
}

// layOne is one row, or one with a leased row for each group below it.
func (w *world) layOne(budget money.Dollars) {
	p := w.shape.leases
	if parts := w.shape.parts; parts != 0 {
		if parts == perHolder {
			parts = len(w.groups)
		}
		p = changed(*p, func(p *policy) { p.slice = budget / money.Dollars(parts) })
	}
	root := newNode(nil, budget, false, p)
	w.shards = []*node{root}
	d := &database{nodes: []*node{root}}
	for range w.groups {
		leaf := root
		if p != nil {
			leaf = newNode(root, money.MaxDollars, true, nil)
			d.nodes = append(d.nodes, leaf)
		}
		w.leaves = append(w.leaves, leaf)
	}
	w.databases = []*database{d}
}

// layTree gives a team half more than its part, and an agent ten times its part.
func (w *world) layTree(budget money.Dollars) {
	root := newNode(nil, budget, false, nil)
	w.shards = []*node{root}
	d := &database{nodes: []*node{root}}
	w.judge.teamCap = budget / money.Dollars(w.setting.groups) / 2 * 3
	w.judge.agentCap = budget / money.Dollars(w.agents) * 10
	w.judge.agents = make([]money.Dollars, w.agents)
	for range w.groups {
		team := newNode(root, w.judge.teamCap, false, nil)
		d.nodes = append(d.nodes, team)
		for range w.agents / len(w.groups) {
			agent := newNode(team, w.judge.agentCap, false, nil)
			d.nodes = append(d.nodes, agent)
			w.leaves = append(w.leaves, agent)
		}
	}
	w.databases = []*database{d}
}

func (w *world) layShards(budget money.Dollars) {
	d := &database{}
	for i := range w.shape.shards {
		part := budget / money.Dollars(w.shape.shards)
		if i == 0 {
			part = budget - part*money.Dollars(w.shape.shards-1)
		}
		w.shards = append(w.shards, newNode(nil, part, false, nil))
	}
	d.nodes = w.shards
	w.databases = []*database{d}
}

func (w *world) layDatabases(budget money.Dollars) {
	r := *w.shape.remote
	r.root = newNode(nil, budget, false, nil)
	r.shares = make([]share, w.setting.databases)
	w.remote = &r
	for range w.setting.databases {
		d := &database{}
		d.top = newNode(nil, 0, false, w.shape.leases)
		d.nodes = append(d.nodes, d.top)
		for range len(w.groups) / w.setting.databases {
			leaf := newNode(d.top, money.MaxDollars, true, nil)
			d.nodes = append(d.nodes, leaf)
			w.leaves = append(w.leaves, leaf)
		}
		w.databases = append(w.databases, d)
	}
	w.rootStopsLater()
	if r.dies {
		w.after(w.length/4*3, evDeath, int32(w.setting.databases-1), 0)
	}
}
