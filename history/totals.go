package history

import (
	"time"

	"x402-wallet/budget"
	"x402-wallet/history/sqldb"
	"x402-wallet/x402/money"
)

// The sums that budgets are decided by: what is spent and held, by UTC day, of all payments, of a host and of
// an agent, and of a session in all. They change in the transaction that changes a payment; Verify adds them
// up again.

// window is what a sum is of.
type window struct {
	scope, key string
	day        int64 // since 1970; of a session 0
}

// windows are those that a payment counts in.
func (p Payment) windows() []window {
	day := dayNumber(p.Created)
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

// sumOfTotals is the head of a query over sums.
const sumOfTotals = `SELECT coalesce(sum(spent), 0), coalesce(sum(held), 0) FROM totals `

// used sums a window: of a session, of an agent, of a team, of a host, or of all. Windows begin with a UTC
// day.
func (t *tx) used(w budget.Window) (use budget.Use, err error) {
	day := dayNumber(w.Since)
	var row sqldb.Row
	switch {
	case w.Session != "":
		row = t.Row(sumOfTotals+`WHERE scope = 'session' AND day = 0 AND key = ?`, w.Session)
	case w.Agent != "":
		row = t.Row(sumOfTotals+`WHERE scope = 'agent' AND key = ? AND day >= ?`, w.Agent, day)
	case w.Team != "":
		agents, err := t.usedBy("agent", w.Since)
		return w.Teams.Sum(w.Team, agents), err
	case w.Host != "":
		hosts, err := t.usedBy("host", w.Since)
		return sumOfHosts(w.Host, hosts), err
	default:
		row = t.Row(sumOfTotals+`WHERE scope = 'all' AND day >= ?`, day)
	}
	err = row.Scan(&use.Spent, &use.Held)
	return use, err
}

// usedBy is what each host, or each agent, used since a day.
func (t *tx) usedBy(scope string, since time.Time) (map[string]budget.Use, error) {
	used := map[string]budget.Use{}
	err := t.Each(func(row sqldb.Row) error {
		var key string
		var use budget.Use
		err := row.Scan(&key, &use.Spent, &use.Held)
		used[key] = use
		return err
	}, `SELECT key, sum(spent), sum(held) FROM totals WHERE scope = ? AND day >= ? GROUP BY key`, scope,
		dayNumber(since))
	return used, err
}

// usage sums the windows of a time: of a session, of its day and month, of hosts on that day, and those of an
// agent and of teams. It takes one query.
func (t *tx) usage(session string, q budget.Query, at time.Time) (u budget.Usage, err error) {
	day, month := dayNumber(budget.DayOf(at)), dayNumber(budget.MonthOf(at))
	const one = `SELECT scope, key, day, spent, held FROM totals WHERE scope = `
	query, args := one+`'all' AND day >= ?`, []any{month}
	if session != "" {
		query, args = query+` UNION ALL `+one+`'session' AND day = 0 AND key = ?`, append(args, session)
	}
	if len(q.HostEntries) > 0 {
		query, args = query+` UNION ALL `+one+`'host' AND day >= ?`, append(args, day)
	}
	if q.Agent != "" || len(q.Teams) > 0 || q.EachAgent {
		query, args = query+` UNION ALL `+one+`'agent' AND day >= ?`, append(args, month)
	}
	hosts, inDay, inMonth := map[string]budget.Use{}, map[string]budget.Use{}, map[string]budget.Use{}
	err = t.Each(func(row sqldb.Row) error {
		var w window
		var use budget.Use
		err := row.Scan(&w.scope, &w.key, &w.day, &use.Spent, &use.Held)
		isToday := w.day >= day
		switch w.scope {
		case "all":
			u.Month = u.Month.Plus(use)
			if isToday {
				u.Day = u.Day.Plus(use)
			}
		case "session":
			u.Session = u.Session.Plus(use)
		case "host":
			hosts[w.key] = hosts[w.key].Plus(use)
		case "agent":
			inMonth[w.key] = inMonth[w.key].Plus(use)
			if isToday {
				inDay[w.key] = inDay[w.key].Plus(use)
			}
		}
		return err
	}, query, args...)
	u.HostDay = map[string]budget.Use{}
	for _, entry := range q.HostEntries {
		u.HostDay[entry] = sumOfHosts(entry, hosts)
	}
	if q.Agent != "" {
		u.Agent = budget.NodeUsage{Day: inDay[q.Agent], Month: inMonth[q.Agent]}
	}
	addNodes(&u, q, inDay, inMonth)
	return u, err
}

// dayNumber is a time's day as totals counts them: since 1970, in UTC.
func dayNumber(t time.Time) int64 { return micros(t) / (24 * time.Hour).Microseconds() }

// totalsOfPayments are the sums again, from the payments.
const totalsOfPayments = `SELECT scope, key, day, CAST(sum(spent) AS BIGINT), CAST(sum(held) AS BIGINT) FROM (
	SELECT 'all' AS scope, '' AS key, day, spent, held FROM counted UNION ALL
	SELECT 'session', session, 0, spent, held FROM counted UNION ALL
	SELECT 'host', host, day, spent, held FROM counted UNION ALL
	SELECT 'agent', agent, day, spent, held FROM counted WHERE agent <> '') AS sums
	GROUP BY scope, key, day HAVING sum(spent) <> 0 OR sum(held) <> 0`

const countedPayments = `WITH counted AS (SELECT session, host, agent, created_at / 86400000000 AS day,
	sum(CASE WHEN state = 'settled' THEN usd - returned ELSE 0 END) AS spent,
	sum(CASE WHEN state IN ('settled', 'failed') THEN 0 ELSE usd - returned END) AS held
	FROM payments GROUP BY 1, 2, 3, 4) `

// rebuildTotals fills the table totals anew from the payments.
func (t *tx) rebuildTotals() error {
	_, err := t.Exec(`DELETE FROM totals`)
	if err == nil {
		_, err = t.Exec(`INSERT INTO totals (scope, key, day, spent, held) ` + countedPayments +
			totalsOfPayments)
	}
	return err
}

// sumOfHosts is what the hosts that an owner's entry covers used together.
func sumOfHosts(entry string, used map[string]budget.Use) (sum budget.Use) {
	for host, use := range used {
		if budget.HostMatches(entry, host) {
			sum = sum.Plus(use)
		}
	}
	return sum
}
