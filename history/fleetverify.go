package history

import (
	"bytes"
	"fmt"

	"x402-wallet/x402"
)

// verifyFleet compares a fleet's ledger with itself: each chain holds together and ends where its writer
// says, and each budget's window holds what its payments come to. at has to be on this home's chain.
func (t *tx) verifyFleet(at Head) (rows int, err error) {
	ends := map[string]Head{}
	err = t.forEach(func(row scanner) error {
		var name string
		var h Head
		err := row.Scan(&name, &h.Seq, &h.Hash)
		ends[name] = h
		return err
	}, `SELECT name, head, hash FROM writers`)
	if err != nil {
		return 0, err
	}
	last := map[string]Head{}
	met := at.Seq == 0
	err = t.forEach(func(row scanner) error {
		var writer string
		var r auditRow
		if err := row.Scan(&writer, &r.seq, &r.at, &r.payment, &r.event, &r.detail, &r.hash); err != nil {
			return err
		}
		before := last[writer]
		if r.seq != before.Seq+1 || !bytes.Equal(r.hash, r.linked(before.Hash)) {
			return fleetCorrupt("event %d of %s does not follow the one before it", r.seq, writer)
		}
		last[writer] = Head{Seq: r.seq, Hash: r.hash}
		met = met || (writer == t.fleet.Writer && r.seq == at.Seq && bytes.Equal(r.hash, at.Hash))
		rows++
		return nil
	}, `SELECT writer, seq, at, payment, event, detail, hash FROM audit ORDER BY writer, seq`)
	if err != nil {
		return rows, err
	}
	for name, end := range ends {
		if last[name].Seq != end.Seq || !bytes.Equal(last[name].Hash, end.Hash) {
			return rows, fleetCorrupt("the chain of %s does not end where it should", name)
		}
	}
	if !met {
		return rows, fleetCorrupt("event %d, which this wallet has met, is not in it", at.Seq)
	}
	return rows, t.verifyCounters()
}

// verifyCounters adds the payments of each kept window up again.
func (t *tx) verifyCounters() error {
	return t.forEach(func(row scanner) error {
		var id, win string
		var starts, used, sum int64
		if err := row.Scan(&id, &win, &starts, &used, &sum); err != nil {
			return err
		}
		if used != sum {
			return fleetCorrupt("the %s of %s that begins with %d holds %d, and its payments come to %d", win,
				id, starts, used, sum)
		}
		return nil
	}, `WITH each AS (SELECT b AS budget, p.session, p.created_at, p.usd - p.returned AS usd FROM payments p, unnest(p.budgets) AS b
			WHERE p.state <> 'failed'),
		sums AS (
			SELECT budget, 'day' AS win, day_of(created_at) AS starts, sum(usd) AS usd FROM each
				GROUP BY 1, 2, 3 UNION ALL
			SELECT budget, 'month', month_of(created_at), sum(usd) FROM each GROUP BY 1, 2, 3 UNION ALL
			SELECT e.budget, 'session', s.number, sum(e.usd) FROM each e JOIN sessions s ON s.id = e.session
				GROUP BY 1, 2, 3)
		SELECT c.budget, c.win, c.starts, c.used, coalesce(sum(s.usd), 0)::bigint FROM counters c
			LEFT JOIN sums s ON s.budget = c.budget AND s.win = c.win AND s.starts = c.starts GROUP BY 1, 2, 3, 4`)
}

// sampleFleet is verifyFleet of a part: of each chain the newest stretch, where all of them have more rows
// than whole; and the windows.
func (t *tx) sampleFleet(whole int64) (done Sampled, err error) {
	err = t.row(`SELECT (SELECT coalesce(sum(head), 0) FROM writers), (SELECT count(*) FROM payments)`).
		Scan(&done.AllRows, &done.AllPayments)
	done.Payments = done.AllPayments // in the windows
	if err != nil {
		return done, err
	}
	if done.AllRows <= whole {
		rows, err := t.verifyFleet(Head{})
		done.Rows, done.AllRows = int64(rows), int64(rows)
		return done, err
	}
	writers, err := collect(t, scanText, `SELECT name FROM writers ORDER BY name`)
	if err != nil {
		return done, err
	}
	for _, name := range writers {
		n, err := t.stretchOf(name, max(stretchRows, newestSampled/int64(len(writers))))
		done.Rows += n
		if err != nil {
			return done, err
		}
	}
	return done, t.verifyCounters()
}

// stretchOf checks that the newest rows of a chain hold together, and end where it does.
func (t *tx) stretchOf(writer string, most int64) (rows int64, err error) {
	var end, last Head
	err = t.row(`SELECT head, hash FROM writers WHERE name = ?`, writer).Scan(&end.Seq, &end.Hash)
	if err != nil {
		return 0, err
	}
	err = t.forEach(func(row scanner) error {
		var r auditRow
		if err := row.Scan(&r.seq, &r.at, &r.payment, &r.event, &r.detail, &r.hash); err != nil {
			return err
		}
		isFirst := rows == 0 && r.seq > 1
		if !isFirst && (r.seq != last.Seq+1 || !bytes.Equal(r.hash, r.linked(last.Hash))) {
			return fleetCorrupt("event %d of %s does not follow the one before it", r.seq, writer)
		}
		last = Head{Seq: r.seq, Hash: r.hash}
		rows++
		return nil
	}, `SELECT seq, at, payment, event, detail, hash FROM audit WHERE writer = ? AND seq > ? ORDER BY seq`, writer,
		end.Seq-most)
	if err == nil && (last.Seq != end.Seq || !bytes.Equal(last.Hash, end.Hash)) {
		err = fleetCorrupt("the chain of %s does not end where it should", writer)
	}
	return rows, err
}

func fleetCorrupt(format string, args ...any) error {
	return x402.Errorf(x402.LedgerCorrupt, "the fleet's ledger is not as its wallets left it: %s",
		fmt.Sprintf(format, args...)).
		WithHint("somebody or something else wrote to it: the owner looks (x402-wallet history verify); " +
			"nothing is paid until then")
}
