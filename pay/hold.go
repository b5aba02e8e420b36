package pay

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"net/url"
	"slices"
	"strings"
	"sync"

	"x402-wallet/budget"
	"x402-wallet/budget/standing"
	"x402-wallet/history"
	"x402-wallet/internal/steps"
	"x402-wallet/scheme"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// hold holds the money of the best option. When a window is full only because of what is held, the
// chains are asked first what became of that, and then it is tried once more.
func (e *Engine) hold(ctx, caller context.Context, q intent, found *quote) (_ *Purchase, err error) {
	ctx, step := steps.Begin(ctx, steps.Hold)
	defer func() { step.End(err) }()
	h, err := e.bestOption(ctx, caller, q, found)
	if x402.HasCode(err, x402.WalletFrozen) {
		if err := e.Guard.CheckpointIfUnlocked(ctx); err != nil {
			e.Log.Warn("checkpoint the freeze", "err", err)
		}
	}
	if heldBack(err) && e.reconcileFor(ctx) {
		return e.bestOption(ctx, caller, q, found)
	}
	return h, err
}

// heldBack reports whether a refusal would not be one without what is held.
func heldBack(err error) bool {
	var coded *x402.Error
	if !errors.As(err, &coded) || coded.Code != x402.BudgetExceeded {
		return false
	}
	holds, ok := coded.Details["held"].(money.Dollars)
	return ok && holds > 0
}

// bestOption takes the best option that the chain covers and holds its money. Options whose chain
// cannot be read or does not cover them are passed over, and so are those whose payee or account
// will not do, or needs a person; a refusal by the owner's windows is final, because it is about the
// sum and not the option. A person is asked last, and only if no other option passes without one.
func (e *Engine) bestOption(ctx, caller context.Context, q intent, found *quote) (*Purchase, error) {
	if err := e.keepToOwners(ctx, q.host, found.options); err != nil {
		return nil, err
	}
	var question *option // the best option that a person may approve
	for _, i := range e.candidates(found.options) {
		o := &found.options[i]
		p, err := e.reserve(ctx, caller, q, o, found)
		if err == nil {
			return p, nil
		}
		coded := x402.AsError(err)
		var taken *history.AlreadyPaying
		mayTry := aboutOption(coded.Code) || (o.isChannelled() && aboutDeposit(coded.Code))
		if errors.As(err, &taken) || !mayTry {
			return nil, err
		}
		o.why = coded
		if coded.Code == x402.ApprovalRequired && question == nil {
			question = o
		}
	}
	if question != nil && q.many.proposes() {
		return nil, &needsPerson{*question}
	}
	if question != nil {
		return nil, e.askPerson(ctx, q, *question)
	}
	for _, o := range found.options {
		e.weighOffer(ctx, q, o)
	}
	return nil, refusal(found.challenge, found.options)
}

// aboutOption reports whether a refusal is about this option's payee or chain, so that
// another one may pass.
func aboutOption(code x402.Code) bool {
	switch code {
	case x402.InvalidRequirement, x402.InsufficientFunds, x402.NoDelegation, x402.DelegationExhausted,
		x402.DelegateMismatch, x402.RPCError, x402.CheckFailed,
		x402.WalletFrozen, x402.PayeeChanged, x402.PolicyDenied, x402.ApprovalRequired:
		return true
	}
	return false
}

// aboutDeposit reports whether a refusal is about the sum of a deposit: another option may take less.
func aboutDeposit(code x402.Code) bool {
	return code == x402.BudgetExceeded || code == x402.AmountExceedsMax
}

// reserve holds the money of an option: the vault's, if the owner has one, or the agent's own. The reason
// against the better of them is the one that is told.
func (e *Engine) reserve(ctx, caller context.Context, q intent, o *option, found *quote) (*Purchase, error) {
	if c, isOne := o.way.(scheme.Channelled); isOne {
		return e.reserveThrough(ctx, caller, c, q, o, found)
	}
	found.releaseChannel()
	var first error
	for _, from := range e.sources(ctx, q.host, *o) {
		p, err := e.reserveFrom(ctx, caller, q, from, found.ahead)
		if err == nil {
			return p, nil
		}
		first = cmp.Or(first, err)
		if !aboutSource(x402.AsError(err).Code) {
			return nil, err
		}
	}
	return nil, first
}

