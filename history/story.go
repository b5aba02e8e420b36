package history

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// story is what the audit chain says of one payment, and that payment as it is.
type story struct {
	is    storedPayment
	begun int64 // the event of its reservation; 0: none
	last  int64 // its newest event

	row, stored, key, unique        string
	state                           State
	proof, transaction, facilitator string
	receipt, chain, note            string
	created, updated                int64
	signed, sent                    bool // sent: it may have been
	expired, delivered, untrue      bool
	bought                          contentDetail // the newest
}

// storedPayment is a payment's columns as they are in the table, NULL as a nil, and its content's.
type storedPayment struct {
	seq, created, updated, usd                    int64
	id, session, state, proof                     string
	fingerprint, record, unique, receipt, chain   []byte
	key                                           *string
	method, url, target, host, network, scheme    string
	dialect, asset, symbol, amount, payTo, source string
	transaction, facilitator, note                string
	untrue, delivered, prefixLength               int64
	typed, found                                  int64          // 1: its other columns are texts; isFound
	digest, recordDigest                          string         // of the terms; of the record
	content                                       *storedContent // nil: none
}

const selectStored = `SELECT p.seq, p.id, p.session, p.state, p.proof, p.created_at, p.updated_at, p.fingerprint,
	p.idempotency_key, p.method, p.url, p.target, p.host, p.network, p.scheme, p.dialect, p.asset, p.symbol,
	p.amount, p.usd, p.pay_to, p.source, p.record, p.unique_key, p.transaction_id, p.facilitator, p.receipt,
	p.chain_proof, p.note, p.false_receipt, p.delivered, p.prefix_length,
	typeof(p.lease_owner) = 'text' AND typeof(p.waiter) = 'text', ` + isFound + `, ` + contentColumns + `
	FROM payments p LEFT JOIN payment_search s ON s.seq = p.seq LEFT JOIN contents c ON c.payment = p.seq
	LEFT JOIN bodies b ON b.payment = p.seq`

// isFound says whether x402_history finds a payment by what it is, and adds it up so.
const isFound = `coalesce(s.url = lower(p.url) AND s.usd = (p.state <> 'failed') * p.usd AND s.state = p.state
	AND s.symbol = p.symbol AND s.prefix_length = p.prefix_length AND p.prefix_length <= length(p.url), 0)`

// storedKinds are the kinds of these columns.
const storedKinds = "ittttiibT" + "ttttttttt" + "tittbBttB" + "Btiiiii" + contentKinds

// storedFrom is the payment in a row.
func storedFrom(v values) (storedPayment, error) {
	p := storedPayment{seq: v.int(0), id: v.text(1), session: v.text(2), state: v.text(3), proof: v.text(4),
		created: v.int(5), updated: v.int(6), fingerprint: v.bytes(7), key: v.orNil(8), method: v.text(9),
		url: v.text(10), target: v.text(11), host: v.text(12), network: v.text(13), scheme: v.text(14),
		dialect: v.text(15), asset: v.text(16), symbol: v.text(17), amount: v.text(18), usd: v.int(19),
		payTo: v.text(20), source: v.text(21), record: v.bytes(22), unique: v.bytes(23),
		transaction: v.text(24), facilitator: v.text(25), receipt: v.bytes(26), chain: v.bytes(27),
		note: v.text(28), untrue: v.int(29), delivered: v.int(30), prefixLength: v.int(31),
		typed: v.int(32), found: v.int(33), content: contentFrom(v, 34)}
	p.digest, p.recordDigest = p.termsDigest(), digestOf(p.record)
	return p, nil
}

// prefix is the first part of the URL, by which sums are kept.
func (p storedPayment) prefix() string {
	n := int64(0)
	for i, b := range []byte(p.url) {
		if b&0xC0 != 0x80 { // as SQLite counts characters
			n++
		}
		if n > p.prefixLength {
			return p.url[:i]
		}
	}
	return p.url
}

// terms are Payment.terms of the columns.
func (p storedPayment) terms() terms {
	return Payment{Session: p.session, Host: p.host, Network: p.network, Asset: p.asset, PayTo: p.payTo,
		Method: p.method, URL: p.url, Price: money.Dollars(p.usd)}.terms()
}

// termsDigest is Payment.digest of the columns.
func (p storedPayment) termsDigest() string {
	return encodeDigest(link(nil, p.usd, p.id, p.session, string(p.fingerprint), p.method, p.url,
		p.target, p.host, p.network, p.scheme, p.dialect, p.asset, p.symbol, p.amount, p.payTo,
		fmt.Sprint(p.prefixLength), p.source))
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
	}, `SELECT seq, detail FROM audit WHERE payment = 0 AND event = ? ORDER BY seq`, redatedEvent)
}

