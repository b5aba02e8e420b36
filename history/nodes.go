package history

import (
	"time"

	"x402-wallet/budget"
	"x402-wallet/history/sqldb"
)

// What the agents and teams of the owner's tree of budgets used. The ledger keeps sums by agent alone: which
// agents a team has is the rules' to say (budget.Teams), and may change.

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
	err = t.Each(func(row sqldb.Row) error {
		var agent string
		var at int64
		err := row.Scan(&agent, &at)
		if of.Has(agent) {
			times = append(times, sqldb.FromMicros(at))
		}
		return err
	}, `SELECT agent, created_at FROM payments WHERE created_at > ? ORDER BY created_at DESC, seq DESC`,
		sqldb.Micros(since))
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