// reserveFrom reads the chain and holds. When only the wallet's own unfinished payments stand in the
// way, it waits a little for them to show on the chain, and reads again.
func (e *Engine) reserveFrom(ctx, caller context.Context, q intent, o option, ahead readings) (*Purchase,
	error) {
	scheme, _ := e.payer(o)
	sessionCap := e.sessionCapOnce(ctx)
	for until := e.Now().Add(fundsWait); ; {
		funds, isRead := ahead.take(ctx, o, e.Now())
		var err error
		if !isRead {
			e.unlockAhead()
			funds, err = readFunds(ctx, scheme, o)
		}
		if err != nil {
			return nil, toDelegate(err, o)
		}
		e.lastFunds.note(o, funds)
		funds = o.within(funds)
		if tooMuchAtOnce(o, funds) {
			return nil, e.insufficient(ctx, o, funds,
				&history.ShortOfFunds{Free: funds.Free, Wanted: o.Amount})
		}
		o.maxValidity = funds.MaxValidity
		w := e.propose(payment(q, o, funds), o, funds)
		w.hold.Resume, w.sessionCap, w.many = q.IdempotencyKey == "", sessionCap, q.many
		w.ask.Always = plainIfNil(o.way).AlwaysAsk(ctx, o.Requirement)
		p, err := e.holdFor(ctx, caller, w)
		var lack *history.ShortOfFunds
		if x402.HasCode(err, x402.ApprovalRequired) && o.Amount.Cmp(funds.Free) > 0 {
			// nobody is asked for what could not be paid
			return nil, e.insufficient(ctx, o, funds,
				&history.ShortOfFunds{Free: funds.Free, Wanted: o.Amount})
		}
		if err == nil {
			e.paidIn.note(q.host, o)
			return p, nil
		}
		if !errors.As(err, &lack) {
			return nil, err
		}
		if o.Amount.Cmp(funds.Free) > 0 || e.Now().After(until) {
			return nil, e.insufficient(ctx, o, funds, lack)
		}
		if pause(ctx, fundsWait/20) != nil {
			return nil, e.insufficient(ctx, o, funds, lack)
		}
	}
}

// readFunds reads the third budget layer of an option.
func readFunds(ctx context.Context, scheme Scheme, o option) (x402.Funds, error) {
	ctx, step := steps.Begin(ctx, steps.Funds)
	funds, err := scheme.Funds(ctx, o.Network, o.asset)
	step.End(err)
	return funds, err
}

// proposal is a payment that wants to be held, and what its decision needs.
type proposal struct {
	option option
	hold   history.Hold
	ask    budget.Ask
	// a person's approval of any of them will do; the first one that there is, is used
	quotes [][sha256.Size]byte
	// sessionCap looks up what is delegated, should a session begin whose cap it is; nil: no
	// session's cap is needed.
	sessionCap func() (*money.Dollars, error)
	many       *many        // that it is one of; nil: it is made by itself
	earlier    []budget.Ask // what those before it take, held in the same step
	unlock     func()       // gives its channel on to the next call; nil: it goes through none
	anyPayee   bool         // of an estimate: who is paid is not known
}

// propose asks for exactly one option.
func (e *Engine) propose(p history.Payment, o option, funds x402.Funds) *proposal {
	w := &proposal{option: o, hold: history.Hold{Payment: p, Funds: funds}, ask: budgetAsk(p),
		quotes: [][sha256.Size]byte{terms(p, o)}}
	// covers the price, whatever else is delegated elsewhere; what a vault lets the agent spend grows by
	// itself, and is no sum for a session
	if funds.Delegated != nil && o.source == nil && e.Rules.Account == "" {
		worth := o.asset.Dollars(*funds.Delegated)
		w.hold.SessionCap = &worth
	}
	w.hold.Low = e.lowFunds(p, o, funds)
	return w
}

// holdFor holds the money of one payment, and makes it this call's. A person's approval of it is
// used up with that.
func (e *Engine) holdFor(ctx, caller context.Context, w *proposal) (*Purchase, error) {
	id := history.NewID(e.Now())
	w.hold.Payment.ID = id
	written, err := e.inflight.begin(id, w.hold.Payment.Fingerprint, caller)
	if err != nil {
		return nil, err
	}
	if w.many.proposes() {
		return w.many.propose(ctx, e, w, written)
	}
	defer written()
	reserved, err := e.decideAndHold(ctx, w)
	if err != nil {
		e.inflight.end(id, false)
		if errors.Is(err, budget.ErrTripped) {
			e.trip(ctx, err)
		}
		return nil, err
	}
	return e.purchase(ctx, w, reserved), nil
}

// purchase is what was held of a proposal.
func (e *Engine) purchase(ctx context.Context, w *proposal, reserved history.Payment) *Purchase {
	note(ctx, reserved)
	p := &Purchase{Payment: reserved, engine: e, option: w.option, funds: w.hold.Funds,
		approval: w.hold.Approval, unlock: w.unlock}
	if w.many != nil {
		p.shared = &w.many.shared
	}
	return p
}

