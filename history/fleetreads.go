package history

import (
	"time"

	"x402-wallet/budget"
	"x402-wallet/x402/money"
)

// What a fleet's ledger adds up from its payments, where SQLite's keeps sums: nothing that decides reads
// these.

// fleetOver adds payments up by a unit of time.
const fleetOver = `SELECT created_at / ?1::bigint, ` + fleetSums + ` FROM payments
	WHERE created_at >= ?2 GROUP BY 1`

// fleetSums are what payments spent, and hold.
const fleetSums = `coalesce(sum(usd - returned) FILTER (WHERE state = 'settled'), 0),
	coalesce(sum(usd - returned) FILTER (WHERE state NOT IN ('settled', 'failed')), 0)`

// fleetParts are the dearest by a column.
func (t *tx) fleetParts(column string, since time.Time, most int) ([]NamedSum, error) {
	return collect(t, func(row scanner) (p NamedSum, err error) {
		var use budget.Use
		err = row.Scan(&p.Key, &use.Spent, &use.Held)
		p.Use = use
		return p, err
	}, `SELECT key, spent, held FROM (SELECT `+column+` AS key, `+fleetSums+` FROM payments
			WHERE created_at >= ? AND `+column+` <> '' GROUP BY 1) AS each (key, spent, held)
		WHERE spent + held > 0 ORDER BY spent + held DESC, key COLLATE "C" LIMIT ?`, micros(since), most)
}

// fleetHeld is held, where numbers of any length can be added.
func (t *tx) fleetHeld(p Payment, source string, readAt time.Time, upTo int64) (held money.Amount,
	err error) {
	var sum string
	err = t.row(`SELECT coalesce(sum(amount::numeric), 0)::text FROM payments
		WHERE source = ? AND asset = ? AND network = ? AND seq <= ? AND `+notPrepaid+`
			AND (`+unfinished+` OR state = 'settled' AND updated_at >= ? + (SELECT clock() - ?::bigint))`,
		source, p.Asset, p.Network, upTo, micros(readAt), micros(t.fleet.now())).Scan(&sum)
	if err != nil {
		return held, err
	}
	return money.ParseAmount(sum)
}

// fleetWalkUses goes through what all chains say of approvals that were used since a time, and of the
// signatures of those payments. at has to be on this home's chain.
func (t *tx) fleetWalkUses(since int64, at Head, each func(auditRow) error) error {
	if at.Seq > 0 {
		has, err := t.fleetHas(at)
		if err != nil {
			return err
		}
		if !has {
			return fleetCorrupt("event %d, which this wallet has met, is not in it", at.Seq)
		}
	}
	return t.forEach(func(row scanner) error {
		var r auditRow
		if err := row.Scan(&r.seq, &r.at, &r.payment, &r.event, &r.detail); err != nil {
			return err
		}
		return each(r)
	}, `WITH uses AS (SELECT seq, at, payment, event, detail FROM audit
			WHERE at >= ?1 AND event IN ('approval used', 'approval returned'))
		SELECT seq, at, payment, event, detail FROM uses UNION ALL
		SELECT seq, at, payment, event, detail FROM audit
			WHERE event = 'signed' AND payment IN (SELECT payment FROM uses)
		ORDER BY at, seq`, since)
}
