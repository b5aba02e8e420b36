package pay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"

	"x402-wallet/budget"
	"x402-wallet/history"
	"x402-wallet/internal/steps"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// The money of a batch: each payment is proposed and decided on as if those before it were held already, by
// the same steps as any other (hold.go); then the ledger holds all of them in one transaction, or none.
// Holding one after the other and giving all back where one does not fit would be no less safe. But two
// batches that fit only one after the other would both be refused, what was given back would count against
// the owner's rate, and a history would be full of payments that nobody wanted.

// manyPlan is what a batch would hold, as far as it was proposed.
type manyPlan struct {
	taken    money.Dollars           // of the ceiling, with what was bought before
	asks     []budget.Ask            // in the order of the rows
	held     map[string]money.Amount // by source and asset
	readings readings                // of the chain
	channels map[string]bool         // hosts and payees that are paid through a channel with a deposit
	short    bool                    // the row is refused because of those before it
	asked    func()                  // counts what a person is to be asked about; nil: nothing
}

func (m *many) proposes() bool { return m != nil && m.proposing }

// needsPerson is the refusal of a payment that a person has to approve, with the rest of its batch.
type needsPerson struct{ option option }

func (n *needsPerson) Error() string { return n.option.why.Error() }
func (n *needsPerson) Unwrap() error { return n.option.why }

// hold holds the money of all rows that are to be paid. After an error nothing is held.
func (m *many) hold(ctx context.Context) (err error) {
	e := m.engine
	ctx, cancel := context.WithTimeout(ctx, e.Policy.Deadline)
	defer cancel()
	end, err := e.batches.begin(ctx, "hold") // of two that do not both fit the first one is held
	if m.isLeft() {
		return m.left()
	}
	if err != nil {
		return x402.Errorf(x402.Timeout, "the batch did not have its turn behind the others in its time: %w",
			err).
			WithHint("nothing was held or signed; make the same call again")
	}
	defer end()
	until := e.Now().Add(fundsWait)
	for range maxDecisions {
		m.plan = manyPlan{taken: m.boughtBefore(ctx), held: map[string]money.Amount{},
			channels: map[string]bool{}}
		err := m.holdOnce(ctx)
		var lack *history.ShortOfFunds
		switch {
		case err == nil:
			return nil
		case errors.As(err, &lack) && e.Now().Before(until):
			if pause(ctx, fundsWait/maxDecisions) != nil { // what others paid shows on the chain by then
				return err
			}
		case errors.As(err, &lack), !errors.Is(err, history.ErrMoved):
			return err
		}
	}
	busy := x402.Errorf(x402.LedgerUnavailable,
		"other payments changed the budgets each of the %d times that this batch was decided on",
		maxDecisions)
	busy.FixedBy = x402.ByTime
	return busy.WithHint("make the same call again; nothing was held or signed")
}

func (m *many) left() error {
	return x402.Errorf(x402.Timeout, "the client left before anything was held").
		WithHint("make the same call again")
}

// boughtBefore is what those of its purchases cost that were made by other calls: the ceiling is for all.
func (m *many) boughtBefore(ctx context.Context) (sum money.Dollars) {
	for _, r := range m.rows {
		if r.taken != nil { // another call has paid for it since this one asked
			sum = sum.Add(m.engine.Worth(*r.taken))
			continue
		}
		id := r.Result.PaymentID
		if r.Err != nil {
			id = x402.AsError(r.Err).PaymentID
		}
		if id == "" {
			continue
		}
		if p, err := m.engine.Store.Payment(ctx, id); err == nil && p.State != history.Failed {
			sum = sum.Add(m.engine.Worth(p))
		}
	}
	return sum
}

// holdOnce proposes all rows and holds them.
func (m *many) holdOnce(ctx context.Context) (err error) {
	m.proposing = true
	defer func() {
		m.proposing = false
		if err != nil {
			m.drop()
		}
	}()
	isAsked := false
	for _, r := range m.rows {
		if r.found == nil || r.taken != nil || r.Err != nil {
			continue
		}
		if err := m.proposeRow(ctx, r); err != nil {
			return err
		}
		isAsked = isAsked || r.question != nil
	}
	if isAsked {
		return m.askPerson(ctx)
	}
	return m.reserve(ctx)
}

