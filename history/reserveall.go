package history

import (
	"cmp"
	"context"
	"fmt"
	"slices"
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
	owner, err := s.process.Join()
	if err != nil {
		return nil, err
	}
	holds = slices.Clone(holds)
	for i := range holds {
		holds[i].Payment.ID = cmp.Or(holds[i].Payment.ID, NewID(s.db.Now()))
	}
	var held []Payment
	err = s.tx(ctx, func(t *tx) error {
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
