package history

import (
	"encoding/hex"
	"encoding/json"
	"math"
	"slices"
)

// storyChunk is how many payments are compared at once: their stories are in memory.
const storyChunk = 10_000

// story is what the audit chain says of one payment, and that payment as it is.
type story struct {
	is    storedPayment
	begun int64 // the event of its reservation; 0: none
	last  int64 // its newest event

	row, requirement, key              string
	payload, evidence, unique          string
	state                              State
	proof, transaction, facilitator    string
	receipt, chain, note               string
	created, updated                   int64
	signed, expired, delivered, untrue bool
}

// storedPayment is a payment's columns as they are in the table, NULL as a nil.
type storedPayment struct {
	seq, created, updated, usd                        int64
	id, session, state, proof                         string
	fingerprint, payload                              []byte
	key, evidence, unique, receipt, chain             *string
	method, url, target, host, network, scheme        string
	dialect, asset, symbol, amount, payTo, source     string
	requirement, transaction, facilitator, note, from string
	untrue, delivered                                 int64
}

const selectStored = `SELECT seq, id, session, state, proof, created_at, updated_at, fingerprint,
	idempotency_key, method, url, target, host, network, scheme, dialect, asset, symbol, amount, usd, pay_to,
	source, requirement, payload, evidence, unique_key, transaction_id, facilitator, receipt,
	chain_proof, note,
	false_receipt, delivered, url_prefix FROM payments`

func scanStoredPayment(row scanner) (p storedPayment, err error) {
	err = row.Scan(&p.seq, &p.id, &p.session, &p.state, &p.proof, &p.created, &p.updated, &p.fingerprint,
		&p.key, &p.method, &p.url, &p.target, &p.host, &p.network, &p.scheme, &p.dialect, &p.asset, &p.symbol,
		&p.amount, &p.usd, &p.payTo, &p.source, &p.requirement, &p.payload, &p.evidence, &p.unique,
		&p.transaction, &p.facilitator, &p.receipt, &p.chain, &p.note, &p.untrue, &p.delivered, &p.from)
	return p, err
}

// digest is Payment.digest of the columns.
func (p storedPayment) digest() string {
	return hex.EncodeToString(link(nil, p.usd, p.id, p.session, string(p.fingerprint), p.method, p.url,
		p.target, p.host, p.network, p.scheme, p.dialect, p.asset, p.symbol, p.amount, p.payTo, p.from,
		p.source))
}

// readRedates reads what was redated ahead of the chain, for whoever compares payments without all of it.
func (r *replay) readRedates() error {
	return r.t.forEach(func(row scanner) error {
		var a auditRow
		var d rowDetail
		err := row.Scan(&a.seq, &a.detail)
		if err == nil && json.Unmarshal([]byte(a.detail), &d) != nil {
			err = corrupt("event %d (%s) cannot be read", a.seq, redatedEvent)
		}
		r.redates = append(r.redates, redate{a.seq, d.To})
		return err
	}, `SELECT seq, detail FROM audit WHERE payment = '' AND event = ? ORDER BY seq`, redatedEvent)
}

// payments compares the payments, each with all of its columns.
func (r *replay) payments() error {
	var newest, orphans int64
	err := r.t.row(`SELECT coalesce(max(seq), 0) FROM payments`).Scan(&newest)
	if err != nil {
		return err
	}
	if newest != r.reservations {
		return corrupt("the audit chain has %d payments, and the newest has the number %d", r.reservations,
			newest)
	}
	begun := int64(0)
	for first := int64(1); first <= newest; first += storyChunk {
		if begun, err = r.chunk(first, min(newest, first+storyChunk-1), begun); err != nil {
			return err
		}
	}
	err = r.t.slowRow(`SELECT count(*) FROM payments WHERE seq < 1`).Scan(&orphans)
	if err == nil && orphans > 0 {
		err = corrupt("%d payments are none that the audit chain has", orphans)
	}
	return err
}

// chunk compares the payments of these numbers. begun is the reservation of the one before.
func (r *replay) chunk(first, last, begun int64) (int64, error) {
	stories := make([]*story, 0, last-first+1)
	err := r.t.forEach(func(row scanner) error {
		p, err := scanStoredPayment(row)
		if err == nil && p.seq != first+int64(len(stories)) {
			err = corrupt("payment number %d is gone", first+int64(len(stories)))
		}
		stories = append(stories, &story{is: p})
		return err
	}, selectStored+` WHERE seq BETWEEN ? AND ? ORDER BY seq`, first, last)
	if err != nil {
		return 0, err
	}
	if len(stories) != int(last-first+1) {
		return 0, corrupt("payment number %d is gone", first+int64(len(stories)))
	}
	err = r.t.forEach(func(row scanner) error {
		var n int64
		var a auditRow
		if err := row.Scan(&n, &a.seq, &a.at, &a.event, &a.detail); err != nil {
			return err
		}
		return r.tell(stories[n-first], a)
	}, `SELECT p.seq, a.seq, a.at, a.event, a.detail FROM payments p CROSS JOIN audit a ON a.payment = p.id
		WHERE p.seq BETWEEN ? AND ? ORDER BY p.seq, a.seq`, first, last)
	if err != nil {
		return 0, err
	}
	for _, s := range stories {
		if s.begun <= begun {
			return 0, corrupt("the audit chain has no reservation of payment %s, or in another order",
				s.is.id)
		}
		begun = s.begun
		if err := r.compare(s); err != nil {
			return 0, err
		}
		r.paid[s.is.session] = s.is.created
	}
	return begun, nil
}

