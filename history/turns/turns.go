// Package turns gives one process at a time, of all that share a ledger, the right to do something alone.
//
// What must stay true: who has lost a turn changes nothing more in its name.
package turns

import (
	"context"
	"errors"
	"time"

	"x402-wallet/history/sqldb"
)

// Turn is this process's right to do alone what one process at a time does for all that share the ledger.
type Turn struct {
	Name, Holder string
	Fence        int64 // grows with each holder
}

// Time is how long a turn lasts that is not renewed: so long whoever died with it keeps the others off.
const Time = 30 * time.Second

// ErrNone says that somebody else has the turn, or had it since.
var ErrNone = errors.New("another process has the turn")

// Ledger is where turns are: history.Store.
type Ledger interface {
	Write(ctx context.Context, f func(*sqldb.Tx) error) error
}

// Take takes a turn that nobody has, for Time. holder is a name that nobody else uses; who takes it
// twice at a time is refused like any other. An end that is farther away than any holder could have set it is
// of a clock that was ahead, and counts as past.
func Take(ctx context.Context, s Ledger, name, holder string) (Turn, error) {
	turn := Turn{Name: name, Holder: holder}
	err := s.Write(ctx, func(t *sqldb.Tx) error {
		now, until := sqldb.Micros(t.Now), sqldb.Micros(t.Now.Add(Time))
		err := t.Row(`INSERT INTO turns (name, holder, until, fence) VALUES (?1, ?2, ?3, 1)
			ON CONFLICT (name) DO UPDATE
				SET holder = excluded.holder, until = excluded.until, fence = turns.fence + 1
				WHERE turns.until <= ?4 OR turns.until > ?3
			RETURNING fence`, name, holder, until, now).Scan(&turn.Fence)
		return sqldb.Otherwise(err, ErrNone)
	})
	return turn, err
}

// Renew makes a turn last Time from now; ErrNone: it is somebody else's by now.
func Renew(ctx context.Context, s Ledger, turn Turn) error {
	return s.Write(ctx, func(t *sqldb.Tx) error { return set(t, turn, sqldb.Micros(t.Now.Add(Time))) })
}

// Leave ends a turn, so that nobody has to wait for its end.
func Leave(ctx context.Context, s Ledger, turn Turn) error {
	return s.Write(ctx, func(t *sqldb.Tx) error { return set(t, turn, 0) })
}

func set(t *sqldb.Tx, turn Turn, until int64) error {
	n, err := t.Exec(`UPDATE turns SET until = ? WHERE name = ? AND holder = ? AND fence = ?`, until,
		turn.Name, turn.Holder, turn.Fence)
	if err == nil && n == 0 {
		err = ErrNone
	}
	return err
}

// Check refuses, with ErrNone, a turn that somebody else took meanwhile.
func (turn Turn) Check(t *sqldb.Tx) error {
	has, err := t.Is(`SELECT EXISTS (SELECT 1 FROM turns WHERE name = ? AND holder = ? AND fence = ?)`,
		turn.Name, turn.Holder, turn.Fence)
	if err == nil && !has {
		err = ErrNone
	}
	return err
}
