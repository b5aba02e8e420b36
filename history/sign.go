package history

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"

	"x402-wallet/history/internal/audit"
	"x402-wallet/history/internal/memory"
	"x402-wallet/history/internal/seals"
	"x402-wallet/history/sqldb"
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
	Channel     *Channel        // of batch-settlement: the channel as this signature leaves it; nil: none
}

// record is what the ledger keeps of a signed payment.
type record struct {
	requirement, payload string
	evidence             string // what the chain is asked by
	unique               []byte
}

func (s Signed) record() record {
	return record{string(s.Requirement), string(s.Payload), audit.JSON(s.Evidence), uniqueHash(s.UniqueKey)}
}

func (r record) digest() string { return audit.StoredDigest(r.requirement, r.payload, r.evidence) }

// uniqueHash is what a row has of a nonce or signature: enough that no two are the same.
func uniqueHash(key string) []byte {
	sum := sha256.Sum256([]byte(key))
	return sum[:16]
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
	return s.tx(ctx, func(t *tx) error { return t.submit(p, s.Self(), signed, k) })
}

func (t *tx) submit(p Payment, process string, signed Signed, k Keyholder) error {
	record := signed.record()
	row, err := t.leasedBy(p.ID, process)
	if err != nil {
		return err
	}
	byAgent, err := t.signedByAgent(row, signed)
	if err != nil {
		return err
	}
	if !byAgent {
		step, err := t.channelStep(signed.Channel)
		if err != nil {
			return err
		}
		return t.sign(row, p, record, seals.Signature{Submitted: true}, step, k)
	}
	// The unlock agent has recorded the channel's next voucher, too.
	if err := t.notFrozen(row.Network, row.Source); err != nil {
		return err
	}
	_, err = t.Exec(`UPDATE payments SET requirement = ?, payload = ?, evidence = ? WHERE seq = ?`,
		record.requirement, nullable(record.payload), record.evidence, row.Number)
	if err != nil {
		return err
	}
	return t.audit(row.Number, string(Submitted), map[string]string{"stored": record.digest()})
}

// signedByAgent reports whether a payment has this very signature, and nothing to send yet.
func (t *tx) signedByAgent(p Payment, signed Signed) (bool, error) {
	if p.State != Submitted {
		return false, nil
	}
	is, err := sqldb.Find(t.Tx, ScanPayment, SelectPayment+` WHERE seq = ? AND unique_key = ?`, p.Number,
		uniqueHash(signed.UniqueKey))
	return is != nil && is.Payload == nil && audit.JSON(is.Evidence) == audit.JSON(signed.Evidence), err
}

// Sign records a signature before whoever holds the key hands it out: reserved → submitted. The
// payment is as it was reserved on the chain, the chain goes on from what this wallet sealed last,
// the tables are what it says, and the owner's rules let the payment pass by that alone. p is the
// payment that the message, which was signed, was compared with. The payload is Submit's, later.
func (s *Store) Sign(ctx context.Context, p Payment, signed Signed, message []byte, k Keyholder) error {
	if err := s.InPlace(); err != nil {
		return err
	}
	return s.tx(ctx, func(t *tx) error {
		row, err := ScanPayment(t.Row(SelectPayment+` WHERE id = ?`, p.ID))
		if err != nil {
			return sqldb.Otherwise(err, errNoPayment)
		}
		signed.Payload, signed.Requirement = nil, row.Requirement
		step, err := t.channelStep(signed.Channel)
		if err != nil {
			return err
		}
		return t.sign(row, p, signed.record(), seals.Signature{SignedBytes: audit.Digest(message)}, step, k)
	})
}

func errNobodyRecorded() error {
	return x402.Errorf(x402.WalletLocked, "nobody who holds the key recorded this signature")
}

