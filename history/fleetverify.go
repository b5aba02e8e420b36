package history

import (
	"bytes"
	"fmt"

	"x402-wallet/x402"
)

// verifyFleet compares a fleet's ledger with itself: each chain holds together and ends where its writer
// says, and each budget's window holds what its payments come to. at has to be on this home's chain. A team's
// login compares what it sees: its own chains, and the windows whose payments are its team's.
func (t *tx) verifyFleet(at Head) (rows int, err error) {
	met := at.Seq == 0
	err = t.eachChain(func(writer string, end Head) error {
		n, err := t.follow(writer, end, 0, func(h Head) {
			met = met || (writer == t.fleet.Writer && h.Seq == at.Seq && bytes.Equal(h.Hash, at.Hash))
		})
		rows += int(n)
		return err
	})
	if err != nil {
		return rows, err
	}
	if !met {
		return rows, fleetCorrupt("event %d, which this wallet has met, is not in it", at.Seq)
	}
	var all, chained int
	if err := t.row(`SELECT count(*), chained() FROM audit`).Scan(&all, &chained); err != nil {
		return rows, err
	}
	if all != chained {
		return rows, fleetCorrupt("it has %d events, and its chains have %d", all, chained)
	}
	return rows, t.verifyCounters()
}

// eachChain calls f with each chain's name and end.
func (t *tx) eachChain(f func(writer string, end Head) error) error {
	ends := map[string]Head{}
	names, err := collect(t, func(row scanner) (name string, err error) {
		var h Head
		err = row.Scan(&name, &h.Seq, &h.Hash)
		ends[name] = h
		return name, err
	}, `SELECT name, head, hash FROM writers ORDER BY name`)
	for i := 0; err == nil && i < len(names); i++ {
		err = f(names[i], ends[names[i]])
	}
	return err
}

// chainPage is how many rows of a chain are read at once: an answer is held as a whole, and bounded in time.
const chainPage = 5000

// follow checks that the rows of a chain behind one hold together, and end where it does. What the first of
// them follows is not looked at, unless it is the chain's first.
func (t *tx) follow(writer string, end Head, after int64, each func(Head)) (rows int64, err error) {
	last := Head{Seq: after}
	for more := true; more && err == nil; {
		more = false
		err = t.forEach(func(row scanner) error {
			var r auditRow
			if err := row.Scan(&r.seq, &r.at, &r.payment, &r.event, &r.detail, &r.hash); err != nil {
				return err
			}
			linked := (last.Seq > 0 && last.Hash == nil) || bytes.Equal(r.hash, r.linked(last.Hash))
			if r.seq != last.Seq+1 || !linked {
				return fleetCorrupt("event %d of %s does not follow the one before it", r.seq, writer)
			}
			last = Head{Seq: r.seq, Hash: r.hash}
			rows++
			more = rows%chainPage == 0
			each(last)
			return nil
		}, `SELECT seq, at, payment, event, detail, hash FROM audit WHERE writer = ? AND seq > ? ORDER BY seq
			LIMIT ?`,
			writer, last.Seq, chainPage)
	}
	if err == nil && (last.Seq != end.Seq || !bytes.Equal(last.Hash, end.Hash)) {
		err = fleetCorrupt("the chain of %s does not end where it should", writer)
	}
	return rows, err
}

