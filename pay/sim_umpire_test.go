//go:build !race

package pay

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"time"

	"x402-wallet/budget"
	"x402-wallet/history"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// umpire is what must stay true, as the chain and the sellers saw it. What the wallet says is compared
// with that, never the other way round.
//
//	I1  settled and still settleable signatures never exceed a cap
//	I2  one purchase, at most one such signature: a new one only when the chain can no longer
//	    execute the old
//	I3  bytes that leave are on disk before, word for word
//	I4  every transfer has its row; a hold goes only for what was never sent or is dead
//	I5  what a call says is so: an error after bytes left names the payment and what it took, a
//	    paid answer is the content that was bought, a key has one purchase for ever
//	I6  nothing hangs; once everything is over and the chain can be asked, nothing stays unknown
//	    and the budgets are the chain's
type umpire struct {
	batchUmpire
	wrong   string // the first thing that was not true
	rows    map[string]*rowSeen
	order   []string
	newest  time.Time
	session int
	last    time.Time
	// purchases per URL: calls with the same key are one, others each their own
	begun map[string]int
	keys  map[string]map[string]bool // rows that a key's calls were answered from
}

// rowSeen is what the umpire knows of a row from outside.
type rowSeen struct {
	url, key string // a key as its agent's
	agent    string
	created  time.Time
	session  int
	served   bool // whole, and stored: to be had again
	storedAt int  // s.reads then
	claimed  bool // once settled on somebody's word
}

// begins counts a purchase.
func (s *sim) begins(pu *purchase) {
	if key := whose(pu.agent, pu.key); key != "" {
		if s.keys[key] != nil {
			return
		}
		s.keys[key] = map[string]bool{}
	}
	s.begun[whose(pu.agent, pu.url)]++
}

// reserved notes in which windows a hold falls, by the umpire's own clock.
func (s *sim) reserved(p history.Payment, c *call) {
	at := s.wallet().Truncate(time.Microsecond)
	if s.newest.After(at) {
		at = s.newest
	}
	s.newest = at
	if s.session == 0 || at.Sub(s.last) >= budget.SessionIdle {
		s.session++
	}
	s.last = at
	if p.IsSignIn() {
		s.heldSignIn(p, c)
		s.boughtBefore(c)
		return
	}
	if p.IsPull() {
		s.say("      %s holds a float of %s", p.ID[:8], p.Amount)
		return
	}
	s.rows[p.ID] = &rowSeen{url: c.of.url, key: whose(c.of.agent, c.of.key), agent: c.of.agent,
		created: at, session: s.session}
	s.order = append(s.order, p.ID)
	s.say("      %s holds %s", p.ID[:8], p.Amount)
}

// named notes that a payment made without a key became a key's.
func (s *sim) named(id, key string) {
	r := s.rows[id]
	r.key = whose(r.agent, key)
	if g := s.of(id); g != nil {
		g.key = r.key
	}
}

// isPayloadOf reports whether bytes are a payment's, or those of its voucher alone where its deposit was
// made.
func (s *sim) isPayloadOf(g *signature, p history.Payment, payload []byte) bool {
	if g.promise == nil || !g.promise.alone {
		return string(p.Payload) == string(payload)
	}
	var was, is any
	errWas := json.Unmarshal(p.Payload, &was)
	errIs := json.Unmarshal([]byte(strings.Replace(string(payload), aloneMark, "{", 1)), &is)
	return errWas == nil && errIs == nil && reflect.DeepEqual(was, is) && g.isBrought()
}

// onDisk is I3, asked of the ledger by another reader at the moment the bytes leave.
func (s *sim) onDisk(g *signature, payload []byte) {
	p, err := s.eye.Payment(context.Background(), g.row)
	switch {
	case err != nil:
		s.fail("I3: %s left and has no row: %v", g.tx(), err)
	case !s.isPayloadOf(g, p, payload):
		s.fail("I3: %s left, its row has other bytes", g.tx())
	case p.State == history.Reserved || (p.State == history.Failed && s.live(g)):
		s.fail("I3: %s left, its row is %s", g.tx(), p.State)
	}
}

// released is I4: at that moment nothing of it may be able to move money.
func (s *sim) released(id, why string) {
	s.say("      %s is let go of: %s", id[:8], why)
	s.notCharged(id)
	s.releasedFloat(id, why)
	for _, g := range s.sigs {
		if g.row == id && s.live(g) {
			s.fail("I4: the hold of %s is gone (%s), but %s is %s", id[:8], why, g.tx(),
				map[bool]string{true: "settled", false: "still good"}[g.settled])
		}
	}
}