// step is what the details of a payment's events hold.
type step struct {
	N                             int64
	Row, Requirement, Key         string
	Unique, Evidence, Payload     string
	Proof, Transaction, Note, Why string
	Facilitator, Receipt          string
	Chain                         json.RawMessage
	FalseReceipt                  bool
}

// tell takes an event of a payment into account.
func (r *replay) tell(s *story, a auditRow) error {
	var d step
	if json.Unmarshal([]byte(a.detail), &d) != nil || (d.N != 0 && d.N != s.is.seq) {
		return corrupt("event %d (%s of %s) cannot be read, or is of another payment", a.seq, a.event,
			s.is.id)
	}
	s.created, s.updated = r.wasRedated(s.last, a.seq, s.created), r.wasRedated(s.last, a.seq, s.updated)
	s.last = a.seq
	impossible := false
	switch a.event {
	case string(Reserved):
		impossible = s.begun != 0
		s.begun, s.state, s.created, s.updated = a.seq, Reserved, a.at, a.at
		s.row, s.requirement, s.key = d.Row, d.Requirement, d.Key
	case signedEvent:
		impossible = s.state != Reserved
		s.state, s.signed, s.updated, s.evidence, s.unique = Submitted, true, a.at, d.Evidence, d.Unique
	case string(Submitted):
		impossible = s.state != Submitted || s.payload != ""
		s.payload, s.requirement = d.Payload, d.Requirement
	case expiredEvent:
		impossible = !s.signed || s.expired
		s.expired = true
	case string(Settled), string(Unknown), string(Failed):
		impossible = !slices.Contains(allowed[s.state], State(a.event)) ||
			(a.event == string(Failed) && s.signed != s.expired)
		s.outcome(a, d)
	case "keyed":
		s.key = d.Key
	case deliveredEvent:
		s.delivered = true
	case contentEvent: // contentAgrees
	}
	if impossible {
		return corrupt("event %d, that payment %s is %s, cannot be", a.seq, s.is.id, a.event)
	}
	return nil
}

func (s *story) outcome(a auditRow, d step) {
	s.state, s.updated, s.note = State(a.event), a.at, d.Note
	if !s.signed { // released
		s.note = d.Why
		return
	}
	s.proof, s.untrue = d.Proof, d.FalseReceipt
	for _, set := range []struct {
		what  *string
		value string
	}{{&s.transaction, d.Transaction}, {&s.facilitator, d.Facilitator}, {&s.receipt, d.Receipt},
		{&s.chain, string(d.Chain)}} {
		if set.value != "" {
			*set.what = set.value
		}
	}
}

// compare names the first column that is not what the chain says.
func (r *replay) compare(s *story) error {
	p := s.is
	digest := func(text *string) string {
		if text == nil {
			return ""
		}
		return digestOf([]byte(*text))
	}
	text := func(v *string) string {
		switch {
		case v == nil:
			return ""
		case *v == "":
			return "empty" // which it never is
		}
		return *v
	}
	payload := ""
	if p.payload != nil {
		payload = digestOf(p.payload)
	}
	number := map[bool]int64{true: 1}
	for _, c := range []struct{ column, is, said string }{
		{"state", p.state, string(s.state)}, {"terms", p.digest(), s.row}, {"proof", p.proof, s.proof},
		{"idempotency_key", text(p.key), s.key}, {"requirement", digestOf([]byte(p.requirement)),
			s.requirement},
		{"payload", payload, s.payload}, {"evidence", digest(p.evidence), s.evidence},
		{"unique_key", text(p.unique), s.unique}, {"transaction_id", p.transaction, s.transaction},
		{"facilitator", p.facilitator, s.facilitator}, {"receipt", digest(p.receipt), s.receipt},
		{"chain_proof", text(p.chain), s.chain}, {"note", p.note, s.note},
	} {
		if c.is != c.said {
			return corrupt("the %s of payment %s is not what the audit chain says", c.column, p.id)
		}
	}
	for _, c := range []struct {
		column   string
		is, said int64
	}{
		{"created_at", p.created, r.wasRedated(s.last, math.MaxInt64, s.created)},
		{"updated_at", p.updated, r.wasRedated(s.last, math.MaxInt64, s.updated)},
		{"false_receipt", p.untrue, number[s.untrue]}, {"delivered", p.delivered, number[s.delivered]},
	} {
		if c.is != c.said {
			return corrupt("the %s of payment %s is not what the audit chain says", c.column, p.id)
		}
	}
	return nil
}