// verifyCounters adds the payments of each kept window up again, and counts those of each kept second: of the
// budgets of which this login sees all payments.
func (t *tx) verifyCounters() error {
	hidden := map[string]bool{}
	err := t.forEach(func(row scanner) error {
		var id string
		err := row.Scan(&id)
		hidden[id] = true
		return err
	}, `WITH kept AS MATERIALIZED (SELECT budget FROM counters UNION SELECT budget FROM made)
		SELECT budget FROM kept WHERE NOT sees_all_of(budget)`)
	if err != nil {
		return err
	}
	err = t.forEach(func(row scanner) error {
		var id string
		var starts, noted, made int64
		if err := row.Scan(&id, &starts, &noted, &made); err != nil || hidden[id] {
			return err
		}
		return fleetCorrupt("in the second from %d %s is noted to have paid %d times, and did %d times",
			starts, id, noted, made)
	}, `SELECT m.budget, m.starts, m.n, count(p.id) FROM made m
		LEFT JOIN payments p ON p.created_at >= m.starts AND p.created_at < m.starts + 1000000
			AND (m.budget = 'org' OR m.budget = ANY (p.budgets))
		GROUP BY m.budget, m.starts HAVING m.n <> count(p.id)`)
	if err != nil {
		return err
	}
	return t.forEach(func(row scanner) error {
		var id, win string
		var starts, used, sum int64
		if err := row.Scan(&id, &win, &starts, &used, &sum); err != nil {
			return err
		}
		if used != sum && !hidden[id] {
			return fleetCorrupt("the %s of %s that begins with %d holds %d, and its payments come to %d", win,
				id, starts, used, sum)
		}
		return nil
	}, `WITH together AS ( -- few rows, before they are counted in each of their budgets
			SELECT budgets, session, day_of(created_at) AS day, sum(usd - returned) AS usd FROM payments
			WHERE state <> 'failed'
			GROUP BY 1, 2, 3),
		each AS (SELECT b AS budget, session, day, usd FROM together, unnest(budgets) AS b),
		sums AS (
			SELECT budget, 'day' AS win, day AS starts, sum(usd) AS usd FROM each GROUP BY 1, 2, 3 UNION ALL
			SELECT budget, 'month', month_of(day), sum(usd) FROM each GROUP BY 1, 2, 3 UNION ALL
			SELECT e.budget, 'session', s.number, sum(e.usd) FROM each e JOIN sessions s ON s.id = e.session
				GROUP BY 1, 2, 3)
		SELECT c.budget, c.win, c.starts, c.used, coalesce(sum(s.usd), 0)::bigint FROM counters c
			LEFT JOIN sums s ON s.budget = c.budget AND s.win = c.win AND s.starts = c.starts GROUP BY 1, 2,
			3, 4`)
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
	var writers int64
	if err := t.row(`SELECT count(*) FROM writers`).Scan(&writers); err != nil {
		return done, err
	}
	most := max(stretchRows, newestSampled/max(1, writers))
	err = t.eachChain(func(writer string, end Head) error {
		n, err := t.follow(writer, end, max(0, end.Seq-most), func(Head) {})
		done.Rows += n
		return err
	})
	if err != nil {
		return done, err
	}
	return done, t.verifyCounters()
}

func fleetCorrupt(format string, args ...any) error {
	return x402.Errorf(x402.LedgerCorrupt, "the fleet's ledger is not as its wallets left it: %s",
		fmt.Sprintf(format, args...)).
		WithHint("somebody or something else wrote to it: the owner looks (x402-wallet history verify); " +
			"nothing is paid until then")
}

// fleetHead is how far the chain of this home has come, and what is frozen.
func (t *tx) fleetHead() (h Head, err error) {
	// not the rows whose commit nobody waited for: a checkpoint must not name what a power cut may take back
	const last = `SELECT seq, hash FROM audit WHERE writer = ? AND event NOT IN
		('reserved', 'session', 'approval used', 'delivered', 'keyed') ORDER BY seq DESC LIMIT 1`
	err = t.row(`SELECT coalesce(max(upto), 0), (SELECT coalesce(max(seq), 0) FROM freezes) FROM lifts`).
		Scan(&h.Lifted, &h.Frozen)
	if err == nil {
		err = none(t.row(last, t.fleet.Writer).Scan(&h.Seq, &h.Hash), nil)
	}
	if err == nil && h.Frozen > h.Lifted {
		h.Freezes, err = t.frozen(h.Lifted, h.Frozen)
	}
	return h, err
}

// fleetHas reports whether the chain of this home has a row.
func (t *tx) fleetHas(h Head) (bool, error) {
	if h.Seq == 0 { // of a home that has written nothing
		return true, nil
	}
	var hash []byte
	err := t.row(`SELECT hash FROM audit WHERE writer = ? AND seq = ?`, t.fleet.Writer, h.Seq).Scan(&hash)
	return err == nil && bytes.Equal(hash, h.Hash), none(err, nil)
}