// stored notes content that the ledger was given.
func (s *sim) stored(id string, c history.Content) {
	if r := s.rows[id]; r != nil && strings.HasPrefix(string(c.Body), "ok ") {
		if !r.served {
			s.reads++
			r.storedAt = s.reads
		}
		r.served = true
	}
}

// check is I1 and I2, after every step.
func (s *sim) check() {
	if s.wrong != "" {
		return
	}
	s.checkCaps()
	s.checkAgents()
	s.checkPurchases()
	s.checkFloat()
	if s.seed%newEvery == 0 {
		s.checkBatch()
		s.checkPermits()
	}
}

// over is I1 for the signatures of some rows.
func (s *sim) over(name string, limit money.Dollars, in func(*rowSeen) bool) {
	var sum uint64
	for _, g := range s.sigs {
		if r := s.rows[g.row]; r != nil && s.live(g) && in(r) {
			sum += g.worth()
		}
	}
	if sum > uint64(limit) {
		s.fail("I1: %d could be spent of the %s's %d", sum, name, limit)
	}
}

// checkCaps is I1 for the owner's caps.
func (s *sim) checkCaps() {
	for _, id := range s.order {
		of := s.rows[id]
		day := of.created.Truncate(24 * time.Hour)
		if s.rules.Session != nil {
			s.over("session", *s.rules.Session, func(r *rowSeen) bool { return r.session == of.session })
		}
		s.over("day", s.rules.Day, func(r *rowSeen) bool {
			return r.created.Truncate(24 * time.Hour).Equal(day)
		})
		s.over("month", s.rules.Month, func(r *rowSeen) bool {
			return r.created.Month() == of.created.Month()
		})
		for host, limit := range s.rules.HostDay {
			s.over("host", limit, func(r *rowSeen) bool {
				return r.created.Truncate(24*time.Hour).Equal(day) && strings.Contains(r.url, host)
			})
		}
	}
}

// checkPurchases is I1 for the balance, and I2.
func (s *sim) checkPurchases() {
	var all uint64
	alive := map[string]int{}
	for _, g := range s.sigs {
		if s.live(g) && !g.isOwners() {
			all += g.worth()
			if g.promise != nil { // money that stays ours until a voucher promises it: B1 to B3
				continue
			}
			alive[whose(g.agent, g.url)]++
			if g.key != "" {
				alive[g.key]++
			}
		}
	}
	if had := s.initial + s.returnedBy(s.now()); s.mix.exact && all > had {
		s.fail("I1: %d could be spent of a balance of %d", all, had)
	}
	for what, n := range alive {
		if n > 1 && s.keys[what] != nil {
			s.fail("I2: the key %q has %d payments", what, n)
		}
		if s.keys[what] == nil && n > s.begun[what] {
			s.fail("I2: %d payments for %d purchases of %s", n, s.begun[what], what)
		}
	}
}

func (s *sim) of(id string) *signature {
	for _, g := range s.sigs {
		if g.row == id {
			return g
		}
	}
	return nil
}

// answeredError is I5 for a call that ends with an error.
func (s *sim) answeredError(c *call, err error) {
	e := x402.AsError(err)
	var coded *x402.Error
	switch {
	case !errors.As(err, &coded) || e.Code == x402.Internal:
		s.fail("I5: an error without a code: %v", err)
	case c.sent != "" && e.PaymentID != c.sent:
		s.fail("I5: %s was sent, the error names %q: %v", c.sent[:8], e.PaymentID, err)
	case c.sent != "" && (e.Spent == "" || e.Spent == "0"):
		s.fail("I5: %s was sent, the error says nothing was taken: %v", c.sent[:8], err)
	}
	s.answeredBatch(c)
	s.refusedAfterServing(c, e.Code)
}

// answered is I5.
func (s *sim) answered(c *call, r Result, err error) {
	if s.wrong != "" {
		return
	}
	if err != nil {
		s.answeredError(c, err)
		return
	}
	s.answeredBatch(c)
	if s.answeredSignIn(c, r) {
		return
	}
	if r.Status == StatusFree {
		if r.Content != "free "+c.of.url {
			s.fail("I5: free, but %q", r.Content)
		}
		return
	}
	row, g := s.rows[r.PaymentID], s.of(r.PaymentID)
	if row == nil || g == nil || row.url != c.of.url {
		s.fail("I5: answered from a payment for something else")
		return
	}
	s.answeredFrom(c, row)
	bought := r.Status == StatusPaid || r.Status == StatusReplayed
	switch {
	case bought && (r.HTTPStatus != 200 || !g.good[r.Content]):
		s.fail("I5: %s with %d %q, which was not served for it", r.Status, r.HTTPStatus, r.Content)
	case r.Status == StatusUnserved:
		s.refusedAfterServing(c, "")
	}
	if c.of.key == "" {
		return
	}
	answers := s.keys[whose(c.of.agent, c.of.key)]
	answers[r.PaymentID] = true
	for id := range answers {
		if other := s.of(id); id != r.PaymentID && s.live(other) && s.live(g) {
			s.fail("I5: the key %q was answered from %s before and from %s now", c.of.key, id[:8],
				r.PaymentID[:8])
		}
	}
}

