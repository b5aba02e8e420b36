package tools

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"x402-wallet/budget/schedule"
	"x402-wallet/history"
	"x402-wallet/history/subscriptions"
	"x402-wallet/internal/steps"
	"x402-wallet/pay"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// Running the owner's subscriptions. Any number of processes may do it at once, and any of them may die at
// any moment: a slot is one purchase by its key, so that whoever runs it again gets that one's answer. What
// is noted of a run (subscriptions.Run) only says when it is tried again, and what the owner is told.

// Limits with their reasons.
const (
	// atOnce is how many subscriptions are bought at a time: a seller that hangs keeps no other one waiting.
	atOnce = 4
	// askAgain is how often is looked whether what a run waits for, a person, has come.
	askAgain = time.Minute
	// mostPutOff is farther away than any try is put off.
	mostPutOff = 5 * time.Hour
)

// tryAfter is how long is waited after each failure but the last, which the owner is told of.
var tryAfter = []time.Duration{time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour, 4 * time.Hour}

// RunSubscriptions buys what is due of the subscriptions of all agents, each slot once, and says when the
// next one is; zero: never. After an error the others were run all the same.
func (w *Wallet) RunSubscriptions(ctx context.Context) (ran []SubscriptionRunOut, next time.Time, err error) {
	runs, err := subscriptions.Runs(ctx, w.Store)
	if err != nil {
		return nil, time.Time{}, err
	}
	var mu sync.Mutex
	var all sync.WaitGroup
	places := make(chan struct{}, atOnce)
	for _, name := range slices.Sorted(maps.Keys(w.Subscriptions)) {
		s := w.Subscriptions[name]
		all.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			out, failed := w.runIfDue(ctx, s, runs[s.ID()])
			mu.Lock()
			defer mu.Unlock()
			err = errors.Join(err, failed)
			if out != nil {
				ran = append(ran, *out)
			}
		})
	}
	all.Wait()
	slices.SortFunc(ran, func(a, b SubscriptionRunOut) int {
		return cmp.Compare(a.Name, b.Name)
	})
	soon, failed := w.nextSubscription(ctx)
	return ran, soon, errors.Join(err, failed)
}