// chunk looks up the payments of these numbers and all that is told of them, and compares them.
func (r *replay) chunk(first, last int64) error {
	stories, err := r.look(first, last)
	if err != nil {
		return err
	}
	err = r.t.forEach(func(row scanner) error {
		var a auditRow
		if err := row.Scan(&a.seq, &a.at, &a.payment, &a.event, &a.detail); err != nil {
			return err
		}
		return r.tell(stories[a.payment-first], a)
	}, `SELECT seq, at, payment, event, detail FROM audit WHERE payment BETWEEN ? AND ? ORDER BY payment, seq`,
		first, last)
	if err != nil {
		return err
	}
	var begun int64 // the reservation of the one before
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

// look looks up the payments of these numbers.
func (r *replay) look(first, last int64) (list []*story, err error) {
	c, err := openCursor(r.t, "payments", storedKinds, storedFrom,
		fmt.Sprintf(selectStored+` WHERE p.seq BETWEEN %d AND %d ORDER BY p.seq`, first, last))
	if err != nil {
		return nil, err
	}
	defer c.close()
	for {
		if err := c.next(); err != nil {
			return nil, err
		}
		n := first + int64(len(list))
		if c.done && n > last {
			return list, nil
		}
		if c.done || c.row.seq != n {
			return nil, corrupt("payment number %d is gone", n)
		}
		list = append(list, &story{is: c.row})
	}
}

// tell takes an event of a payment into account.
func (r *replay) tell(s *story, a auditRow) error {
	d, err := readStep(a.detail)
	if err != nil {
		return corrupt("event %d (%s of %s) cannot be read", a.seq, a.event, s.is.id)
	}
	s.created, s.updated = r.wasRedated(s.last, a.seq, s.created), r.wasRedated(s.last, a.seq, s.updated)
	s.last = a.seq
	impossible := false
	switch a.event {
	case string(Reserved):
		impossible = s.begun != 0
		s.begun, s.state, s.created, s.updated = a.seq, Reserved, a.at, a.at
		s.row, s.stored, s.key = d.Row, d.Stored, d.Key
	case signedEvent:
		impossible = s.state != Reserved || d.Row != s.row
		s.state, s.signed, s.sent, s.updated = Submitted, true, d.Submitted, a.at
		s.stored, s.unique = d.Stored, d.Unique
	case string(Submitted):
		impossible = s.state != Submitted || s.sent
		s.sent, s.stored = true, d.Stored
	case expiredEvent:
		impossible = !s.signed || s.expired
		s.expired = true
	case string(Settled), string(Unknown), string(Failed):
		impossible = !slices.Contains(allowed[s.state], State(a.event)) ||
			(a.event == string(Failed) && s.signed != s.expired)
		s.outcome(a, d)
	case keyedEvent:
		s.key = d.Key
	case deliveredEvent:
		s.delivered = true
	}
	if d.SHA256 != "" {
		s.bought = d.contentDetail
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
	s.proof, s.untrue = string(d.Proof), d.FalseReceipt
	for _, set := range []struct {
		what  *string
		value string
	}{{&s.transaction, d.Transaction}, {&s.facilitator, d.Facilitator}, {&s.receipt, d.Receipt},
		{&s.chain, d.Chain}} {
		if set.value != "" {
			*set.what = set.value
		}
	}
}

// compare names the first column that is not what the chain says.
func (r *replay) compare(s *story) error {
	p := s.is
	digest := func(data []byte) string {
		if data == nil {
			return ""
		}
		return digestOf(data)
	}
	key := ""
	if p.key != nil {
		key = cmp.Or(*p.key, "empty") // which it never is
	}
	number := map[bool]int64{true: 1}
	for _, c := range []struct{ column, is, said string }{
		{"state", p.state, string(s.state)}, {"terms", p.digest, s.row}, {"proof", p.proof, s.proof},
		{"idempotency_key", key, s.key},
		{"record", p.recordDigest, s.stored},
		{"unique_key", encodeDigest(p.unique), s.unique}, {"transaction_id", p.transaction, s.transaction},
		{"facilitator", p.facilitator, s.facilitator}, {"receipt", digest(p.receipt), s.receipt},
		{"chain_proof", digest(p.chain), s.chain}, {"note", p.note, s.note},
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
	if p.typed != 1 {
		return corrupt("a row of payments holds a value of another type")
	}
	if p.found != 1 {
		return x402.Errorf(x402.LedgerCorrupt, "payment %s is not found by what it is", p.id)
	}
	if !p.content.agrees(p, s.bought) {
		return corrupt("the content of payment %s is not what the audit chain says", p.id)
	}
	return nil
}
