package history

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"x402-wallet/budget"
	"x402-wallet/history/internal/audit"
	"x402-wallet/history/sqldb"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// Hold is a payment whose money is to be held, and the decision that lets it pass.
type Hold struct {
	// everything but what the ledger gives: session, state, times, owner, and an id where there is none
	Payment Payment
	Funds   x402.Funds // the third layer's reading
	// the delegation's worth: the session's cap, should one begin with this payment
	SessionCap *money.Dollars
	Decision   budget.Decision // by the owner's rules
	// When it was made: Facts.Now and Facts.Head of its facts. As long as that row is the last one
	// and the clock was not set back, nothing of it is checked again; without them all of it is.
	DecidedAt   time.Time
	DecidedHead int64
	Approval    *Approval // as it was read, to be used up with this payment; nil: none is needed
	Low         *LowFunds // what the owner is told of its funds; nil: nothing
	// not beside a payment without an end for the same request that nobody waits for (AlreadyPaying)
	Resume bool
}

// check refuses a hold that its own decision does not cover.
func (h Hold) check() error {
	switch {
	case len(h.Decision.Caps) == 0 && (!h.Decision.Prepaid || !h.Payment.Prepaid()):
		return errNoCaps
	case h.Decision.NeedsApproval && h.Approval == nil:
		return errUnapproved
	case h.Approval != nil && !h.Approval.Covers(h.Payment):
		return errOtherApproval
	}
	return nil
}

// ErrMoved says that something a decision rests on is no longer so: money was held or spent
// meanwhile, a session began or ended, a payee became known, an approval was used up or taken back.
// Nothing is held. Read the facts and decide again.
var ErrMoved = errors.New("the ledger changed since the payment was decided on")

// errNoCaps refuses a hold whose decision no rules were asked for.
var errNoCaps = errors.New("a hold needs a decision with caps")

// errUnapproved refuses a hold whose decision rests on an approval that it does not name.
var errUnapproved = errors.New("the decision rests on a person's approval, and the hold names none")

// errOtherApproval refuses a hold whose approval was given to another payment, or to a cheaper one.
var errOtherApproval = errors.New("the approval that the hold names is not for this payment")

// ShortOfFunds is the third layer's refusal. Free is what the chain allowed when it was read; Held
// what the wallet has held of it and the reading may not show yet.
type ShortOfFunds struct{ Free, Held, Wanted money.Amount }

func (e *ShortOfFunds) Error() string {
	return fmt.Sprintf("the chain lets %s be spent, %s of it is held, %s is wanted", e.Free, e.Held, e.Wanted)
}

// AlreadyPaying says that the idempotency key belongs to a payment that is not failed, or that
// there is one to be resumed.
type AlreadyPaying struct{ Payment Payment }

func (e *AlreadyPaying) Error() string { return "this purchase is made already, as " + e.Payment.ID }

// Reserve holds the money of a payment, in one transaction that checks everything its decision
// rests on against the ledger as it is then: however many reserve at once, in however many
// processes, no cap is ever passed by one unit. It returns the payment as it now stands in the
// ledger, where the hold is durable. After an error nothing is held: *AlreadyPaying, WALLET_FROZEN, ErrMoved,
// *ShortOfFunds, in this order.
func (s *Store) Reserve(ctx context.Context, h Hold) (Payment, error) {
	p := h.Payment
	if err := h.check(); err != nil {
		return p, err
	}
	if err := s.InPlace(); err != nil {
		return p, err
	}
	owner, err := s.process.Join()
	if err != nil {
		return p, err
	}
	h.Payment.ID = cmp.Or(h.Payment.ID, NewID(s.db.Now())) // before: a change may be made again
	err = s.tx(ctx, func(t *tx) error {
		p = h.Payment
		return t.reserve(h, &p, owner)
	})
	return p, err
}

// reserve holds the money of p, which becomes the payment as it now stands.
func (t *tx) reserve(h Hold, p *Payment, owner string) error {
	head, err := t.notBeforeLedger()
	if err != nil {
		return err
	}
	taken, err := t.purchase(*p, h.Resume)
	if err != nil {
		return err
	}
	if taken != nil {
		return &AlreadyPaying{Payment: *taken}
	}
	if err := t.notFrozen(p.Network, p.Source); err != nil {
		return err
	}
	session, err := t.sessionFor(h)
	if err != nil {
		return err
	}
	if head != h.DecidedHead || t.Now.Before(h.DecidedAt) {
		if err := t.holdsStill(h.Decision, *p); err != nil {
			return err
		}
	}
	p.Session, p.State = session.ID, Reserved
	p.Created, p.Updated = t.Now, t.Now
	p.LeaseOwner, p.Waiter = owner, owner
	if err := t.stillApproved(h.Approval); err != nil {
		return err
	}
	if err := t.coveredByChain(h); err != nil {
		return err
	}
	if err := t.seenDelegated(h); err != nil {
		return err
	}
	if err := t.insert(p); err != nil {
		return err
	}
	if err := t.alerts.Held(t.Tx, *p, h.Decision.Caps, h.Low); err != nil {
		return err
	}
	return t.useApproval(h.Approval, *p)
}

