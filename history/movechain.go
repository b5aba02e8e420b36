package history

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sort"
	"strings"
)

// What a fleet's ledger becomes in ledger.db. Its chain has to tell of each row as this program's would have
// told (story.go): so numbers are given anew, the owner's seals are made again, and what a fleet does not
// write down (that a signature expired before its payment failed) is put in. Nothing that was told is left
// out; what means something of one ledger alone is called otherwise.

// ofOthers is what events are called that say something of the ledger that they were written in.
const ofOthers = "elsewhere: "

// inOrder is the fleet's events with the times that they are put in order by: what was dated anew is dated
// so.
const inOrder = `WITH redates AS MATERIALIZED (SELECT writer, seq, (detail->>'to')::bigint AS upto
		FROM audit WHERE event = 'redated'),
	told AS (SELECT a.*, least(a.at, (SELECT min(r.upto) FROM redates r
			WHERE r.writer = a.writer AND r.seq > a.seq)) AS then_at,
		CASE a.event WHEN 'session' THEN 0 WHEN 'reserved' THEN 1 WHEN 'approval used' THEN 2
			WHEN 'signed' THEN 3 WHEN 'submitted' THEN 4 ELSE 5 END AS rank FROM audit a) `

const byTime = ` ORDER BY told.then_at, told.rank, told.seq, told.writer COLLATE "C"`

// renumbered are the numbers of the new ledger, by those of the fleet's.
type renumbered struct {
	payments []int64 // by number; 0: there is none
	freezes  []int64 // the fleet's, in their order
	sessions map[string]string
	given    map[string]string // digests of approvals' seals
	lifts    map[int64]string  // of lifts'
}

func (r *renumbered) payment(n int64) int64 {
	if n <= 0 || n >= int64(len(r.payments)) {
		return 0
	}
	return r.payments[n]
}

// upTo is the newest payment up to one.
func (r *renumbered) upTo(n int64) int64 {
	for n = min(n, int64(len(r.payments))-1); n > 0; n-- {
		if r.payments[n] > 0 {
			return r.payments[n]
		}
	}
	return 0
}

// freeze is how many freezes there were up to one.
func (r *renumbered) freeze(n int64) int64 {
	return int64(sort.Search(len(r.freezes), func(i int) bool { return r.freezes[i] > n }))
}

