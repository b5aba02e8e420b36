package verify

import (
	"cmp"
	"math"

	"x402-wallet/history"
	"x402-wallet/history/internal/audit"
	"x402-wallet/history/internal/seals"
	"x402-wallet/history/sqldb"
	"x402-wallet/x402"
)

// payment is a payment as the audit chain tells of it, beside its row.
type payment struct {
	is    *stored
	begun int64 // the event of its reservation; 0: none
	last  int64 // its newest event

	terms, record, key, unique      string // terms, record and unique: digests
	state                           history.State
	proof, transaction, facilitator string
	receipt, chainProof, note       string
	created, updated                int64
	signed, sent                    bool // sent: it may have been
	expired, delivered, untrue      bool
	charged                         string // "": all
	returned                        int64
	bought                          audit.ContentDetail // the newest
	signature                       seals.Signature     // zero before it is signed
}

// page is payments that follow each other, and all that the chain tells of them.
type page struct {
	first    int64
	payments []*payment
	events   []audit.Row
}

// payments compares all payments, a page at a time, and the rows of contents with their sums.
func (r *replay) payments() error {
	last, err := sqldb.ScanNumber(r.t.Row(`SELECT coalesce(max(seq), 0) FROM payments`))
	if err != nil {
		return err
	}
	if last != r.reservations {
		return audit.Corrupt("the audit chain has %d reservations, and the newest payment is number %d",
			r.reservations, last)
	}
	if err := r.pages(last); err != nil {
		return err
	}
	wild, err := sqldb.ScanNumber(r.t.Row(`SELECT (SELECT count(*) FROM payments WHERE seq < 1) +
		(SELECT count(*) FROM contents WHERE payment NOT IN (SELECT seq FROM payments)) +
		(SELECT count(*) FROM bodies WHERE payment NOT IN (SELECT payment FROM contents))`))
	if err == nil && wild > 0 {
		err = audit.Corrupt("%d rows of payments, contents or bodies are none that the audit chain has", wild)
	}
	if err != nil {
		return err
	}
	var rows int
	var is contentUse
	err = r.t.Row(`SELECT count(*), coalesce(max(stored), 0), coalesce(max(owed), 0) FROM content_use`).
		Scan(&rows, &is.stored, &is.owed)
	if err == nil && (rows != 1 || is != r.content) {
		err = x402.Errorf(x402.LedgerCorrupt, "how much content is stored is not what is stored")
	}
	return err
}

// pages compares the payments up to a number: a page of them while the next one is read.
func (r *replay) pages(last int64) error {
	pages, compared := make(chan page), make(chan error, 1)
	go func() {
		var err error
		for p := range pages {
			if err = r.comparePage(p); err != nil {
				break
			}
		}
		compared <- err
	}()
	for first := int64(1); first <= last; first += r.page {
		p, err := r.readPage(first, min(last, first+r.page-1))
		if err != nil {
			close(pages)
			return cmp.Or(<-compared, err)
		}
		select {
		case pages <- p:
		case err := <-compared:
			return err
		}
	}
	close(pages)
	return <-compared
}

// readPage reads the payments of these numbers, and what the chain tells of them.
func (r *replay) readPage(first, last int64) (p page, err error) {
	p.first = first
	gone := func() error { return audit.Corrupt("payment number %d is gone", first+int64(len(p.payments))) }
	err = r.t.Each(func(row sqldb.Row) error {
		is, err := scanStored(row)
		if err == nil && is.number != first+int64(len(p.payments)) {
			err = gone()
		}
		p.payments = append(p.payments, &payment{is: is})
		return err
	}, selectStored+` WHERE seq BETWEEN ? AND ? ORDER BY seq`, first, last)
	if err == nil && int64(len(p.payments)) != last-first+1 {
		err = gone()
	}
	if err != nil {
		return p, err
	}
	err = r.t.Each(func(row sqldb.Row) error {
		number, c, err := scanContent(row)
		if err == nil {
			p.payments[number-first].is.content = c
		}
		return err
	}, selectContent+` WHERE payment BETWEEN ? AND ?`, first, last)
	if err != nil {
		return p, err
	}
	p.events, err = sqldb.Collect(r.t, func(row sqldb.Row) (a audit.Row, err error) {
		err = row.Scan(&a.Seq, &a.At, &a.Payment, &a.Event, &a.Detail)
		return a, err
	}, `SELECT seq, at, payment, event, detail FROM audit WHERE payment BETWEEN ? AND ? ORDER BY payment, seq`,
		first, last)
	return p, err
}

// comparePage compares payments with what the chain tells of them. It asks the database nothing.
func (r *replay) comparePage(page page) error {
	for _, a := range page.events {
		if err := r.applyEvent(page.payments[a.Payment-page.first], a); err != nil {
			return err
		}
	}
	var begun int64 // the reservation of the one before
	for _, p := range page.payments {
		if p.begun <= begun {
			return audit.Corrupt("the audit chain has no reservation of payment %s, or in another order",
				p.is.id)
		}
		begun = p.begun
		if err := r.compare(p); err != nil {
			return err
		}
		r.paid[p.is.session] = max(r.paid[p.is.session], p.is.created)
		r.content.add(p.is.content)
	}
	return nil
}

