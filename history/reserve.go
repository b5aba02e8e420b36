package history

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"x402-wallet/budget"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// Hold is what Reserve is asked to hold.
type Hold struct {
	// everything but what the ledger gives: session, state, times, owner, and an id where there is
	// none
	Payment Payment
	Funds   x402.Funds     // the third layer's reading
	Cap     *money.Dollars // the delegation's worth: the session's cap, should one begin with this payment
	AskCap  bool           // nobody has looked what is delegated: no session may begin (ErrAskCap)
	// not beside a payment without an end for the same request that nobody waits for (Taken)
	Resume bool
}

// ErrAskCap says that a session would begin, and that what was delegated has to be looked up
// before, for it is the session's cap.
var ErrAskCap = errors.New("a session begins, and its cap is not known")

// ShortOfFunds is the third layer's no. Free is what the chain allowed when it was read; Held what
// the wallet has promised of it and the reading may not show yet.
type ShortOfFunds struct{ Free, Held, Wanted money.Amount }

func (e *ShortOfFunds) Error() string {
	return fmt.Sprintf("the chain lets %s be spent, %s of it is held, %s is wanted", e.Free, e.Held, e.Wanted)
}

// AlreadyPaying says that the idempotency key belongs to a payment that is not failed, or that
// there is one to be resumed.
type AlreadyPaying struct{ Payment Payment }

func (e *AlreadyPaying) Error() string { return "this purchase is made already, as " + e.Payment.ID }

// Reserve checks all caps and holds the money, in one transaction: check is called inside it with
// the session the payment falls into and must ask t for its figures. It returns the payment as it
// now stands in the ledger, *Taken, *ShortOfFunds, ErrAskCap, or whatever check returned; then
// nothing is held.
func (s *Store) Reserve(ctx context.Context, h Hold, check func(t *Tx, session budget.Session) error) (
	Payment, error) {
	p := h.Payment
	if err := s.InPlace(); err != nil {
		return p, err
	}
	owner, err := s.instance()
	if err != nil {
		return p, err
	}
	err = s.tx(ctx, func(t *Tx) error {
		if err := t.sameFormat(); err != nil {
			return err
		}
		clock := t.Now
		if err := t.notBeforeLedger(); err != nil {
			return err
		}
		if err := t.keyIsFree(p.IdempotencyKey); err != nil {
			return err
		}
		if h.Resume {
			if err := t.notLeft(p.Fingerprint); err != nil {
				return err
			}
		}
		if err := t.NotFrozen(p.Network, p.Source); err != nil {
			return err
		}
		session, err := t.session(h)
		if err != nil {
			return err
		}
		if err := check(t, session); err != nil {
			return standsStill(err, clock, t.Now)
		}
		if err := t.coveredByChain(h); err != nil {
			return err
		}
		p.ID, p.Session, p.State, p.Created, p.Updated = cmp.Or(p.ID, NewID(t.Now)), session.ID, Reserved, t.Now,
			t.Now
		p.LeaseOwner, p.Waiter = owner, owner
		return t.insert(p)
	})
	return p, err
}

// notBeforeLedger moves the transaction's time up to the newest payment: windows never open
// backwards.
func (t *Tx) notBeforeLedger() error {
	var newest sql.NullInt64
	if err := t.row(`SELECT max(created_at) FROM payments`).Scan(&newest); err != nil {
		return err
	}
	if at := fromMicros(newest.Int64); at.After(t.Now) {
		t.Now = at
	}
	return nil
}

// notLeft refuses a request that has a payment which nobody waits for any more, perhaps since a
// moment ago.
func (t *Tx) notLeft(fingerprint [32]byte) error {
	p, err := scanPayment(t.row(selectPayment+` WHERE fingerprint = ? AND (`+resumable+
		`) AND waiter = '' AND delivered = 0 LIMIT 1`, fingerprint[:]))
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	return &AlreadyPaying{p}
}

func (t *Tx) keyIsFree(key string) error {
	if key == "" {
		return nil
	}
	p, err := scanPayment(t.row(selectPayment+` WHERE idempotency_key = ? AND state <> 'failed'`, key))
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	return &AlreadyPaying{p}
}

// session returns the session that is open now, or opens one.
func (t *Tx) session(h Hold) (budget.Session, error) {
	current, err := t.Session()
	if err != nil || current.ID != "" {
		if err == nil {
			_, err = t.exec(`UPDATE sessions SET last_at = ? WHERE id = ?`, micros(t.Now), current.ID)
		}
		return current, err
	}
	if h.AskCap {
		return current, ErrAskCap
	}
	return t.newSession(h.Cap, nil)
}

func (t *Tx) newSession(newCap *money.Dollars, seal func(budget.Session) ([]byte, error)) (
	fresh budget.Session, err error) {
	now := fromMicros(micros(t.Now))
	fresh = budget.Session{ID: newID("ses_"), Started: now, Last: now, Cap: newCap}
	var sealed []byte
	if seal != nil {
		if sealed, err = seal(fresh); err != nil {
			return fresh, err
		}
	}
	if _, err := t.exec(`UPDATE sessions SET ended = 1 WHERE ended = 0`); err != nil {
		return fresh, err
	}
	_, err = t.exec(`INSERT INTO sessions (id, started_at, last_at, cap, seal) VALUES (?, ?, ?, ?, ?)`,
		fresh.ID, micros(fresh.Started), micros(fresh.Last), (*int64)(newCap), sealed)
	if err != nil {
		return fresh, err
	}
	return fresh, t.audit("", "session", map[string]any{"id": fresh.ID, "cap": newCap})
}