// nextSubscription is when the next run of any is; zero: never.
func (w *Wallet) nextSubscription(ctx context.Context) (next time.Time, err error) {
	runs, err := subscriptions.Runs(ctx, w.Store)
	now := w.Engine.Now()
	for _, s := range w.Subscriptions {
		at := nextRun(s.Subscription, runs[s.ID()], now)
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next, err
}

// runIfDue buys the slot that a subscription is in, if that is due and not put off; nil: it is not.
func (w *Wallet) runIfDue(ctx context.Context, s Subscription, run subscriptions.Run) (
	out *SubscriptionRunOut, err error) {
	defer func() {
		if p := recover(); p != nil { // one subscription's is no end of the others, nor of the service
			logger(w.Engine.Log).Error("a subscription's run panicked", "subscription", s.Name,
				"stack", string(debug.Stack()))
			err = x402.Errorf(x402.Internal, "the run of the subscription %s had an internal error; money "+
				"that may have been sent stays held", s.Name)
		}
	}()
	now := w.Engine.Now()
	slot, due := schedule.Due(s.Subscription, run.LastDone(), now)
	if !due || ctx.Err() != nil {
		return nil, nil
	}
	if !run.Slot.Equal(slot) {
		w.leave(ctx, s, run)
		run = subscriptions.Run{Slot: slot}
	}
	if usedUp, err := w.isUsedUp(ctx, s, slot); err != nil || usedUp {
		return nil, err
	}
	if run.State == subscriptions.Waiting {
		answered, err := w.isAnswered(ctx, run)
		if err != nil || (!answered && soonest(run, now).After(now)) {
			return nil, err
		}
	}
	return w.runSlot(ctx, s, run)
}

// leave gives up a slot that passed while its run waited, or died. What it bought is nobody's to wait for any
// more: it is read as the subscription's content.
func (w *Wallet) leave(ctx context.Context, s Subscription, run subscriptions.Run) {
	if run.Slot.IsZero() || !run.LastDone().IsZero() {
		return
	}
	p, err := w.Store.ByKey(ctx, s.Agent, s.Key(run.Slot))
	if err == nil && p.State == history.Settled && !p.Delivered {
		w.Engine.Delivered(ctx, pay.StatusPaid, p.ID)
	}
}

// isUsedUp reports whether nothing is left of a subscription's total for a slot that nothing was bought for
// yet. That is no failure.
func (w *Wallet) isUsedUp(ctx context.Context, s Subscription, slot time.Time) (bool, error) {
	use, err := subscriptions.Spent(ctx, w.Store, s.ID())
	if err != nil || use.Total() < s.Total {
		return false, err
	}
	_, err = w.Store.ByKey(ctx, s.Agent, s.Key(slot))
	if errors.Is(err, history.ErrNotFound) {
		return true, nil
	}
	return false, err
}

// isAnswered reports whether the person approved what a run waits for, or said no.
func (w *Wallet) isAnswered(ctx context.Context, run subscriptions.Run) (bool, error) {
	if run.Approval == "" {
		return false, nil
	}
	a, err := w.Store.Approval(ctx, run.Approval)
	if errors.Is(err, history.ErrNotFound) {
		return true, nil
	}
	return err == nil && a.State != history.Pending, err
}

// runSlot buys a slot, and notes what came of it.
func (w *Wallet) runSlot(ctx context.Context, s Subscription, run subscriptions.Run) (
	*SubscriptionRunOut, error) {
	ctx = pay.WithAgent(ctx, s.Agent)
	run.State = subscriptions.Running
	if err := subscriptions.NoteRun(ctx, w.Store, w.Alerts, s.Subscription, run, nil); err != nil {
		return nil, err
	}
	payer, done, err := w.payingFor(ctx, s.Agent)
	if err != nil {
		return nil, err
	}
	defer done()
	result, err := payer.buySlot(ctx, s, run.Slot)
	if ctx.Err() != nil && err != nil { // whoever stops it says nothing of the seller
		return nil, ctx.Err()
	}
	after, alert := w.afterRun(s, run, result, err)
	out := runOut(s.Name, after)
	if err != nil {
		out.Problem = x402.AsError(err)
	} else {
		out.Price = priceOf(result)
	}
	if failed := subscriptions.NoteRun(ctx, w.Store, w.Alerts, s.Subscription, after, alert); failed != nil {
		return out, failed
	}
	// noted first: an answer that is delivered is one that may be removed for newer ones
	payer.Engine.Delivered(ctx, result.Status, result.PaymentID)
	return out, nil
}

// payingFor is the wallet with the account that an agent pays from; done ends its use.
func (w *Wallet) payingFor(ctx context.Context, agent string) (payer *Wallet, done func(), err error) {
	rules := w.Engine.Rules
	if rules.Teams.Account(agent) == rules.Account {
		return w, func() {}, nil
	}
	payer, err = w.OpenFor(ctx, agent)
	if err != nil {
		return nil, nil, err
	}
	return payer, func() {
		if err := payer.Close(); err != nil {
			logger(w.Engine.Log).Warn("close an account", "agent", agent, "err", err)
		}
	}, nil
}

// buySlot is the purchase of a slot. A wallet that is locked asks no seller.
func (w *Wallet) buySlot(ctx context.Context, s Subscription, slot time.Time) (r pay.Result, err error) {
	if s.Problem != nil {
		return r, s.Problem
	}
	if w.Keys.Locked() && !w.UnlocksItself {
		return r, x402.Errorf(x402.WalletLocked, "the wallet is locked, and the subscription %s is due",
			s.Name).WithHint("unlock it: x402-wallet unlock").
			WithCommand(x402.Command("unlock"), "The wallet is locked: please unlock it.")
	}
	if err := w.Engine.Guard.CheckConfig(ctx); err != nil { // nor do rules that nobody sealed
		return r, err
	}
	q, err := s.Call.request(w)
	if err != nil {
		return r, err
	}
	q.IdempotencyKey, q.OfSubscription = s.Key(slot), true
	return w.Engine.Pay(steps.Calling(ctx, "subscription "+s.Name, ""), q)
}

// afterRun is where a run stands after a try, and what the owner is told of it; nil: nothing.
func (w *Wallet) afterRun(s Subscription, run subscriptions.Run, r pay.Result, err error) (
	subscriptions.Run, *subscriptions.Alert) {
	now := w.Engine.Now()
	run.Payment, run.Approval, run.Next, run.Code, run.Why = r.PaymentID, "", time.Time{}, "", ""
	why := x402.AsError(err)
	switch {
	case err == nil && (r.Status == pay.StatusPaid || r.Status == pay.StatusReplayed ||
		r.Status == pay.StatusFree):
		run.State, run.Free = subscriptions.Done, r.Status == pay.StatusFree
		return run, nil
	case err == nil && r.Status == pay.StatusUnserved:
		why = x402.Errorf(x402.ServerUnavailable, "it was paid, and the seller did not serve it (HTTP %d)",
			r.HTTPStatus)
	case err == nil:
		why = x402.Errorf(x402.ServerUnavailable, "the seller did not serve it, and asked for no payment "+
			"(HTTP %d)", r.HTTPStatus)
	}
	run.Code, run.Why = why.Code, why.Message
	if why.PaymentID != "" {
		run.Payment = why.PaymentID
	}
	alert := &subscriptions.Alert{Window: stamp(run.Slot) + " " + string(why.Code),
		Host: pay.HostOf(s.Call.URL), Why: why.Message}
	switch why.Code {
	case x402.ApprovalRequired: // the owner is told of the question itself
		run.State, run.Next = subscriptions.Waiting, now.Add(askAgain)
		run.Approval, _ = why.Details["approvalId"].(string)
		return run, nil
	case x402.ApprovalDeclined: // and knows
		run.State = subscriptions.Failed
		return run, nil
	case x402.WalletLocked, x402.PolicyUnsealed: // no seller was asked, so the next pass may look again
		run.State, alert.Next = subscriptions.Waiting, now
		return run, alert
	case x402.WalletFrozen:
		run.State, run.Next = subscriptions.Waiting, now.Add(askAgain)
		alert.Next = run.Next
		return run, alert
	}
	if why.Code == x402.BudgetExceeded && why.Details["layer"] == "subscription" {
		run.State, alert.Window = subscriptions.Failed, "total"
		return run, alert
	}
	run.Attempts++
	slotEnds := run.Slot.Add(s.Every)
	if run.Attempts <= len(tryAfter) {
		if again := now.Add(tryAfter[run.Attempts-1]); again.Before(slotEnds) && again.Before(s.Until) {
			run.State, run.Next = subscriptions.Waiting, again
			return run, nil
		}
	}
	run.State = subscriptions.Failed
	return run, alert
}

// priceOf is what a purchase cost; nil: nothing.
func priceOf(r pay.Result) *money.Dollars {
	d, err := money.ParseDollars(strings.TrimPrefix(r.Price, "$"))
	if r.Price == "" || err != nil {
		return nil
	}
	return &d
}

// KeepRunning buys what is due until ctx ends, as often as something is. get opens the wallet under the rules
// as they are; done is told of each pass that did something, and of the first. Its error ends it; of what
// else fails failed is told, and it goes on: the next pass may do better.
func KeepRunning(ctx context.Context, get func(context.Context) (*Wallet, func(), error),
	done func(ran []SubscriptionRunOut, next time.Time) error, failed func(error)) error {
	for isFirst := true; ; isFirst = false {
		ran, next, err := runOnce(ctx, get)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // as it is meant to end
		}
		if err != nil {
			failed(err)
		}
		if len(ran) > 0 || (isFirst && err == nil) {
			if err := done(ran, next); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(untilPass(next, time.Now())):
		}
	}
}

func runOnce(ctx context.Context, get func(context.Context) (*Wallet, func(), error)) (
	[]SubscriptionRunOut, time.Time, error) {
	w, used, err := get(ctx)
	if err != nil {
		return nil, time.Time{}, err
	}
	defer used()
	return w.RunSubscriptions(ctx)
}

// leastPause keeps a pass from following the one before it at once, whatever the clock says.
const leastPause = time.Second

// untilPass is how long is waited for the next pass: until the next run is due, but no longer than the
// owner's rules and answers may wait to be looked at, nor than a clock that is set may go unnoticed.
func untilPass(next, now time.Time) time.Duration {
	if next.IsZero() {
		return askAgain
	}
	return min(max(next.Sub(now), leastPause), askAgain)
}
