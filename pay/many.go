package pay

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"sync"
	"sync/atomic"
	"time"

	"x402-wallet/history"
	"x402-wallet/internal/steps"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/onchain"
)

// Several purchases under one ceiling and one yes. Each of them is a purchase like any other, with its own
// payment: what they have in common is
//
//	ask    all sellers are asked without payment, few at a time. What was bought before is taken up, and
//	       what is free is got
//	hold   the money of all is held in one step of the ledger, or of none; where a person has to be asked,
//	       one question lists all (manyhold.go)
//	buy    each is signed, sent and recorded by itself, few at a time, up to what is held of it
//
// So whatever a seller changes between the question and its payment, no more leaves than was held, and no
// more is held than the ceiling. What a purchase does not need goes back at its own end.

const (
	// MaxMany is how many requests one batch may have: a person has to read the list.
	MaxMany = 100
	// manyAtOnce is how many sellers are asked, and paid, at a time: each payment of a seller's takes a
	// second or more of waiting, and more at a time would be a burst for a small seller with many pages.
	manyAtOnce = 8
	// manyAskWait is how long one seller is waited for, for its price: the others wait meanwhile.
	manyAskWait = 15 * time.Second
)

// Many is several purchases.
type Many struct {
	Requests  []Request // 1 to MaxMany; their MaxAmount is each one's own, and they have no key of their own
	MaxAmount string    // what all of them together may cost, in dollars as "$0.50"
	// The same key and the same request is the same purchase, for ever; "": the requests themselves, until
	// a batch of them was delivered whole.
	IdempotencyKey string
}

// Outcome is what became of one request.
type Outcome struct {
	URL    string
	SameAs int    // the index of an earlier request that asks the same: it is one purchase; -1: none
	Result Result // where Err is nil
	Err    error  // an *x402.Error
}

// Bought is what became of a batch.
type Bought struct {
	Rows     []Outcome     // in the order of the requests
	Spent    money.Dollars // what this call took from the budgets, what is held included
	Complete bool          // no purchase failed that the same call could still make
	Repeat   string        // what the very same call does next
}

// WithoutContents is what has to be known of it until it is delivered, and no more.
func (b Bought) WithoutContents() Bought {
	rows := make([]Outcome, len(b.Rows))
	for i, row := range b.Rows {
		rows[i] = Outcome{SameAs: row.SameAs, Err: row.Err,
			Result: Result{Status: row.Result.Status, PaymentID: row.Result.PaymentID}}
	}
	b.Rows = rows
	return b
}

type many struct {
	engine  *Engine
	caller  context.Context
	ceiling money.Dollars
	rows    []*manyRow // one for each different request
	of      []int      // the row of each request
	urls    []string   // as they were asked

	proposing bool // its payments are proposed and decided on, and held later, all at once
	plan      manyPlan
	shared    onchain.Shared // what the chains are asked once for all of it
	told      sync.Mutex     // held while somebody is told how far it is
	done      int
}

type manyRow struct {
	in       intent
	ctx      context.Context // the caller's, with its own steps
	recorder *steps.Recorder
	found    *quote           // what the seller asks; nil: nothing is to be paid for
	question *option          // that a person has to approve
	taken    *history.Payment // that it turned out to be
	Outcome
}

// PayMany buys what q asks for, each by itself, for the ceiling at most. Its error is an *x402.Error, and
// says that nothing was bought: what is wrong with one request is that one's.
func (e *Engine) PayMany(ctx context.Context, q Many) (b Bought, err error) {
	m, err := e.batchOf(ctx, q)
	if err != nil {
		return b, err
	}
	defer m.report(&err)
	if e.Hooks != nil {
		defer e.Hooks.Wake()
	}
	if err := awaitFirst(ctx); err != nil {
		return b, err
	}
	m.each(m.ask)
	if err := m.hold(ctx); err != nil {
		e.alertDamage(ctx, err)
		if !m.refuseRest(err) {
			return b, err
		}
	}
	m.each(m.buy)
	return m.bought(ctx, q), nil
}