// refusedAfterServing: what a key bought and the ledger keeps is to be had again. What was stored
// between a call's last look and its answer it could not know, and of what it sent itself it says what became
// of that.
func (s *sim) refusedAfterServing(c *call, code x402.Code) {
	switch code {
	case "", x402.PaymentRejected, x402.PriceChanged, x402.SettlementFailed, x402.RedirectRefused:
	default:
		return // trouble of the moment
	}
	for id, r := range s.rows {
		if (c.looked != 0 && c.looked < r.storedAt) || (c.sent != "" && c.sent != id) {
			continue
		}
		isIts := c.of.key != "" && r.key == whose(c.of.agent, c.of.key)
		if g := s.of(id); isIts && r.served && g != nil && g.settled {
			s.fail("I5: the key %q was served and stored, and is now answered %q", c.of.key, code)
		}
	}
}

// compare is I4 and I6 at the end, when nothing can happen any more.
//
//nolint:gocyclo // a table of what must not be
func (s *sim) compare() {
	ctx, eye := context.Background(), s.eye
	var spent uint64
	for _, id := range s.order {
		p, err := eye.Payment(ctx, id)
		g := s.of(id)
		switch {
		case err != nil:
			s.fail("I4: row %s is lost: %v", id[:8], err)
		case p.State.Unfinished() && g != nil && g.isUnclaimed():
			// its owner may fund the channel again, and then it can be claimed
		case p.State.Unfinished():
			s.fail("I6: %s stays %s", id[:8], p.State)
		case g != nil && g.promise != nil && !g.promise.deposits: // the chain knows of channels, not of calls
		case p.State == history.Settled && (g == nil || !g.settled):
			s.fail("I6: %s counts as spent, the chain knows nothing of it", id[:8])
		case p.State == history.Failed && g != nil && g.settled:
			s.fail("I4: %s is let go of, the chain has it settled", id[:8])
		case p.State == history.Failed && s.rows[id].claimed && !p.FalseReceipt:
			s.fail("I6: %s was claimed to be settled, the chain says no, and nobody is blamed", id[:8])
		case p.State == history.Settled && p.Proof != history.Chain:
			s.fail("I6: %s still rests on a claim", id[:8])
		}
	}
	for _, g := range s.sigs {
		if !g.settled {
			continue
		}
		if s.rows[g.row] == nil {
			s.fail("I4: %s is settled and in no row", g.tx())
		}
		spent += g.worth()
	}
	if s.initial+s.returnedBy(s.now())-s.balance != spent {
		s.fail("the umpire cannot add")
	}
	s.compareFloats()
	s.compareSignIns()
	s.compareWindows()
	s.compareAgents()
}

// compareWindows adds up what the chain executed, day by day and session by session, and asks the
// ledger for the same.
func (s *sim) compareWindows() {
	type window struct {
		since time.Time
		host  string
	}
	want := map[window]money.Dollars{}
	for _, id := range s.order {
		r := s.rows[id]
		for _, host := range []string{"", s.host(0), s.host(1)} {
			w := window{r.created.Truncate(24 * time.Hour), host}
			want[w] += 0
		}
	}
	for w := range want {
		for _, g := range s.sigs {
			if r := s.rows[g.row]; (g.settled || g.counts > 0) && r != nil && !r.created.Before(w.since) &&
				strings.Contains(r.url, w.host) {
				want[w] += money.Dollars(g.worth())
			}
		}
	}
	for w, sum := range want {
		got, err := s.used(w.since, w.host)
		if err != nil {
			s.fail("the umpire cannot read: %v", err)
		}
		if got.Total() != sum || (got.Held > 0 && !s.funded) {
			s.fail("I6: the ledger says %+v since %s at %q, the chain executed %d", got, w.since, w.host, sum)
		}
	}
}

// facts are the ledger's, as the umpire reads it.
func (s *sim) facts(q budget.Query) (history.Facts, error) {
	return s.eye.Facts(context.Background(), history.Question{Rules: q})
}

// used is what the ledger says was spent and held since a day's beginning, at a host or at all.
func (s *sim) used(since time.Time, host string) (budget.Use, error) {
	f, err := s.facts(budget.Query{At: since, HostEntries: []string{host}})
	if host == "" {
		return f.Used.Day, err
	}
	return f.Used.HostDay[host], err
}
