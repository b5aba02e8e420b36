package edits

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"x402-wallet/budget"
	"x402-wallet/history"
	"x402-wallet/x402/money"
)

const (
	farTeam = "far" // the team, and the account that its agents pay from

	deniedHost  = "denied.example"
	cappedHost  = "capped.example" // with a limit for a day
	newsHost    = "news.example"   // of the subscription
	channelHost = "channel.example"
	ownersHost  = "owners.example" // of the channel that an owner funds
)

// payees are paid; the last one never was.
var payees = []string{"0x209693Bc6afc0C5328bA36FaF03C514EF312287C",
	"0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC", "0x000000000000000000000000000000000000dEaD"}

// begin is when the rounds begin: the history is older.
var begin = time.Date(2026, 6, 15, 12, 0, 0, 0, time.UTC)

// news is the subscription.
var news = budget.Subscription{Name: "news", Since: time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC),
	Every: 24 * time.Hour, Until: time.Date(2027, 6, 1, 0, 0, 0, 0, time.UTC),
	Request: sha256.Sum256([]byte("news")), Host: newsHost, Resource: "GET " + newsHost + "/daily",
	PayTo: payees[:1]}

// limits are the owner's, in millionths of a dollar, which are units of USDC, too.
type limits struct {
	perCall, approveAbove            uint64
	session, day, month              uint64
	host, ann, lab                   uint64 // in a day
	subscriptionMax, subscriptionAll uint64
	rate                             int
	float                            uint64
}

// jump is how many times the last price needs a person's yes.
const jump = 5

// budget is the limits as who signs knows them.
func (l limits) budget() budget.Rules {
	dollars := func(n uint64) *money.Dollars { return new(money.Dollars(n)) }
	ordered := news
	ordered.Max, ordered.Total = money.Dollars(l.subscriptionMax), money.Dollars(l.subscriptionAll)
	return budget.Rules{PerCall: money.Dollars(l.perCall), ApproveAbove: money.Dollars(l.approveAbove),
		Session: dollars(l.session), Day: money.Dollars(l.day), Month: money.Dollars(l.month), Rate: l.rate,
		HostDay: map[string]money.Dollars{cappedHost: money.Dollars(l.host)}, DenyHosts: []string{deniedHost},
		NewPayee: budget.RuleAsk, PayeeChange: budget.RuleAsk, SignIn: budget.RuleAsk, PriceJump: jump,
		Agents: map[string]budget.Agent{"ann": {Day: dollars(l.ann)}, "bob": {}, "eve": {}},
		Teams: budget.Teams{"lab": {Agents: []string{"ann", "bob"}, Day: dollars(l.lab)},
			farTeam: {Agents: []string{"eve"}, Account: true}},
		Subscriptions: map[string]budget.Subscription{news.Name: ordered}}
}

// umpire knows what was truly signed, and by that alone what may be signed next. Nothing of it comes from the
// ledger, but for the host, the agent and the session's time that who signs named when it read the message:
// those are in no message, and whoever asks may name any.
type umpire struct {
	limits  limits
	process int // the one that signs
	asked   history.Payment

	signed    []signature
	approvals []yes
	frozen    map[string]bool   // accounts by network and address; "": all
	payees    map[string]bool   // that were paid
	paidHere  map[string]string // who was paid for a host and asset, and last
	prices    map[string]uint64 // what a resource cost last
	signedIn  map[string]bool   // hosts
	promised  map[string]uint64 // in a channel
	pulls     []uint64          // under way, the oldest first
	session   time.Time         // when it began
}

// signature is one that was handed out.
type signature struct {
	id, way, agent, host, key, source, unique string
	counts, price                             uint64 // what counts of it still; what did
	at                                        time.Time
	process                                   int
	isOutgoing                                bool // out of the agent's account on base
	isOver                                    bool // it expired, and can be bought again
}

// yes is an approval of the owner's.
type yes struct {
	wanted wanted
	isUsed bool
}

// clone is a copy that shares nothing that changes.
func (u *umpire) clone() *umpire {
	c := *u
	c.signed, c.approvals, c.pulls = slices.Clone(u.signed), slices.Clone(u.approvals), slices.Clone(u.pulls)
	c.frozen, c.payees, c.paidHere = maps.Clone(u.frozen), maps.Clone(u.payees), maps.Clone(u.paidHere)
	c.prices, c.signedIn, c.promised = maps.Clone(u.prices), maps.Clone(u.signedIn), maps.Clone(u.promised)
	return &c
}

// window is a limit and what counts in it.
type window struct {
	name  string
	limit uint64
	has   func(signature) bool
}