// seenDelegated notes what a hold found delegated on the owner's token account, before it is spent. What a
// vault or an allowance lets be spent is not a sum that was put there.
func (t *tx) seenDelegated(h Hold) error {
	if h.Funds.Delegated == nil || !x402.IsSolana(h.Payment.Network) {
		return nil
	}
	_, err := t.noteDelegation(h.Payment.Network, h.Funds.Source, *h.Funds.Delegated)
	return err
}

func moved(what string) error { return fmt.Errorf("%w: %s", ErrMoved, what) }

// holdsStill refuses a payment, with ErrMoved, when anything that its decision rests on beside the
// session and the approval is no longer so. Time that passed is no reason: windows that have ended
// meanwhile are checked as they were, and rates only fall. What is used now it notes in the caps.
func (t *tx) holdsStill(d budget.Decision, p Payment) error {
	var windows []budget.Window
	for _, c := range d.Caps {
		if c.Window.Since.After(t.Now) {
			return moved("the clock was set back")
		}
		windows = append(windows, c.Window)
	}
	used, err := t.usedIn(windows...)
	if err != nil {
		return err
	}
	for i, c := range d.Caps {
		if used[i].Total().Add(p.Price) > c.Limit {
			return moved("a budget was used up")
		}
		d.Caps[i].Used = used[i].Total()
	}
	for _, limit := range d.Rates {
		n, err := t.countOf(limit)
		if err != nil {
			return err
		}
		if n >= limit.Max {
			return moved("others paid")
		}
	}
	if d.MaxFailures > 0 {
		n, err := t.consecutiveFailures(d.FailuresSince, d.MaxFailures)
		if err != nil {
			return err
		}
		if n >= d.MaxFailures {
			return moved("payments came to nothing")
		}
	}
	return t.sellerAsDecided(d, p)
}

// purchase finds the payment that this one would be again: of its agent's same idempotency key or, for
// resume, one of the same request that nobody waits for any more, perhaps since a moment ago.
func (t *tx) purchase(p Payment, resume bool) (*Payment, error) {
	if p.IdempotencyKey != "" {
		found, err := sqldb.Find(t.Tx, ScanPayment, SelectPayment+` WHERE idempotency_key = ? AND agent = ?
			AND state <> 'failed'`, p.IdempotencyKey, p.Agent)
		if found != nil || err != nil {
			return found, err
		}
	}
	if !resume {
		return nil, nil
	}
	const where = ` FROM payments WHERE fingerprint = ? AND (` + resumable + `) AND waiter = '' AND delivered = 0`
	found, err := t.Is(`SELECT EXISTS (SELECT 1`+where+`)`, p.Fingerprint[:])
	if !found {
		return nil, err
	}
	return sqldb.Find(t.Tx, ScanPayment, SelectPayment+` WHERE seq = (SELECT seq`+where+` LIMIT 1)`,
		p.Fingerprint[:])
}

// sessionFor is the session that a payment falls into: the one its decision was made for, or a new one.
func (t *tx) sessionFor(h Hold) (budget.Session, error) {
	current, err := t.session()
	if err != nil {
		return current, err
	}
	if current.ID != h.Decision.Session {
		return current, moved("a session began or ended")
	}
	if current.ID == "" {
		return t.newSession(h.SessionCap, nil)
	}
	_, err = t.Exec(`UPDATE sessions SET last_at = ? WHERE id = ?`, sqldb.Micros(t.Now), current.ID)
	return current, err
}

func (t *tx) newSession(newCap *money.Dollars, seal func(budget.Session) ([]byte, error)) (
	fresh budget.Session, err error) {
	now := sqldb.FromMicros(sqldb.Micros(t.Now))
	fresh = budget.Session{ID: RandomID("ses_"), Started: now, Last: now, Cap: newCap}
	var sealed []byte
	if seal != nil {
		if sealed, err = seal(fresh); err != nil {
			return fresh, err
		}
	}
	if _, err := t.Exec(`UPDATE sessions SET ended = 1 WHERE ended = 0`); err != nil {
		return fresh, err
	}
	_, err = t.Exec(`INSERT INTO sessions (id, started_at, last_at, cap, seal) VALUES (?, ?, ?, ?, ?)`,
		fresh.ID, sqldb.Micros(fresh.Started), sqldb.Micros(fresh.Last), (*int64)(newCap), sealed)
	if err != nil {
		return fresh, err
	}
	return fresh, t.audit(0, audit.SessionEvent, map[string]any{"id": fresh.ID, "cap": newCap,
		"seal": audit.Digest(sealed)})
}

