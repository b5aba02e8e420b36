package report

import (
	"cmp"
	"context"
	"time"

	"x402-wallet/budget"
	"x402-wallet/history"
	"x402-wallet/history/sqldb"
)

// spentHeld are the sums of payments by their state.
const spentHeld = `sum(CASE WHEN state = 'settled' THEN usd - returned ELSE 0 END),
	sum(CASE WHEN state IN ('settled', 'failed') THEN 0 ELSE usd - returned END)`

// over is what hours or days came to, since one.
func over(t *sqldb.Tx, since time.Time, unit time.Duration) (map[time.Time]budget.Use, error) {
	list := map[time.Time]budget.Use{}
	err := t.Each(func(row sqldb.Row) error {
		var n int64
		var d budget.Use
		err := row.Scan(&n, &d.Spent, &d.Held)
		list[sqldb.FromMicros(n*unit.Microseconds())] = d
		return err
	}, `SELECT created_at / ?1, `+spentHeld+` FROM payments WHERE created_at >= ?2 GROUP BY 1`,
		unit.Microseconds(), sqldb.Micros(since)/unit.Microseconds()*unit.Microseconds())
	return list, err
}

// NamedSum is what one seller, network or agent came to.
type NamedSum struct {
	Key string
	budget.Use
}

// Spending is what was paid since a time.
type Spending struct {
	Over                    map[time.Time]budget.Use // by hour or day, by its first moment (UTC)
	Hosts, Networks, Agents []NamedSum               // the dearest first
}

// SpendingSince adds up what was paid since the beginning of an hour, by hour, or of a day, by day; and
// by the dearest sellers, networks and agents, so many at most.
func SpendingSince(ctx context.Context, s *history.Store, since time.Time, unit time.Duration,
	most int) (all Spending, err error) {
	err = s.View(ctx, func(t *sqldb.Tx) error {
		var failed [4]error
		all.Over, failed[0] = over(t, since, unit)
		all.Hosts, failed[1] = parts(t, "host", since, most)
		all.Networks, failed[2] = parts(t, "network", since, most)
		all.Agents, failed[3] = parts(t, "agent", since, most)
		return cmp.Or(failed[:]...)
	})
	return all, err
}

// parts are the dearest values of a column.
func parts(t *sqldb.Tx, column string, since time.Time, most int) (list []NamedSum, err error) {
	return sqldb.Collect(t, func(row sqldb.Row) (p NamedSum, err error) {
		err = row.Scan(&p.Key, &p.Spent, &p.Held)
		return p, err
	}, `SELECT `+column+`, `+spentHeld+` FROM payments
		WHERE created_at >= ? AND `+column+` <> '' GROUP BY `+column+`
		HAVING sum(`+worth+`) > 0 ORDER BY sum(`+worth+`) DESC, `+column+` LIMIT ?`,
		sqldb.Micros(since), most)
}

// Agents are the names of all that ever paid, in order.
func Agents(ctx context.Context, s *history.Store) (names []string, err error) {
	err = s.View(ctx, func(t *sqldb.Tx) error {
		names, err = sqldb.Collect(t, sqldb.ScanText,
			`SELECT DISTINCT key FROM totals WHERE scope = 'agent' ORDER BY key`)
		return err
	})
	return names, err
}