// windows are those that a payment counts in, if it is made now.
func (u *umpire) windows(w wanted, now time.Time) []window {
	l := u.limits
	today := func(s signature) bool { return dayOf(s.at).Equal(dayOf(now)) }
	list := []window{
		{"session", l.session, func(s signature) bool { return !s.at.Before(u.sessionAt(now)) }},
		{"day", l.day, today},
		{"month", l.month, func(s signature) bool {
			return budget.MonthOf(s.at).Equal(budget.MonthOf(now))
		}},
	}
	add := func(name string, limit uint64, has func(signature) bool) {
		list = append(list, window{name, limit, func(s signature) bool { return today(s) && has(s) }})
	}
	if w.host == cappedHost {
		add("host", l.host, func(s signature) bool { return s.host == cappedHost })
	}
	if w.agent == "ann" {
		add("agent", l.ann, func(s signature) bool { return s.agent == "ann" })
	}
	if w.agent == "ann" || w.agent == "bob" {
		add("team", l.lab, func(s signature) bool { return s.agent == "ann" || s.agent == "bob" })
	}
	return list
}

// sessionAt is when the session of a time began: it is over when nothing was signed for eight hours.
func (u *umpire) sessionAt(now time.Time) time.Time {
	if n := len(u.signed); n > 0 && now.Sub(u.signed[n-1].at) >= budget.SessionIdle {
		return now
	}
	return u.session
}

func (u *umpire) sum(has func(signature) bool) (sum uint64) {
	for _, s := range u.signed {
		if has(s) {
			sum += s.counts
		}
	}
	return sum
}

// forbids is why the owner's limits do not let something be signed now; "": they do.
func (u *umpire) forbids(w wanted, now time.Time) string {
	reasons := []string{u.isFrozen(w), u.isOthers(w), u.isAgain(w), u.isTooFast(now)}
	switch {
	case w.isPull:
		reasons = append(reasons, u.overfills(w))
	case w.isSignIn:
		if !u.signedIn[w.host] && u.approvalOf(w) < 0 {
			reasons = append(reasons, "signs in without a yes")
		}
	default:
		reasons = append(reasons, u.raises(w), u.isOver(w, now), u.isNotOrdered(w, now))
		if why := u.needsYes(w); why != "" && u.approvalOf(w) < 0 {
			reasons = append(reasons, "has no yes: "+why)
		}
	}
	for _, why := range reasons {
		if why != "" {
			return why
		}
	}
	return ""
}

func (u *umpire) isFrozen(w wanted) string {
	if u.frozen[""] || u.frozen[w.network+" "+w.source] {
		return "frozen"
	}
	return ""
}

// isOthers refuses an account that does not pay for who asks, and hosts that nobody is to pay.
func (u *umpire) isOthers(w wanted) string {
	switch {
	case w.host == deniedHost:
		return "a host that is denied"
	case (w.account == farTeam) != (w.agent == "eve"):
		return "another agent's account"
	case w.agent != "" && w.agent != "ann" && w.agent != "bob" && w.agent != "eve":
		return "an unknown agent"
	}
	return ""
}

// isAgain refuses a second signature for one payment, or for one purchase.
func (u *umpire) isAgain(w wanted) string {
	for _, s := range u.signed {
		if s.id == w.id && w.id != "" {
			return "signed twice"
		}
		if w.key != "" && s.key == w.key && s.agent == w.agent && !s.isOver {
			return "bought twice"
		}
	}
	return ""
}

// tallied is in what time a process counts its signatures: a minute, but for the time from the hold to the
// signature.
const tallied = 55 * time.Second

func (u *umpire) isTooFast(now time.Time) string {
	n := 0
	for _, s := range u.signed {
		if s.process == u.process && now.Sub(s.at) < tallied {
			n++
		}
	}
	if n >= u.limits.rate {
		return "too fast"
	}
	return ""
}

// lastMinute is how many were signed then, by any process: an honest ledger lets no new one be faster.
func (u *umpire) lastMinute(now time.Time) (n int) {
	for _, s := range u.signed {
		if now.Sub(s.at) < budget.RateWindow {
			n++
		}
	}
	return n
}

// overfills refuses a float by which more would lie at the agent's account than a float, or one call, and
// what this process has signed for.
func (u *umpire) overfills(w wanted) string {
	there := w.balance + w.amount
	for _, amount := range u.pulls {
		there += amount
	}
	allowed := max(u.limits.float, u.limits.perCall)
	for _, s := range u.signed {
		if s.process == u.process && s.isOutgoing {
			allowed += s.counts
		}
	}
	if there > allowed {
		return fmt.Sprintf("%d at the agent's account, and %d is the most", there, allowed)
	}
	return ""
}

// raises refuses a voucher that promises more than was promised and the price.
func (u *umpire) raises(w wanted) string {
	if w.channel == "" || w.ceiling <= u.promised[w.channel]+w.price {
		return ""
	}
	return fmt.Sprintf("it promises %d, %d were promised, and the price is %d", w.ceiling,
		u.promised[w.channel], w.price)
}

// isOver refuses what passes a limit.
func (u *umpire) isOver(w wanted, now time.Time) string {
	if w.amount > u.limits.perCall {
		return "more than one call may cost"
	}
	if w.counts == 0 {
		return ""
	}
	for _, window := range u.windows(w, now) {
		if sum := u.sum(window.has) + w.counts; sum > window.limit {
			return fmt.Sprintf("the %s comes to %d, and %d is its limit", window.name, sum, window.limit)
		}
	}
	return ""
}

