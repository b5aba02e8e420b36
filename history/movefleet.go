package history

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"x402-wallet/history/postgres"
	"x402-wallet/x402"
)

// A ledger.db moves into a fleet's ledger, which has none of what moves. Payments keep their numbers and
// events their hashes: the home's chain goes on in the fleet.

// moveTries is how often a move goes on by itself where an answer of the server was lost.
const moveTries = 3

// ToFleet moves Home into Fleet, or goes on with that. When it returns nil, Fleet pays and Home never does
// again.
func (m *Mover) ToFleet(ctx context.Context) (done Moved, err error) {
	for try := 0; ; try++ {
		done, err = m.toFleet(ctx)
		isLost := postgres.Is(err, postgres.Uncertain) || postgres.Is(err, postgres.Again)
		if !isLost || try == moveTries {
			return done, fleetErrorOr(err)
		}
		m.Fleet.fleet.pool.Forget()
		select {
		case <-time.After(time.Duration(try) * time.Second):
		case <-ctx.Done():
			return done, fleetErrorOr(err)
		}
	}
}

func (m *Mover) toFleet(ctx context.Context) (done Moved, err error) {
	done.From, err = m.Home.LedgerID(ctx)
	if err == nil {
		done.To, err = m.Fleet.LedgerID(ctx)
	}
	if err != nil {
		return done, err
	}
	unlock, err := newFileLock(m.Home.home, "move").Lock(ctx)
	if err != nil {
		return done, err
	}
	defer unlock()
	done.Again, err = m.comes(ctx, done.From)
	if err != nil {
		return done, err
	}
	is, err := read(ctx, m.Home, (*tx).mark)
	if err != nil {
		return done, err
	}
	// first the new one, which is empty and has its whole budget
	err = m.written("fleet's mark", func() (err error) {
		done.Again, err = m.markFleet(ctx, done.From, done.Again)
		return err
	})
	if err == nil && done.Again && is.Event != movedEvent {
		err = corrupt("it has moved to %s, and is as it was before that: it is an older copy", done.To)
	}
	if err != nil {
		return done, err
	}
	var at Head
	err = m.written("mark", func() error {
		at, is, err = m.Home.beginMoving(ctx, done.To, m.As, m.Keys)
		return err
	})
	if err != nil {
		return done, err
	}
	m.As, done.Events = is.As, at.Seq
	if is.Event == movingEvent { // else its last checkpoint says more
		if err := m.written("home's checkpoint", called(ctx, m.Marked)); err != nil {
			return done, err
		}
	}
	if !done.Again {
		if err := m.fill(ctx, done.From, at, is); err != nil {
			return done, err
		}
	}
	return done, m.release(ctx, at, &done)
}

// markFleet marks the fleet's ledger as one into which another one comes: nobody uses its empty budgets. It
// reports whether that one has come already: the last commit of an attempt before may only be done by now.
func (m *Mover) markFleet(ctx context.Context, from string, hasCome bool) (bool, error) {
	if hasCome {
		return true, nil
	}
	e := m.Fleet.fleet
	err := e.alone(ctx, func(c fleetConn) error {
		is, err := e.mark(ctx, c)
		switch {
		case err != nil || (is.Event == arrivingEvent && is.Ledger == from): // by an attempt before
			return err
		case is.Event != "":
			return is.refusal()
		}
		t := &tx{ctx: ctx, conn: c, fleet: e, known: &known{}}
		has, err := t.has()
		if err == nil && has != "" {
			hasCome, err = t.cameFrom(from)
			if err == nil && !hasCome {
				err = errNotEmpty(has)
			}
		}
		if err != nil || hasCome {
			return err
		}
		_, err = t.exec(`INSERT INTO meta VALUES (?, ?)`, moveKey, toJSON(move{Event: arrivingEvent,
			Ledger: from}))
		return err
	})
	return hasCome, err
}

func errNotEmpty(has string) error {
	return x402.Errorf(x402.SetupFailed, "the fleet's ledger has something of its own already: %s", has).
		WithHint("a ledger moves into one in which nothing was paid, asked or frozen yet: make a database " +
			"for it, name that in [ledger] url, and run x402-wallet policy seal --fleet")
}

