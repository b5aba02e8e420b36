package budget

import (
	"time"

	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// Query says what Decide has to know of the ledger; zero fields need not be read.
type Query struct {
	At          time.Time   // the time whose windows are meant; zero: the ledger's now
	Host        string      // whose payees Payee is compared with
	Payee       Payee       // its PayTo is empty where no rule compares payees or prices
	HostEntries []string    // the owner's entries whose day is summed
	Agent       string      // whose own day and month are summed; "": none's
	Teams       []string    // whose day and month are summed
	EachAgent   bool        // what every agent used in the month and the day is summed
	Tree        Teams       // which agents are in them
	Rate        int         // RateSince is needed as soon as LastMinute comes to this
	NodeRates   []RateLimit // of agents and teams: NodeRates is needed of these
	MaxFailures int         // ConsecutiveFailures is counted up to this
	BusyHour    bool        // LastHour is needed
	SignIn      bool        // of the payee's history, whether the wallet signed in at Host before
	// Subscription is the ID of the one whose payments are summed; "": none's.
	Subscription string
}

// OfTeams is what agents took on a day and in a month, added up for each of the teams that are asked for.
func (q Query) OfTeams(onDay, inMonth map[string]Use) map[string]NodeUsage {
	used := map[string]NodeUsage{}
	for _, team := range q.Teams {
		used[team] = NodeUsage{Day: q.Tree.Sum(team, onDay), Month: q.Tree.Sum(team, inMonth)}
	}
	return used
}

// Query says which facts Decide needs for a payment.
func (r Rules) Query(a Ask) Query {
	q := Query{Host: a.Host, HostEntries: r.hostEntries(a.Host), Agent: r.summed(a.Agent),
		Teams: r.summedTeams(a.Agent), Tree: r.Teams, Rate: r.Rate, NodeRates: r.nodeRates(a.Agent),
		MaxFailures: r.MaxFailures, BusyHour: r.watchesHour()}
	if a.SignIn {
		q.SignIn = true
		return q
	}
	if id, _, ok := SubscriptionOf(a.Key); ok {
		q.Subscription = id
	}
	if r.compares(r.NewPayee) || r.compares(r.PayeeChange) || r.PriceJump != 0 {
		q.Payee = a.Payee
	}
	return q
}

// summed is an agent, if something has to be summed for it.
func (r Rules) summed(agent string) string {
	if agent != "" && r.ownNode(agent).hasWindows() {
		return agent
	}
	return ""
}

// summedTeams are the teams of an agent's path for which something has to be summed.
func (r Rules) summedTeams(agent string) (names []string) {
	for _, name := range r.Teams.Path(agent) {
		if r.teamNode(name).hasWindows() {
			names = append(names, name)
		}
	}
	return names
}

func (r Rules) compares(rule Rule) bool { return rule == RuleAsk || rule == RuleRefuse }

// Facts are what the ledger knew at one moment: one consistent reading, taken without a lock. They
// may be out of date when money is held by them, so what a Decision rests on is checked again then.
type Facts struct {
	// the ledger's time: never before its newest payment, so that a clock set back opens no window
	// again
	Now     time.Time
	Behind  time.Duration // how far this machine's clock is behind that
	Session Session       // the one that is open; ID "": the next payment begins one, with this Cap
	Used    Usage
	// LastMinute counts the payments of the last minute, failed ones too: an attempt is an attempt.
	// RateSince is when the oldest of the newest Query.Rate payments was made: only when that is a
	// minute ago does another one pass. It is zero below the rate.
	LastMinute int
	RateSince  time.Time
	NodeRates  map[string]RateUse // of those of Query.NodeRates, by Window.Node
	// LastHour counts the payments of the last hour, or since LastUnfreeze where that is later.
	LastHour int
	// ConsecutiveFailures are the newest payments in a row, made after LastUnfreeze, that were
	// signed and came to nothing.
	ConsecutiveFailures int
	LastUnfreeze        time.Time // when the owner last lifted a freeze; zero: never
	Payee               PayeeHistory
	Subscription        SubscriptionUse // of Query.Subscription
}

// Usage is what the windows of Facts.Now, or of Query.At, hold.
type Usage struct {
	Session, Day, Month Use
	HostDay             map[string]Use       // by the owner's entry
	Agent               NodeUsage            // of Query.Agent
	Teams               map[string]NodeUsage // of Query.Teams
	Agents              map[string]NodeUsage // for Query.EachAgent
}

// NodeUsage is what the windows of one agent or team hold.
type NodeUsage struct{ Day, Month Use }

// Use is what a window's payments took.
type Use struct{ Spent, Held money.Dollars }

// Total is what counts against a limit.
func (u Use) Total() money.Dollars { return u.Spent.Add(u.Held) }

// Plus is what both took together.
func (u Use) Plus(other Use) Use {
	return Use{Spent: u.Spent.Add(other.Spent), Held: u.Held.Add(other.Held)}
}

// Session is the durable session a payment falls into.
type Session struct {
	ID      string // "": the next payment begins one
	Started time.Time
	Last    time.Time      // its last payment, or its start
	Cap     *money.Dollars // the delegation found at its start; nil: none
}

// Window selects payments; zero fields do not restrict.
type Window struct {
	Session string
	Host    string // as the owner wrote it: without a port it covers every port
	Agent   string
	Team    string // all agents that Teams have in it
	Teams   Teams
	Since   time.Time
}

// Decision is a payment that passes, and what has to be so still when its money is held. The ledger
// checks all of it in the transaction that holds the money; where something no longer is so, the
// facts are read and the decision is made again.
type Decision struct {
	Session string // the session that is open; "": none, and the payment begins one
	Caps    []Cap  // at least a day's and a month's: a decision without caps holds nothing
	Prepaid bool   // it needs none: the payment spends what was counted when it was deposited
	Rates   []RateLimit
	// Fewer than MaxFailures payments in a row, made after FailuresSince, came to nothing; 0: not
	// checked.
	MaxFailures   int
	FailuresSince time.Time
	// Of the payee's history only what the owner's rules compare.
	PayeeKnown     bool // the payTo was paid before on its network
	PayeeUnchanged bool // it was paid before for this host and asset, or nobody else was
	// what was paid last for the resource, if anything was, is at least this; nil: any price
	MinLastPrice *money.Dollars
	// NeedsApproval says that the decision rests on a person's approval, which is used up with the
	// hold.
	NeedsApproval bool
}

// Cap is a limit on a window: what it holds and the price together come to Limit at most.
type Cap struct {
	Window Window
	Limit  money.Dollars
	Used   money.Dollars // what the window held when it was decided: for the owner to be told, and no limit

	name, part string // as window has them
}

// Title is what the owner calls it, "day budget"; "" where no rules made it.
func (c Cap) Title() string {
	if c.name == "" {
		return ""
	}
	return window{name: c.name, part: c.part, covers: c.Window}.titled()
}

// RateLimit lets a payment pass if fewer than Max were made within the last Per, and after NotBefore, of
// those that Window selects: an agent's, a team's, or all.
type RateLimit struct {
	Window    Window
	Max       int
	Per       time.Duration
	NotBefore time.Time
}

// Since is the time after which payments count, as seen from now.
func (l RateLimit) Since(now time.Time) time.Time {
	since := now.Add(-l.Per)
	if l.NotBefore.After(since) {
		return l.NotBefore
	}
	return since
}

// decision is what a payment that passes rests on. approved says that it passes only because a
// person agreed: then questions no longer matter, and of the payee's history only what the owner
// refuses outright.
func (r Rules) decision(a Ask, facts Facts, windows []window, approved bool) Decision {
	d := Decision{
		Session: facts.Session.ID, Rates: []RateLimit{{Max: r.Rate, Per: RateWindow}},
		MaxFailures: r.MaxFailures, FailuresSince: facts.LastUnfreeze, NeedsApproval: approved,
		Prepaid: a.Prepaid,
	}
	d.Rates = append(d.Rates, r.nodeRates(a.Agent)...)
	for _, w := range windows {
		if w.limit != nil && !a.Prepaid {
			d.Caps = append(d.Caps, Cap{Window: w.covers, Limit: *w.limit, Used: w.use.Total(),
				name: w.name, part: w.part})
		}
	}
	if r.watchesHour() {
		d.Rates = append(d.Rates, RateLimit{Max: r.busyHour(), Per: BusyWindow,
			NotBefore: facts.LastUnfreeze})
	}
	if a.SignIn {
		return d
	}
	matters := func(rule Rule) bool { return rule == RuleRefuse || (rule == RuleAsk && !approved) }
	d.PayeeKnown, d.PayeeUnchanged = matters(r.NewPayee) && len(r.Payees) == 0, matters(r.PayeeChange)
	if r.PriceJump != 0 && !approved {
		last := r.minLastPrice(a.Price)
		d.MinLastPrice = &last
	}
	return d
}

// ClockTolerance is how far ahead of the clock payments may be dated without a warning:
// the clock was set right, and will be there soon.
const ClockTolerance = 2 * time.Minute

// clockHint adds to a refusal by a window or by the rate that the ledger's time stands still
// because the clock is behind it, and how that ends.
func clockHint(refusal *x402.Error, facts Facts) *x402.Error {
	if facts.Behind <= ClockTolerance || refusal.NextStep().Do != x402.Wait {
		return refusal
	}
	clock, newest := facts.Now.Add(-facts.Behind).Format(time.RFC3339), facts.Now.Format(time.RFC3339)
	return refusal.WithDetail("clock", clock).WithDetail("newestPayment", newest).
		WithHint("this computer's clock says %s, and the newest payment is dated %s: until then every "+
			"payment counts as made at that time. "+
			"The person sets the clock or, if it is right now, looks and accepts it in a terminal: "+
			"x402-wallet policy seal", clock, newest).
		WithCommand(x402.Command("policy", "seal"), "This computer's clock says "+clock+", and the newest "+
			"payment is dated "+newest+": please set the clock or, if it is right now, accept that.")
}
