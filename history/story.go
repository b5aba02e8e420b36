package history

import (
	"encoding/hex"
	"encoding/json"
	"math"
	"slices"
)

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

	content *storedContent // as it is in the table; nil: there is none, or none was told of yet
	bought  string         // what the chain says of it, of the newest
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
	false_receipt, delivered, url_prefix, lease_owner, waiter FROM payments`

// storedKinds are the kinds of these columns.
const storedKinds = "ittttiibT" + "tttttttttt" + "itttBTT" + "ttTTt" + "iittt"

func scanStoredPayment(row scanner) (p storedPayment, err error) {
	err = row.Scan(&p.seq, &p.id, &p.session, &p.state, &p.proof, &p.created, &p.updated, &p.fingerprint,
		&p.key, &p.method, &p.url, &p.target, &p.host, &p.network, &p.scheme, &p.dialect, &p.asset, &p.symbol,
		&p.amount, &p.usd, &p.payTo, &p.source, &p.requirement, &p.payload, &p.evidence, &p.unique,
		&p.transaction, &p.facilitator, &p.receipt, &p.chain, &p.note, &p.untrue, &p.delivered, &p.from,
		new(string), new(string))
	return p, err
}

// storedFrom is the payment that a cursor stands at.
func storedFrom(c *cursor) storedPayment {
	return storedPayment{seq: c.int(0), id: c.text(1), session: c.text(2), state: c.text(3), proof: c.text(4),
		created: c.int(5), updated: c.int(6), fingerprint: c.bytes(7), key: c.orNil(8), method: c.text(9),
		url: c.text(10), target: c.text(11), host: c.text(12), network: c.text(13), scheme: c.text(14),
		dialect: c.text(15), asset: c.text(16), symbol: c.text(17), amount: c.text(18), usd: c.int(19),
		payTo: c.text(20), source: c.text(21), requirement: c.text(22), payload: c.bytes(23),
		evidence: c.orNil(24), unique: c.orNil(25), transaction: c.text(26), facilitator: c.text(27),
		receipt: c.orNil(28), chain: c.orNil(29), note: c.text(30), untrue: c.int(31), delivered: c.int(32),
		from: c.text(33)}
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

// chunk looks up the payments of these numbers and all that is told of them, and compares them.
func (r *replay) chunk(first, last int64) error {
	var begun int64 // the reservation of the one before
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
		return err
	}
	if len(stories) != int(last-first+1) {
		return corrupt("payment number %d is gone", first+int64(len(stories)))
	}
	err = r.t.forEach(func(row scanner) error {
		var n int64
		c, err := scanStoredContent(row, &n)
		if err == nil {
			stories[n-first].content = &c
		}
		return err
	}, `SELECT p.seq, `+contentColumns+` FROM payments p CROSS JOIN contents c ON c.payment = p.id
		LEFT JOIN bodies b ON b.content = c.seq WHERE p.seq BETWEEN ? AND ?`, first, last)
	if err != nil {
		return err
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
		return err
	}
	for _, s := range stories {
		if s.begun <= begun {
			return corrupt("the audit chain has no reservation of payment %s, or in another order",
				s.is.id)
		}
		begun = s.begun
		if err := r.compare(s); err != nil {
			return err
		}
		r.paid[s.is.session] = max(r.paid[s.is.session], s.is.created)
	}
	return nil
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
	d, err := readStep(a.detail)
	if err != nil || (d.N != 0 && d.N != s.is.seq) {
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
	case contentEvent:
		s.bought = a.detail
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
	if !s.content.agrees(p, s.bought) {
		return corrupt("the content of payment %s is not what the audit chain says", p.id)
	}
	return nil
}