// sign records the signature of a payment, as it was read in this transaction and as it was signed. g says
// what was signed, and whether it may be sent now; step is what it makes of a channel, or nil.
func (t *tx) sign(p, asSigned Payment, record record, g seals.Signature, step *Step,
	k Keyholder) error {
	if err := t.readEnds(); err != nil {
		return err
	}
	var n int
	err := t.Row(`SELECT count(*) FROM payments WHERE unique_key = ?`, record.unique).Scan(&n)
	if err != nil {
		return err
	}
	if n > 0 {
		return ErrSignedBefore
	}
	if p.State != Reserved {
		return fmt.Errorf("%w: %s is %s", ErrTransition, p.ID, p.State)
	}
	if k.MAC == nil {
		return errNobodyRecorded()
	}
	g.Row = p.digest()
	if g.Row != asSigned.digest() {
		return audit.Corrupt("payment %s is not the one that was signed", p.ID)
	}
	if err := t.ownFreezes(k); err != nil {
		return err
	}
	if err := t.notFrozen(p.Network, p.Source); err != nil { // since the money was held
		return err
	}
	g.ID, g.Created, g.Key = p.ID, sqldb.Micros(p.Created), p.IdempotencyKey
	g.Unique, g.Evidence = audit.EncodeDigest(record.unique), audit.Digest([]byte(record.evidence))
	g.Stored, g.Terms = record.digest(), p.terms()
	last, err := t.permitted(p, &g, step, k)
	if err != nil {
		return err
	}
	last.Add(g)
	if err := remember(last.memory, g); err != nil {
		return err
	}
	_, err = t.Exec(`UPDATE payments SET state = 'submitted', updated_at = ?, unique_key = ?,
		requirement = ?, payload = ?, evidence = ? WHERE seq = ?`, sqldb.Micros(t.Now), record.unique,
		record.requirement, nullable(record.payload), record.evidence, p.Number)
	if err != nil {
		return err
	}
	if err := t.seal(k, last, p.Number, audit.SignedEvent, g); err != nil || step == nil {
		return err
	}
	return t.putChannel(step.To)
}

// permitted is the sums that a signature is added to, if the payment may be signed.
func (t *tx) permitted(p Payment, g *seals.Signature, step *Step, k Keyholder) (*sealed, error) {
	row, err := t.reservedAs(p, g.Row)
	if err != nil {
		return nil, err
	}
	last, err := t.lastSealed(k, &row)
	if err != nil {
		return nil, err
	}
	if !last.Knows(p.Created) {
		return nil, tooLate()
	}
	if err := t.sameSession(last, p, k); err != nil {
		return nil, err
	}
	query := k.Query(p)
	if err := t.compare(last, p, query); err != nil {
		return nil, err
	}
	var keys [][]byte // of all that is looked up below, read at once
	for _, e := range g.Remembered() {
		keys = append(keys, e.Key)
	}
	if err := last.memory.Load(keys...); err != nil {
		return nil, err
	}
	if err := t.keyIsFree(last.memory, p); err != nil {
		return nil, err
	}
	facts, err := t.sealedFacts(last, p, query, k)
	if err != nil {
		return nil, err
	}
	g.SessionCap = facts.Session.Cap
	if step != nil {
		if err := step.follows(last.memory.Get); err != nil {
			return nil, err
		}
		g.Voucher = step.To.voucher()
	}
	recall := func(name string) ([]byte, error) { return last.memory.Get(seals.FactKey(name)) }
	g.Fact, err = k.Permit(p, facts, Sealed{Channel: step, Recall: recall})
	return last, err
}