func called(ctx context.Context, f func(context.Context) error) func() error {
	if f == nil {
		return nil
	}
	return func() error { return f(ctx) }
}

// fill writes and compares what the fleet's ledger does not have yet.
func (m *Mover) fill(ctx context.Context, from string, at Head, was move) error {
	err := m.written("copy", func() error { return m.arrive(ctx, from, at, was) })
	if err != nil {
		return err
	}
	err = m.Fleet.fleet.viewLong(ctx, m.Fleet, func(t *tx) error {
		_, err := t.verifyFleet(Head{Seq: at.Seq, Hash: at.Hash})
		return err
	})
	if err != nil {
		return fmt.Errorf("compare the new ledger: %w", err)
	}
	return m.written("fleet's checkpoint", called(ctx, m.Copied))
}

// release takes the last two steps: the old ledger says that it has moved, and the new one is told so.
func (m *Mover) release(ctx context.Context, at Head, done *Moved) error {
	var last auditRow
	err := m.written("moved", func() (err error) {
		last, err = m.Home.endMoving(ctx, at, m.Keys)
		return err
	})
	if err != nil {
		return err
	}
	if err := m.written("home's last checkpoint", called(ctx, m.Left)); err != nil {
		return err
	}
	if err := m.written("release", func() error { return m.released(ctx, at, last) }); err != nil {
		return err
	}
	done.Payments, err = read(ctx, m.Fleet, func(t *tx) (n int64, err error) {
		err = t.row(`SELECT count(*) FROM payments`).Scan(&n)
		return n, err
	})
	return err
}

// alone runs f in a transaction of its own on the fleet's server, once: who does not hear of its commit looks
// what became of it. Whoever writes there has finished by then, and waits.
func (e *fleet) alone(ctx context.Context, f func(c fleetConn) error) error {
	return e.pool.With(ctx, func(pg *postgres.Conn) error {
		c := fleetConn{pg}
		// as long as it takes; and what is read back is as it was written, whatever the login's settings are
		err := c.Run(ctx, `BEGIN; SET LOCAL statement_timeout = 0; SET LOCAL
			idle_in_transaction_session_timeout = 0;
			SET LOCAL lock_timeout = '8s'; SET LOCAL bytea_output = 'hex';
			SELECT FROM locks WHERE name = 'ledger' FOR UPDATE; LOCK TABLE operations, payments IN
			EXCLUSIVE MODE`)
		if err == nil {
			err = f(c)
		}
		if err == nil {
			return c.RunLong(ctx, `SELECT durable(); COMMIT`)
		}
		if !c.IsClosed() {
			c.rollback()
		}
		return err
	})
}

// mark is the fleet's.
func (e *fleet) mark(ctx context.Context, c fleetConn) (move, error) {
	t := &tx{ctx: ctx, conn: c, fleet: e, known: &known{}}
	return t.mark()
}

// comes reports whether the home's ledger has come already, and the fleet's pays. It refuses one that has
// something of its own, or into which another one moves.
func (m *Mover) comes(ctx context.Context, from string) (is bool, err error) {
	err = m.Fleet.view(ctx, func(t *tx) error {
		mark, err := t.mark()
		switch {
		case err != nil:
			return err
		case mark.Event == arrivingEvent && mark.Ledger == from:
			return nil
		case mark.Event != "":
			return mark.refusal()
		}
		if is, err = t.cameFrom(from); is || err != nil {
			return err
		}
		sealed, err := t.is(`SELECT EXISTS (SELECT 1 FROM rules)`)
		if err == nil && !sealed {
			return x402.Errorf(x402.PolicyUnsealed, "the owner has signed no rules for this fleet").
				WithHint("first x402-wallet policy seal --fleet")
		}
		return err
	})
	return is, err
}

// cameFrom reports whether this home's chain began in another ledger.
func (t *tx) cameFrom(ledger string) (bool, error) {
	return t.is(`SELECT EXISTS (SELECT 1 FROM audit WHERE writer = ? AND seq = 1 AND event = 'created'
		AND detail->>'ledger' = ?)`, t.fleet.Writer, ledger)
}

