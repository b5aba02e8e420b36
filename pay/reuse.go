package pay

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"x402-wallet/budget"
	"x402-wallet/history"
	"x402-wallet/x402"
	"x402-wallet/x402/wire"
)

// Some sellers take one payment for more than one request. It is shown to them again instead of another one
// being signed: its bytes are theirs already, and move money once at most.
//
//   - A job: the answer to a payment names an address of the same origin, where the job's result is asked for
//     with the payment that began it, as often as it takes.
//   - Credit: the owner says of a host that a settled payment is good there until it is used up.

const (
	// reusable is how many of the caller's last payments at a host are looked at for credit, maxJobs for a
	// job, and jobTime how old one may be whose job is asked about.
	reusable = 20
	maxJobs  = 100
	jobTime  = 24 * time.Hour
	// maxMention is how much of an answer is searched for the address of a job. maxKnown is of how many
	// payments a process remembers which addresses their answers named, and maxKnownBytes how much that is.
	maxMention    = 256 << 10
	maxKnown      = 1000
	maxKnownBytes = 32 << 20
)

// reuse answers a call by a payment that was made before. done is false where there is none, or
// where the seller does not take it any more.
func (e *Engine) reuse(ctx, caller context.Context, q intent, asked *wire.Challenge) (r Result, done bool,
	err error) {
	isCredit := e.Policy.TakesCredit != nil && e.Policy.TakesCredit(q.host)
	if q.OfSubscription || (!isCredit && !isQuestion(q)) {
		return r, false, nil
	}
	list, err := e.Store.RecentAt(ctx, q.agent, q.host, maxJobs)
	if err != nil {
		return r, false, err
	}
	for i, p := range list {
		if !e.isFor(p, q, *asked) {
			continue
		}
		isJob := e.isJob(ctx, p, q)
		_, isUsedUp := e.usedUp.Load(p.ID)
		if !isJob && (!isCredit || i >= reusable || p.State != history.Settled || isUsedUp) {
			continue
		}
		if err := e.Guard.CheckConfig(ctx); err != nil {
			return r, false, err
		}
		if isJob {
			return e.askForJob(ctx, caller, q, p)
		}
		if r, done, err := e.useCredit(ctx, q, p); done || err != nil {
			return r, done, err
		}
	}
	return r, false, nil
}

// isFor reports whether a payment was made by the same caller to the same seller, on terms that it still asks
// for, and may be shown again.
func (e *Engine) isFor(p history.Payment, q intent, c wire.Challenge) bool {
	isThere := p.Host == q.host && sameOrigin(p.URL, q.URL)
	if p.Agent != q.agent || !isThere || p.Dialect != c.Dialect || !asksTheSame(c, p) {
		return false
	}
	_, isOne := e.channelled(p.Scheme)
	isSent := p.State == history.Settled || p.State == history.Unknown
	return isSent && p.Payload != nil && !isOne && !e.walletSettles(p)
}

// isJob reports whether a call asks for an address that the answer to a payment named for what is to come: in
// a header, or in the body of 202 Accepted.
func (e *Engine) isJob(ctx context.Context, p history.Payment, q intent) bool {
	if !isQuestion(q) || e.Now().Sub(p.Created) > jobTime {
		return false
	}
	named, known := e.jobs.get(p.ID)
	if !known {
		c, err := e.Store.Content(ctx, p.ID)
		if err != nil { // it is a purchase of its own then
			return false
		}
		named = namedBy(c)
		e.jobs.keep(p.ID, named)
	}
	return mentions(named, q.URL)
}

func isQuestion(q intent) bool { return q.Method == http.MethodGet || q.Method == http.MethodHead }

// namedBy is the part of an answer in which the address of a job may stand.
func namedBy(c history.Content) string {
	named := c.Headers
	if c.Status == http.StatusAccepted {
		named += string(c.Body[:min(len(c.Body), maxMention)])
	}
	return named
}

// jobs are what the answers to payments named, so that their contents are not read for each call.
type jobs struct {
	mu    sync.Mutex
	named map[string]string // by payment
	size  int               // of all that is named, in bytes
}

func (j *jobs) get(id string) (named string, known bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	named, known = j.named[id]
	return named, known
}

func (j *jobs) keep(id, named string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.named == nil || len(j.named) == maxKnown || j.size+len(named) > maxKnownBytes {
		j.named, j.size = map[string]string{}, 0
	}
	j.size += len(named) - len(j.named[id])
	j.named[id] = named
}

func sameOrigin(a, b string) bool {
	x, err := url.Parse(a)
	y, otherErr := url.Parse(b)
	return err == nil && otherErr == nil && x.Scheme == y.Scheme && strings.EqualFold(x.Host, y.Host)
}

