package history

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"x402-wallet/history/postgres"
	"x402-wallet/x402"
)

// A fleet's ledger moves into the ledger.db of its owner's home, which is made anew beside: payments are
// numbered without gaps, the events of all chains are put in the order of their times and hashed anew
// (movechain.go), and the owner seals what comes of it. The file refuses until it has its place and the
// fleet's ledger has said that it moved.

// movingDir is where the file is made, and keptName what the one before it is called.
const movingDir = ".moving"

func keptName(ledger string) string { return FileName + "." + ledger }

// Arrival is what the owner of a home says of a ledger that comes into it.
type Arrival struct {
	// Adopt is the keyholder of a new ledger, and the owner's seals in it.
	Adopt func(ctx context.Context, s *Store) (Keyholder, Seals, error)
	// Seal seals the owner's rules in it, who accepts it as it is, and makes its checkpoint.
	Seal func(ctx context.Context, s *Store) error
	// Arrived makes its checkpoint anew, once it pays.
	Arrived func(ctx context.Context, s *Store) error
}

// ToHome moves Fleet into ledger.db of a directory, or goes on with that. When it returns nil, that file pays
// and Fleet never does again. Home is nil.
func (m *Mover) ToHome(ctx context.Context, dir string, a Arrival) (done Moved, err error) {
	unlock, err := newFileLock(dir, "move").Lock(ctx)
	if err != nil {
		return done, err
	}
	defer unlock()
	done.From, err = m.Fleet.LedgerID(ctx)
	if err != nil {
		return done, err
	}
	mark, err := m.fleetMark(ctx)
	switch {
	case err != nil:
		return done, err
	case mark.Event == arrivingEvent:
		return done, mark.refusal()
	}
	done.Again = mark.Event == movedEvent
	if !done.Again {
		if err := mayReplace(ctx, dir, done.From, mark.Ledger); err != nil {
			return done, err
		}
	}
	err = m.written("fleet's mark", func() error {
		mark, err = m.leave(ctx)
		return err
	})
	if err != nil {
		return done, fleetErrorOr(err)
	}
	done.To = mark.Ledger
	if err := m.place(ctx, dir, done, mark, a); err != nil {
		return done, fleetErrorOr(err)
	}
	return m.arrived(ctx, dir, done, a)
}

// LeavesFleet reports whether the fleet's ledger is marked as one that moves, or has moved, to a home.
func (m *Mover) LeavesFleet(ctx context.Context) (bool, error) {
	is, err := m.fleetMark(ctx)
	return is.Event == movingEvent || is.Event == movedEvent, err
}

func (m *Mover) fleetMark(ctx context.Context) (move, error) { return read(ctx, m.Fleet, (*tx).mark) }

