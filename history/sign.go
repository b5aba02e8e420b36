package history

import (
	"bytes"
	"context"
	"crypto/hmac"
	"encoding/json"
	"errors"
	"fmt"

	"x402-wallet/x402"
)

// ErrSignedBefore says that the same signature or nonce is in the ledger already. Nothing was changed.
var ErrSignedBefore = errors.New("a payment with this nonce or signature is in the ledger already")

// Signed is a payment that is ready to leave.
type Signed struct {
	Payload     json.RawMessage // the signed bytes
	Requirement json.RawMessage // what a facilitator is sent with them
	Evidence    x402.Evidence   // what the chain will be asked by
	UniqueKey   string          // its nonce or our signature: unique
}

// Submit puts a signed payment on disk: reserved → submitted, by the process that owns its lease.
// Only when it returns nil may a byte of it leave the process. Else the signature is dropped and
// the hold released: ErrSignedBefore, ErrNotLeaseOwner, ErrTransition, ErrNotFound, WALLET_FROZEN
// for a freeze since the money was held, LEDGER_CORRUPT where ledger.db is no longer in its place or
// says something else than what this wallet sealed; k.Permit's own.
//
// p is the payment as the caller signed for it. The signature is recorded as by Sign, which the unlock
// agent may have done already: then only what it did not know is added, and k is asked nothing.
func (s *Store) Submit(ctx context.Context, p Payment, signed Signed, k Keyholder) error {
	if err := s.InPlace(); err != nil {
		return err
	}
	return s.tx(ctx, func(t *tx) error { return t.submit(p, s.Self(), signed, nil, k) })
}

func (t *tx) submit(p Payment, process string, signed Signed, step *channelStep, k Keyholder) error {
	id := p.ID
	row, err := t.leasedBy(id, process)
	if err != nil {
		return err
	}
	byAgent, err := t.signedByAgent(row, signed)
	if err != nil {
		return err
	}
	if byAgent {
		if err := t.notFrozen(row.Network, row.Source); err != nil {
			return err
		}
		_, err = t.exec(`UPDATE payments SET payload = ?, requirement = ? WHERE seq = ?`,
			[]byte(signed.Payload), string(signed.Requirement), row.Number)
	} else {
		err = t.sign(row, p, signed, digestOf(signed.Payload), step, k)
	}
	if err != nil {
		return err
	}
	return t.audit(id, string(Submitted), map[string]any{"payload": digestOf(signed.Payload),
		"requirement": digestOf(signed.Requirement)})
}

// signedByAgent reports whether a payment has this very signature, and nothing to send yet.
func (t *tx) signedByAgent(p Payment, signed Signed) (is bool, err error) {
	if p.State != Submitted || p.Payload != nil {
		return false, nil
	}
	err = t.row(`SELECT coalesce(unique_key = ? AND evidence = ?, 0) FROM payments WHERE seq = ?`, signed.UniqueKey,
		toJSON(signed.Evidence), p.Number).Scan(&is)
	return is, err
}

// Sign records a signature before whoever holds the key hands it out: reserved → submitted. The
// payment is as it was reserved on the chain, the chain goes on from what this wallet sealed last,
// the tables are what it says, and the owner's rules let the payment pass by that alone. p is the
// payment that the message, which was signed, was compared with. The payload is Submit's, later.
func (s *Store) Sign(ctx context.Context, p Payment, signed Signed, message []byte, k Keyholder) error {
	if err := s.InPlace(); err != nil {
		return err
	}
	signed.Payload, signed.Requirement = nil, nil
	return s.tx(ctx, func(t *tx) error {
		row, err := scanPayment(t.row(selectPayment+` WHERE id = ?`, p.ID))
		if err != nil {
			return none(err, errNoPayment)
		}
		return t.sign(row, p, signed, digestOf(message), nil, k)
	})
}