func priced(p history.Payment, o option) history.Payment {
	p.Amount, p.Price = o.Amount, o.price
	return p
}

// decideAndHold decides on a payment by the facts and holds its money by that decision. When the
// ledger changed in between, in a way that matters, it decides again.
func (e *Engine) decideAndHold(ctx context.Context, w *proposal) (history.Payment, error) {
	for range maxDecisions {
		if err := e.decide(ctx, w); err != nil {
			return history.Payment{}, err
		}
		_, step := steps.Begin(ctx, steps.Reserve)
		p, err := e.Store.Reserve(ctx, w.hold)
		step.End(err)
		if x402.HasCode(err, x402.LedgerUnavailable) {
			e.undoHold(ctx, w.hold.Payment.ID)
		}
		if !errors.Is(err, history.ErrMoved) {
			return p, err
		}
	}
	busy := x402.Errorf(x402.LedgerUnavailable,
		"other payments changed the budgets each of the %d times that this one was decided on", maxDecisions)
	busy.FixedBy = x402.ByTime
	return history.Payment{}, busy.WithHint("make the same call again; nothing was held or signed")
}

// undoHold releases a hold that may have been written although the ledger said that it could not be.
// Nothing of it was signed, and nothing will be.
func (e *Engine) undoHold(ctx context.Context, id string) {
	ctx, cancel := e.Detached(ctx)
	defer cancel()
	_, err := e.Store.Payment(ctx, id)
	if err == nil {
		err = e.Store.Release(ctx, id, "whether it was held was not known")
	}
	if err != nil && !errors.Is(err, history.ErrNotFound) {
		e.Log.Error("release a hold", "payment", id, "err", err)
	}
}

// decide asks the owner's rules about a payment, by the facts as they are now. The hold has the
// decision then, and the approval that it rests on, if it needs one.
func (e *Engine) decide(ctx context.Context, w *proposal) (err error) {
	_, step := steps.Begin(ctx, steps.Facts)
	defer func() { step.End(err) }()
	rules := e.Rules
	if w.anyPayee {
		rules.Payees, rules.NewPayee, rules.PayeeChange = nil, budget.RuleAllow, budget.RuleAllow
	}
	query := rules.Query(w.ask)
	facts, err := e.Store.Facts(ctx, history.Question{
		Rules: query, Payment: w.hold.Payment, Resume: w.hold.Resume, Quotes: w.quotes,
	})
	if err != nil {
		return err
	}
	if err := facts.Refusal(); err != nil {
		return err
	}
	for _, before := range w.earlier {
		facts.Facts = afterHold(rules, facts.Facts, w.ask, before)
	}
	usable := slices.IndexFunc(facts.Approvals, e.mayUse)
	w.ask.Approved = usable >= 0
	begins := facts.Session.ID == ""
	if begins {
		facts.Session.Cap = w.hold.SessionCap
	}
	decision, err := rules.Decide(w.ask, facts.Facts)
	if err != nil {
		return err
	}
	if begins && w.hold.SessionCap == nil && w.sessionCap != nil {
		w.hold.SessionCap, err = w.sessionCap()
		if err != nil {
			return err
		}
		facts.Session.Cap = w.hold.SessionCap
		if decision, err = rules.Decide(w.ask, facts.Facts); err != nil {
			return err
		}
	}
	w.hold.Decision, w.hold.Approval = decision, nil
	w.hold.DecidedAt, w.hold.DecidedHead = facts.Now, facts.Head
	if decision.NeedsApproval {
		w.hold.Approval = &facts.Approvals[usable]
	}
	return nil
}

// sessionCapOnce is SessionCap, asked at most once.
func (e *Engine) sessionCapOnce(ctx context.Context) func() (*money.Dollars, error) {
	return sync.OnceValues(func() (*money.Dollars, error) { return e.SessionCap(ctx) })
}

// budgetAsk is a payment as the owner's rules are asked about it.
func budgetAsk(p history.Payment) budget.Ask {
	return budget.Ask{Agent: p.Agent, Price: p.Price, Host: p.Host, Key: p.IdempotencyKey,
		Request: p.Fingerprint,
		Payee:   budget.Payee{Network: p.Network, Asset: p.Asset, PayTo: p.PayTo, Resource: p.Resource()}}
}