// applyEvent takes an event of a payment into account.
func (r *replay) applyEvent(p *payment, a audit.Row) error {
	var d audit.Step
	var g seals.Signature
	var err error
	if a.Event == audit.SignedEvent {
		g, err = seals.Read[seals.Signature](a.Detail)
	} else {
		d, err = audit.ReadStep(a.Detail)
	}
	if err != nil {
		return audit.Corrupt("event %d (%s of %s) cannot be read", a.Seq, a.Event, p.is.id)
	}
	p.created, p.updated = r.wasRedated(p.last, a.Seq, p.created), r.wasRedated(p.last, a.Seq, p.updated)
	p.last = a.Seq
	canBe := true
	switch a.Event {
	case audit.ReservedEvent:
		canBe = p.begun == 0
		p.begun, p.state, p.created, p.updated = a.Seq, history.Reserved, a.At, a.At
		p.terms, p.record, p.key = d.Row, d.Stored, d.Key
	case audit.SignedEvent:
		canBe = p.state == history.Reserved && g.Row == p.terms && g.ID == p.is.id &&
			g.Terms == p.is.signedTerms()
		p.state, p.signed, p.sent, p.updated = history.Submitted, true, g.Submitted, a.At
		p.record, p.unique, p.signature = g.Stored, g.Unique, g
	case audit.SubmittedEvent:
		canBe = p.state == history.Submitted && !p.sent
		p.sent, p.record = true, d.Stored
	case audit.ExpiredEvent, audit.ChargedEvent:
		canBe = p.giveBack(a, d)
	case audit.SettledEvent, audit.UnknownEvent, audit.FailedEvent:
		canBe = p.state.MayBecome(history.State(a.Event)) &&
			(a.Event != audit.FailedEvent || p.signed == p.expired)
		p.outcome(a, d)
	case audit.KeyedEvent:
		p.key = d.Key
	case audit.DeliveredEvent:
		p.delivered = true
	}
	if d.SHA256 != "" {
		p.bought = d.ContentDetail
	}
	if !canBe {
		return audit.Corrupt("event %d, that payment %s is %s, cannot be", a.Seq, p.is.id, a.Event)
	}
	return nil
}

// giveBack takes an event into account that gives money back: the payment's signature expired, or less was
// charged than was signed for. It reports whether that can be.
func (p *payment) giveBack(a audit.Row, d audit.Step) (canBe bool) {
	of, err := seals.Read[seals.GivenBack](a.Detail)
	isOf := err == nil && p.signed && audit.JSON(of.Signature) == audit.JSON(p.signature)
	canBe = isOf && !p.expired && p.charged == ""
	if a.Event == audit.ExpiredEvent {
		p.expired = true
		return canBe
	}
	p.charged, p.returned = d.Charged, d.Returned
	return canBe && d.Charged != "" && d.Returned >= 0 && d.Returned <= p.is.usd
}

func (p *payment) outcome(a audit.Row, d audit.Step) {
	p.state, p.updated, p.note = history.State(a.Event), a.At, d.Note
	if !p.signed { // released
		p.note = d.Why
		return
	}
	p.proof, p.untrue = d.Proof, d.FalseReceipt
	p.transaction, p.facilitator = cmp.Or(d.Transaction, p.transaction), cmp.Or(d.Facilitator, p.facilitator)
	p.receipt, p.chainProof = cmp.Or(d.Receipt, p.receipt), cmp.Or(d.Chain, p.chainProof)
}

// compare names the first column that is not what the chain says.
func (r *replay) compare(p *payment) error {
	is, number := p.is, map[bool]int64{true: 1}
	for _, c := range []struct {
		column string
		agrees bool
	}{
		{"state", is.state == string(p.state)}, {"terms", is.terms == p.terms},
		{"proof", is.proof == p.proof}, {"idempotency_key", is.key == p.key},
		{"record", is.record == p.record}, {"unique_key", is.unique == p.unique},
		{"transaction_id", is.transaction == p.transaction},
		{"facilitator", is.facilitator == p.facilitator}, {"receipt", is.receipt == p.receipt},
		{"chain_proof", is.chainProof == p.chainProof}, {"note", is.note == p.note},
		{"charged", is.charged == p.charged},
		{"created_at", is.created == r.wasRedated(p.last, math.MaxInt64, p.created)},
		{"updated_at", is.updated == r.wasRedated(p.last, math.MaxInt64, p.updated)},
		{"false_receipt", is.untrue == number[p.untrue]}, {"delivered", is.delivered == number[p.delivered]},
		{"returned", is.returned == p.returned}, {"content", is.content.agrees(is, p.bought)},
	} {
		if !c.agrees {
			return audit.Corrupt("the %s of payment %s is not what the audit chain says", c.column, is.id)
		}
	}
	return nil
}