// sign records the signature of a payment, as it was read in this transaction and as it was signed; step is
// what it makes of a channel, or nil.
func (t *tx) sign(p, asSigned Payment, signed Signed, signedBytes string, step *channelStep,
	k Keyholder) error {
	id := asSigned.ID
	if err := t.sameFormat(); err != nil {
		return err
	}
	var n int
	err := t.row(`SELECT count(*) FROM payments WHERE unique_key = ?`, signed.UniqueKey).Scan(&n)
	if err != nil {
		return err
	}
	if n > 0 {
		return ErrSignedBefore
	}
	if p.State != Reserved {
		return fmt.Errorf("%w: %s is %s", ErrTransition, id, p.State)
	}
	if k.MAC == nil {
		return x402.Errorf(x402.WalletLocked, "nobody who holds the key recorded this signature")
	}
	if p.digest() != asSigned.digest() {
		return corrupt("payment %s is not the one that was signed", id)
	}
	if err := t.notFrozen(p.Network, p.Source); err != nil { // since the money was held
		return err
	}
	p.Evidence = signed.Evidence
	g := p.signature()
	g.Unique, g.SignedBytes = signed.UniqueKey, signedBytes
	last, err := t.permitted(p, &g, k)
	if err != nil {
		return err
	}
	last.add(g)
	if step != nil {
		if err := step.from.wasLeft(last.memory, step.to); err != nil {
			return err
		}
		g.Voucher = step.to.voucher()
	}
	if err := remember(last.memory, p.ID, g); err != nil {
		return err
	}
	_, err = t.exec(`UPDATE payments SET state = 'submitted', updated_at = ?, evidence = ?, unique_key = ?,
		payload = ?, requirement = coalesce(?, requirement) WHERE seq = ?`, micros(t.Now),
		toJSON(signed.Evidence), signed.UniqueKey, []byte(signed.Payload),
		nullable(string(signed.Requirement)), p.Number)
	if err != nil {
		return err
	}
	return t.seal(k, last, id, signedEvent, g)
}

// signature is what a payment's row says of its signature.
func (p Payment) signature() signature {
	return signature{Session: p.Session, Created: micros(p.Created), Host: p.Host, Network: p.Network,
		Asset: p.Asset, PayTo: p.PayTo, Amount: p.Amount, Price: p.Price, Resource: p.Resource(),
		Key: p.IdempotencyKey, Evidence: digestOf([]byte(toJSON(p.Evidence)))}
}

// permitted is the sums that a signature is added to, if the payment may be signed.
func (t *tx) permitted(p Payment, g *signature, k Keyholder) (*sealed, error) {
	row, err := t.reservedAs(p)
	if err != nil {
		return nil, err
	}
	last, err := t.lastSealed(k, &row)
	if err != nil {
		return nil, err
	}
	g.Number = p.Number
	if !last.knows(p.Created) {
		return nil, tooLate()
	}
	if err := t.sameSession(last, p, k); err != nil {
		return nil, err
	}
	err = last.memory.load(keysOf(remembered(p.ID, *g))...)
	if err != nil {
		return nil, err
	}
	query := k.Query(p)
	if err := t.compare(last, p, query.HostEntries); err != nil {
		return nil, err
	}
	if err := t.keyIsFree(last.memory, p); err != nil {
		return nil, err
	}
	facts, err := t.sealedFacts(last, p, query)
	if err != nil {
		return nil, err
	}
	g.SessionCap = facts.Session.Cap
	return last, k.Permit(p, facts)
}

// reservedAs is the row of the chain that says how a payment was reserved, which it has to be still.
func (t *tx) reservedAs(p Payment) (r auditRow, err error) {
	r.payment, r.event = p.ID, string(Reserved)
	err = t.row(`SELECT seq, at, detail FROM audit WHERE payment = ? AND event = 'reserved'
		ORDER BY seq LIMIT 1`, p.ID).Scan(&r.seq, &r.at, &r.detail)
	if err != nil {
		return r, none(err, corrupt("the audit chain has no reservation of payment %s", p.ID))
	}
	var d struct {
		Row string `json:"row"`
	}
	if json.Unmarshal([]byte(r.detail), &d) != nil || d.Row != p.digest() || r.at != micros(p.Created) {
		return r, corrupt("payment %s is not the one that was reserved", p.ID)
	}
	return r, nil
}

