package history

import (
	"bytes"
	"context"
	"database/sql"
	"errors"

	"x402-wallet/x402"
)

// Verify walks the audit chain and the payments: a changed, missing or reordered row of the chain
// is LEDGER_CORRUPT and named; so is a payment of which the chain says something else. at, where
// it is not zero, has to be on the chain.
func (s *Store) Verify(ctx context.Context, at Head) (rows int, err error) {
	err = s.view(ctx, func(t *tx) error {
		rows = 0
		if err := t.walk(0, at, func(string, string, string) { rows++ }); err != nil {
			return err
		}
		if err := t.sumsAgree(); err != nil {
			return err
		}
		if err := t.searchAgrees(); err != nil {
			return err
		}
		return t.statesAgree()
	})
	return rows, err
}

// walk reads the audit chain behind a row, and checks that it holds together and has a head on it.
func (t *tx) walk(after int64, at Head, each func(payment, event, detail string)) error {
	var previous []byte
	if err := t.row(`SELECT hash FROM audit WHERE seq = ?`, after).Scan(&previous); none(err, nil) != nil {
		return err
	}
	met, last := at.Seq <= after, after
	err := t.forEach(func(row scanner) error {
		var seq, when int64
		var payment, event, detail string
		var hash []byte
		if err := row.Scan(&seq, &when, &payment, &event, &detail, &hash); err != nil {
			return err
		}
		if seq != last+1 || !bytes.Equal(link(previous, when, payment, event, detail), hash) {
			return x402.Errorf(x402.LedgerCorrupt,
				"the audit chain breaks at row %d (%s of %s)", seq, event, payment)
		}
		if seq == at.Seq && bytes.Equal(hash, at.Hash) {
			met = true
		}
		previous, last = hash, seq
		each(payment, event, detail)
		return nil
	}, `SELECT seq, at, payment, event, detail, hash FROM audit WHERE seq > ? ORDER BY seq`, after)
	if err == nil && !met {
		return x402.Errorf(x402.LedgerCorrupt,
			"the audit chain is not the one this wallet marked: its row %d is another one", at.Seq)
	}
	return err
}

// sums is the head of a query that adds the payments up again, each of the ways.
const sums = `WITH each AS MATERIALIZED (SELECT session, host, network, symbol,
		symbol || char(10) || url_prefix AS prefix, created_at / 3600000000 AS hour,
		sum((state = 'settled') * usd) AS spent, sum((state NOT IN ('settled', 'failed')) * usd) AS held
		FROM payments GROUP BY 1, 2, 3, 4, 5, 6),
	sums AS (SELECT scope, key, day, sum(spent), sum(held) FROM (
		SELECT 'all' AS scope, '' AS key, hour / 24 AS day, spent, held FROM each UNION ALL
		SELECT 'session', session, hour / 24, spent, held FROM each UNION ALL
		SELECT 'host', host, hour / 24, spent, held FROM each UNION ALL
		SELECT 'network', network, hour / 24, spent, held FROM each UNION ALL
		SELECT 'symbol', symbol, hour / 24, spent, held FROM each UNION ALL
		SELECT 'hour', symbol, hour, spent, held FROM each UNION ALL
		SELECT 'prefix', prefix, hour / 24, spent, held FROM each UNION ALL
		SELECT 'prefix ever', prefix, 0, spent, held FROM each)
	GROUP BY 1, 2, 3)`

// sumsAgree compares what is kept with that.
func (t *tx) sumsAgree() error {
	const again = sums +
		` SELECT count(*) FROM (SELECT * FROM (SELECT * FROM sums EXCEPT SELECT * FROM totals) UNION ALL
		SELECT * FROM (SELECT * FROM totals EXCEPT SELECT * FROM sums))`
	var different int
	if err := t.slowRow(again).Scan(&different); err != nil {
		return err
	}
	if different > 0 {
		return x402.Errorf(x402.LedgerCorrupt, "%d sums are not those of the payments", different)
	}
	return nil
}

// searchAgrees compares what payments are found by with the payments.
func (t *tx) searchAgrees() error {
	var id string
	err := t.slowRow(`SELECT p.id FROM payments p LEFT JOIN payment_search s USING (seq)
		WHERE (lower(p.url), (p.state <> 'failed') * p.usd, p.state, p.symbol, length(p.url_prefix),
		p.url_prefix)
			IS NOT (s.url, s.usd, s.state, s.symbol, s.prefix_length, substr(p.url, 1, s.prefix_length))
		UNION ALL SELECT 'nr. ' || seq FROM payment_search WHERE seq NOT IN (SELECT seq
		FROM payments) LIMIT 1`).Scan(&id)
	if err == nil {
		return x402.Errorf(x402.LedgerCorrupt, "payment %s is not found by what it is", id)
	}
	return none(err, nil)
}

// statesAgree compares the payments with what the chain says of them: when they were made, on
// which terms, and where they stand.
func (t *tx) statesAgree() error {
	for what, query := range map[string]string{
		"is not in the state that the audit chain has for it": `SELECT p.id FROM payments p
			WHERE p.state IS NOT
			(SELECT a.event FROM audit a WHERE a.payment = p.id AND a.event NOT LIKE 'approval %'
			ORDER BY a.seq DESC LIMIT 1) LIMIT 1`,
		"differs from what the audit chain has for it": `SELECT p.id FROM payments p
			WHERE NOT EXISTS (SELECT 1 FROM audit a
			WHERE a.payment = p.id AND a.event = 'reserved' AND (a.at = p.created_at OR p.created_at =
				(SELECT r.detail ->> 'to' FROM audit r WHERE r.payment = '' AND r.event = 'redated'
				AND p.seq BETWEEN r.detail ->> 'from' AND r.detail ->> 'upTo'
					ORDER BY r.seq DESC LIMIT 1)) AND a.detail ->> 'amount' = p.amount
					AND a.detail ->> 'asset' = p.asset
				AND a.detail ->> 'network' = p.network AND a.detail ->> 'payTo' = p.pay_to
				AND a.detail ->> 'url' = p.url
				AND a.detail ->> 'microdollars' = p.usd) LIMIT 1`,
	} {
		var id string
		err := t.slowRow(query).Scan(&id)
		if err == nil {
			return x402.Errorf(x402.LedgerCorrupt, "payment %s %s", id, what)
		}
		if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
	}
	return nil
}
