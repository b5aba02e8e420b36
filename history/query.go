package history

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"x402-wallet/history/internal/audit"
	"x402-wallet/history/sqldb"
	"x402-wallet/x402/money"
)

// paymentColumns are all but the evidence.
const paymentColumns = `seq, id, session, state, proof, created_at, updated_at, fingerprint,
	coalesce(idempotency_key, ''), method, url, target, host, network, scheme, dialect, asset, symbol,
	amount, usd, pay_to, source, transaction_id, facilitator, note, false_receipt, lease_owner, waiter,
	delivered, charged, returned, agent`

// What ScanPayment reads: a payment, or all of it but the evidence.
const (
	SelectPayment = `SELECT ` + paymentColumns + `, requirement, payload, evidence, receipt, chain_proof
		FROM payments`
	SelectBrief = `SELECT ` + paymentColumns + `, NULL, NULL, NULL, NULL, NULL FROM payments`
)

// ScanPayment reads a row of SelectPayment or SelectBrief.
func ScanPayment(row sqldb.Row) (p Payment, err error) {
	var created, updated int64
	var fingerprint, evidence []byte
	var charged string
	err = row.Scan(&p.Number, &p.ID, &p.Session, &p.State, &p.Proof, &created, &updated, &fingerprint,
		&p.IdempotencyKey, &p.Method, &p.URL, &p.Target, &p.Host, &p.Network, &p.Scheme, &p.Dialect, &p.Asset,
		&p.Symbol, &p.Amount, &p.Price, &p.PayTo, &p.Source, &p.Transaction, &p.Facilitator, &p.Note,
		&p.FalseReceipt, &p.LeaseOwner, &p.Waiter, &p.Delivered, &charged, &p.Returned, &p.Agent,
		(*[]byte)(&p.Requirement), (*[]byte)(&p.Payload), &evidence, (*[]byte)(&p.Receipt),
		(*[]byte)(&p.ChainProof))
	p.Created, p.Updated = sqldb.FromMicros(created), sqldb.FromMicros(updated)
	copy(p.Fingerprint[:], fingerprint)
	if charged != "" && err == nil {
		err = p.setCharged(charged)
	}
	if evidence != nil && err == nil && json.Unmarshal(evidence, &p.Evidence) != nil {
		err = sqldb.Damaged("read "+p.ID, errors.New("its evidence is no JSON"))
	}
	return p, err
}

func raw(text string) json.RawMessage {
	if text == "" {
		return nil
	}
	return json.RawMessage(text)
}

// brief reads a payment without its evidence.
func (t *tx) brief(id string) (Payment, error) {
	p, err := ScanPayment(t.Row(SelectBrief+` WHERE id = ?`, id))
	return p, sqldb.Otherwise(err, errNoPayment)
}

// ErrNotFound says that what was asked for is not in the ledger.
var ErrNotFound = errors.New("it is not in the ledger")

var (
	errNoPayment  = fmt.Errorf("no such payment: %w", ErrNotFound)
	errNoApproval = fmt.Errorf("no such approval: %w", ErrNotFound)
	errNoChannel  = fmt.Errorf("no such channel: %w", ErrNotFound)
)

// Payment returns one payment, or ErrNotFound.
func (s *Store) Payment(ctx context.Context, id string) (Payment, error) {
	return s.one(ctx, ` WHERE id = ?`, id)
}

// ByKey returns the payment that an agent's idempotency key belongs to, or ErrNotFound.
func (s *Store) ByKey(ctx context.Context, agent, key string) (Payment, error) {
	return s.one(ctx, ` WHERE idempotency_key = ? AND agent = ? AND state <> 'failed'`, key, agent)
}

func (s *Store) one(ctx context.Context, where string, args ...any) (Payment, error) {
	return readOnce(ctx, s, func(t *tx) (Payment, error) {
		p, err := ScanPayment(t.Row(SelectPayment+where, args...))
		return p, sqldb.Otherwise(err, errNoPayment)
	})
}