// proposeRow proposes the best option of a row. Its error is about the sum: the batch is refused. What is
// wrong with the row itself is its own.
func (m *many) proposeRow(ctx context.Context, r *manyRow) error {
	e, plan := m.engine, &m.plan
	r.question, plan.short, plan.asked = nil, false, nil
	r.in.limit.ceiling = &m.ceiling
	r.found.options = e.judge(r.found, r.in)
	alone := len(e.candidates(r.found.options)) > 0
	if alone { // else it is refused by itself
		left := m.ceiling.SubFloor(plan.taken)
		r.in.limit.ceiling = &left
		r.found.options = e.judge(r.found, r.in)
		if len(e.candidates(r.found.options)) == 0 {
			return m.aboveCeiling()
		}
	}
	m.oneChannelEach(r)
	r.found.ahead = plan.readings.again()
	p, err := e.hold(ctx, m.caller, r.in, r.found)
	var needs *needsPerson
	var taken *history.AlreadyPaying
	switch {
	case err == nil:
		r.found.held = p
		worth := max(p.option.price, p.Payment.Price)
		r.in.limit.ceiling = &worth // whatever it is held by in the end
		r.ruleOutAbove(worth)
		m.count(worth, p.proposal.ask, p.option)
	case errors.As(err, &needs):
		r.question = &needs.option
		if plan.asked != nil {
			plan.asked()
		}
		m.count(needs.option.price, budgetAsk(payment(r.in, needs.option, x402.Funds{})), needs.option)
	case errors.As(err, &taken):
		r.taken = &taken.Payment
		plan.taken = plan.taken.Add(e.Worth(taken.Payment))
	case plan.short || isAboutWindow(err):
		return m.refused(err)
	default:
		r.Err = err
	}
	return nil
}

// ruleOutAbove rules out what costs more than what is held: should that fail at its signature, the next
// option is taken, and the ceiling has no room for a dearer one.
func (r *manyRow) ruleOutAbove(worth money.Dollars) {
	for i := range r.found.options {
		o := &r.found.options[i]
		if o.why == nil && o.price > worth {
			o.stage, o.why = stageMax, x402.AsError(tooMuch(o, worth.Price(), o.price.Price()))
		}
	}
}

// count notes what a row takes.
func (m *many) count(worth money.Dollars, ask budget.Ask, o option) {
	m.plan.taken = m.plan.taken.Add(worth)
	m.plan.asks = append(m.plan.asks, ask)
	if o.isChannelled() {
		m.plan.channels["host "+ask.Host], m.plan.channels["payee "+o.Network+" "+o.PayTo] = true, true
	}
}

// isAboutWindow reports whether a refusal is by what the owner allows in a time.
func isAboutWindow(err error) bool {
	return x402.HasCode(err, x402.BudgetExceeded) || x402.HasCode(err, x402.RateLimited)
}

// oneChannelEach rules out a second payment through a channel with a deposit: a channel serves one call at a
// time, and the others are held until all are.
func (m *many) oneChannelEach(r *manyRow) {
	for i := range r.found.options {
		o := &r.found.options[i]
		if o.why != nil || !o.isChannelled() {
			continue
		}
		if m.plan.channels["host "+r.in.host] || m.plan.channels["payee "+o.Network+" "+o.PayTo] {
			o.why = x402.Errorf(x402.InvalidRequirement, "another purchase of the batch is paid through the "+
				"seller's channel, which serves one call at a time").
				WithHint("make the same call again, or this purchase by itself: then it is paid").
				WithNext(x402.Next{Do: x402.Repeat, Why: "the channel is free then"})
			o.stage = stageFunds
		}
	}
}

// propose is what holds a payment that is made by itself, up to its decision.
func (m *many) propose(ctx context.Context, e *Engine, w *proposal, written func()) (*Purchase, error) {
	p := &Purchase{Payment: w.hold.Payment, engine: e, option: w.option, funds: w.hold.Funds, proposal: w,
		written: written, unlock: w.unlock}
	m.plan.readings = m.plan.readings.with(w.option, w.hold.Funds)
	w.earlier = m.plan.asks
	err := e.decide(ctx, w)
	isAsked := x402.HasCode(err, x402.ApprovalRequired)
	if err == nil || isAsked { // nobody is asked for what could not be paid
		err = cmp.Or(m.coveredByChain(ctx, w, isAsked), err)
	}
	if err != nil {
		e.inflight.end(p.Payment.ID, false)
		written()
		if errors.Is(err, budget.ErrTripped) && len(w.earlier) == 0 {
			e.trip(ctx, err)
		}
		return nil, err
	}
	return p, nil
}

// coveredByChain refuses what the chain covers, but not beside the rows before it. What a person is to be
// asked about is counted when it is known that they are (manyPlan.asked).
func (m *many) coveredByChain(ctx context.Context, w *proposal, isAsked bool) error {
	p, funds := w.hold.Payment, w.hold.Funds
	if p.ByVoucher() {
		return nil
	}
	place := p.Network + " " + p.Asset + " " + funds.Source
	before := m.plan.held[place]
	all, ok := before.Add(p.Amount)
	switch {
	case !ok || all.Cmp(funds.Free) > 0:
		m.plan.short = true
		return m.engine.insufficient(ctx, w.option, funds,
			&history.ShortOfFunds{Free: funds.Free, Held: before, Wanted: p.Amount})
	case !isAsked:
		m.plan.held[place] = all
	case m.plan.asked == nil: // the best option is the one that is asked about
		held := m.plan.held
		m.plan.asked = func() { held[place] = all }
	}
	return nil
}