// has names a table in which a fleet's ledger has something that would be in the way; "": none.
func (t *tx) has() (string, error) {
	for _, mt := range tablesToFleet(t.fleet.Writer) {
		if mt.name == "alerts" { // of the server
			continue
		}
		if is, err := t.is(`SELECT EXISTS (SELECT 1 FROM ` + mt.name + mt.where() + `)`); is || err != nil {
			return mt.name, err
		}
	}
	return "", nil
}

// arrive copies everything into the fleet's ledger, in one transaction that marks it, unless that was done.
func (m *Mover) arrive(ctx context.Context, from string, at Head, was move) error {
	e := m.Fleet.fleet
	mark := move{Event: arrivingEvent, Ledger: from, As: was.As, Head: at.Seq, Hash: fmt.Sprintf("%x",
		at.Hash)}
	return m.Home.view(ctx, func(home *tx) error {
		if err := home.row(`SELECT (SELECT count(*) FROM payments) + (SELECT count(*) FROM audit)`).
			Scan(&m.all); err != nil {
			return err
		}
		m.done = 0
		return e.alone(ctx, func(c fleetConn) error {
			is, err := e.mark(ctx, c)
			if err != nil || is == mark {
				return err
			}
			switch {
			case was.Event == movedEvent: // which it says behind the copy alone
				return corrupt("it has moved, and the fleet's ledger has nothing of it: the server was " +
					"restored from an older copy, or is another one")
			case is.Event != arrivingEvent || is.Ledger != from:
				return corrupt("the fleet's ledger is not as it was a moment ago")
			}
			if err := e.clear(ctx, c); err != nil { // what an attempt copied that was taken back
				return err
			}
			return m.fillIn(ctx, home, c, mark, at)
		})
	})
}

// fillIn copies the tables, adds the budgets' windows up, and marks the ledger.
func (m *Mover) fillIn(ctx context.Context, home *tx, c fleetConn, mark move, at Head) error {
	e := m.Fleet.fleet
	t := &tx{ctx: ctx, conn: c, fleet: e, known: &known{}}
	var payments int64
	for _, mt := range tablesToFleet(e.Writer) {
		rows, err := m.copyIn(ctx, home, c.Conn, mt)
		if err != nil {
			return err
		}
		if err := m.at("copied " + mt.name); err != nil {
			return err
		}
		if mt.name == "payments" {
			payments = rows
		}
	}
	end := fmt.Sprintf(`\x%x`, at.Hash)
	_, err := t.exec(`INSERT INTO writers (name, host, login, head, hash) VALUES (?1, '', session_user,
		?2, ?3::bytea)
		ON CONFLICT (name) DO UPDATE SET head = excluded.head, hash = excluded.hash`, e.Writer, at.Seq, end)
	if err == nil {
		_, err = t.exec(`INSERT INTO meta VALUES (?, ?)`, moveKey, toJSON(mark))
	}
	if err == nil && mark.As != "" {
		_, err = t.exec(`INSERT INTO meta VALUES ('moved as', ?1), ('moved up to', ?2)`, mark.As,
			fmt.Sprint(payments))
	}
	if err != nil {
		return err
	}
	return c.RunLong(ctx, `SELECT setval(pg_get_serial_sequence('x402.payments', 'seq'), max(seq)) FROM
		payments;
		SELECT setval(pg_get_serial_sequence('x402.freezes', 'seq'), max(seq)) FROM freezes;
		SELECT setval(pg_get_serial_sequence('x402.sales', 'seq'), max(seq)) FROM sales;
		UPDATE content_use SET (stored, owed) = (SELECT coalesce(sum(size), 0),
			coalesce(sum(size) FILTER (WHERE spare = 0), 0) FROM contents WHERE removed = '');
		ANALYZE payments, contents, audit, approvals, memory; SELECT recount(ledger_now())`)
}

// clear takes out again what was copied into a ledger that never was released.
func (e *fleet) clear(ctx context.Context, c fleetConn) error {
	words := ``
	for _, mt := range tablesToFleet(e.Writer) {
		words += `DELETE FROM ` + mt.name + mt.where() + `; `
	}
	return c.RunLong(ctx, words+`DELETE FROM writers WHERE name = `+quoted(e.Writer)+`;
		DELETE FROM meta WHERE key IN ('`+moveKey+`', 'moved as', 'moved up to');
		UPDATE content_use SET stored = 0, owed = 0; DELETE FROM counters; DELETE FROM made`)
}