// ByRequest returns the payments that the same request may take up, newest first: unfinished, or
// settled with an answer that no client got. It returns all of them: one that were left out would
// be paid again.
func (s *Store) ByRequest(ctx context.Context, fingerprint [32]byte) (list []Payment, err error) {
	return s.many(ctx, ` WHERE fingerprint = ? AND (`+resumable+`) ORDER BY seq DESC`, fingerprint[:])
}

// resumable is a payment that the same request may take up, as its index has it.
const resumable = unfinished + ` OR state = 'settled' AND delivered = 0`

// unfinished is a payment whose money is held, as its indexes have it.
const unfinished = `state IN ('reserved', 'submitted', 'unknown')`

// Unfinished returns what reconciliation has to settle, oldest first.
func (s *Store) Unfinished(ctx context.Context, after string, limit int) ([]Payment, error) {
	return s.many(ctx, ` WHERE `+unfinished+` AND seq > `+seqOf+` ORDER BY seq LIMIT ?`, after, limit)
}

// Recent returns the last payments, newest first.
func (s *Store) Recent(ctx context.Context, limit int) ([]Payment, error) {
	return s.many(ctx, ` ORDER BY seq DESC LIMIT ?`, limit)
}

// RecentAt returns an agent's payments at a host among the last 10,000, newest first.
func (s *Store) RecentAt(ctx context.Context, agent, host string, limit int) ([]Payment, error) {
	return s.many(ctx, ` WHERE seq > (SELECT max(seq) FROM payments) - 10000 AND agent = ? AND host = ?
		ORDER BY seq DESC LIMIT ?`, agent, host, limit)
}

// Expired returns a network's payments since a time that were signed and never settled.
func (s *Store) Expired(ctx context.Context, network string, since time.Time) ([]Payment, error) {
	return s.many(ctx, ` WHERE created_at >= ? AND state = 'failed' AND network = ?
		AND unique_key IS NOT NULL`, sqldb.Micros(since), network)
}

// Claimed returns settled payments that rest on a claim only, oldest first.
func (s *Store) Claimed(ctx context.Context, since time.Time, after string, limit int) ([]Payment, error) {
	return s.many(ctx, ` WHERE state = 'settled' AND proof = 'claimed' AND created_at >= ? AND seq > `+seqOf+
		` ORDER BY seq LIMIT ?`, sqldb.Micros(since), after, limit)
}

// seqOf is a payment's place; of none it is before the first.
const seqOf = `coalesce((SELECT seq FROM payments WHERE id = ?), 0)`

func (s *Store) many(ctx context.Context, where string, args ...any) ([]Payment, error) {
	return read(ctx, s, func(t *tx) ([]Payment, error) {
		return sqldb.Collect(t.Tx, ScanPayment, SelectPayment+where, args...)
	})
}

// RecordDelegation notes what is delegated on a token account now, and returns the largest ever noted.
func (s *Store) RecordDelegation(ctx context.Context, network, account string,
	now money.Amount) (largest money.Amount, err error) {
	err = s.tx(ctx, func(t *tx) error {
		largest, err = t.noteDelegation(network, account, now)
		return err
	})
	return largest, err
}

func (t *tx) noteDelegation(network, account string, now money.Amount) (largest money.Amount, err error) {
	err = t.Row(`SELECT largest FROM delegations WHERE network = ? AND account = ?`, network, account).
		Scan(&largest)
	if sqldb.Otherwise(err, nil) != nil || now.Cmp(largest) <= 0 {
		return largest, sqldb.Otherwise(err, nil)
	}
	_, err = t.Exec(`INSERT INTO delegations VALUES (?, ?, ?) ON CONFLICT (network, account)
		DO UPDATE SET largest = excluded.largest`, network, account, now)
	if err != nil {
		return largest, err
	}
	return now, t.audit(0, audit.DelegationEvent,
		map[string]any{"network": network, "account": account, "largest": now})
}