// ErrUnsealed says that only a process that holds the key may record that a signature expired: what
// was signed counts until then.
var ErrUnsealed = errors.New("that a signed payment expired is recorded by who holds the key")

// Expiry is the outcome of a payment of which the chain showed that it can never settle.
func Expiry(p Payment, status x402.Status) Outcome {
	return Outcome{State: Failed, ChainProof: status, Note: status.Note, FalseReceipt: p.State == Settled,
		Receipt: p.Receipt}
}

// Expire records that what was signed can never settle: → failed, and its money is free again.
// asked is what the chain was asked by, which has to be what was signed. Errors are Finish's and,
// for k, Submit's.
func (s *Store) Expire(ctx context.Context, id string, asked x402.Evidence, o Outcome,
	k Keyholder) (p Payment, err error) {
	err = s.tx(ctx, func(t *tx) error {
		g, err := t.signatureOf(id, k)
		if err != nil {
			return err
		}
		if g.Evidence != digestOf([]byte(toJSON(asked))) {
			return corrupt("payment %s was asked after by something else than what was signed", id)
		}
		last, err := t.lastSealed(k, nil)
		if err != nil {
			return err
		}
		if err := t.expiresOnce(last.memory, id); err != nil {
			return err
		}
		last.subtract(g)
		if g.Key != "" {
			if err := last.memory.put(idempotencyKey(g.Key), nil); err != nil {
				return err
			}
		}
		if err := t.seal(k, last, id, expiredEvent, map[string]any{"n": g.Number}); err != nil {
			return err
		}
		p, err = t.outcomeSealed(id, o)
		return err
	})
	return p, err
}

// expiresOnce remembers that a signature expired: its money is given back once, also where somebody
// wrote into the ledger that it had not been yet.
func (t *tx) expiresOnce(m *memory, id string) error {
	var state State
	if err := t.row(`SELECT state FROM payments WHERE id = ?`, id).Scan(&state); err != nil {
		return none(err, errNoPayment)
	}
	if state == Failed { // another process was faster
		return fmt.Errorf("%w: %s is %s", ErrTransition, id, state)
	}
	before, err := m.get(expiredKey(id))
	if err != nil {
		return err
	}
	if before != nil {
		return corrupt("payment %s expired already, and is %s", id, state)
	}
	return m.put(expiredKey(id), []byte{1})
}

// signatureOf is what this wallet sealed of a payment when it signed it.
func (t *tx) signatureOf(id string, k Keyholder) (g signature, err error) {
	var at, seq int64
	var detail string
	var hash, previous, seal []byte
	err = t.row(`SELECT seq, at, detail, hash, coalesce(seal, '') FROM audit
		WHERE payment = ? AND event = 'signed' ORDER BY seq DESC LIMIT 1`, id).
		Scan(&seq, &at, &detail, &hash, &seal)
	if err != nil {
		return g, none(err, corrupt("the audit chain has no signature of payment %s", id))
	}
	if err := t.row(`SELECT hash FROM audit WHERE seq = ?`, seq-1).Scan(&previous); err != nil {
		return g, none(err, corrupt("event %d is not in it", seq-1))
	}
	own, err := k.MAC(rowData(hash))
	if err != nil {
		return g, err
	}
	if !hmac.Equal(own, seal) || !bytes.Equal(hash, link(previous, at, id, signedEvent, detail)) ||
		json.Unmarshal([]byte(detail), &g) != nil {
		return g, corrupt("event %d, the signature of payment %s, is not sealed by this wallet", seq, id)
	}
	return g, nil
}
