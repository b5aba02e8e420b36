package history

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

// TurnTime is how long a turn lasts that is not renewed: so long whoever died with it keeps the others off.
const TurnTime = 30 * time.Second

// ErrNoTurn says that somebody else has the turn, or had it since.
var ErrNoTurn = errors.New("another process has the turn")

// TakeTurn takes a turn that nobody has, for TurnTime. holder is a name that nobody else uses; who takes it
// twice at a time is refused like any other. An end that is farther away than any holder could have set it is
// of a clock that was ahead, and counts as past.
func (s *Store) TakeTurn(ctx context.Context, name, holder string) (Turn, error) {
	turn := Turn{Name: name, Holder: holder}
	err := s.tx(ctx, func(t *tx) error {
		now, until := micros(t.Now), micros(t.Now.Add(TurnTime))
		err := t.Row(`INSERT INTO turns (name, holder, until, fence) VALUES (?1, ?2, ?3, 1)
			ON CONFLICT (name) DO UPDATE
				SET holder = excluded.holder, until = excluded.until, fence = turns.fence + 1
				WHERE turns.until <= ?4 OR turns.until > ?3
			RETURNING fence`, name, holder, until, now).Scan(&turn.Fence)
		return sqldb.Otherwise(err, ErrNoTurn)
	})
	return turn, err
}

// RenewTurn makes a turn last TurnTime from now; ErrNoTurn: it is somebody else's by now.
func (s *Store) RenewTurn(ctx context.Context, turn Turn) error {
	return s.tx(ctx, func(t *tx) error { return t.setTurn(turn, micros(t.Now.Add(TurnTime))) })
}

// LeaveTurn ends a turn, so that nobody has to wait for its end.
func (s *Store) LeaveTurn(ctx context.Context, turn Turn) error {
	return s.tx(ctx, func(t *tx) error { return t.setTurn(turn, 0) })
}

func (t *tx) setTurn(turn Turn, until int64) error {
	n, err := t.Exec(`UPDATE turns SET until = ? WHERE name = ? AND holder = ? AND fence = ?`, until,
		turn.Name, turn.Holder, turn.Fence)
	if err == nil && n == 0 {
		err = ErrNoTurn
	}
	return err
}

// Check refuses, with ErrNoTurn, a turn that somebody else took meanwhile.
func (turn Turn) Check(t *sqldb.Tx) error {
	has, err := t.Is(`SELECT EXISTS (SELECT 1 FROM turns WHERE name = ? AND holder = ? AND fence = ?)`,
		turn.Name, turn.Holder, turn.Fence)
	if err == nil && !has {
		err = ErrNoTurn
	}
	return err
}
