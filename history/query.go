package history

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"x402-wallet/x402/money"
)

const selectPayment = `SELECT id, session, state, proof, created_at, updated_at, fingerprint,
	coalesce(idempotency_key, ''), method, url, target, host, network, scheme, dialect, asset, symbol,
	amount, usd,
	pay_to, source, requirement, payload, coalesce(evidence, ''), transaction_id, facilitator,
	coalesce(receipt, ''),
	coalesce(chain_proof, ''), note, false_receipt, lease_owner, waiter, delivered FROM payments`

func scanPayment(row scanner) (p Payment, err error) {
	var created, updated int64
	var fingerprint, payload []byte
	var requirement, evidence, receipt, proof string
	err = row.Scan(&p.ID, &p.Session, &p.State, &p.Proof, &created, &updated, &fingerprint, &p.IdempotencyKey,
		&p.Method, &p.URL, &p.Target, &p.Host,
		&p.Network, &p.Scheme, &p.Dialect, &p.Asset, &p.Symbol, &p.Amount, &p.Price, &p.PayTo, &p.Source,
		&requirement, &payload, &evidence,
		&p.Transaction, &p.Facilitator, &receipt, &proof, &p.Note, &p.FalseReceipt, &p.LeaseOwner, &p.Waiter,
		&p.Delivered)
	if err != nil {
		return p, err
	}
	p.Created, p.Updated = fromMicros(created), fromMicros(updated)
	copy(p.Fingerprint[:], fingerprint)
	p.Requirement, p.Payload = raw(requirement), raw(string(payload))
	p.Receipt, p.ChainProof = raw(receipt), raw(proof)
	if evidence != "" {
		if err := json.Unmarshal([]byte(evidence), &p.Evidence); err != nil {
			return p, damaged("read the evidence of "+p.ID, err)
		}
	}
	return p, nil
}

func raw(text string) json.RawMessage {
	if text == "" {
		return nil
	}
	return json.RawMessage(text)
}

// ErrNotFound says that what was asked for is not in the ledger.
var ErrNotFound = errors.New("it is not in the ledger")

var (
	errNoPayment  = fmt.Errorf("no such payment: %w", ErrNotFound)
	errNoApproval = fmt.Errorf("no such approval: %w", ErrNotFound)
	errNoSale     = fmt.Errorf("no such sale: %w", ErrNotFound)
	errNoChannel  = fmt.Errorf("no such channel: %w", ErrNotFound)
	errNoSession  = fmt.Errorf("no such session: %w", ErrNotFound)
)

// Payment returns one payment, or ErrNotFound.
func (s *Store) Payment(ctx context.Context, id string) (p Payment, err error) {
	err = s.view(ctx, func(t *tx) error {
		p, err = scanPayment(t.row(selectPayment+` WHERE id = ?`, id))
		return none(err, errNoPayment)
	})
	return p, err
}

// Content returns what a payment bought; ErrNotFound when nothing is stored.
func (s *Store) Content(ctx context.Context, id string) (c Content, err error) {
	err = s.view(ctx, func(t *tx) error {
		err := t.row(`SELECT http_status, type, truncated, body FROM contents WHERE payment = ?`,
			id).Scan(&c.Status, &c.Type, &c.Truncated, &c.Body)
		return none(err, errNoPayment)
	})
	return c, err
}

// ByKey returns the payment that an idempotency key belongs to, or ErrNotFound.
func (s *Store) ByKey(ctx context.Context, key string) (Payment, error) {
	return s.one(ctx, ` WHERE idempotency_key = ? AND state <> 'failed'`, key)
}

// ByRequest returns the payments that the same request may take up, newest first: unfinished, or
// settled with an answer that no client got. It returns all of them: one that were left out would
// be paid again.
func (s *Store) ByRequest(ctx context.Context, fingerprint [32]byte) (list []Payment, err error) {
	return s.many(ctx, ` WHERE fingerprint = ? AND (`+resumable+`) ORDER BY seq DESC`, fingerprint[:])
}