// mentions reports whether a text of JSON has an address as a whole string.
func mentions(text, address string) bool {
	at, err := url.Parse(address)
	if err != nil || at.RequestURI() == "/" {
		return false
	}
	text = strings.NewReplacer(`\/`, "/", `\u0026`, "&").Replace(text)
	return strings.Contains(text, `"`+address+`"`) || strings.Contains(text, `"`+at.RequestURI()+`"`)
}

// askForJob asks for a job's result with the payment that began it. What comes is what that payment bought.
func (e *Engine) askForJob(ctx, caller context.Context, q intent, p history.Payment) (r Result, done bool,
	err error) {
	p, err = e.awaitLease(ctx, caller, p)
	if err != nil {
		return r, false, err
	}
	defer func() {
		e.inflight.end(p.ID, done && r.Status != StatusUnserved && r.Status != StatusNotPaid)
	}()
	wasSettled := p.State == history.Settled
	if !wasSettled && p.State != history.Unknown { // since it was read, the chain said that it expired
		e.releaseLease(ctx, p.ID)
		return r, false, nil
	}
	if !wasSettled {
		if err := e.mayGoOut(ctx, q, p); err != nil {
			return r, false, e.keepHold(ctx, p, err)
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.Patience(p))
	defer cancel()
	defer e.watch(caller, p.ID)()
	f := e.showAt(ctx, q.Request.Request, p, true, wire.Attach(p.Dialect, p.Payload))
	if wasSettled && !f.served() { // what was served before is the answer to another question
		e.releaseLease(ctx, p.ID)
		return e.noJob(p, f)
	}
	if f.served() && q.URL == q.shownURL { // the ledger keeps no secret of a query
		header := http.Header{}
		maps.Copy(header, f.answer.Header)
		header.Set("Content-Location", q.URL) // so that it is found again (isJob)
		f.answer.Header = header
	}
	r, err = e.finish(ctx, p, judge(f), f.answer)
	if err == nil && f.answer != nil && f.answer.Status == http.StatusAccepted {
		r.Next = accepted(f.answer, e.Now(), true)
	}
	if err == nil && wasSettled && r.Status == StatusPaid {
		r.Status, r.Next = StatusReplayed, bought(p, r.Next)
	}
	return r, err == nil, err
}

// noJob is what came instead of a job's result, where the payment is settled: nothing was paid for that. done
// is false where the seller asks for another payment.
func (e *Engine) noJob(p history.Payment, f facts) (r Result, done bool, err error) {
	if f.answer != nil {
		defer f.answer.Release()
		if f.answer.Challenge != nil {
			return r, false, nil
		}
	}
	if f.answer == nil || f.cut {
		return r, false, x402.Errorf(x402.NetworkError, "the seller did not answer a call about the job of "+
			"%s; nothing was signed", p.ID)
	}
	r = e.free(f.answer)
	r.PaymentID = p.ID
	return r, true, nil
}

// awaitLease takes a payment for the caller, after whoever works on it.
func (e *Engine) awaitLease(ctx, caller context.Context, p history.Payment) (history.Payment, error) {
	for {
		if !e.leased(p) {
			fresh, mine, err := e.acquireLease(ctx, caller, p)
			if err != nil || mine {
				return fresh, err
			}
		}
		if pause(ctx, poll) != nil {
			return p, unknown(x402.OutcomeUnknown, "another call asks for the same job").error(p, nil,
				e.Now())
		}
		var err error
		if p, err = e.Store.Payment(ctx, p.ID); err != nil {
			return p, err
		}
	}
}

// useCredit asks for something else with a settled payment. Where the seller asks for payment again, that one
// is used up.
func (e *Engine) useCredit(ctx context.Context, q intent, p history.Payment) (
	r Result, done bool, err error) {
	if err := e.Store.NotFrozen(ctx, p.Network, p.Source); err != nil { // credit is the owner's money, too
		return r, false, err
	}
	terms := budget.Ask{Agent: q.agent, Host: q.host, Payee: budget.Payee{Network: p.Network, PayTo: p.PayTo}}
	if err := e.Rules.CheckEnds(terms, e.Now()); err != nil {
		return r, false, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.Patience(p))
	defer cancel()
	f := e.showAt(ctx, q.Request.Request, p, true, wire.Attach(p.Dialect, p.Payload))
	if f.answer != nil {
		defer f.answer.Release()
	}
	if f.answer == nil || f.cut {
		return r, false, x402.Errorf(x402.NetworkError, "the seller did not answer a call on credit of %s; "+
			"nothing was signed", p.ID)
	}
	if f.answer.Challenge != nil || f.answer.ChallengeErr != nil {
		e.usedUp.Store(p.ID, true)
		return r, false, nil
	}
	r = e.free(f.answer)
	r.PaymentID = p.ID
	if r.Status == StatusFree {
		r.Next = bought(p, r.Next)
	}
	return r, true, nil
}