// reserve holds what was proposed, in one step.
func (m *many) reserve(ctx context.Context) error {
	e := m.engine
	var rows []*manyRow
	var holds []history.Hold
	for _, r := range m.rows {
		if p := m.heldOf(r); p != nil {
			rows, holds = append(rows, r), append(holds, p.proposal.hold)
		}
	}
	if len(rows) == 0 {
		return nil
	}
	if m.isLeft() {
		return m.left()
	}
	// before anything is held: the key is unlocked once for all, and who cannot refuses all
	if err := e.Guard.VerifySeals(ctx); err != nil {
		return err
	}
	_, step := steps.Begin(ctx, steps.Reserve)
	held, err := e.Store.ReserveAll(ctx, holds)
	step.End(err)
	if err == nil {
		for i, r := range rows {
			w := r.found.held
			p := e.purchase(r.ctx, w.proposal, held[i])
			w.written()
			r.found.held = p
		}
		return nil
	}
	if x402.HasCode(err, x402.LedgerUnavailable) {
		for _, h := range holds {
			e.undoHold(ctx, h.Payment.ID)
		}
	}
	return m.whyNotHeld(ctx, rows, err)
}

// whyNotHeld is what a refusal of the ledger is to the batch; ErrMoved: it is to be proposed again.
func (m *many) whyNotHeld(ctx context.Context, rows []*manyRow, err error) error {
	var not *history.NotHeld
	if !errors.As(err, &not) {
		return err
	}
	r := rows[not.At]
	var taken *history.AlreadyPaying
	var lack *history.ShortOfFunds
	switch {
	case errors.As(err, &taken): // since a moment ago
		r.taken = &taken.Payment
		m.dropRow(r)
		return history.ErrMoved
	case errors.As(err, &lack):
		w := r.found.held.proposal
		return &stillShort{lack,
			m.refusedAt(not.At, m.engine.insufficient(ctx, w.option, w.hold.Funds, lack))}
	case errors.Is(err, history.ErrMoved):
		return err
	case x402.HasCode(err, x402.WalletFrozen):
		if err := m.engine.Guard.CheckpointIfUnlocked(ctx); err != nil {
			m.engine.Log.Warn("checkpoint the freeze", "err", err)
		}
		r.Err = not.Err
		m.dropRow(r)
		return history.ErrMoved
	}
	return not.Err
}

// stillShort is a refusal by the chain's funds, which may show more in a moment.
type stillShort struct {
	lack *history.ShortOfFunds
	err  error
}

func (s *stillShort) Error() string   { return s.err.Error() }
func (s *stillShort) Unwrap() []error { return []error{s.err, s.lack} }

// drop forgets what was proposed.
func (m *many) drop() {
	for _, r := range m.rows {
		m.dropRow(r)
	}
}

func (m *many) dropRow(r *manyRow) {
	p := m.heldOf(r)
	if p == nil {
		return
	}
	r.found.held = nil
	p.written()
	p.End(false)
}

// aboveCeiling refuses a batch that costs more than its ceiling.
func (m *many) aboveCeiling() error {
	sum := m.cost()
	e := x402.Errorf(x402.AmountExceedsMax, "the batch costs %s in all, which is above its maxAmount %s",
		sum.Price(), m.ceiling.Price()).
		WithDetail("requested", sum.Price()).WithDetail("maxAmount", m.ceiling.Price()).
		WithHint("nothing was bought; ask for fewer, or offer %s", sum.Price())
	return m.withNumber(e, len(m.plan.asks))
}

// cost is what all rows cost that can be paid, each by its best option, with what was bought before.
func (m *many) cost() (sum money.Dollars) {
	sum = m.boughtBefore(m.caller)
	for _, r := range m.rows {
		if r.found == nil || r.taken != nil || r.Err != nil {
			continue
		}
		in := r.in
		in.limit.ceiling = nil
		options := m.engine.judge(r.found, in)
		if best := m.engine.candidates(options); len(best) > 0 {
			sum = sum.Add(options[best[0]].price)
		}
	}
	return sum
}

// refused is the refusal of a batch by what is left of a budget, a rate or an account.
func (m *many) refused(why error) error { return m.refusedAt(len(m.plan.asks), why) }

func (m *many) refusedAt(passed int, why error) error {
	e := *x402.AsError(why)
	which := "the batch is not held: "
	if passed > 0 {
		which += "its payment " + strconv.Itoa(passed+1) + " does not pass beside those before it: "
	}
	e.Message = which + e.Message
	e.Details = nil
	for k, v := range x402.AsError(why).Details {
		e.WithDetail(k, v)
	}
	return m.withNumber(&e, passed)
}

// withNumber says how many of a batch's payments would have passed.
func (m *many) withNumber(e *x402.Error, passed int) *x402.Error {
	e.WithDetail("wouldPass", passed).WithDetail("requests", len(m.of))
	if e.Hint != "" {
		e.Hint += "; "
	}
	e.Hint += "nothing was bought"
	if passed > 0 {
		e.Hint += fmt.Sprintf(": the first %d that cost something would have passed", passed)
	}
	return e
}

// ordinal counts requests as a person does.
func ordinal(i int) string { return strconv.Itoa(i + 1) }