// resumable is a payment that the same request may take up, as its index has it.
const resumable = `state IN ('reserved', 'submitted', 'unknown') OR state = 'settled' AND delivered = 0`

// Unfinished returns what reconciliation has to settle, oldest first.
func (s *Store) Unfinished(ctx context.Context, after string, limit int) ([]Payment, error) {
	return s.many(ctx, ` WHERE state IN ('reserved', 'submitted', 'unknown') AND seq > `+seqOf+
		` ORDER BY seq LIMIT ?`, after, limit)
}

// ExpiredFeePayers returns the fee payers of a network's payments since a time that were signed and
// never settled.
func (s *Store) ExpiredFeePayers(ctx context.Context, network string, since time.Time) (feePayers []string,
	err error) {
	err = s.view(ctx, func(t *tx) error {
		feePayers, err = collect(t, scanText,
			`SELECT DISTINCT json_extract(evidence, '$.feePayer') FROM payments
			WHERE created_at >= ? AND state = 'failed' AND network = ? AND json_extract(evidence,
			'$.feePayer') <> ''`,
			micros(since), network)
		return err
	})
	return feePayers, err
}

// Claimed returns settled payments that rest on a claim only, oldest first.
func (s *Store) Claimed(ctx context.Context, since time.Time, after string, limit int) ([]Payment, error) {
	return s.many(ctx, ` WHERE state = 'settled' AND proof = 'claimed' AND created_at >= ? AND seq > `+seqOf+
		` ORDER BY seq LIMIT ?`, micros(since), after, limit)
}

// seqOf is a payment's place; of none it is before the first.
const seqOf = `coalesce((SELECT seq FROM payments WHERE id = ?), 0)`

func (s *Store) one(ctx context.Context, where string, args ...any) (p Payment, err error) {
	list, err := s.many(ctx, where+" LIMIT 1", args...)
	if err == nil && len(list) == 0 {
		return p, errNoPayment
	}
	if err != nil {
		return p, err
	}
	return list[0], nil
}

func (s *Store) many(ctx context.Context, where string, args ...any) (list []Payment, err error) {
	err = s.view(ctx, func(t *tx) error {
		list, err = collect(t, scanPayment, selectPayment+where, args...)
		return err
	})
	return list, err
}

// Events returns a payment's part of the audit chain, oldest first.
func (s *Store) Events(ctx context.Context, id string) (list []Event, err error) {
	err = s.view(ctx, func(t *tx) error {
		list, err = collect(t, func(row scanner) (e Event, err error) {
			var at int64
			var detail string
			err = row.Scan(&at, &e.Event, &detail)
			e.At, e.Detail = fromMicros(at), json.RawMessage(detail)
			return e, err
		}, `SELECT at, event, detail FROM audit WHERE payment = ? ORDER BY seq`, id)
		return err
	})
	return list, err
}

// Prune deletes the content of payments made before a time, for space. The payments, their evidence
// and the audit chain stay.
func (s *Store) Prune(ctx context.Context, before time.Time) (deleted int64, err error) {
	err = s.tx(ctx, func(t *tx) error {
		done, err := t.exec(
			`DELETE FROM contents WHERE payment IN (
				SELECT id FROM payments WHERE created_at < ? AND (delivered = 1 OR state = 'failed'))`,
			micros(before))
		if err != nil {
			return err
		}
		deleted, err = done.RowsAffected()
		return err
	})
	return deleted, err
}

// RecordDelegation notes what is delegated on a token account now, and returns the largest amount
// ever noted.
func (s *Store) RecordDelegation(ctx context.Context, network, account string,
	now money.Amount) (largest money.Amount, err error) {
	err = s.tx(ctx, func(t *tx) error {
		err := t.row(`SELECT largest FROM delegations WHERE network = ? AND account = ?`, network,
			account).Scan(&largest)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if now.Cmp(largest) <= 0 {
			return nil
		}
		largest = now
		_, err = t.exec(
			`INSERT INTO delegations VALUES (?, ?, ?)
				ON CONFLICT (network, account) DO UPDATE SET largest = excluded.largest`, network, account,
			now)
		return err
	})
	return largest, err
}