// isNotOrdered refuses what the subscription does not buy.
func (u *umpire) isNotOrdered(w wanted, now time.Time) string {
	if !w.isOrdered {
		return ""
	}
	slot, _ := news.Slot(now)
	all := u.sum(func(s signature) bool { return strings.HasPrefix(s.key, "x402-subscription:") })
	switch {
	case w.key != news.Key(slot):
		return "another slot"
	case w.host != newsHost || w.path != "/daily" || w.agent != "":
		return "it is not what was ordered"
	case all+w.counts > u.limits.subscriptionAll:
		return "more than the subscription's total"
	}
	return ""
}

// needsYes is why a person has to say yes; "": nobody has.
func (u *umpire) needsYes(w wanted) string {
	last := u.prices[w.resource()]
	switch {
	case w.isStrange:
		return "who settles it is not known"
	case w.isOrdered && w.amount > u.limits.subscriptionMax:
		return "more than the subscription's most"
	case w.isOrdered && w.amount > u.ordered():
		return "more than the subscription paid last"
	case w.isOrdered && w.payTo != payees[0]:
		return "not whom the subscription pays"
	case !w.isOrdered && w.amount > u.limits.approveAbove:
		return "its price"
	case !u.payees[w.network+" "+w.payTo]:
		return "a new payee"
	case u.paidHere[w.place()] != "" && u.paidHere[w.place()+" "+w.payTo] == "":
		return "another payee"
	case last > 0 && w.amount > last && w.amount >= jump*last:
		return "the price jumps"
	}
	return ""
}

// ordered is what the subscription paid last.
func (u *umpire) ordered() (last uint64) {
	last = u.limits.subscriptionMax
	for _, s := range u.signed {
		if strings.HasPrefix(s.key, "x402-subscription:") {
			last = s.price
		}
	}
	return last
}

// approvalOf is the owner's yes to something, by its place; less than 0: there is none that was not used.
// What was signed had one if its terms are those: an honest wallet asks for each request anew.
func (u *umpire) approvalOf(w wanted) int {
	return slices.IndexFunc(u.approvals, func(y yes) bool {
		o := y.wanted
		return !y.isUsed && o.agent == w.agent && o.host == w.host && o.method == w.method &&
			o.path == w.path && o.network == w.network && o.payTo == w.payTo && w.amount <= o.amount &&
			(w.id != "" || o.fingerprint == w.fingerprint)
	})
}

// note notes what was signed.
func (u *umpire) note(w wanted, now time.Time) {
	u.session = u.sessionAt(now)
	isAsked := !w.isPull && u.needsYes(w) != ""
	if w.isSignIn {
		isAsked = !u.signedIn[w.host]
	}
	if i := u.approvalOf(w); isAsked && i >= 0 {
		u.approvals[i].isUsed = true
	}
	s := signature{id: w.id, way: w.way, agent: w.agent, host: w.host, key: w.key, source: w.source,
		counts: w.counts, price: w.counts, at: now, process: u.process, unique: w.unique}
	if w.channel != "" {
		u.promised[w.channel] = max(u.promised[w.channel], w.ceiling)
	}
	s.isOutgoing = w.isOutgoing
	u.signed = append(u.signed, s)
	switch {
	case w.isPull:
		u.pulls = append(u.pulls, w.amount)
		return
	case w.isSignIn:
		u.signedIn[w.host] = true
		return
	}
	u.payees[w.network+" "+w.payTo] = true
	u.paidHere[w.place()], u.paidHere[w.place()+" "+w.payTo] = w.payTo, w.payTo
	if w.counts > 0 {
		u.prices[w.resource()] = w.amount // of a voucher that raises by less, too
	}
}

// randomLimits leaves room in each window: none, a little, or much.
func (u *umpire) randomLimits(r *rand.Rand) {
	room := func(n int) uint64 {
		return []uint64{0, 3_000 + r.Uint64N(30_000), 1_000_000, 1_000_000}[r.IntN(4-n)+n]
	}
	l := limits{perCall: 100_000, approveAbove: 40_000, subscriptionMax: 60_000, float: 50_000,
		rate: []int{2 + r.IntN(6), 1000}[r.IntN(2)]}
	w := wanted{host: cappedHost, agent: "ann"}
	for _, window := range u.windows(w, begin) {
		limit := u.sum(window.has) + room(1)
		switch window.name {
		case "session":
			l.session = limit
		case "day":
			l.day = limit
		case "month":
			l.month = limit
		case "host":
			l.host = u.sum(window.has) + room(0)
		case "agent":
			l.ann = u.sum(window.has) + room(0)
		case "team":
			l.lab = limit
		}
	}
	l.subscriptionAll = u.sum(func(s signature) bool {
		return strings.HasPrefix(s.key, "x402-subscription:")
	}) + []uint64{30_000, 50_000, 1_000_000}[r.IntN(3)]
	u.limits = l
}
