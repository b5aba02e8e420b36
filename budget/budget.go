// Package budget is the owner's rules about money and the arithmetic of the first two budget layers:
// this call, and the owner's windows. It is pure: it says what it has to know (Query), is
// given that (Facts), and decides (Decide). A Decision names, as data, all that has to be so still
// when the money is held, and the ledger enforces it in the transaction that holds the money.
//
// What must stay true: a payment passes only if, with everything held and spent in a window, it
// stays at or below that window's limit. What is held counts like what is spent.
//
// The files: budget.go (the rules, and Decide), facts.go (what goes in and what comes out), payee.go (what is
// unusual about a payee or a price), breaker.go (the circuit breaker), maxprice.go (the same question for a
// price that is not known yet), rate.go (how many payments a minute), advice.go (what to do about a refusal),
// agent.go (what an agent may do below the owner's rules), teams.go (which team an agent is in), tree.go (the
// path from an agent up to the owner, every level of which holds), subscription.go (what a standing order of
// the owner's pays). Package standing shows what is left of each budget, and package schedule says when a
// standing order is due.
package budget

import (
	"cmp"
	"crypto/sha256"
	"net"
	"slices"
	"strings"
	"time"

	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// SessionIdle is how long a session lives after its last payment.
const SessionIdle = 8 * time.Hour

// Rules are the owner's limits. Nothing an agent or a stranger says is in here.
type Rules struct {
	PerCall      money.Dollars
	Session      *money.Dollars // nil: the delegation found at the session's start is the cap
	Day, Month   money.Dollars  // UTC calendar day and month
	ApproveAbove money.Dollars  // above it a person is asked
	Rate         int            // payments per minute
	HostDay      map[string]money.Dollars
	AllowHosts   []string // empty: any
	// Ends are when entries of AllowHosts are over; one that is not here never is.
	Ends map[string]time.Time
	// NetworkEnds are when the owner's money on a network is over: what was delegated or allowed there.
	NetworkEnds map[string]time.Time
	DenyHosts   []string
	// Payees are who may be paid: addresses, or "network:address" with its CAIP-2 name; empty: anybody. Who
	// is one of them is no new payee.
	Payees      []string
	NewPayee    Rule    // a payTo that was never paid on its network
	PayeeChange Rule    // a payTo that is not one paid before for its host, network and asset
	PriceJump   float64 // a person is asked at this many times the price paid last; 0: never
	SignIn      Rule    // signing in with the wallet's key (sign-in-with-x); RuleAsk: once for each host
	// MaxFailures is how many payments in a row may come to nothing before the circuit breaker
	// stops all; 0: there is no breaker.
	MaxFailures int
	// Agents are those that share the wallet, by name, each with its own limits below all of these. An agent
	// that is not here was revoked.
	Agents map[string]Agent
	// EachAgent are limits that each agent whose name a pattern matches has for itself, below those that it
	// has in Agents: all hold.
	EachAgent map[string]EachAgent
	// Teams are groups of agents; every one on an agent's path up to the owner holds.
	Teams Teams
	// Account is the one that payments are made from here; "": the wallet's own. It pays for those agents
	// alone that Teams has it pay for.
	Account string
	// Subscriptions are the owner's standing orders, by name.
	Subscriptions map[string]Subscription
}

// Rule is what to do about something unusual.
type Rule string

// The rules; "" is RuleAllow.
const (
	RuleAllow  Rule = "allow"
	RuleAsk    Rule = "ask"
	RuleRefuse Rule = "refuse"
)

// Ask is a payment that wants to happen.
type Ask struct {
	Agent    string // who asks; "": a caller without a name, who has the owner's limits alone
	Price    money.Dollars
	Host     string
	Payee    Payee
	Always   string // why a person is asked whatever it costs; "": nothing of the kind
	Approved bool   // a person approved exactly this quote, and no payment used that up
	SignIn   bool   // it is no payment but a sign-in, and costs nothing
	// Prepaid: it spends what was counted when it was deposited, so it counts in no window. All other rules
	// hold for it.
	Prepaid bool
	// Key is the payment's idempotency key, which may be a subscription's, and Request its fingerprint.
	Key     string
	Request [sha256.Size]byte
}

// Decide lets a payment pass, or refuses what breaks a rule, with the numbers and when that window
// resets. Rules are asked in the order in which their answer helps most: hosts, this call, the
// circuit breaker, the payee, the windows from the smallest to the largest and then the agent's own and its
// teams', the rates, the person.
//
// facts has to hold what Query asked for. The error is an *x402.Error: POLICY_DENIED, BUDGET_EXCEEDED,
// WALLET_FROZEN (it wraps ErrTripped), PAYEE_CHANGED, RATE_LIMITED or APPROVAL_REQUIRED.
func (r Rules) Decide(a Ask, facts Facts) (Decision, error) {
	d, err := r.decide(a, facts)
	if err != nil {
		return d, clockHint(r.advise(x402.AsError(err), a, facts), facts)
	}
	return d, nil
}

// decide is Decide, but for what to do about a refusal.
func (r Rules) decide(a Ask, facts Facts) (Decision, error) {
	if err := r.CheckHost(a.Agent, a.Host); err != nil {
		return Decision{}, err
	}
	if err := r.CheckEnds(a, facts.Now); err != nil {
		return Decision{}, err
	}
	if err := r.CheckCall(a.Agent, a.Price); err != nil {
		return Decision{}, err
	}
	if err := r.checkBreaker(facts); err != nil {
		return Decision{}, err
	}
	ordered, err := r.checkSubscription(a, facts)
	if err != nil {
		return Decision{}, err
	}
	reasons, err := r.unusual(a, facts.Payee)
	if err != nil {
		return Decision{}, err
	}
	reasons = append(ordered, reasons...)
	windows := r.windows(facts, r.hostEntries(a.Host), a.Agent)
	for _, w := range windows {
		if w.limit != nil && !a.Prepaid && w.use.Total().Add(a.Price) > *w.limit {
			return Decision{}, exceeded(w, a.Price)
		}
	}
	if err := r.checkRate(a.Agent, facts); err != nil {
		return Decision{}, err
	}
	if len(reasons) > 0 && !a.Approved {
		return Decision{}, askPerson(a, reasons)
	}
	return r.decision(a, facts, windows, len(reasons) > 0), nil
}

// Transfer is the decision about moving an owner's money to the agent's account, which spends nothing: the
// breaker and the rate are asked, and no window. Facts are those of TransferQuery.
func (r Rules) Transfer(facts Facts) (Decision, error) {
	if err := r.checkBreaker(facts); err != nil {
		return Decision{}, err
	}
	if err := r.checkRate("", facts); err != nil {
		return Decision{}, clockHint(x402.AsError(err), facts)
	}
	d := r.decision(Ask{}, facts, r.windows(facts, nil, ""), false)
	d.PayeeKnown, d.PayeeUnchanged, d.MinLastPrice = false, false, nil
	for i := range d.Caps { // what was lowered below what is spent stops what costs something
		d.Caps[i].Limit = money.MaxDollars
	}
	return d, nil
}

// TransferQuery says which facts Transfer needs.
func (r Rules) TransferQuery() Query {
	return Query{Rate: r.Rate, MaxFailures: r.MaxFailures, BusyHour: r.watchesHour()}
}

// CheckHost applies deny_hosts and allow_hosts, and those of the agent that asks ("": none) and of its teams.
// The agent has to be one of the rules'. An entry covers the host itself and, written "*.example.com", every
// host below it; "host:port" covers just that port.
func (r Rules) CheckHost(agent, host string) error {
	if err := r.CheckAgent(agent); err != nil {
		return err
	}
	covers := func(entry string) bool { return HostMatches(entry, host) }
	var why string
	switch {
	case slices.ContainsFunc(r.DenyHosts, covers):
		why = "the owner does not allow payments to " + x402.Brief(host)
	case len(r.AllowHosts) > 0 && !slices.ContainsFunc(r.AllowHosts, covers):
		why = x402.Brief(host) + " is not among the hosts the owner allows"
	default:
		return r.checkNodeHosts(agent, host)
	}
	return x402.Errorf(x402.PolicyDenied, "%s", why).
		WithHint("use another seller; which ones are paid is the owner's to say").
		WithCommand(x402.Command("policy", "allow", host), "Your rules do not let me pay "+x402.Brief(host)+
			": please allow it if you want what it sells.")
}

// HostMatches reports whether an owner's entry covers a host. An entry covers the host itself with every port
// and, written "*.example.com", every host below it; "host:port" covers just that port.
func HostMatches(entry, host string) bool {
	if bare, _, err := net.SplitHostPort(host); err == nil && !hasPort(entry) {
		host = bare
	}
	entry, host = strings.Trim(entry, "[]"), strings.Trim(host, "[]") // IPv6 literals
	if suffix, below := strings.CutPrefix(entry, "*"); below {
		return strings.HasSuffix(host, suffix)
	}
	return strings.EqualFold(entry, host)
}

func hasPort(entry string) bool {
	_, _, err := net.SplitHostPort(entry)
	return err == nil
}

// hostEntries are the owner's entries with a budget of the day that cover a host, sorted.
func (r Rules) hostEntries(host string) (entries []string) {
	for entry := range r.HostDay {
		if HostMatches(entry, host) {
			entries = append(entries, entry)
		}
	}
	slices.Sort(entries)
	return entries
}

// CheckCall applies per_call, and those of the agent that asks ("": none) and of its teams.
func (r Rules) CheckCall(agent string, price money.Dollars) error {
	for _, w := range r.calls(agent) {
		if price > *w.limit {
			return overCall(w, price)
		}
	}
	return nil
}

// overCall is the refusal of a price above a limit for one call.
func overCall(w window, price money.Dollars) error {
	of := ""
	if w.isNodes() {
		of = " of" + whose(w.covers)
	}
	return w.detailed(x402.Errorf(x402.BudgetExceeded, "the price %s is above the owner's limit of %s for "+
		"one call%s", price.Price(), w.limit.Price(), of)).
		WithHint("no call%s that costs more than %s is paid", of, w.limit.Price()).
		WithDetail("requested", price).
		WithCommand(w.command(price), "It costs "+price.Price()+", above your limit of "+w.limit.Price()+
			" for one call"+of+": please raise that if you want it to be paid.")
}

// window is one budget of the second layer, and what was used of it.
type window struct {
	name    string         // "session", "day", "month", "host" or "per_call"; of a node's, its layer
	part    string         // of a node's: "per_call", "day" or "month"
	isFound bool           // of a session: the owner set no limit, and it is what was delegated at its start
	pattern string         // of an agent's: by which it has the limit; "": by its own entry
	limit   *money.Dollars // nil: no limit
	covers  Window
	use     Use
	resets  time.Time
}

// noSession stands for the session that the next payment will begin: nothing was paid in it.
const noSession = "none yet"

// windows are the budgets that a payment made at facts.Now counts in: session, day, month, a host's day for
// each entry, and those of the agent's path.
func (r Rules) windows(facts Facts, hosts []string, agent string) []window {
	now := facts.Now.UTC()
	day, month := DayOf(now), MonthOf(now)
	tomorrow := day.AddDate(0, 0, 1)
	s := facts.Session
	sessionCap := r.Session
	if sessionCap == nil {
		sessionCap = s.Cap
	}
	rows := []window{
		{
			name: "session", limit: sessionCap, covers: Window{Session: cmp.Or(s.ID, noSession)},
			use: facts.Used.Session, resets: s.Last.Add(SessionIdle), isFound: r.Session == nil,
		},
		{name: "day", limit: &r.Day, covers: Window{Since: day}, use: facts.Used.Day, resets: tomorrow},
		{name: "month", limit: &r.Month, covers: Window{Since: month}, use: facts.Used.Month,
			resets: month.AddDate(0, 1, 0)},
	}
	for _, entry := range hosts {
		limit := r.HostDay[entry]
		rows = append(rows, window{
			name: "host", limit: &limit, covers: Window{Host: entry, Since: day},
			use: facts.Used.HostDay[entry], resets: tomorrow,
		})
	}
	return append(rows, r.nodeWindows(agent, facts)...)
}

// DayOf is the beginning of a time's UTC day.
func DayOf(t time.Time) time.Time {
	t = t.UTC()
	return time.Date(t.Year(), t.Month(), t.Day(), 0, 0, 0, 0, time.UTC)
}

// MonthOf is the beginning of a time's UTC month.
func MonthOf(t time.Time) time.Time {
	t = t.UTC()
	return time.Date(t.Year(), t.Month(), 1, 0, 0, 0, 0, time.UTC)
}

func exceeded(w window, price money.Dollars) *x402.Error {
	left := w.limit.SubFloor(w.use.Total())
	over := "the price " + price.Price() + " is above what is left of the owner's " + w.named() + ": " +
		left.Price() + " of " + w.limit.Price()
	if price == 0 { // asked by wouldPass
		over = "the owner's " + w.named() + " of " + w.limit.Price() + " is used up"
	}
	if w.isFound {
		return w.wasDelegated(over, price)
	}
	next := x402.Next{Do: x402.Wait, At: x402.Stamp(w.resets), Command: w.command(price),
		Say: "It costs " + price.Price() + ", and your " + w.titled() + " of " + w.limit.Price() + " has " +
			left.Price() + " left: please raise it, or it resets at " + x402.Stamp(w.resets) + "."}
	e := w.detailed(x402.Errorf(x402.BudgetExceeded, "%s", over)).WithDetail("requested", price)
	if price > *w.limit { // waiting will not help
		return e.WithCommand(next.Command, "It costs "+price.Price()+", above your whole "+w.titled()+
			" of "+w.limit.Price()+": please raise that if you want it to be paid.")
	}
	return e.WithNext(next)
}

// wasDelegated is the refusal by a session's cap that nobody set: what was delegated when the session began.
// More that is delegated since counts from the next session on, which the owner begins.
func (w window) wasDelegated(over string, price money.Dollars) *x402.Error {
	return w.detailed(x402.Errorf(x402.BudgetExceeded, "%s; no session budget is set: this one is what was "+
		"delegated when the session began, and what is delegated now counts in a new session", over)).
		WithDetail("requested", price).
		WithCommand(w.command(price), "It costs "+price.Price()+", and of the "+
			w.limit.Price()+" that you had delegated when this budget session began "+
			w.limit.SubFloor(w.use.Total()).Price()+" is left: please begin a new session, which takes what "+
			"you delegate now. It begins by itself at "+x402.Stamp(w.resets)+".")
}

// detailed adds to a refusal the numbers of the window that it is by.
func (w window) detailed(e *x402.Error) *x402.Error {
	e.WithDetail("layer", w.name).WithDetail("limit", *w.limit).WithDetail("spent", w.use.Spent).
		WithDetail("held", w.use.Held)
	if w.isNodes() {
		detailNode(e.WithDetail("window", w.part), w.covers)
	}
	if !w.isCall() {
		e.WithDetail("resetsAt", x402.Stamp(w.resets))
	}
	return e
}

// isNodes reports whether it is of an agent or a team, and not the owner's own.
func (w window) isNodes() bool { return w.part != "" }

// isCall reports whether it is no window but the limit for one call: nothing is ever in it, and it never
// resets.
func (w window) isCall() bool { return w.name == perCall || w.part == perCall }
