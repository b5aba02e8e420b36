package history

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"x402-wallet/history/postgres"
)

// NotHeld is why none of several payments was held: what Reserve would have said of the one at an index of
// the list, those before it being held.
type NotHeld struct {
	At  int
	Err error
}

func (e *NotHeld) Error() string { return fmt.Sprintf("payment %d of the list: %v", e.At+1, e.Err) }

// Unwrap returns what Reserve would have said.
func (e *NotHeld) Unwrap() error { return e.Err }

// ReserveAll is Reserve for several payments in one transaction: all of them are held, or none is, so that
// two lists that do not fit together never both hold a half. Each is checked as if those before it were held
// already. The error is a *NotHeld where it is about one of them.
func (s *Store) ReserveAll(ctx context.Context, holds []Hold) ([]Payment, error) {
	for i, h := range holds {
		if err := h.check(); err != nil {
			return nil, &NotHeld{At: i, Err: err}
		}
	}
	if err := s.InPlace(); err != nil {
		return nil, err
	}
	owner, err := s.instance()
	if err != nil {
		return nil, err
	}
	if s.fleet != nil {
		held, err := s.fleet.reserveAll(ctx, holds, owner)
		return held, s.tellIf(&change{alerted: slices.ContainsFunc(holds, Hold.mayAlert)}, err)
	}
	var held []Payment
	err = s.commitNoSync(ctx, func(t *tx) error {
		if err := t.sameFormat(); err != nil {
			return err
		}
		held = make([]Payment, len(holds))
		for i, h := range holds {
			if i > 0 {
				h = h.inSession(held[0].Session)
			}
			held[i] = h.Payment
			if err := t.reserve(h, &held[i], owner); err != nil {
				return &NotHeld{At: i, Err: err}
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return held, nil
}

// inSession is a hold that was decided on before there was a session, in the one that the payment before it
// began.
func (h Hold) inSession(id string) Hold {
	if h.Decision.Session != "" {
		return h
	}
	h.Decision.Session, h.Decision.Caps = id, slices.Clone(h.Decision.Caps)
	for i := range h.Decision.Caps {
		if w := &h.Decision.Caps[i].Window; w.Session != "" {
			w.Session = id
		}
	}
	return h
}

// reserveAll is the function reserve_all of postgres_functions.sql: reserve for each, in one transaction.
// Every payment locks the organisation's counters first, so that two lists wait for each other there and
// nowhere else.
func (e *fleet) reserveAll(ctx context.Context, holds []Hold, owner string) ([]Payment, error) {
	list := make([]map[string]any, len(holds))
	rows := make([]Payment, len(holds))
	for i, h := range holds {
		if i > 0 {
			h = h.inSession(rows[0].Session)
		}
		rows[i], list[i] = e.toReserve(h, owner)
	}
	held, err := whenSettled(ctx, e, func() ([]heldPayment, error) {
		return callAll(ctx, e, scanHeld, `SELECT * FROM reserve_all(?::jsonb)`, func() string {
			for _, q := range list {
				q["clock"] = micros(e.now())
			}
			return toJSON(list)
		})
	})
	if err == nil {
		for i, h := range held {
			rows[i] = h.of(rows[i])
			e.drives(rows[i].ID, true)
		}
		return rows, nil
	}
	at := 0
	var f *postgres.Failure
	if errors.As(err, &f) {
		at, _ = strconv.Atoi(f.Hint)
	}
	if f == nil || at < 1 || at > len(holds) {
		return nil, e.whyNotHeld(ctx, holds[0], rows[0], err)
	}
	return nil, &NotHeld{At: at - 1, Err: e.whyNotHeld(ctx, holds[at-1], rows[at-1], err)}
}