// trip makes the circuit breaker's finding last: it stands when the reason for it is gone. Should
// that fail, the next payment finds the same again.
func (e *Engine) trip(ctx context.Context, found error) {
	e.Log.Error("the circuit breaker stops all payments", "why", x402.AsError(found).Message)
	if err := e.Store.Freeze(ctx,
		history.Freeze{By: "breaker", Why: x402.AsError(found).Message}); err != nil {
		e.Log.Error("freeze the wallet", "err", err)
	}
}

// payment is the row to be. The terms it holds are the ones that will be signed.
func payment(q intent, o option, funds x402.Funds) history.Payment {
	p := q.row()
	p.Target, p.Network, p.Scheme, p.Dialect = o.target, o.Network, o.Way(), o.Dialect
	p.Asset, p.Symbol, p.Amount, p.Price = o.AssetKey().Address, o.asset.Symbol, o.Amount, o.price
	p.PayTo, p.Source, p.Requirement = o.PayTo, funds.Source, o.Raw
	return p
}

// elsewhere is where a URL led, or "" where it led nowhere else: the call that goes on with a
// payment brings its URL itself.
func elsewhere(final, asked string) string {
	if u, err := url.Parse(asked); err == nil {
		u.Host, u.Fragment = strings.ToLower(u.Host), "" // as it is asked
		if final == u.String() {
			return ""
		}
	}
	return final
}

// BudgetFacts reads what the owner's budgets hold now, for standing.Of and standing.Hosts.
func (e *Engine) BudgetFacts(ctx context.Context) (budget.Facts, error) {
	facts, err := e.Store.Facts(ctx, history.Question{Rules: standing.Query(e.Rules, AgentFrom(ctx))})
	return facts.Facts, err
}

// TreeFacts reads what the whole tree of budgets holds now, for standing.Tree, and what BudgetFacts reads
// for a caller without a name.
func (e *Engine) TreeFacts(ctx context.Context) (budget.Facts, error) {
	facts, err := e.Store.Facts(ctx, history.Question{Rules: standing.TreeQuery(e.Rules)})
	return facts.Facts, err
}

// budgets reads what is left, for an answer; trouble with that never spoils the answer itself.
func (e *Engine) budgets(ctx context.Context) *Budgets {
	facts, err := e.BudgetFacts(ctx)
	if err != nil {
		e.Log.Warn("read the budgets for an answer", "err", err)
		return nil
	}
	report := standing.Of(e.Rules, AgentFrom(ctx), facts)
	return tightest(report)
}

// Budgets is the part of a budget report that a payment's answer carries: the window of which the
// least is left, and no other.
type Budgets struct {
	Session *Window `json:"session,omitempty"`
	Day     *Window `json:"day,omitempty"`
	Month   *Window `json:"month,omitempty"`
	// likewise, of the agent's own
	AgentDay   *Window `json:"agentDay,omitempty"`
	AgentMonth *Window `json:"agentMonth,omitempty"`
	// and of a team that it is in, which the window names
	TeamDay   *Window `json:"teamDay,omitempty"`
	TeamMonth *Window `json:"teamMonth,omitempty"`
}

// Window is what is left of a budget. When it resets x402_check_balance says.
type Window struct {
	Team      string        `json:"team,omitempty"` // whose; "": of no team
	Limit     money.Dollars `json:"limit"`
	Spent     money.Dollars `json:"spent"`
	Held      money.Dollars `json:"held,omitzero"`
	Remaining money.Dollars `json:"remaining"`
}

// tightest is nil where no window has a limit.
func tightest(report standing.Report) *Budgets {
	var all Budgets
	var least *Window
	own := report.Agent
	if own == nil {
		own = &standing.AgentReport{}
	}
	type shown struct {
		line  *standing.Line
		place **Window
		team  string
	}
	lines := []shown{{&report.Session, &all.Session, ""}, {&report.Day, &all.Day, ""},
		{&report.Month, &all.Month, ""}, {own.Day, &all.AgentDay, ""}, {own.Month, &all.AgentMonth, ""}}
	for _, t := range report.Teams {
		lines = append(lines, shown{&t.Day, &all.TeamDay, t.Name}, shown{&t.Month, &all.TeamMonth, t.Name})
	}
	for _, w := range lines {
		isLimit := w.line != nil && w.line.Remaining != nil
		if !isLimit || (least != nil && least.Remaining <= *w.line.Remaining) {
			continue
		}
		least = &Window{Team: w.team, Limit: *w.line.Limit, Spent: w.line.Spent, Held: w.line.Held,
			Remaining: *w.line.Remaining}
		all = Budgets{}
		*w.place = least
	}
	if least == nil {
		return nil
	}
	return &all
}