// mayReplace refuses a home with a ledger of its own, which would be lost. One in which nothing was paid is
// none, nor is one that moved to this fleet.
func mayReplace(ctx context.Context, dir, fleet, arriving string) error {
	if _, err := os.Lstat(filepath.Join(dir, FileName)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	s, err := OpenMoving(ctx, dir, Options{})
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.inUse(); err != nil {
		return err
	}
	return s.view(ctx, func(t *tx) error {
		is, err := t.mark()
		var id string
		var has bool
		if err == nil {
			err = t.row(`SELECT value, EXISTS (SELECT 1 FROM payments) FROM meta WHERE key =
				'ledger_id'`).Scan(&id, &has)
		}
		if err != nil || id == arriving || !has || (is.Event == movedEvent && is.Ledger == fleet) {
			return err
		}
		return x402.Errorf(x402.SetupFailed, "this home has a ledger of its own, with payments that are "+
			"not in the fleet's").
			WithHint("move the fleet's into another home of its owner's, or take %s away if it is not needed",
				FileName)
	})
}

// leave marks the fleet's ledger: nobody writes to it any more, and what nobody works on is ended.
func (m *Mover) leave(ctx context.Context) (is move, err error) {
	e := m.Fleet.fleet
	err = e.alone(ctx, func(c fleetConn) error {
		if is, err = e.mark(ctx, c); err != nil || is.Event != "" {
			return err
		}
		t := &tx{ctx: ctx, conn: c, fleet: e, known: &known{}, changes: true}
		var now int64
		var living bool
		err := t.row(`SELECT ledger_now(), EXISTS (SELECT 1 FROM instances WHERE until > real_clock())`).
			Scan(&now, &living)
		if err == nil && living {
			err = errInUse()
		}
		if err != nil {
			return err
		}
		t.Now = fromMicros(now)
		if err := t.settleFleet(); err != nil {
			return err
		}
		is = move{Event: movingEvent, Ledger: newID("led_")}
		_, err = t.exec(`INSERT INTO meta VALUES (?, ?)`, moveKey, toJSON(is))
		return err
	})
	return is, err
}

// settleFleet is settle in a fleet.
func (t *tx) settleFleet() error {
	open, err := collect(t, scanText, `SELECT id FROM payments WHERE state = 'reserved' ORDER BY seq`)
	if err != nil {
		return err
	}
	for _, id := range open {
		const why = "nobody worked on it when the ledger moved"
		o := Outcome{State: Failed, Note: why, ReleaseLease: true, ClearWaiter: true}
		q, body := t.fleet.ending(id, o, map[string]any{"release": true,
			"detail": toJSON(map[string]string{"why": why})})
		if _, err := collect(t, scanText, `SELECT id FROM finish(?::jsonb, ?)`, q, body); err != nil {
			return err
		}
	}
	if err := t.notSelling(); err != nil {
		return err
	}
	return t.expireWhere(`expires_at > ? AND state = 'approved'`, fromMicros(0))
}

// place makes the new file and puts it into its place, unless it is there.
func (m *Mover) place(ctx context.Context, dir string, done Moved, mark move, a Arrival) error {
	if s, err := OpenMoving(ctx, dir, Options{}); err == nil {
		id, err := s.LedgerID(ctx)
		if err = errors.Join(err, s.Close()); err != nil || id == done.To {
			return err
		}
	}
	if done.Again {
		return x402.Errorf(x402.LedgerCorrupt, "the fleet's ledger has moved to %s, and that is not the %s "+
			"of this home", mark.Ledger, FileName).
			WithHint("restore that file; nothing is paid without it")
	}
	beside := filepath.Join(dir, movingDir)
	err := m.written("file", func() error { return m.build(ctx, beside, done, a) })
	if err != nil {
		return err
	}
	if err := m.written("the old file's log", func() error { return emptyLog(ctx, dir) }); err != nil {
		return err
	}
	if err := m.written("the old file's other name", func() error { return keepOld(ctx, dir) }); err != nil {
		return err
	}
	return m.written("the new file's name", func() error {
		err := os.Rename(filepath.Join(beside, FileName), filepath.Join(dir, FileName))
		if err == nil {
			err = errors.Join(syncDirectory(dir), os.RemoveAll(beside))
		}
		return diskError("put the new ledger into its place", err)
	})
}

func diskError(doing string, err error) error {
	if err == nil {
		return nil
	}
	return x402.Errorf(x402.LedgerUnavailable, "%s: %w", doing, err)
}

// emptyLog writes the log of the ledger that is replaced into its file: else the new file would get it.
func emptyLog(ctx context.Context, dir string) error {
	if _, err := os.Lstat(filepath.Join(dir, FileName)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	s, err := OpenMoving(ctx, dir, Options{})
	if err != nil {
		return err
	}
	err = s.emptyLog(ctx)
	if err = errors.Join(err, s.Close()); err != nil {
		return err
	}
	for _, suffix := range []string{"-wal", "-shm"} {
		err := os.Remove(filepath.Join(dir, FileName+suffix))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return diskError("remove the old ledger's log", err)
		}
	}
	return nil
}

// emptyLog moves what is in the log into the file, and fails where somebody else has it open.
func (s *Store) emptyLog(ctx context.Context) error {
	var busy, inLog, moved int
	return s.write.with(ctx, func(c *conn) error {
		err := c.QueryRowContext(ctx, `PRAGMA wal_checkpoint(TRUNCATE)`).Scan(&busy, &inLog, &moved)
		if err == nil && busy != 0 {
			err = errors.New("somebody else has it open")
		}
		return ledgerError("write the ledger into its file", err)
	})
}

// keepOld gives the ledger that is replaced another name.
func keepOld(ctx context.Context, dir string) error {
	path := filepath.Join(dir, FileName)
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	s, err := OpenMoving(ctx, dir, Options{})
	if err != nil {
		return err
	}
	id, err := s.LedgerID(ctx)
	if err = errors.Join(err, s.Close()); err != nil {
		return err
	}
	err = os.Link(path, filepath.Join(dir, keptName(id)))
	if errors.Is(err, fs.ErrExist) {
		err = nil
	}
	return diskError("keep the old ledger", err)
}

// arrived takes the last two steps: the fleet's ledger says that it has moved, and the new one pays.
func (m *Mover) arrived(ctx context.Context, dir string, done Moved, a Arrival) (Moved, error) {
	s, err := OpenMoving(ctx, dir, Options{})
	if err != nil {
		return done, err
	}
	defer s.Close()
	k, _, err := a.Adopt(ctx, s)
	if err != nil {
		return done, err
	}
	is, err := read(ctx, s, (*tx).mark)
	if err == nil && is.Event != "" && (is.Event != arrivingEvent || is.Ledger != done.From) {
		err = is.refusal()
	}
	if err != nil {
		return done, err
	}
	err = m.written("fleet's last mark", func() error { return fleetErrorOr(m.left(ctx, done.To)) })
	if err != nil {
		return done, err
	}
	err = m.written("arrived", func() error {
		return s.tx(ctx, func(t *tx) error {
			if now, err := t.mark(); err != nil || now.Event == "" {
				return err
			}
			return t.setMark(arrivedEvent, done.From, "", nil, k)
		})
	})
	if err == nil && a.Arrived != nil {
		err = m.written("last checkpoint", func() error { return a.Arrived(ctx, s) })
	}
	if err != nil {
		return done, err
	}
	err = s.view(ctx, func(t *tx) error {
		return t.row(`SELECT (SELECT count(*) FROM payments), (SELECT count(*) FROM audit)`).
			Scan(&done.Payments, &done.Events)
	})
	return done, err
}

// left has the fleet's ledger say that it has moved, for ever.
func (m *Mover) left(ctx context.Context, to string) error {
	e := m.Fleet.fleet
	return e.alone(ctx, func(c fleetConn) error {
		is, err := e.mark(ctx, c)
		switch {
		case err != nil || (is.Event == movedEvent && is.Ledger == to):
			return err
		case is.Event != movingEvent || is.Ledger != to:
			return corrupt("the fleet's ledger does not move to this home any more")
		}
		t := &tx{ctx: ctx, conn: c, fleet: e, known: &known{}}
		_, err = t.exec(`UPDATE meta SET value = ? WHERE key = ?`,
			toJSON(move{Event: movedEvent, Ledger: to}), moveKey)
		return err
	})
}

// StayInFleet takes a move to a home back: the fleet's ledger pays again, and what there is of the new file
// is gone. It is too late once the fleet's ledger has said that it moved.
func (m *Mover) StayInFleet(ctx context.Context, dir string) error {
	unlock, err := newFileLock(dir, "move").Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	mark, err := m.fleetMark(ctx)
	switch {
	case err != nil || mark.Event == "":
		return err
	case mark.Event == movedEvent:
		return x402.Errorf(x402.SetupFailed, "%w to %s, and cannot stay any more", errHasMoved, mark.Ledger).
			WithHint("x402-wallet ledger move --to home goes on with it")
	case mark.Event != movingEvent:
		return mark.refusal()
	}
	err = m.written("the old file's name", func() error { return putBack(ctx, dir, mark.Ledger) })
	if err != nil {
		return err
	}
	err = m.written("unmark", func() error {
		e := m.Fleet.fleet
		return e.alone(ctx, func(c fleetConn) error {
			is, err := e.mark(ctx, c)
			if err != nil || is != mark {
				return cmpOr(err, moved("its mark is another one"))
			}
			t := &tx{ctx: ctx, conn: c, fleet: e, known: &known{}}
			_, err = t.exec(`DELETE FROM meta WHERE key = ?`, moveKey)
			return err
		})
	})
	return fleetErrorOr(err)
}

// putBack takes a file that was to come away, and puts the one before it back.
func putBack(ctx context.Context, dir, arriving string) error {
	if err := os.RemoveAll(filepath.Join(dir, movingDir)); err != nil {
		return diskError("remove the new ledger", err)
	}
	s, err := OpenMoving(ctx, dir, Options{})
	if err != nil { // there is none, or one that others find fault with
		return nil //nolint:nilerr // what is wrong with it is no matter of this
	}
	id, err := s.LedgerID(ctx)
	if err = errors.Join(err, s.Close()); err != nil || id != arriving {
		return err
	}
	if err := emptyLog(ctx, dir); err != nil {
		return err
	}
	kept, err := filepath.Glob(filepath.Join(dir, keptName("led_*")))
	if err != nil {
		return err
	}
	path := filepath.Join(dir, FileName)
	if err = os.Remove(path); err == nil && len(kept) > 0 { // all of them have moved; the newest was here
		err = os.Rename(newestOf(kept), path)
	}
	return diskError("put the old ledger back", err)
}

func newestOf(paths []string) (newest string) {
	for _, path := range paths {
		info, err := os.Stat(path)
		was, none := os.Stat(newest)
		if err == nil && (none != nil || info.ModTime().After(was.ModTime())) {
			newest = path
		}
	}
	return newest
}

// build makes the new ledger in a directory of its own, from the beginning.
func (m *Mover) build(ctx context.Context, dir string, done Moved, a Arrival) error {
	err := os.RemoveAll(dir)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return diskError("make room for the new ledger", err)
	}
	if err := Create(ctx, dir, Options{ledgerID: done.To}); err != nil {
		return err
	}
	s, err := OpenMoving(ctx, dir, Options{})
	if err != nil {
		return err
	}
	defer s.Close()
	k, seals, err := a.Adopt(ctx, s)
	if err != nil {
		return err
	}
	m.Keys, m.Seals = k, seals
	if err := m.copyOut(ctx, s); err != nil {
		return err
	}
	if err := m.at("written"); err != nil {
		return err
	}
	s.arrival = &arrival{from: done.From, heads: m.heads}
	if err := a.Seal(ctx, s); err != nil {
		return err
	}
	if err := m.at("sealed"); err != nil {
		return err
	}
	if _, err := s.VerifySealed(ctx, k); err != nil {
		return fmt.Errorf("compare the new ledger: %w", err)
	}
	return s.emptyLog(ctx)
}

