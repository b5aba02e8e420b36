package history

import (
	"context"
	"time"

	"x402-wallet/budget"
)

// What the agents and teams of the owner's tree of budgets used. The ledger keeps sums by agent alone: which
// agents a team has is the rules' to say (budget.Teams), and may change.

// agentSums are what each agent used since a day. The agents are found by steps over the index: each has a
// row for every day on which it ever paid.
func (t *tx) agentSums(since time.Time) (map[string]budget.Use, error) {
	used := map[string]budget.Use{}
	err := t.forEach(func(row scanner) error {
		var agent string
		var use budget.Use
		err := row.Scan(&agent, &use.Spent, &use.Held)
		used[agent] = use
		return err
	}, `WITH RECURSIVE agents (name) AS (
			SELECT min(key) FROM totals WHERE scope = 'agent'
			UNION ALL
			SELECT (SELECT min(key) FROM totals WHERE scope = 'agent' AND key > name) FROM agents
				WHERE name IS NOT NULL)
		SELECT name, sum(spent), sum(held) FROM agents CROSS JOIN totals
			WHERE scope = 'agent' AND key = name AND day >= ? GROUP BY name`, dayNumber(since))
	return used, err
}

// Agents are the names of all that ever paid, in order.
func (s *Store) Agents(ctx context.Context) ([]string, error) {
	return read(ctx, s, func(t *tx) ([]string, error) {
		from, name := `totals WHERE scope = 'agent'`, `key` // by steps, as agentSums
		if t.fleet != nil {
			from, name = `payments WHERE agent <> ''`, `agent`
		}
		return collect(t, func(row scanner) (agent string, err error) { return agent, row.Scan(&agent) },
			`WITH RECURSIVE agents (name) AS (
				SELECT min(`+name+`) FROM `+from+`
				UNION ALL
				SELECT (SELECT min(`+name+`) FROM `+from+` AND `+name+` > agents.name) FROM agents
					WHERE agents.name IS NOT NULL)
			SELECT name FROM agents WHERE name IS NOT NULL ORDER BY name`)
	})
}

// addNodes sums the windows of teams that a query names, and of every agent where it asks for those, on a day
// and in its month.
func (t *tx) addNodes(u *budget.Usage, q budget.Query, day, month time.Time) error {
	if len(q.Teams) == 0 && !q.EachAgent {
		return nil
	}
	inDay, err := t.agentSums(day)
	if err != nil {
		return err
	}
	inMonth, err := t.agentSums(month)
	if err != nil {
		return err
	}
	u.Teams = teamsOf(q, inDay, inMonth)
	if q.EachAgent {
		u.Agents = map[string]budget.NodeUsage{}
		for agent, use := range inMonth {
			u.Agents[agent] = budget.NodeUsage{Day: inDay[agent], Month: use}
		}
	}
	return nil
}

// teamsOf adds up what agents used for the teams that a query names.
func teamsOf(q budget.Query, inDay, inMonth map[string]budget.Use) map[string]budget.NodeUsage {
	used := map[string]budget.NodeUsage{}
	for _, team := range q.Teams {
		used[team] = budget.NodeUsage{Day: q.Tree.Sum(team, inDay), Month: q.Tree.Sum(team, inMonth)}
	}
	return used
}

// nodeRates is how much is used of the rates that a query names.
func (t *tx) nodeRates(q budget.Query) (map[string]budget.RateUse, error) {
	used := map[string]budget.RateUse{}
	for _, limit := range q.NodeRates {
		times, err := t.timesOf(limit.Window, limit.Since(t.Now))
		if err != nil {
			return nil, err
		}
		use := budget.RateUse{LastMinute: len(times)}
		if len(times) >= limit.Max {
			use.Since = times[limit.Max-1]
		}
		used[limit.Window.Node()] = use
	}
	return used, nil
}

// timesOf is when the payments of an agent or a team were made after a time, newest first, failed ones too.
// It reads all payments since then: of the last minute the owner's own rate bounds them.
func (t *tx) timesOf(of budget.Window, since time.Time) (times []time.Time, err error) {
	err = t.forEach(func(row scanner) error {
		var agent string
		var at int64
		err := row.Scan(&agent, &at)
		if of.Has(agent) {
			times = append(times, fromMicros(at))
		}
		return err
	}, `SELECT agent, created_at FROM payments WHERE created_at > ? ORDER BY created_at DESC, seq DESC`,
		micros(since))
	return times, err
}

// countOf counts the payments that a limit is on, made after the time that it counts from.
func (t *tx) countOf(limit budget.RateLimit) (int, error) {
	since := limit.Since(t.Now)
	if limit.Window.IsAll() {
		return t.count(since)
	}
	times, err := t.timesOf(limit.Window, since)
	return len(times), err
}