// Session is the session that is open now; its ID is empty when the next payment will begin one.
func (t *Tx) Session() (budget.Session, error) {
	var s budget.Session
	var started, last int64
	var limit sql.NullInt64
	err := t.row(`SELECT id, started_at, last_at, cap FROM sessions WHERE ended = 0 ORDER BY started_at DESC LIMIT 1`).
		Scan(&s.ID, &started, &last, &limit)
	if errors.Is(err, sql.ErrNoRows) {
		return budget.Session{Started: t.Now, Last: t.Now}, nil
	}
	if err != nil {
		return s, err
	}
	s.Started, s.Last = fromMicros(started), fromMicros(last)
	if limit.Valid {
		s.Cap = (*money.Dollars)(&limit.Int64)
	}
	if t.Now.Sub(s.Last) >= budget.SessionIdle {
		return budget.Session{Started: t.Now, Last: t.Now}, nil
	}
	return s, nil
}

// SessionSeal is what the owner sealed a session with; nil: a payment began it.
func (t *Tx) SessionSeal(id string) (seal []byte, err error) {
	err = t.row(`SELECT seal FROM sessions WHERE id = ?`, id).Scan(&seal)
	return seal, none(err, nil)
}

// NewSession ends the session that is open and begins one. limit is the delegation's worth, where
// the owner set no cap. seal is called inside the transaction; nil leaves the session without one.
func (s *Store) NewSession(ctx context.Context, limit *money.Dollars, seal func(budget.Session) ([]byte,
	error)) (fresh budget.Session, err error) {
	err = s.tx(ctx, func(t *Tx) error {
		if err := t.notBeforeLedger(); err != nil {
			return err
		}
		fresh, err = t.newSession(limit, seal)
		return err
	})
	return fresh, err
}

// coveredByChain is the third layer. A payment that settled after the chain was read may be missing
// in its figures, so it counts as held once more; that can only refuse too early, and the caller
// then reads again.
func (t *Tx) coveredByChain(h Hold) error {
	var held money.Amount
	err := t.forEach(func(row scanner) error {
		var a money.Amount
		err := row.Scan(&a)
		held, _ = held.Add(a)
		return err
	}, `
		SELECT amount FROM payments WHERE source = ?1 AND asset = ?2 AND network = ?3 AND state IN ('reserved', 'submitted', 'unknown')
		UNION ALL
		SELECT amount FROM payments WHERE source = ?1 AND asset = ?2 AND network = ?3 AND state = 'settled' AND updated_at >= ?4`,
		h.Funds.Source, h.Payment.Asset, h.Payment.Network, micros(h.Funds.ReadAt))
	if err != nil {
		return err
	}
	if wanted, ok := held.Add(h.Payment.Amount); !ok || wanted.Cmp(h.Funds.Free) > 0 {
		return &ShortOfFunds{Free: h.Funds.Free, Held: held, Wanted: h.Payment.Amount}
	}
	return nil
}

// Used sums a window for package budget: of a session, of a host, or of all. Windows begin with a
// UTC day.
func (t *Tx) Used(w budget.Window) (use budget.Use, err error) {
	const sums = `SELECT coalesce(sum(spent), 0), coalesce(sum(held), 0) FROM totals WHERE `
	day := micros(w.Since) / (24 * time.Hour).Microseconds()
	var row scanner
	switch {
	case w.Session != "":
		row = t.row(sums+`scope = 'session' AND key = ? AND day >= ?`, w.Session, day)
	case w.Host != "":
		// with any port
		row = t.row(sums+`scope = 'host' AND (key = ? OR key > ? AND key < ?) AND day >= ?`, w.Host, w.Host+
			":", w.Host+";", day)
	default:
		row = t.row(sums+`scope = 'all' AND key = '' AND day >= ?`, day)
	}
	err = row.Scan(&use.Spent, &use.Held)
	return use, err
}

// Count counts the payments made after since.
func (t *Tx) Count(since time.Time) (n int, err error) {
	err = t.row(`SELECT count(*) FROM payments WHERE created_at > ?`, micros(since)).Scan(&n)
	return n, err
}

// Oldest is when the first payment after since was made, not counting the first skip of them; zero
// where there is none.
func (t *Tx) Oldest(since time.Time, skip int) (time.Time, error) {
	var at int64
	err := t.row(`SELECT created_at FROM payments WHERE created_at > ? ORDER BY created_at LIMIT 1 OFFSET ?`,
		micros(since), skip).Scan(&at)
	return fromMicros(at), none(err, nil)
}

// View gives f a consistent reading, for reports: it is a budget.Ledger, and Session tells which
// session is open.
func (s *Store) View(ctx context.Context, f func(t *Tx) error) error { return s.view(ctx, f) }

// HeldOn is what unfinished payments hold of a source, by asset address.
func (s *Store) HeldOn(ctx context.Context, network, source string) (map[string]money.Amount, error) {
	held := map[string]money.Amount{}
	err := s.view(ctx, func(t *Tx) error {
		return t.forEach(func(row scanner) error {
			var asset string
			var a money.Amount
			err := row.Scan(&asset, &a)
			held[asset], _ = held[asset].Add(a)
			return err
		}, `SELECT asset, amount FROM payments
			WHERE network = ? AND source = ? AND state IN ('reserved', 'submitted', 'unknown')`, network,
			source)
	})
	return held, err
}

func toJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // our own types
	}
	return string(text)
}