// arrival is what a ledger comes from that is sealed for the first time.
type arrival struct {
	from  string
	heads map[string]string // of the fleet's chains, by their writers: number and hash
}

// longConn asks what may take long.
type longConn struct{ fleetConn }

func (c longConn) query(ctx context.Context, query string, args ...any) (*rows, error) {
	answer, err := c.QueryLong(ctx, postgres.Statement{Query: query, Args: args})
	if err != nil {
		return nil, err
	}
	return answerRows(answer), nil
}

// viewLong is view for an f that may take long.
func (e *fleet) viewLong(ctx context.Context, s *Store, f func(*tx) error) error {
	err := e.pool.With(ctx, func(c *postgres.Conn) error {
		conn := fleetConn{c}
		t, err := e.begin(ctx, s, conn, `BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
			SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0`)
		if err != nil {
			return err
		}
		defer conn.rollback() // there is nothing to commit
		t.conn = longConn{conn}
		return f(t)
	})
	return fleetErrorOr(err)
}

// fleetCursor is a query of which a few rows are read at a time.
func (t *tx) fleetCursor(name, query string, each func(row scanner) error) error {
	if _, err := t.exec(`DECLARE ` + name + ` NO SCROLL CURSOR FOR ` + query); err != nil {
		return err
	}
	for n := -1; n != 0; {
		n = 0
		err := t.forEach(func(row scanner) error {
			n++
			return each(row)
		}, `FETCH 500 FROM `+name)
		if err != nil {
			return err
		}
	}
	_, err := t.exec(`CLOSE ` + name)
	return err
}
