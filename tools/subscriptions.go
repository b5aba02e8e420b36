package tools

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"x402-wallet/budget"
	"x402-wallet/budget/schedule"
	"x402-wallet/history"
	"x402-wallet/history/subscriptions"
	"x402-wallet/pay"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// Subscription is a standing order of the owner's, and the call that it makes.
type Subscription struct {
	budget.Subscription
	Call    PayIn
	Problem error // why the call cannot be made; nil: it can
}

// Ordered completes it: a payment for any other call is none of it.
func (s Subscription) Ordered() Subscription {
	var row history.Payment
	q, err := s.Call.request(nil)
	if err == nil {
		row, err = q.Row(s.Agent)
	}
	s.Problem = err
	s.Request, s.Host, s.Resource = row.Fingerprint, row.Host, row.Resource()
	return s
}

// States of a subscription.
const (
	subscriptionActive = "active"
	subscriptionPaused = "paused"
	subscriptionEnded  = "ended"   // by its until
	subscriptionSpent  = "used up" // by its total
)

// SubscriptionOut is a subscription as commands, the resource and the dashboard show it. What of
// its headers and query may open something is not in it.
type SubscriptionOut struct {
	Name    string              `json:"name"`
	Agent   string              `json:"agent,omitempty"`
	State   string              `json:"state"` // active | paused | ended | used up
	Method  string              `json:"method"`
	URL     string              `json:"url"`
	Headers []string            `json:"headers,omitempty"`
	Network string              `json:"network,omitempty"`
	Asset   string              `json:"asset,omitempty"`
	Every   string              `json:"every"`
	Since   string              `json:"since"`
	Until   string              `json:"until"`
	Max     money.Dollars       `json:"max"`
	Total   money.Dollars       `json:"total"`
	Spent   money.Dollars       `json:"spent"`
	Held    money.Dollars       `json:"held,omitzero"`
	Left    money.Dollars       `json:"left"`
	Last    *SubscriptionRunOut `json:"last,omitempty"` // nil: it never ran
	Next    string              `json:"next,omitempty"` // when it runs next; "": never again
	Content string              `json:"contentUri,omitempty"`

	payments []history.Payment
}

type SubscriptionRunOut struct {
	Name       string         `json:"name"`
	Slot       string         `json:"slot"`
	State      string         `json:"state"` // running | waiting | done | failed
	Free       bool           `json:"free,omitempty"`
	PaymentID  string         `json:"paymentId,omitempty"`
	Price      *money.Dollars `json:"price,omitempty"`
	ApprovalID string         `json:"approvalId,omitempty"` // that it waits for
	Code       x402.Code      `json:"error,omitempty"`
	Why        string         `json:"why,omitempty"`
	TriesAgain string         `json:"triesAgain,omitempty"` // in this slot; "": not
	Attempts   int            `json:"attempts,omitempty"`   // that failed

	// Problem is why it was not bought, by a run of this process; nil: it was.
	Problem *x402.Error `json:"-"`
}

func runOut(name string, r subscriptions.Run) *SubscriptionRunOut {
	out := &SubscriptionRunOut{Name: name, Slot: stamp(r.Slot), State: string(r.State), Free: r.Free,
		PaymentID: r.Payment, ApprovalID: r.Approval, Code: r.Code, Why: r.Why, Attempts: r.Attempts}
	if r.State == subscriptions.Waiting && !r.Next.IsZero() {
		out.TriesAgain = stamp(r.Next)
	}
	return out
}

// subscriptionURI is where what a subscription bought is read.
const subscriptionURI = "x402://subscriptions/"

// ListSubscriptions are the subscriptions that an agent may see: its own; without a name, all of them.
func (w *Wallet) ListSubscriptions(ctx context.Context) ([]SubscriptionOut, error) {
	runs, err := subscriptions.Runs(ctx, w.Store)
	if err != nil {
		return nil, err
	}
	agent, list := pay.AgentFrom(ctx), []SubscriptionOut{}
	for _, name := range slices.Sorted(maps.Keys(w.Subscriptions)) {
		s := w.Subscriptions[name]
		if agent != "" && s.Agent != agent {
			continue
		}
		out, err := w.subscriptionOut(ctx, s, runs[s.ID()])
		if err != nil {
			return nil, err
		}
		list = append(list, out)
	}
	return list, nil
}