// copyOut copies everything into a new ledger.
func (m *Mover) copyOut(ctx context.Context, s *Store) error {
	m.heads, m.done = map[string]string{}, 0
	return m.Fleet.fleet.viewLong(ctx, m.Fleet, func(from *tx) error {
		if err := from.eachChain(func(writer string, end Head) error {
			m.heads[writer] = fmt.Sprintf("%d %x", end.Seq, end.Hash)
			return nil
		}); err != nil {
			return err
		}
		err := from.row(`SELECT (SELECT count(*) FROM payments) + (SELECT count(*) FROM audit)`).Scan(&m.all)
		if err != nil {
			return err
		}
		return s.tx(ctx, func(to *tx) error {
			to.ctx = ctx
			r := &renumbered{sessions: map[string]string{}, given: map[string]string{},
				lifts: map[int64]string{}}
			for _, copied := range []func(from, to *tx, r *renumbered) error{m.outPayments, m.outTables,
				m.outChain} {
				if err := copied(from, to, r); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// rowsOut inserts the rows of a query of the fleet's into a table.
func (m *Mover) rowsOut(from, to *tx, table, columns, query string, change func(row []any) error) error {
	names := strings.Split(columns, ",")
	insert := `INSERT INTO ` + table + ` (` + columns + `) VALUES (?` + strings.Repeat(`, ?`,
		len(names)-1) + `)`
	values := make([]any, len(names))
	into := make([]any, len(names))
	for i := range values {
		into[i] = &values[i]
	}
	return from.fleetCursor(table+"_moved", query, func(row scanner) error {
		if err := row.Scan(into...); err != nil {
			return err
		}
		if change != nil {
			if err := change(values); err != nil {
				return err
			}
		}
		_, err := to.exec(insert, values...)
		return err
	})
}

// outPayments copies the payments in the order in which they were reserved, which numbers them.
func (m *Mover) outPayments(from, to *tx, r *renumbered) error {
	var newest int64
	if err := from.row(`SELECT coalesce(max(seq), 0) FROM payments`).Scan(&newest); err != nil {
		return err
	}
	r.payments = make([]int64, newest+1)
	n := int64(0)
	columns := "p." + strings.Join(strings.Fields(strings.ReplaceAll(paymentsMoved, ",", ", p.")), " ")
	query := inOrder + `SELECT ` + columns + ` FROM told JOIN payments p ON p.seq = told.payment
		WHERE told.event = 'reserved'` + byTime
	err := m.rowsOut(from, to, "payments", paymentsMoved, strings.ReplaceAll(query, "p. ", "p."),
		func(row []any) error {
			n++
			r.payments[row[0].(int64)] = n
			row[0] = n
			m.tell(n)
			return nil
		})
	var all int64
	if err == nil {
		err = from.row(`SELECT count(*) FROM payments`).Scan(&all)
	}
	if err == nil && all != n {
		err = fleetCorrupt("it has %d payments, and its chains %d", all, n)
	}
	if err != nil {
		return err
	}
	numbered := func(row []any) error {
		row[0] = r.payment(row[0].(int64))
		return nil
	}
	const contents = `payment, http_status, type, truncated, size, sha256, spare, removed`
	err = m.rowsOut(from, to, "contents", contents, `SELECT `+contents+` FROM contents`, numbered)
	if err == nil {
		err = m.rowsOut(from, to, "bodies", `payment, body`, `SELECT payment, body FROM bodies`, numbered)
	}
	return err
}

// outTables copies what is small, with the owner's seals made again.
func (m *Mover) outTables(from, to *tx, r *renumbered) error {
	for _, mt := range tablesToFleet("") {
		query, change := mt.onServer(), func([]any) error { return nil }
		switch mt.name {
		case "payments", "contents", "bodies", "memory", "audit":
			continue
		case "sessions":
			query = `SELECT s.id, s.started_at, coalesce(p.newest, s.started_at), s.cap, s.ended, s.seal
				FROM sessions s
				LEFT JOIN (SELECT session, max(created_at) AS newest FROM payments GROUP BY 1) p ON
				p.session = s.id
				ORDER BY s.number`
			change = func(row []any) error {
				err := sealSession(m, row)
				row[5] = orNone(row[5])
				r.sessions[row[0].(string)] = digestOfAny(row[5])
				return err
			}
		case "approvals":
			change = func(row []any) error {
				err := sealApproval(m, row)
				row[19] = orNone(row[19])
				r.given[row[0].(string)] = digestOfAny(row[19])
				return err
			}
		case "freezes":
			change = func(row []any) error {
				r.freezes = append(r.freezes, row[0].(int64))
				row[0] = int64(len(r.freezes))
				return nil
			}
		case "lifts":
			change = func(row []any) error {
				row[0] = r.freeze(row[0].(int64))
				err := sealLift(m, row)
				r.lifts[row[0].(int64)] = digestOfAny(row[2])
				return err
			}
		}
		if err := m.rowsOut(from, to, mt.name, mt.columns, query, change); err != nil {
			return err
		}
	}
	return nil
}

// orNone is bytes, or nil where there are none.
func orNone(v any) any {
	if b, _ := v.([]byte); len(b) == 0 {
		return nil
	}
	return v
}

func digestOfAny(v any) string {
	b, _ := v.([]byte)
	return digestOf(b)
}

// outChain writes the events of all chains behind the one that says that the ledger was made.
func (m *Mover) outChain(from, to *tx, r *renumbered) error {
	if err := to.row(`SELECT seq, hash FROM audit ORDER BY seq DESC LIMIT 1`).
		Scan(&to.known.head, &to.known.hash); err != nil {
		return err
	}
	n := int64(0)
	err := from.fleetCursor("told_moved", inOrder+`SELECT told.at, told.then_at, told.payment, told.event,
			told.detail, CASE WHEN told.event = 'failed' AND NOT EXISTS (SELECT 1 FROM audit x
				WHERE x.payment = told.payment AND x.event = 'expired') THEN p.unique_key END
		FROM told LEFT JOIN payments p ON p.seq = told.payment AND told.payment > 0`+byTime,
		func(row scanner) error {
			var a auditRow
			var then int64
			var expires []byte
			if err := row.Scan(&a.at, &then, &a.payment, &a.event, &a.detail, &expires); err != nil {
				return err
			}
			if a.payment != 0 || a.event == sessionEvent { // other rows keep their time, as their tables do
				a.at = then
			}
			if expires != nil {
				err := m.tellAs(to, auditRow{at: a.at, payment: r.payment(a.payment), event: expiredEvent,
					detail: toJSON(map[string]string{"unique": encodeDigest(expires)})})
				if err != nil {
					return err
				}
			}
			n++
			m.tell(n)
			if err := r.translate(&a); err != nil {
				return err
			}
			return m.tellAs(to, a)
		})
	if err != nil {
		return err
	}
	// a fleet's clock may have been behind the events of a payment
	_, err = to.exec(`UPDATE payments SET updated_at = told.at FROM (SELECT payment, max(at) AS at FROM audit
		WHERE event IN ('reserved', 'signed', 'settled', 'unknown', 'failed') AND payment > 0 GROUP BY
		payment) told
		WHERE told.payment = seq AND updated_at <> told.at`)
	return err
}

// tellAs appends a row as it was told elsewhere.
func (m *Mover) tellAs(t *tx, a auditRow) error {
	hash := a.linked(t.known.hash)
	var seal []byte
	if isSealedEvent(a.event) {
		var err error
		if seal, err = m.Keys.MAC(rowData(hash)); err != nil {
			return err
		}
	}
	_, err := t.exec(`INSERT INTO audit (at, payment, event, detail, hash, seal) VALUES (?, ?, ?, ?, ?,
		?)`, a.at,
		a.payment, a.event, a.detail, hash, seal)
	t.known.head++
	t.known.hash = hash
	return err
}

// translate makes an event of the fleet's one of the new ledger.
func (r *renumbered) translate(a *auditRow) error {
	a.payment = r.payment(a.payment)
	a.detail = strings.ReplaceAll(a.detail, `\u0000`, `\ufffd`) // as the table has it by now: see appendCopied
	switch {
	case a.event == createdEvent, a.event == sealedEvent, a.event == redatedEvent,
		slices.Contains(moveEvents, a.event):
		a.event = ofOthers + a.event
		return nil
	case a.event == string(Settled), a.event == string(Unknown), a.event == string(Failed):
		return a.asOutcome()
	}
	change, isOne := map[string]func(d map[string]json.RawMessage){
		sessionEvent: func(d map[string]json.RawMessage) { d["seal"] = asRaw(r.sessions[textOf(d["id"])]) },
		unfrozenEvent: func(d map[string]json.RawMessage) {
			upTo := r.freeze(wholeOf(d["upTo"]))
			d["upTo"], d["n"] = asRaw(upTo), asRaw(r.upTo(wholeOf(d["n"])))
			if seal, known := r.lifts[upTo]; known {
				d["seal"] = asRaw(seal)
			}
		},
		liftRefusedEvent: func(d map[string]json.RawMessage) {
			d["upto"] = asRaw(r.freeze(wholeOf(d["upto"])))
		},
	}[a.event]
	if !isOne && strings.HasPrefix(a.event, approvalEvent) && a.payment == 0 {
		change, isOne = r.sealOfApproval, true
	}
	if !isOne {
		return nil
	}
	d := map[string]json.RawMessage{}
	if json.Unmarshal([]byte(a.detail), &d) != nil {
		return a.unreadable()
	}
	change(d)
	a.detail = toJSON(d)
	return nil
}

// sealOfApproval names the seal that an approval has now, where an event names one.
func (r *renumbered) sealOfApproval(d map[string]json.RawMessage) {
	none := digestOf(nil)
	if seal := textOf(d["seal"]); seal != "" && seal != none {
		d["seal"] = asRaw(orText(r.given[textOf(d["id"])], none))
	}
}

func orText(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// asOutcome writes an outcome's detail as this ledger does: a fleet's server orders it otherwise.
func (a *auditRow) asOutcome() error {
	d, err := readStep(a.detail)
	if err != nil {
		return a.unreadable()
	}
	if d.Why != "" { // of a hold that was released
		return nil
	}
	var bought *contentDetail
	if d.SHA256 != "" {
		bought = &d.contentDetail
	}
	a.detail = toJSON(struct {
		outcomeDetail
		*contentDetail
	}{d.outcomeDetail, bought})
	return nil
}

func asRaw(v any) json.RawMessage { return json.RawMessage(toJSON(v)) }

func textOf(raw json.RawMessage) (text string) {
	_ = json.Unmarshal(raw, &text) // what is none is empty
	return text
}

func wholeOf(raw json.RawMessage) (n int64) {
	_ = json.Unmarshal(raw, &n)
	return n
}
