package budget

import (
	"fmt"
	"strings"
	"time"

	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// What to do about a refusal. What would pass, and when, is said only after all rules were looked at.

// advise completes the refusal of a payment by a limit.
func (r Rules) advise(refused *x402.Error, a Ask, facts Facts) *x402.Error {
	switch refused.Code {
	case x402.RateLimited:
		return refused.WithNext(r.whenFree(refused.NextStep(), a, facts))
	case x402.BudgetExceeded:
	default:
		return refused
	}
	if refused.Next.Do == x402.Wait {
		refused.WithNext(r.whenFree(*refused.Next, a, facts))
	}
	return refused.WithHint("%s", r.wouldPass(a, facts))
}

// wouldPass is the highest price that passes now, as far as the owner's rules go.
func (r Rules) wouldPass(a Ask, facts Facts) string {
	a.Price = 0
	_, err := r.decide(a, facts)
	most := r.maxPrice(a, 0, facts)
	switch {
	case x402.HasCode(err, x402.ApprovalRequired):
		return "nothing passes now without a person's approval: " + x402.AsError(err).Message
	case err != nil:
		return "nothing passes now: " + x402.AsError(err).Message
	case most == 0:
		return "nothing that costs money passes now without a person"
	}
	return "the owner's rules let up to " + most.Price() + " pass now"
}

// whenFree is when the very same call passes all limits that time lifts, and what stands in its way then.
func (r Rules) whenFree(next x402.Next, a Ask, facts Facts) x402.Next {
	var free time.Time
	var why []string
	later := func(at time.Time, text string) {
		why = append(why, text)
		if at.After(free) {
			free = at
		}
	}
	for _, w := range r.windows(facts, r.hostEntries(a.Host), a.Agent) {
		if w.limit != nil && w.use.Total().Add(a.Price) > *w.limit {
			later(w.resets, w.countsFrom())
		}
	}
	for _, l := range r.rates(a.Agent, facts) {
		if l.isFull() {
			later(l.free(), l.moves())
		}
	}
	if reasons, err := r.unusual(a, facts.Payee); err == nil && len(reasons) > 0 && !a.Approved {
		why = append(why, "a person has to approve it then, too: "+texts(reasons))
	}
	next.At, next.Why = x402.Stamp(free), strings.Join(why, "; ")
	return next
}

// countsFrom is when a window begins again, and what moves that.
func (w window) countsFrom() string {
	if w.name == "session" {
		return fmt.Sprintf("the session ends at %s, %.0f hours after its last payment; each payment moves "+
			"that",
			x402.Stamp(w.resets), SessionIdle.Hours())
	}
	return fmt.Sprintf("the %s resets at %s", w.titled(), x402.Stamp(w.resets))
}

// titled is a window's name in a text for the owner, and named in one for the agent.
func (w window) titled() string {
	if w.name == "host" {
		return "day's " + x402.Brief(w.covers.Host) + " budget"
	}
	return w.named()
}

func (w window) named() string {
	switch {
	case w.isNodes() && w.isCall():
		return "limit for one call of" + whose(w.covers)
	case w.isNodes():
		return w.part + " budget for" + whose(w.covers)
	}
	return w.name + " budget"
}

// command is what the owner types so that a price fits into a window.
func (w window) command(price money.Dollars) string {
	amount := centsUp(w.use.Total().Add(price)).String()
	switch {
	case w.isFound:
		return x402.Command("session", "new")
	case w.name == "host":
		return x402.Command("budget", "set", "day", amount, "--host", w.covers.Host)
	case w.pattern != "":
		return x402.Command("budget", "set", w.part, amount, "--agents", w.pattern)
	case w.name == agentLayer:
		return x402.Command("budget", "set", w.part, amount, "--agent", w.covers.Agent)
	case w.name == teamLayer:
		return x402.Command("budget", "set", w.part, amount, "--team", w.covers.Team)
	}
	return x402.Command("budget", "set", w.name, amount)
}

// centsUp rounds up to whole cents, as people write budgets.
func centsUp(d money.Dollars) money.Dollars {
	const cent = 10_000
	if rest := d % cent; rest != 0 {
		return d.Add(cent - rest)
	}
	return d
}

func texts(reasons []reason) string {
	var list []string
	for _, why := range reasons {
		list = append(list, why.Text)
	}
	return strings.Join(list, "; ")
}