// OneSubscription is one of ListSubscriptions; INVALID_ARGUMENT: there is none of this name.
func (w *Wallet) OneSubscription(ctx context.Context, name string) (SubscriptionOut, error) {
	s, known := w.Subscriptions[name]
	agent := pay.AgentFrom(ctx)
	if !known || (agent != "" && s.Agent != agent) {
		return SubscriptionOut{}, x402.Errorf(x402.InvalidArgument, "there is no subscription %s",
			x402.Quote(name)).WithHint("x402-wallet subscriptions lists those there are")
	}
	runs, err := subscriptions.Runs(ctx, w.Store)
	if err != nil {
		return SubscriptionOut{}, err
	}
	return w.subscriptionOut(ctx, s, runs[s.ID()])
}

func (w *Wallet) subscriptionOut(ctx context.Context, s Subscription, run subscriptions.Run) (
	SubscriptionOut, error) {
	use, err := subscriptions.Spent(ctx, w.Store, s.ID())
	if err != nil {
		return SubscriptionOut{}, err
	}
	out := SubscriptionOut{Name: s.Name, Agent: s.Agent, State: subscriptionActive,
		Method: cmp.Or(s.Call.Method, "GET"), URL: pay.WithoutSecrets(s.Call.URL),
		Headers: slices.Sorted(maps.Keys(s.Call.Headers)), Network: s.Call.Network, Asset: s.Call.Asset,
		Every: schedule.EveryText(s.Every), Since: stamp(s.Since), Until: stamp(s.Until), Max: s.Max,
		Total: s.Total,
		Spent: use.Spent, Held: use.Held, Left: s.Total.SubFloor(use.Total())}
	now := w.Engine.Now()
	switch {
	case !now.Before(s.Until):
		out.State = subscriptionEnded
	case out.Left == 0:
		out.State = subscriptionSpent
	case s.Paused:
		out.State = subscriptionPaused
	default:
		if next := nextRun(s.Subscription, run, now); !next.IsZero() {
			out.Next = stamp(next)
		}
	}
	if !run.Slot.IsZero() {
		out.Last = runOut(s.Name, run)
	}
	newest, err := subscriptions.Payments(ctx, w.Store, s.ID(), shownPayments)
	out.payments = newest
	if _, has := lastBought(newest); has {
		out.Content = subscriptionURI + s.Name + contentEnd
	}
	return out, err
}

// shownPayments is how many of its newest payments are looked through for what a subscription bought last.
const shownPayments = 10

// Payments are its newest ones, newest first.
func (s SubscriptionOut) Payments() []history.Payment { return s.payments }

// lastBought is the newest payment that bought something.
func lastBought(list []history.Payment) (p history.Payment, has bool) {
	i := slices.IndexFunc(list, func(p history.Payment) bool { return p.State == history.Settled })
	if i < 0 {
		return p, false
	}
	return list[i], true
}

// nextRun is when a subscription is to be run next; zero: never again.
func nextRun(s budget.Subscription, run subscriptions.Run, now time.Time) time.Time {
	if slot, due := schedule.Due(s, run.LastDone(), now); due {
		switch isThis := run.Slot.Equal(slot) && run.State == subscriptions.Waiting; {
		case isThis && run.Next.IsZero(): // for the owner, as long as they let it
			return now.Add(askAgain)
		case isThis:
			return soonest(run, now)
		}
		return now
	}
	next, ok := schedule.Next(s, now)
	for ok && !next.After(run.LastDone()) { // the clock was ahead
		next, ok = schedule.Next(s, next)
	}
	if !ok || s.Paused {
		return time.Time{}
	}
	return next
}

// soonest is when a run that waits is tried again. One that was put off farther than any is was put off by a
// clock that was ahead.
func soonest(run subscriptions.Run, now time.Time) time.Time {
	if run.Next.Before(now) || run.Next.After(now.Add(mostPutOff)) {
		return now
	}
	return run.Next
}
