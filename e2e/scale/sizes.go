package main

import (
	"fmt"
	"strings"
	"sync"

	"x402-wallet/x402/money"
)

// A size is a table of docs/scale.md.
type size struct {
	name, title, head string
	runs              []run
}

// A run is a line of it.
type run struct {
	setting
	shape  shape
	label  string // before the shape's name
	seeds  int    // 0: one, and what it counted; else in how many of these the cap was passed
	demand func() (int64, money.Dollars)
}

const head = `| | paid/s | answer, ms: p50 · p99 | refused | needlessly; budget left | busy | idle | asks/s | cap |
|---|---|---|---|---|---|---|---|---|`

const seedsHead = `| | runs that passed the cap | by, at most |
|---|---|---|`

// sizes are the documented ones.
func sizes(s setting) []size {
	of := func(agents, groups int, perMinute float64) setting {
		s := s
		s.agents, s.groups, s.perMinute = agents, groups, perMinute
		return s
	}
	row := size{name: "row", head: head,
		title: "One row by payments a second, with room for all and nothing that goes wrong"}
	for _, rate := range []int{250, 500, 750, 1000, 1250, 1500} {
		calm := of(100_000, 100, float64(rate)*60/100_000)
		calm.outageEvery, calm.restartEvery, calm.lost, calm.capPercent = 0, 0, 0, 200
		r := runs(calm, shapes[:2])
		for i := range r {
			r[i].label = thousands(float64(rate)) + "/s, "
		}
		row.runs = append(row.runs, r...)
	}
	one := of(10_000_000, 10_000, 1)
	one.length = 120 * second
	several := one
	several.databases, several.restartEvery, several.down = 20, 600*second, 10*second
	offline := size{name: "offline", title: "Leases that are not rows of the ledger", head: seedsHead}
	for _, at := range []setting{of(1_000, 1_000, 10), of(100_000, 100, 1)} {
		r := runs(at, offlineShapes)
		for i := range r {
			r[i].seeds, r[i].label = 14, thousands(float64(at.groups))+" holders, "
		}
		offline.runs = append(offline.runs, r...)
	}
	return []size{row,
		{"1e3", "1,000 agents, 10 a minute each, in 10 teams: 167/s", head, runs(of(1_000, 10, 10), shapes)},
		{"1e3", "The same, and each agent is a holder", head, runs(of(1_000, 1_000, 10), shapes[4:])},
		{"1e5", "100,000 agents, 1 a minute each, in 100 teams: 1,667/s", head,
			runs(of(100_000, 100, 1), shapes)},
		{"1e6", "1,000,000 agents, 1 a minute each, in 1,000 teams: 16,667/s", head,
			runs(of(1_000_000, 1_000, 1), append([]shape{shapes[0], shapes[2]}, shapes[4:]...))},
		{"1e7", "10,000,000 agents, 1 a minute each, in 10,000 groups: 166,667/s", head,
			append(runs(one, shapes[:1]), runs(several, remoteShapes)...)},
		offline}
}

// wants says what the first run's demand is.
func (z size) wants() string {
	r := z.runs[0]
	if r.seeds > 0 || r.label != "" {
		return ""
	}
	count, sum := r.demand()
	return fmt.Sprintf("In %.0f s %s purchases are wanted, for $%s; the budget is %d %% of that.\n\n",
		r.length.seconds(), thousands(float64(count)), thousands(float64(sum)/1e6), r.capPercent)
}

// runs has every shape meet the same demand, which is added up once.
func runs(s setting, shapes []shape) (all []run) {
	demand := sync.OnceValues(func() (int64, money.Dollars) { return wanted(s) })
	for _, sh := range shapes {
		all = append(all, run{setting: s, shape: sh, demand: demand})
	}
	return all
}

// line plays a run, and is its line of the table.
func (r run) line() string {
	if r.seeds > 0 {
		return r.severalSeeds()
	}
	_, sum := r.demand()
	w := newWorld(r.setting, r.shape, sum)
	if err := w.run(); err != nil {
		return fmt.Sprintf("| %s%s | FAILED: %s |\n", r.label, r.shape.name, err)
	}
	st, length := &w.stats, w.length.seconds()
	return fmt.Sprintf("| %s%s | %s | %s · %s | %s | %s; %s | %s | %s | %s, at most %s | kept |\n",
		r.label, r.shape.name, thousands(float64(st.paid)/length), ms(st.waits.quantile(0.5)),
		ms(st.waits.quantile(0.99)), thousands(float64(st.refused)), thousands(float64(st.needless)),
		percent(st.left, w.judge.cap), thousands(float64(st.turnedAway)), percent(st.idle, w.judge.cap),
		thousands(float64(st.asks)/length), thousands(float64(st.asksPeak)))
}

// severalSeeds is for shapes that break their cap.
func (r run) severalSeeds() string {
	passed, most := 0, money.Dollars(0)
	for i := range r.seeds {
		r.seed = uint64(i + 1)
		_, sum := wanted(r.setting)
		w := newWorld(r.setting, r.shape, sum)
		if err := w.run(); err != nil {
			return fmt.Sprintf("| %s%s | FAILED: %s |\n", r.label, r.shape.name, err)
		}
		if w.judge.broken > 0 {
			passed++
		}
		most = max(most, w.judge.broken)
	}
	return fmt.Sprintf("| %s%s | %d of %d | %s |\n", r.label, r.shape.name, passed, r.seeds, most.Price())
}

func ms(t instant) string {
	x := float64(t) / float64(millisecond)
	if x >= 10 {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.2g", x)
}

// percent is of the budget, with no more digits than say something.
func percent(part, budget money.Dollars) string {
	x := 100 * float64(part) / float64(budget)
	switch {
	case part <= 0:
		return "0 %"
	case x < 0.1:
		return "< 0.1 %"
	}
	return fmt.Sprintf("%.1f %%", x)
}

// thousands is a number with commas.
func thousands(x float64) string {
	s := fmt.Sprintf("%.0f", x)
	var parts []string
	for len(s) > 3 {
		parts = append([]string{s[len(s)-3:]}, parts...)
		s = s[:len(s)-3]
	}
	return strings.Join(append([]string{s}, parts...), ",")
}