// NewSession ends the session that is open and begins one. limit is the delegation's worth, where
// the owner set no cap. seal is called inside the transaction; nil leaves the session without one.
func (s *Store) NewSession(ctx context.Context, limit *money.Dollars,
	seal func(budget.Session) ([]byte, error)) (fresh budget.Session, err error) {
	err = s.tx(ctx, func(t *tx) error {
		if _, err := t.notBeforeLedger(); err != nil {
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
//
// What was deposited before is not in those figures any more, nor is a payment that spends it: what is left
// in a channel was compared by who alone uses it.
func (t *tx) coveredByChain(h Hold) error {
	if h.Payment.ByVoucher() {
		return nil
	}
	held, err := t.held(h.Payment, h.Funds.Source, h.Funds.ReadAt, math.MaxInt64)
	if err != nil {
		return err
	}
	if wanted, ok := held.Add(h.Payment.Amount); !ok || wanted.Cmp(h.Funds.Free) > 0 {
		return &ShortOfFunds{Free: h.Funds.Free, Held: held, Wanted: h.Payment.Amount}
	}
	return nil
}

// held is what payments of p's asset, up to a number, hold of a source or took from it since it was read.
func (t *tx) held(p Payment, source string, readAt time.Time, upTo int64) (held money.Amount, err error) {
	open := ` FROM (
		SELECT amount FROM payments WHERE source = ?1 AND asset = ?2 AND network = ?3 AND seq <= ?5
			AND state IN ('reserved', 'submitted', 'unknown') AND ` + notPrepaid + `
		UNION ALL
		SELECT amount FROM payments WHERE source = ?1 AND asset = ?2 AND network = ?3 AND seq <= ?5
			AND state = 'settled' AND updated_at >= ?4 AND ` + notPrepaid + `) AS open`
	args := []any{source, p.Asset, p.Network, sqldb.Micros(readAt), upTo}
	// amounts of 12 digits the database adds up, nine million of them
	var sum string
	var longer int
	err = t.Row(`SELECT CAST(coalesce(sum(CASE WHEN length(amount) <= 12 THEN CAST(amount AS BIGINT) ELSE 0 END), 0)
		AS TEXT), count(CASE WHEN length(amount) > 12 THEN 1 END)`+open, args...).Scan(&sum, &longer)
	if err != nil {
		return held, err
	}
	held, err = money.ParseAmount(sum)
	if err == nil && longer > 0 {
		err = t.Each(func(row sqldb.Row) error {
			var a money.Amount
			err := row.Scan(&a)
			held, _ = held.Add(a)
			return err
		}, `SELECT amount`+open+` WHERE length(amount) > 12`, args...)
	}
	return held, err
}

// notPrepaid leaves payments out that hold nothing of their source: see Payment.Prepaid.
const notPrepaid = `(usd > 0 OR scheme <> 'batch-settlement')`

// HeldUpTo is what payments of p's source and asset hold of it, up to p itself in the order in which they
// were made, and what they took from it since it was read.
func (s *Store) HeldUpTo(ctx context.Context, p Payment, readAt time.Time) (money.Amount, error) {
	return read(ctx, s, func(t *tx) (money.Amount, error) { return t.held(p, p.Source, readAt, p.Number) })
}

// OpenFrom is the unfinished payments out of a source, oldest first.
func (s *Store) OpenFrom(ctx context.Context, network, source string) ([]Payment, error) {
	return read(ctx, s, func(t *tx) ([]Payment, error) {
		return sqldb.Collect(t.Tx, ScanPayment, SelectPayment+` WHERE network = ? AND source = ? AND `+
			unfinished+` ORDER BY seq`, network, source)
	})
}

// HeldOn is what unfinished payments hold of a source, by asset address.
func (s *Store) HeldOn(ctx context.Context, network, source string) (map[string]money.Amount, error) {
	held := map[string]money.Amount{}
	err := s.view(ctx, func(t *tx) error {
		return t.Each(func(row sqldb.Row) error {
			var asset string
			var a money.Amount
			err := row.Scan(&asset, &a)
			held[asset], _ = held[asset].Add(a)
			return err
		}, `SELECT asset, amount FROM payments WHERE network = ? AND source = ?
			AND `+notPrepaid+` AND `+unfinished,
			network, source)
	})
	return held, err
}