// released appends the row that says that the home's ledger has moved, and takes the mark away: from then on
// the fleet's pays.
func (m *Mover) released(ctx context.Context, at Head, last auditRow) error {
	e := m.Fleet.fleet
	return e.alone(ctx, func(c fleetConn) error {
		is, err := e.mark(ctx, c)
		if err != nil {
			return err
		}
		t := &tx{ctx: ctx, conn: c, fleet: e, known: &known{}}
		var head Head
		err = t.row(`SELECT head, hash FROM writers WHERE name = ?`, e.Writer).Scan(&head.Seq, &head.Hash)
		switch {
		case err != nil:
			return err
		case is.Event == "" && head.Seq >= last.seq: // it was told before
			told, err := t.is(`SELECT EXISTS (SELECT 1 FROM audit WHERE writer = ? AND seq = ? AND hash = ?)`,
				e.Writer, last.seq, last.hash)
			if err == nil && !told {
				err = corrupt("the fleet's ledger has another one's chain")
			}
			return err
		case is.Event != arrivingEvent || head.Seq != at.Seq || !bytes.Equal(head.Hash, at.Hash) ||
			last.seq != at.Seq+1 || !bytes.Equal(last.hash, last.linked(at.Hash)):
			return corrupt("the fleet's ledger is not what was copied into it")
		}
		_, err = t.exec(`INSERT INTO audit (writer, seq, at, payment, event, detail, hash, seal)
			VALUES (?1, ?2, ?3, ?4, ?5, ?6::json, ?7, ?8)`, e.Writer, last.seq, last.at, last.payment,
			last.event,
			last.detail, last.hash, last.seal)
		if err == nil {
			_, err = t.exec(`UPDATE writers SET head = ?1, hash = ?2 WHERE name = ?3`, last.seq,
				last.hash, e.Writer)
		}
		if err == nil {
			_, err = t.exec(`DELETE FROM meta WHERE key = ?`, moveKey)
		}
		if err == nil { // payments of windows that began since are none
			err = c.RunLong(ctx, `SELECT recount(ledger_now())`)
		}
		return err
	})
}

// errHasMoved says that a move cannot be taken back any more.
var errHasMoved = errors.New("the ledger has moved")

// Abandon takes a move into the fleet's ledger back: Home pays again. It is too late once Home says that it
// has moved. A server that does not answer is passed over, because what it has it can release only behind
// that row; unreached says so.
func (m *Mover) Abandon(ctx context.Context) (unreached error, err error) {
	from, err := m.Home.LedgerID(ctx)
	if err != nil {
		return nil, err
	}
	unlock, err := newFileLock(m.Home.home, "move").Lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	is, err := read(ctx, m.Home, (*tx).mark)
	switch {
	case err != nil:
		return nil, err
	case is.Event == movedEvent:
		return nil, x402.Errorf(x402.SetupFailed, "%w to %s, and cannot stay any more", errHasMoved,
			is.Ledger).
			WithHint("x402-wallet ledger move --to fleet goes on with it")
	}
	unreached = m.written("clear", func() error {
		return m.Fleet.fleet.alone(ctx, func(c fleetConn) error {
			mark, err := m.Fleet.fleet.mark(ctx, c)
			if err == nil && mark.Event == arrivingEvent && mark.Ledger == from {
				return m.Fleet.fleet.clear(ctx, c)
			}
			t := &tx{ctx: ctx, conn: c, fleet: m.Fleet.fleet, known: &known{}}
			if came, looked := t.cameFrom(from); err == nil && (looked != nil || came) {
				err = cmpOr(looked, corrupt("it has moved, and is as it was before that: it is an older "+
					"copy"))
			}
			return err
		})
	})
	var f *postgres.Failure
	if unreached != nil && !errors.As(unreached, &f) {
		return nil, unreached
	}
	err = m.written("stay", func() error { return m.Home.stay(ctx, m.Keys) })
	if err == nil {
		err = m.written("home's checkpoint", called(ctx, m.Marked))
	}
	return fleetErrorOr(unreached), err
}