// batchOf reads a batch; everything wrong with it is INVALID_ARGUMENT, and nobody was asked.
func (e *Engine) batchOf(ctx context.Context, q Many) (*many, error) {
	most, err := parseLimit(q.MaxAmount)
	switch {
	case len(q.Requests) == 0:
		return nil, x402.Errorf(x402.InvalidArgument, "requests is empty").
			WithHint("name 1 to %d requests", MaxMany)
	case len(q.Requests) > MaxMany:
		return nil, x402.Errorf(x402.InvalidArgument, "%d requests are more than the %d that one batch may "+
			"have", len(q.Requests), MaxMany).WithHint("make several batches of them")
	case err != nil:
		return nil, err
	case most.dollars == nil:
		return nil, x402.Errorf(x402.InvalidArgument, "a batch needs a maxAmount in dollars, for all of it").
			WithHint(`write what all requests together may cost, like "$0.50": what they are paid in may ` +
				`differ`)
	}
	m := &many{engine: e, caller: ctx, ceiling: *most.dollars, of: make([]int, len(q.Requests))}
	first := map[[sha256.Size]byte]int{}
	for i, one := range q.Requests {
		one.IdempotencyKey = q.IdempotencyKey // its form is checked like any other
		in, err := one.parse(AgentFrom(ctx))
		if err != nil {
			coded := x402.AsError(err)
			coded.Message = "request " + ordinal(i) + ": " + coded.Message
			return nil, coded.WithDetail("request", i)
		}
		m.urls = append(m.urls, one.URL)
		if at, twice := first[in.fingerprint]; twice {
			m.of[i] = at
			continue
		}
		first[in.fingerprint], m.of[i] = len(m.rows), len(m.rows)
		in.many, in.limit.ceiling = m, &m.ceiling
		in.IdempotencyKey = rowKey(q.IdempotencyKey, in.fingerprint)
		r := &manyRow{in: in}
		r.ctx, r.recorder = e.observed(e.rowContext(ctx, i))
		r.recorder.At(in.host, "")
		m.rows = append(m.rows, r)
	}
	return m, nil
}

// rowContext is the context of one of a batch's requests.
func (e *Engine) rowContext(ctx context.Context, n int) context.Context {
	if e.ofRow == nil {
		return ctx
	}
	return e.ofRow(ctx, n)
}

// rowKey is the idempotency key of one purchase of a batch: of its request, so that the same batch in another
// order, or a part of it, is the same purchases.
func rowKey(key string, fingerprint [sha256.Size]byte) string {
	if key == "" {
		return ""
	}
	sum := sha256.Sum256(append(append([]byte(key), 0), fingerprint[:]...))
	return "batch:" + hex.EncodeToString(sum[:16])
}

// each does something about the rows, few at a time, in their order.
func (m *many) each(do func(*manyRow)) {
	var next atomic.Int64
	var working sync.WaitGroup
	for range min(manyAtOnce, len(m.rows)) {
		working.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(m.rows)); i = next.Add(1) - 1 {
				do(m.rows[i])
			}
		})
	}
	working.Wait()
}

// refuseRest makes a refusal of the batch that of each row which is not bought already; false: none is, and
// the refusal is the answer.
func (m *many) refuseRest(why error) (some bool) {
	for _, r := range m.rows {
		isBought := r.Result.PaymentID != "" || (r.Err != nil && x402.AsError(r.Err).PaymentID != "")
		some = some || isBought || r.taken != nil
	}
	for _, r := range m.rows {
		if some && r.found != nil && r.taken == nil && r.Err == nil {
			r.Err = why
		}
	}
	return some
}

// ask asks one seller without payment.
func (m *many) ask(r *manyRow) {
	e := m.engine
	if m.isLeft() {
		r.Err = notTried()
		return
	}
	r.Err = e.mayAsk(r.ctx, r.in.Request.Request, r.in.host)
	if r.Err != nil {
		return
	}
	if _, ok := e.deferred(r.ctx, r.in); ok {
		r.Err = x402.Errorf(x402.InvalidArgument, "this server is paid through a channel and names its "+
			"price with the answer: it cannot be part of a batch").
			WithHint("call it by itself, with a maxAmount")
		return
	}
	ctx, cancel := context.WithTimeout(r.ctx, min(e.Policy.Deadline, manyAskWait))
	defer cancel()
	ctx, leave, err := e.gate.enter(ctx, r.in.host)
	if err != nil {
		r.Err = err
		return
	}
	defer leave()
	r.found, r.Result, r.Err = e.find(ctx, m.caller, r.in)
}

