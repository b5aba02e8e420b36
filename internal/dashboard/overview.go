package dashboard

import (
	"fmt"
	"time"

	"x402-wallet/budget/standing"
	"x402-wallet/history"
	"x402-wallet/history/report"
	"x402-wallet/history/subscriptions"
	"x402-wallet/tools"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// Bounds of the first page: what does not fit is found in the history.
const (
	mostParts      = 8
	mostUnfinished = 20
	recent         = 8
)

// standing is how the wallet stands, for every page.
func (l *look) standing(f *frame) error {
	ctx := l.r.Context()
	f.Known, f.Locked = true, l.wallet.Keys.Locked()
	approvals, err := report.Questions(ctx, l.wallet.Store)
	if err != nil {
		return err
	}
	for _, a := range approvals {
		if a.State == history.Pending {
			f.Waiting = append(f.Waiting, a)
		} else {
			f.Decided = append(f.Decided, a)
		}
	}
	proposals, err := subscriptions.Proposals(ctx, l.wallet.Store)
	if err != nil {
		return err
	}
	var alerts []alert
	for _, p := range proposals { // an agent's words, which no page decides on
		alerts = append(alerts, proposed(p))
	}
	freezes, err := l.wallet.Store.Freezes(ctx)
	if err != nil {
		return err
	}
	for _, z := range freezes {
		what := "Every payment is stopped"
		f.Frozen = f.Frozen || z.Account == ""
		if z.Account != "" {
			what = "Payments from " + z.Account + " on " + x402.Title(z.Network) + " are stopped"
		}
		what += fmt.Sprintf(" since %s UTC: %s (by the %s).", z.At.UTC().Format(time.DateTime), z.Why, z.By)
		alerts = append(alerts, alert{Grave: true, What: what,
			Do: "After reviewing it, lift it in a terminal", Run: "x402-wallet unfreeze"})
	}
	if guard := l.wallet.Engine.Guard; guard != nil {
		if err := guard.CheckConfig(ctx); err != nil {
			coded := x402.AsError(err)
			what := fmt.Sprintf("Nothing is paid: %s (%s).", coded.Message, coded.Code)
			alerts = append(alerts, alert{Grave: true, What: what, Run: "x402-wallet policy seal",
				Do: "Review the difference, and seal the rules if the changes are yours"})
		}
	}
	f.Alerts = append(alerts, f.Alerts...)
	return nil
}

// proposed is a subscription that an agent would like.
func proposed(p subscriptions.Proposal) alert {
	from := "An agent"
	if p.Agent != "" {
		from = "The agent " + x402.Brief(p.Agent)
	}
	what := fmt.Sprintf("%s proposes to buy %s every %s until %s, for up to %s each time. It says why: %s.",
		from, x402.Quote(p.URL), x402.Brief(p.Every), p.Until.Format(time.DateOnly), p.Max.Price(),
		x402.Quote(p.Reason))
	return alert{What: what, Do: "Make it one of your subscriptions in a terminal, or decline it there",
		Run: x402.Command("subscriptions", "accept", p.ID)}
}

type first struct {
	Subscriptions []tools.SubscriptionOut
	Balances      balances
	Spending      spending
	Budgets       []budgetBar
	PerCall       money.Dollars
	Unfinished    []row // without evidence of what became of them
	More          bool  // of these
	Recent        []row
	Empty         bool // nothing was ever paid
}

func overview(l *look) (frame, error) {
	ctx, store, now := l.r.Context(), l.wallet.Store, l.o.Now().UTC()
	var p first
	var err error
	p.Balances, err = l.balances()
	if err != nil {
		return frame{}, err
	}
	p.Spending, err = l.spending(now)
	if err != nil {
		return frame{}, err
	}
	if err := l.budgets(&p); err != nil {
		return frame{}, err
	}
	open, err := store.Unfinished(ctx, "", mostUnfinished+1)
	if err != nil {
		return frame{}, err
	}
	p.More = len(open) > mostUnfinished
	for _, o := range open[:min(len(open), mostUnfinished)] {
		r := rowOf(o)
		r.Since = ago(now.Sub(o.Created))
		p.Unfinished = append(p.Unfinished, r)
	}
	newest, err := store.Recent(ctx, recent)
	if err != nil {
		return frame{}, err
	}
	for _, n := range newest {
		p.Recent = append(p.Recent, rowOf(n))
	}
	p.Empty = len(newest) == 0
	p.Subscriptions, err = l.wallet.ListSubscriptions(ctx)
	if err != nil {
		return frame{}, err
	}
	f := frame{Title: "Overview", Here: "overview", Body: p.body}
	for _, w := range l.wallet.Warnings {
		f.Alerts = append(f.Alerts, alert{What: w})
	}
	l.update(&f)
	return f, nil
}

func ago(d time.Duration) string {
	switch {
	case d < time.Minute:
		return "just now"
	case d < time.Hour:
		return fmt.Sprintf("%d min ago", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h ago", d/time.Hour)
	}
	return fmt.Sprintf("%d days ago", d/(24*time.Hour))
}

// next says what becomes of a payment, as package history's table has it.
func next(p history.Payment) string {
	switch p.State {
	case history.Reserved:
		return "Held; nothing signed has been sent. It is released when its call ends."
	case history.Submitted:
		return "Signed and sent; waiting for the answer. It counts as spent until then."
	case history.Unknown:
		text := "Sent, and its outcome is not known yet. It counts as spent; repeating the call sends the " +
			"same signed payment, and the chain is checked"
		if at := p.Evidence.ExpiresAt; !at.IsZero() {
			text += ": it can be settled until about " + at.UTC().Format(time.DateTime) + " UTC"
		}
		return text + "."
	case history.Settled:
		if p.Proof == history.Claimed {
			return "Settled, says the seller or its payment service; not confirmed on chain yet."
		}
		return "Settled, and confirmed on chain."
	case history.Failed:
		if p.FalseReceipt {
			return "No money moved, although a receipt said so: the chain disproved the receipt. Nothing " +
				"is held."
		}
		return "No money moved, and this payment can no longer be settled. Nothing is held."
	}
	return ""
}

func (l *look) budgets(p *first) error {
	facts, err := l.wallet.Engine.TreeFacts(l.r.Context())
	if err != nil {
		return err
	}
	rules := l.wallet.Engine.Rules
	report := standing.Of(rules, "", facts)
	p.PerCall = report.PerCall
	session := barOf("Session", report.Session)
	session.Note = "if idle"
	if facts.Session.ID == "" {
		session.Resets, session.Note = time.Time{}, "starts with the next payment"
	}
	p.Budgets = []budgetBar{session, barOf("Day", report.Day), barOf("Month", report.Month)}
	for _, h := range standing.Hosts(rules, facts) {
		p.Budgets = append(p.Budgets, barOf(h.Host, h.Line))
	}
	for _, team := range standing.Tree(rules, facts) {
		p.Budgets = append(p.Budgets, teamBars(team)...)
	}
	return nil
}

// teamBars are a team's budgets, as far as it has them.
func teamBars(team standing.Branch) (bars []budgetBar) {
	if team.Day.Limit != nil {
		bars = append(bars, barOf("Team "+team.Name+", day", team.Day))
	}
	if team.Month.Limit != nil {
		bars = append(bars, barOf("Team "+team.Name+", month", team.Month))
	}
	return bars
}

// budgetBar is a budget, and how much of its bar is spent and held, in percent.
type budgetBar struct {
	Name string
	standing.Line
	SpentPart, HeldPart float64
	Full                bool // nothing is left
	Near                bool // little is
	Resets              time.Time
	Note                string
}

const nearlyUsed = 80 // percent

func barOf(name string, l standing.Line) budgetBar {
	b := budgetBar{Name: name, Line: l}
	b.Resets, _ = time.Parse(time.RFC3339, l.ResetsAt) // our own
	if l.Limit == nil {
		return b
	}
	b.SpentPart, b.HeldPart = percent(l.Spent, *l.Limit), percent(l.Held, *l.Limit)
	b.SpentPart = min(b.SpentPart, 100)
	b.HeldPart = min(b.HeldPart, 100-b.SpentPart)
	b.Full = *l.Remaining == 0
	b.Near = !b.Full && b.SpentPart+b.HeldPart >= nearlyUsed
	return b
}
