package history

import (
	"maps"
	"slices"
	"strings"
	"time"

	"x402-wallet/budget"
	"x402-wallet/history/internal/schema"
	"x402-wallet/history/sqldb"
	"x402-wallet/x402/money"
)

// The sums that budgets are decided by: what is spent and held, by UTC day, of all payments, of a host and of
// an agent, and of a session in all. They change in the transaction that changes a payment; package verify
// adds them up again.

// window is what a sum is of.
type window struct {
	scope, key string
	day        int64 // since 1970; of a session 0
}

// windows are those that a payment counts in.
func (p Payment) windows() []window {
	day := sqldb.DayNumber(p.Created)
	list := []window{{"all", "", day}, {"session", p.Session, 0}, {"host", p.Host, day}}
	if p.Agent != "" {
		list = append(list, window{"agent", p.Agent, day})
	}
	return list
}

// counts is what a payment of some worth counts as, by its state.
func (s State) counts(worth money.Dollars) (use budget.Use) {
	switch s {
	case Settled:
		use.Spent = worth
	case Failed:
	default:
		use.Held = worth
	}
	return use
}

// recount moves the sums of a payment's windows from one use of them to another.
func (t *tx) recount(p Payment, from, to budget.Use) error {
	spent, held := int64(to.Spent-from.Spent), int64(to.Held-from.Held)
	if spent == 0 && held == 0 {
		return nil
	}
	query, args := `INSERT INTO totals (scope, key, day, spent, held) VALUES `, []any{}
	for i, w := range p.windows() {
		if i > 0 {
			query += `, `
		}
		query += `(?, ?, ?, ?, ?)`
		args = append(args, w.scope, w.key, w.day, spent, held)
	}
	_, err := t.Exec(query+` ON CONFLICT (scope, key, day) DO UPDATE
		SET spent = totals.spent + excluded.spent, held = totals.held + excluded.held`, args...)
	return err
}

// usedIn sums windows by one query: of a session, an agent, a team, a host, or of all. Windows begin with a
// UTC day.
func (t *tx) usedIn(windows ...budget.Window) ([]budget.Use, error) {
	var queries []string
	var args []any
	since := map[string]int64{} // of a scope, the earliest day that is asked for
	for _, w := range windows {
		scope := scopeOf(w)
		day := sqldb.DayNumber(w.Since)
		if scope == "session" {
			queries, args = append(queries, selectTotals+`'session' AND day = 0 AND key = ?`), append(args, w.Session)
			continue
		}
		if earliest, known := since[scope]; !known || day < earliest {
			since[scope] = day
		}
	}
	for _, scope := range slices.Sorted(maps.Keys(since)) {
		queries, args = append(queries, selectTotals+`? AND day >= ?`), append(args, scope, since[scope])
	}
	used := make([]budget.Use, len(windows))
	err := t.Each(func(row sqldb.Row) error {
		var of window
		var use budget.Use
		err := row.Scan(&of.scope, &of.key, &of.day, &use.Spent, &use.Held)
		for i, w := range windows {
			if of.isIn(w) {
				used[i] = used[i].Plus(use)
			}
		}
		return err
	}, strings.Join(queries, ` UNION `), args...)
	return used, err
}

const selectTotals = `SELECT scope, key, day, spent, held FROM totals WHERE scope = `

// scopeOf is which sums a window is made of.
func scopeOf(w budget.Window) string {
	switch {
	case w.Session != "":
		return "session"
	case !w.IsAll():
		return "agent"
	case w.Host != "":
		return "host"
	}
	return "all"
}

// isIn reports whether a sum is a part of a window's.
func (of window) isIn(w budget.Window) bool {
	if of.scope != scopeOf(w) {
		return false
	}
	switch of.scope {
	case "session":
		return of.key == w.Session
	case "agent":
		return of.day >= sqldb.DayNumber(w.Since) && w.Has(of.key)
	case "host":
		return of.day >= sqldb.DayNumber(w.Since) && budget.HostMatches(w.Host, of.key)
	}
	return of.day >= sqldb.DayNumber(w.Since)
}

// usage sums the windows of a time: of a session, of its day and month, of hosts on that day, and those of an
// agent and of teams.
func (t *tx) usage(session string, q budget.Query, at time.Time) (u budget.Usage, err error) {
	day, month := budget.DayOf(at), budget.MonthOf(at)
	windows := []budget.Window{{Since: day}, {Since: month}}
	if session != "" {
		windows = append(windows, budget.Window{Session: session})
	}
	if q.Agent != "" {
		windows = append(windows, budget.Window{Agent: q.Agent, Since: day},
			budget.Window{Agent: q.Agent, Since: month})
	}
	for _, host := range q.HostEntries {
		windows = append(windows, budget.Window{Host: host, Since: day})
	}
	for _, team := range q.Teams {
		windows = append(windows, budget.Window{Team: team, Teams: q.Tree, Since: day},
			budget.Window{Team: team, Teams: q.Tree, Since: month})
	}
	used, err := t.usedIn(windows...)
	if err != nil {
		return u, err
	}
	next := func() (first budget.Use) {
		first, used = used[0], used[1:]
		return first
	}
	u.Day, u.Month = next(), next()
	if session != "" {
		u.Session = next()
	}
	if q.Agent != "" {
		u.Agent = budget.NodeUsage{Day: next(), Month: next()}
	}
	u.HostDay = map[string]budget.Use{}
	for _, host := range q.HostEntries {
		u.HostDay[host] = next()
	}
	if len(q.Teams) > 0 {
		u.Teams = map[string]budget.NodeUsage{}
	}
	for _, team := range q.Teams {
		u.Teams[team] = budget.NodeUsage{Day: next(), Month: next()}
	}
	if q.EachAgent {
		u.Agents, err = t.usedByAgents(day, month)
	}
	return u, err
}

func (t *tx) usedByAgents(day, month time.Time) (map[string]budget.NodeUsage, error) {
	used := map[string]budget.NodeUsage{}
	err := t.Each(func(row sqldb.Row) error {
		var of window
		var use budget.Use
		err := row.Scan(&of.scope, &of.key, &of.day, &use.Spent, &use.Held)
		agent := used[of.key]
		agent.Month = agent.Month.Plus(use)
		if of.day >= sqldb.DayNumber(day) {
			agent.Day = agent.Day.Plus(use)
		}
		used[of.key] = agent
		return err
	}, selectTotals+`'agent' AND day >= ?`, sqldb.DayNumber(month))
	return used, err
}

// rebuildTotals fills the table totals anew from the payments.
func (t *tx) rebuildTotals() error {
	_, err := t.Exec(`DELETE FROM totals`)
	if err == nil {
		_, err = t.Exec(`INSERT INTO totals (scope, key, day, spent, held) ` + schema.Totals)
	}
	return err
}
