package history

import (
	"encoding/json"
	"math"
	"slices"

	"x402-wallet/history/sqldb"
	"x402-wallet/x402"
)

// story is what the audit chain says of one payment, and that payment as it is.
type story struct {
	is    *storedPayment
	begun int64 // the event of its reservation; 0: none
	last  int64 // its newest event

	row, stored, key, unique        string
	state                           State
	proof, transaction, facilitator string
	receipt, chain, note            string
	created, updated                int64
	signed, sent                    bool // sent: it may have been
	expired, delivered, untrue      bool
	charged                         string // "": all
	returned                        int64
	bought                          ContentDetail // the newest
	signature                       signature     // zero before it is signed
}

// readRedates reads what was redated ahead of the chain, for whoever compares payments without all of it.
func (r *replay) readRedates() error {
	return r.t.Each(func(row sqldb.Row) error {
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

// chapter is payments that follow each other, and all that is told of them.
type chapter struct {
	first   int64
	stories []*story
	events  []auditRow
}

// readChapter reads the payments of these numbers.
func (r *replay) readChapter(first, last int64) (c chapter, err error) {
	c.first = first
	c.stories, err = r.look(first, last)
	if err != nil {
		return c, err
	}
	c.events, err = sqldb.Collect(r.t.Tx, func(row sqldb.Row) (a auditRow, err error) {
		err = row.Scan(&a.seq, &a.at, &a.payment, &a.event, &a.detail)
		return a, err
	}, `SELECT seq, at, payment, event, detail FROM audit WHERE payment BETWEEN ? AND ? ORDER BY payment, seq`,
		first, last)
	return c, err
}

// compareChapter compares payments with what is told of them. It asks the database nothing.
func (r *replay) compareChapter(c chapter) error {
	for _, a := range c.events {
		if err := r.tell(c.stories[a.payment-c.first], a); err != nil {
			return err
		}
	}
	var begun int64 // the reservation of the one before
	for _, s := range c.stories {
		if s.begun <= begun {
			return corrupt("the audit chain has no reservation of payment %s, or in another order",
				s.is.id)
		}
		begun = s.begun
		if err := r.compare(s); err != nil {
			return err
		}
		r.paid[s.is.session] = max(r.paid[s.is.session], s.is.created)
		use := s.is.content.use()
		r.contentUse.Stored, r.contentUse.Owed = r.contentUse.Stored+use.Stored, r.contentUse.Owed+use.Owed
	}
	return nil
}

// look looks up the payments of these numbers.
func (r *replay) look(first, last int64) (list []*story, err error) {
	err = r.t.Each(func(row sqldb.Row) error {
		p, err := scanStoredPayment(row)
		if err == nil && p.seq != first+int64(len(list)) {
			err = corrupt("payment number %d is gone", first+int64(len(list)))
		}
		list = append(list, &story{is: p})
		return err
	}, selectStoredPayment+` WHERE seq BETWEEN ? AND ? ORDER BY seq`, first, last)
	if err == nil && int64(len(list)) != last-first+1 {
		err = corrupt("payment number %d is gone", first+int64(len(list)))
	}
	if err != nil {
		return nil, err
	}
	return list, r.lookContents(list, first, last)
}

// lookContents looks up the contents of payments.
func (r *replay) lookContents(list []*story, first, last int64) error {
	return r.t.Each(func(row sqldb.Row) error {
		var payment int64
		var digest []byte
		c := &contentOf{}
		err := row.Scan(&payment, &c.status, &c.typ, &c.truncated, &c.size, &digest, &c.spare, &c.removed,
			&c.length)
		c.sha256 = encodeDigest(digest)
		list[payment-first].is.content = c
		return err
	}, `SELECT payment, http_status, type, truncated, size, sha256, spare, removed,
		coalesce((SELECT length(body) FROM bodies WHERE bodies.payment = contents.payment), -1)
		FROM contents WHERE payment BETWEEN ? AND ?`, first, last)
}

// payments compares all payments, a page at a time, and the rows of contents with their sums.
func (r *replay) payments() error {
	last, err := scanNumber(r.t.Row(`SELECT coalesce(max(seq), 0) FROM payments`))
	if err != nil {
		return err
	}
	if last != r.reservations {
		return corrupt("the audit chain has %d reservations, and the newest payment is number %d",
			r.reservations, last)
	}
	if err := r.chapters(last); err != nil {
		return err
	}
	var wild int64
	err = r.t.Row(`SELECT (SELECT count(*) FROM payments WHERE seq < 1) +
		(SELECT count(*) FROM contents WHERE payment NOT IN (SELECT seq FROM payments)) +
		(SELECT count(*) FROM bodies WHERE payment NOT IN (SELECT payment FROM contents))`).Scan(&wild)
	if err == nil && wild > 0 {
		err = corrupt("%d rows of payments, contents or bodies are none that the audit chain has", wild)
	}
	if err != nil {
		return err
	}
	return r.contentSums()
}

// chapters compares the payments up to a number: a page of them while the next one is read.
func (r *replay) chapters(last int64) error {
	pages, compared := make(chan chapter), make(chan error, 1)
	go func() {
		var err error
		for c := range pages {
			if err = r.compareChapter(c); err != nil {
				break
			}
		}
		compared <- err
	}()
	for first := int64(1); first <= last; first += r.page {
		c, err := r.readChapter(first, min(last, first+r.page-1))
		if err != nil {
			close(pages)
			return cmpOr(<-compared, err)
		}
		select {
		case pages <- c:
		case err := <-compared:
			return err
		}
	}
	close(pages)
	return <-compared
}

// contentSums compares the sums of contents with what is stored.
func (r *replay) contentSums() error {
	var rows int
	var is contentUse
	err := r.t.Row(`SELECT count(*), coalesce(max(stored), 0), coalesce(max(owed), 0) FROM content_use`).
		Scan(&rows, &is.Stored, &is.Owed)
	if err == nil && (rows != 1 || is != r.contentUse) {
		err = x402.Errorf(x402.LedgerCorrupt, "how much content is stored is not what is stored")
	}
	return err
}

// readTold is what an event of a payment holds: a signature, or any other step.
func (a auditRow) readTold() (d step, g signature, err error) {
	if a.event == signedEvent {
		g, err = readSignature(a.detail)
	} else {
		d, err = readStep(a.detail)
	}
	return d, g, err
}

// tell takes an event of a payment into account.
func (r *replay) tell(s *story, a auditRow) error {
	d, g, err := a.readTold()
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
		impossible = s.state != Reserved || g.Row != s.row || g.ID != s.is.id || g.terms != s.is.signedTerms()
		s.state, s.signed, s.sent, s.updated = Submitted, true, g.Submitted, a.at
		s.stored, s.unique, s.signature = g.Stored, g.Unique, g
	case string(Submitted):
		impossible = s.state != Submitted || s.sent
		s.sent, s.stored = true, d.Stored
	case expiredEvent, chargedEvent:
		impossible = !s.giveBack(a, d)
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
		s.bought = d.ContentDetail
	}
	if impossible {
		return corrupt("event %d, that payment %s is %s, cannot be", a.seq, s.is.id, a.event)
	}
	return nil
}

// giveBack takes an event into account that gives money back: the payment's signature expired, or less was
// charged than was signed for. It reports whether that can be.
func (s *story) giveBack(a auditRow, d step) bool {
	of, err := a.readGivenBack()
	isOf := err == nil && s.signed && toJSON(of.Signature) == toJSON(s.signature)
	mayBe := isOf && !s.expired && s.charged == ""
	if a.event == expiredEvent {
		s.expired = true
		return mayBe
	}
	s.charged, s.returned = d.Charged, d.Returned
	return mayBe && d.Charged != "" && d.Returned >= 0 && d.Returned <= s.is.usd
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
	number := map[bool]int64{true: 1}
	for _, c := range []struct{ column, is, said string }{
		{"state", p.state, string(s.state)}, {"terms", p.terms, s.row}, {"proof", p.proof, s.proof},
		{"idempotency_key", p.key, s.key},
		{"record", p.stored, s.stored},
		{"unique_key", p.unique, s.unique}, {"transaction_id", p.transaction, s.transaction},
		{"facilitator", p.facilitator, s.facilitator}, {"receipt", p.receipt, s.receipt},
		{"chain_proof", p.chain, s.chain}, {"note", p.note, s.note}, {"charged", p.charged, s.charged},
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
		{"returned", p.returned, s.returned},
	} {
		if c.is != c.said {
			return corrupt("the %s of payment %s is not what the audit chain says", c.column, p.id)
		}
	}
	if !p.content.agrees(p, s.bought) {
		return corrupt("the content of payment %s is not what the audit chain says", p.id)
	}
	return nil
}
