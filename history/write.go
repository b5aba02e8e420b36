package history

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"x402-wallet/budget"
	"x402-wallet/history/internal/audit"
	"x402-wallet/history/sqldb"
)

func (t *tx) insert(p *Payment) error {
	if err := t.readEnds(); err != nil {
		return err
	}
	p.Number = t.known.last + 1
	_, err := t.Exec(
		`INSERT INTO payments (seq, id, session, state, created_at, updated_at, fingerprint, idempotency_key,
			method, url, target, host, network, scheme, dialect, asset, symbol, amount, usd, pay_to, source,
			requirement, lease_owner, waiter, agent)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		p.Number,
		p.ID,
		p.Session,
		p.State,
		sqldb.Micros(p.Created),
		sqldb.Micros(p.Updated),
		p.Fingerprint[:],
		nullable(p.IdempotencyKey),
		p.Method,
		p.URL,
		p.Target,
		p.Host,
		p.Network,
		p.Scheme,
		p.Dialect,
		p.Asset,
		p.Symbol,
		p.Amount,
		int64(p.Price),
		p.PayTo,
		p.Source,
		string(p.Requirement),
		p.LeaseOwner,
		p.Waiter,
		p.Agent,
	)
	if err != nil {
		return err
	}
	t.known.last, t.known.newest = p.Number, max(t.known.newest, sqldb.Micros(p.Created))
	if err := t.recount(*p, budget.Use{}, p.State.counts(p.Price)); err != nil {
		return err
	}
	return t.audit(p.Number, string(Reserved), audit.ReservedDetail{Row: p.digest(), Key: p.IdempotencyKey,
		Stored: audit.StoredDigest(string(p.Requirement), "", "")})
}

// digest is over the columns of a payment that never change.
func (p Payment) digest() string {
	return audit.EncodeDigest(audit.Link(nil, int64(p.Price), p.ID, p.Session, string(p.Fingerprint[:]),
		p.Method, p.URL, p.Target, p.Host, p.Network, p.Scheme, string(p.Dialect), p.Asset, p.Symbol,
		p.Amount.String(), p.PayTo, p.Source, p.Agent))
}

func nullable(s string) sql.NullString { return sql.NullString{String: s, Valid: s != ""} }

// Release ends a hold of which nothing was signed: reserved → failed, by the process that owns its lease
// (else ErrNotLeaseOwner). Once it was signed it is ErrTransition, because only the chain can say that
// what was signed expired. why is kept. A person's approval is good again, for the time it was given.
func (s *Store) Release(ctx context.Context, id, why string) error {
	return s.tx(ctx, func(t *tx) error {
		p, err := t.leasedBy(id, s.Self())
		if err != nil {
			return err
		}
		if p.State != Reserved { // signed bytes have expired when the chain says so
			return fmt.Errorf("%w: %s is %s", ErrTransition, id, p.State)
		}
		if err := t.returnApproval(p); err != nil {
			return err
		}
		return t.move(p, Failed, audit.JSON(map[string]string{"why": why}),
			`note = ?, lease_owner = '', waiter = ''`, why)
	})
}

// Outcome is what became known of a payment after it was submitted.
type Outcome struct {
	State        State
	Proof        Proof
	Transaction  string
	Settling     Settling
	Receipt      json.RawMessage // the claim as it came; nil keeps what is there
	ChainProof   any             // the chain's answer; nil keeps what is there
	Note         string
	FalseReceipt bool
	Content      *Content // nil keeps what is there
	ReleaseLease bool     // this process is done with it
	ClearWaiter  bool     // and nobody waits for what was bought: see Store.ClearWaiter
}

// Settling is what facilitators answered, where the wallet has a payment settled by one.
type Settling struct {
	Facilitator string   // its configured name; "": none was reached
	Status      int      // of its answer over HTTP; 0: it gave none
	Tries       []string // what came of each try, in words
}

// leaves is what becomes of the lease's owner and of the waiter, as a part of an UPDATE; "": nothing.
func (o Outcome) leaves() string {
	switch {
	case o.ReleaseLease && o.ClearWaiter:
		return `lease_owner = '', waiter = ''`
	case o.ReleaseLease:
		return `lease_owner = ''`
	}
	return ""
}

// Finish records an outcome. It moves a payment only as the table of states (payment.go) allows,
// else ErrTransition, never from better proof to worse, and returns the payment as it then stands:
// state, receipt and content change in one transaction. Until it returns nil the payment stays
// submitted and counts as spent; it may be called again.
//
// That a signed payment failed it does not record (ErrUnsealed): see Expire.
func (s *Store) Finish(ctx context.Context, id string, o Outcome) (p Payment, err error) {
	err = s.tx(ctx, func(t *tx) error {
		if o.State == Failed {
			return ErrUnsealed
		}
		p, err = t.outcome(id, o)
		return err
	})
	return p, err
}

// outcome records an outcome. Of one that gives money back a sealed row of this transaction tells.
func (t *tx) outcome(id string, o Outcome) (p Payment, err error) {
	p, err = ScanPayment(t.Row(SelectPayment+` WHERE id = ?`, id))
	if err != nil {
		return p, sqldb.Otherwise(err, errNoPayment)
	}
	var bought *audit.ContentDetail
	if o.Content != nil {
		bought, err = t.contents.Keep(t.Tx, p, *o.Content)
		if err != nil {
			return p, err
		}
	}
	if p.State != Settled || o.State != Unknown {
		return p, t.finish(&p, o, bought)
	}
	if set := o.leaves(); set != "" {
		_, err = t.Exec(`UPDATE payments SET `+set+` WHERE seq = ?`, p.Number)
	}
	if err == nil && bought != nil {
		err = t.audit(p.Number, audit.ContentEvent, bought)
	}
	return p, err
}

// finish moves a payment; bought is what was stored with that, or nil.
func (t *tx) finish(was *Payment, o Outcome, bought *audit.ContentDetail) error {
	p := *was
	if p.Proof == Chain && o.State == Settled { // the chain's word stands; a later receipt adds nothing
		o.Proof, o.Transaction = Chain, ""
	}
	if o.FalseReceipt || (p.State == Settled && o.State == Failed) {
		// who asked the chain may not know of the claim
		p.FalseReceipt = true
	}
	detail := o.detail()
	if o.Transaction == was.Transaction { // as the chain says already
		detail.Transaction = ""
	}
	detail.FalseReceipt, detail.Delivered = p.FalseReceipt, p.Delivered
	p.State, p.Proof, p.Note = o.State, o.Proof, o.Note
	if o.Transaction != "" {
		p.Transaction = o.Transaction
	}
	if o.Settling.Facilitator != "" {
		p.Facilitator = o.Settling.Facilitator
	}
	if o.Receipt != nil {
		p.Receipt = o.Receipt
	}
	if o.ChainProof != nil {
		p.ChainProof = json.RawMessage(audit.JSON(o.ChainProof))
	}
	set := `proof = ?, transaction_id = ?, facilitator = ?, receipt = ?, chain_proof = ?,
		note = ?, false_receipt = ?`
	if leaves := o.leaves(); leaves != "" {
		set += ", " + leaves
	}
	err := t.move(*was, o.State, audit.JSON(struct {
		audit.OutcomeDetail
		*audit.ContentDetail
	}{detail, bought}), set,
		p.Proof, p.Transaction, p.Facilitator, nullable(string(p.Receipt)), nullable(string(p.ChainProof)),
		p.Note, p.FalseReceipt)
	if err == nil {
		*was = p
	}
	return err
}

func (o Outcome) detail() audit.OutcomeDetail {
	d := audit.OutcomeDetail{Proof: string(o.Proof), Transaction: o.Transaction,
		Facilitator: o.Settling.Facilitator, FacilitatorStatus: o.Settling.Status, Tries: o.Settling.Tries,
		Note: o.Note}
	if o.Receipt != nil {
		d.Receipt = audit.Digest(o.Receipt)
	}
	if o.ChainProof != nil {
		d.Chain = audit.Digest([]byte(audit.JSON(o.ChainProof)))
	}
	return d
}

// ErrTransition says that a payment may not go where it was sent.
var ErrTransition = errors.New("no such change of state")

// move gives a payment, as it was read in this transaction, another state, or better proof of the one it
// has, and sets what belongs to that.
func (t *tx) move(p Payment, to State, detail, set string, args ...any) error {
	proven := p.State == Settled && p.Proof == Chain // what the chain proved stays
	if !p.State.MayBecome(to) || (proven && to == Failed) {
		return fmt.Errorf("%w: %s from %s to %s", ErrTransition, p.ID, p.State, to)
	}
	if _, err := t.Exec(`UPDATE payments SET `+set+`, state = ?, updated_at = ? WHERE seq = ?`,
		append(args, to, sqldb.Micros(t.Now), p.Number)...); err != nil {
		return err
	}
	if err := t.recount(p, p.State.counts(p.Worth()), to.counts(p.Worth())); err != nil {
		return err
	}
	if to == Failed {
		if err := t.contents.NobodyWaits(t.Tx, p.Number); err != nil {
			return err
		}
	}
	return t.audit(p.Number, string(to), json.RawMessage(detail))
}

// audit appends to the hash chain; payment is the number of the one it is about, or 0.
func (t *tx) audit(payment int64, event string, detail any) error {
	_, err := t.append(payment, event, detail, nil)
	return err
}

// append is audit with a seal, which it returns; a nil mac makes none.
func (t *tx) append(payment int64, event string, detail any, mac func([]byte) ([]byte, error)) (seal []byte,
	err error) {
	if err := t.readEnds(); err != nil {
		return nil, err
	}
	row := audit.Row{Seq: t.known.head + 1, At: sqldb.Micros(t.Now), Payment: payment, Event: event,
		Detail: audit.JSON(detail)}
	hash := row.Linked(t.known.hash)
	if mac != nil {
		if seal, err = mac(audit.SealData(hash)); err != nil {
			return nil, err
		}
	}
	_, err = t.Exec(`INSERT INTO audit (seq, at, payment, event, detail, hash, seal) VALUES (?, ?, ?, ?, ?, ?, ?)`,
		row.Seq, row.At, payment, event, row.Detail, hash, seal)
	if err != nil {
		return nil, err
	}
	t.known.head, t.known.hash = row.Seq, hash
	if t.known.sealed != nil {
		t.known.sealed.Apply(row)
	}
	return seal, err
}
