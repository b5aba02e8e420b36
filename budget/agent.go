package budget

import (
	"time"

	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// Agent is what one of the agents that share the wallet may do, below what the owner lets all of them do.
type Agent struct {
	PerCall    *money.Dollars // nil: the owner's alone, like the next two
	Day, Month *money.Dollars
	AllowHosts []string  // of those that the owner allows; empty: all of them
	Until      time.Time // it pays nothing from then on; zero: it has no end
}

// EachAgent is what each agent of a pattern may do, with windows of its own.
type EachAgent struct {
	PerCall    *money.Dollars // nil: no limit by this pattern, like the next two
	Day, Month *money.Dollars
	Rate       int // payments per minute; 0: no limit
}

// CheckAgent refuses an agent that the owner's rules do not have, because it was revoked. A caller without a
// name is none. It refuses, too, an agent that pays from another account than r.Account.
func (r Rules) CheckAgent(name string) error {
	if _, known := r.Agents[name]; known || name == "" {
		return r.checkAccount(name)
	}
	return x402.Errorf(x402.PolicyDenied, "the owner's rules have no agent %s", x402.Quote(name)).
		WithHint("it was revoked: nothing is paid for it any more").WithDetail("agent", name).
		WithCommand(x402.Command("agents", "list"), "Your rules do not have the agent "+x402.Brief(name)+
			" any more: please add it again if it is to pay.")
}

// CheckEnds refuses what the owner allowed until a time that is past: an agent, a network, a host. The
// ledger's time counts, which never goes back.
func (r Rules) CheckEnds(a Ask, now time.Time) error {
	over := func(end time.Time) bool { return !end.IsZero() && !now.Before(end) }
	if end := r.Agents[a.Agent].Until; over(end) {
		return ended("the agent "+x402.Quote(a.Agent), end, x402.Command("policy"))
	}
	if end := r.NetworkEnds[a.Payee.Network]; over(end) {
		return ended("payments on "+x402.Title(a.Payee.Network), end, x402.Command("policy"))
	}
	var last time.Time
	for _, entry := range r.AllowHosts {
		if !HostMatches(entry, a.Host) {
			continue
		}
		end := r.Ends[entry]
		if !over(end) {
			return nil
		}
		last = end
	}
	if last.IsZero() { // any host is allowed
		return nil
	}
	return ended("payments to "+x402.Brief(a.Host), last, x402.Command("policy", "allow", a.Host))
}

// ended is the refusal of what the owner allowed until a time.
func ended(what string, end time.Time, command string) error {
	until := x402.Stamp(end)
	return x402.Errorf(x402.PolicyDenied, "the owner allowed %s until %s", what, until).
		WithHint("only the owner can allow it again").WithDetail("until", until).
		WithCommand(command, "Your rules allowed "+what+" until "+until+
			": please allow it again if you want it.")
}

func (r Rules) checkAccount(agent string) error {
	of := r.Teams.Account(agent)
	if of == r.Account {
		return nil
	}
	return x402.Errorf(x402.PolicyDenied, "the owner's rules have the agent %s pay from %s, and this is %s",
		x402.Quote(agent), accountCalled(of), accountCalled(r.Account)).
		WithHint("call again: the rules changed since the wallet was opened").WithDetail("agent", agent)
}

func accountCalled(name string) string {
	if name == "" {
		return "the wallet's own account"
	}
	return "the account " + name
}