// reservedAs is the row of the chain that says how a payment was reserved, which it has to be still by its
// digest.
func (t *tx) reservedAs(p Payment, digest string) (r audit.Row, err error) {
	r.Payment, r.Event = p.Number, string(Reserved)
	err = t.Row(`SELECT seq, at, detail FROM audit WHERE payment = ? AND event = 'reserved'
		ORDER BY seq LIMIT 1`, p.Number).Scan(&r.Seq, &r.At, &r.Detail)
	if err != nil {
		return r, sqldb.Otherwise(err,
			audit.Corrupt("the audit chain has no reservation of payment %s", p.ID))
	}
	d, err := audit.ReadStep(r.Detail)
	if err != nil || d.Row != digest || r.At != sqldb.Micros(p.Created) {
		return r, audit.Corrupt("payment %s is not the one that was reserved", p.ID)
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

// Settlement is the outcome of a payment of which the chain showed that it settled.
func Settlement(status x402.Status) Outcome {
	return Outcome{State: Settled, Proof: Chain, Transaction: status.Transaction, ChainProof: status,
		Note: status.Note}
}

// signedAs is a payment as it stands and its signature, if read, by which the chain was asked before, is what
// was signed: the row may have been another one then.
func (t *tx) signedAs(read Payment, k Keyholder) (p Payment, g seals.Signature, err error) {
	if p, err = t.brief(read.ID); err != nil {
		return p, g, err
	}
	if g, err = t.signatureOf(p, k); err != nil {
		return p, g, err
	}
	if g.Row != read.digest() || g.Evidence != audit.Digest([]byte(audit.JSON(read.Evidence))) {
		return p, g, audit.Corrupt("payment %s was asked after by something else than what was signed",
			read.ID)
	}
	return p, g, nil
}

// Expire records that what was signed can never settle: → failed, and its money is free again.
// read is the payment as the caller read it before it asked the chain, which has to be what was signed.
// Errors are Finish's and, for k, Submit's.
func (s *Store) Expire(ctx context.Context, read Payment, o Outcome, k Keyholder) (p Payment, err error) {
	id := read.ID
	err = s.tx(ctx, func(t *tx) error {
		before, g, err := t.signedAs(read, k)
		if err != nil {
			return err
		}
		if before.FromOwners() && !before.Prepaid() {
			return x402.Errorf(x402.PolicyDenied, "payment %s promised something out of a channel that an "+
				"owner funds: that counts for good", id).
				WithHint("the channel can be funded again, and then it can be claimed")
		}
		last, err := t.lastSealed(k, nil)
		if err != nil {
			return err
		}
		if err := before.expiresOnce(last.memory); err != nil {
			return err
		}
		last.Lower(g, g.Price)
		if g.Key != "" {
			if err := last.memory.Put(seals.IdempotencyKey(g.Agent, g.Key), nil); err != nil {
				return err
			}
		}
		err = t.seal(k, last, before.Number, audit.ExpiredEvent,
			seals.GivenBack{Unique: g.Unique, Signature: g})
		if err != nil {
			return err
		}
		p, err = t.outcome(id, o)
		return err
	})
	return p, err
}

// expiresOnce remembers that a signature expired: its money is given back once, also where somebody
// wrote into the ledger that it had not been yet.
func (p Payment) expiresOnce(m *memory.Memory) error {
	if p.State == Failed { // another process was faster
		return fmt.Errorf("%w: %s is %s", ErrTransition, p.ID, p.State)
	}
	expired, err := m.Get(seals.ExpiredKey(p.ID))
	if err != nil {
		return err
	}
	charged, err := m.Get(seals.ChargedKey(p.ID))
	switch {
	case err != nil:
		return err
	case expired == nil && charged != nil && p.Charged != nil: // likewise: the chain said that it settled
		return fmt.Errorf("%w: %s was charged", ErrTransition, p.ID)
	case expired != nil || charged != nil:
		return audit.Corrupt("payment %s expired already, or was charged, and is %s", p.ID, p.State)
	}
	return m.Put(seals.ExpiredKey(p.ID), []byte{1})
}

// signatureOf is what this wallet sealed of a payment when it signed it.
func (t *tx) signatureOf(p Payment, k Keyholder) (g seals.Signature, err error) {
	r := audit.Row{Payment: p.Number, Event: audit.SignedEvent}
	var previous []byte
	err = t.Row(`SELECT seq, at, detail, hash, coalesce(seal, '') FROM audit
		WHERE payment = ? AND event = 'signed' ORDER BY seq DESC LIMIT 1`, p.Number).
		Scan(&r.Seq, &r.At, &r.Detail, &r.Hash, &r.Seal)
	if err != nil {
		return g, sqldb.Otherwise(err, audit.Corrupt("the audit chain has no signature of payment %s", p.ID))
	}
	if err := t.Row(`SELECT hash FROM audit WHERE seq = ?`, r.Seq-1).Scan(&previous); err != nil {
		return g, sqldb.Otherwise(err, audit.Corrupt("event %d is not in it", r.Seq-1))
	}
	own, err := k.MAC(audit.SealData(r.Hash))
	if err != nil {
		return g, err
	}
	g, err = seals.Read[seals.Signature](r.Detail)
	if err != nil || !hmac.Equal(own, r.Seal) || !bytes.Equal(r.Hash, r.Linked(previous)) {
		return g, audit.Corrupt("event %d, the signature of payment %s, is not sealed by this wallet",
			r.Seq, p.ID)
	}
	if g.Row != p.digest() || g.Terms != p.terms() || g.ID != p.ID {
		return g, audit.Corrupt("payment %s is not the one that was signed", p.ID)
	}
	return g, nil
}