// buy brings one purchase to its end whose money is held, or that was made already.
func (m *many) buy(r *manyRow) {
	defer m.tell()
	e := m.engine
	if r.taken == nil && (r.found == nil || r.found.held == nil) {
		return
	}
	if p := m.heldOf(r); m.isLeft() && p != nil {
		r.found.held = nil
		r.Err = p.NotSent(r.ctx, notTried())
		p.End(false)
		return
	}
	ctx, cancel := context.WithTimeout(r.ctx, e.Policy.Deadline)
	defer cancel()
	ctx, leave, err := e.gate.enter(ctx, r.in.host)
	if err == nil {
		defer leave()
	} else { // its time is over, and what is held goes back
		ctx = r.ctx
	}
	switch {
	case r.taken != nil:
		var done bool
		r.Result, done, r.Err = e.takeUp(ctx, r.in, *r.taken)
		if !done && r.Err == nil {
			r.Err = endedMeanwhile()
		}
	case err != nil:
		r.Err = r.found.held.NotSent(ctx, err)
		r.found.held.End(false)
	default:
		r.Result, r.Err = e.buyRecounted(ctx, m.caller, r.in, r.found)
	}
}

func (m *many) heldOf(r *manyRow) *Purchase {
	if r.found == nil {
		return nil
	}
	return r.found.held
}

// isLeft reports whether the caller went away: what was not begun is not begun any more.
func (m *many) isLeft() bool {
	call := CallFrom(m.caller)
	return m.caller.Err() != nil || (call != nil && call.Cancelled())
}

func notTried() error {
	return x402.Errorf(x402.Timeout, "the batch was cancelled before this purchase was begun; nothing of it "+
		"was signed").WithHint("make the same call again: it buys what is missing").WithDetail("tried", false)
}

// tell says how many purchases are over, to whoever wants to hear it.
func (m *many) tell() {
	m.told.Lock()
	defer m.told.Unlock()
	m.done++
	reachedRow(m.caller, m.done, len(m.rows))
}

// bought is what came of it all.
func (m *many) bought(ctx context.Context, q Many) Bought {
	b := Bought{Complete: true}
	for _, r := range m.rows {
		b.Spent = b.Spent.Add(m.spent(ctx, r))
		b.Complete = b.Complete && !r.isMissing()
		m.engine.alertDamage(ctx, r.Err)
	}
	at := map[int]int{}
	for i, row := range m.of {
		o := m.rows[row].Outcome
		o.URL, o.SameAs = m.urls[i], -1
		if first, twice := at[row]; twice {
			o.SameAs = first
		} else {
			at[row] = i
		}
		b.Rows = append(b.Rows, o)
	}
	call := CallFrom(ctx)
	b.Repeat = RepeatBuys
	if (call != nil && call.answering()) || q.IdempotencyKey != "" || !b.Complete {
		b.Repeat = RepeatIs
	}
	return b
}

// isMissing reports whether the purchase failed in a way that the same call may mend.
func (r *manyRow) isMissing() bool {
	if r.Err == nil {
		return r.Result.Status == StatusUnserved
	}
	if x402.HasCode(r.Err, x402.AmountExceedsMax) { // with a higher one it is another call
		return false
	}
	do := x402.AsError(r.Err).NextStep().Do
	return do == x402.Repeat || do == x402.Wait || do == x402.AskPerson
}

// spent is what a purchase took from the budgets in this call.
func (m *many) spent(ctx context.Context, r *manyRow) money.Dollars {
	id := r.Result.PaymentID
	if r.Err != nil {
		id = x402.AsError(r.Err).PaymentID
	}
	if id == "" || r.Result.Status == StatusReplayed {
		return 0
	}
	p, err := m.engine.Store.Payment(context.WithoutCancel(ctx), id)
	if err != nil || p.State == history.Failed {
		return 0
	}
	return m.engine.Worth(p)
}

// report tells whoever listens what each purchase came to; err is what all of them did not come to.
func (m *many) report(err *error) {
	for _, r := range m.rows {
		why := r.Err
		if *err != nil && why == nil && r.found != nil {
			why = *err
		}
		m.engine.report(r.recorder, r.Result, why)
	}
}

// DeliveredMany says that the caller got what a batch came to. As long as a part of it is missing, nothing of
// it counts as delivered, so that the same call finds what was bought; with a key it does so in any case.
func (e *Engine) DeliveredMany(ctx context.Context, b Bought) {
	for _, row := range b.Rows {
		switch {
		case row.SameAs >= 0 || row.Err != nil:
		case b.Complete:
			e.Delivered(ctx, row.Result.Status, row.Result.PaymentID)
		default:
			e.Lost(ctx, row.Result.PaymentID)
		}
	}
}

// LostMany says that the caller never got it, and no longer waits.
func (e *Engine) LostMany(ctx context.Context, b Bought) {
	for _, row := range b.Rows {
		e.Lost(ctx, row.Result.PaymentID)
	}
}
