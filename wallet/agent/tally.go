package agent

import (
	"sync"
	"time"

	"x402-wallet/budget"
	"x402-wallet/history"
	"x402-wallet/x402/money"
)

// Tally is what this process has signed and did not itself find to have expired. It bounds what can
// be got out of the process by whoever writes to the ledger and to its checkpoint: never more than the
// owner's windows allow.
type Tally struct {
	mu       sync.Mutex
	items    map[string]item // by payment
	days     map[time.Time]money.Dollars
	months   map[time.Time]money.Dollars
	hosts    map[hostDay]money.Dollars
	agents   map[agentTime]money.Dollars // by day
	ofAgents map[agentTime]money.Dollars // by month
	sessions map[string]money.Dollars
	// by subscription, as budget.Subscription has its ID
	subscriptions map[string]money.Dollars
	recent        []signature // in the last hour
}

type item struct {
	created time.Time
	until   time.Time // by the monotonic clock, which nobody sets: until when it may be good
	host    string
	agent   string
	session string
	price   money.Dollars
	// what it takes out of an account
	network, asset, source string
	amount                 money.Amount
	// the ID of the subscription that it is of; "": none
	subscription string
}

// signature is when something was signed, by this process's own clock, and for whom.
type signature struct {
	at    time.Time
	agent string
}

type hostDay struct {
	host string
	day  time.Time
}

type agentTime struct {
	agent string
	begin time.Time // of the day or month
}

func (t *Tally) has(id string) bool {
	_, has := t.items[id]
	return has
}

func (t *Tally) add(p history.Payment, now time.Time) {
	if t.items == nil {
		t.items, t.hosts = map[string]item{}, map[hostDay]money.Dollars{}
		t.days, t.months = map[time.Time]money.Dollars{}, map[time.Time]money.Dollars{}
		t.agents, t.ofAgents = map[agentTime]money.Dollars{}, map[agentTime]money.Dollars{}
		t.sessions, t.subscriptions = map[string]money.Dollars{}, map[string]money.Dollars{}
	}
	i := item{created: p.Created, host: p.Host, agent: p.Agent, session: p.Session, price: p.Price,
		network: p.Network, asset: p.Asset, source: p.Source}
	if p.Price > 0 { // else it takes nothing out of its source
		i.amount = p.Amount
	}
	i.subscription, _, _ = budget.SubscriptionOf(p.IdempotencyKey)
	t.items[p.ID] = i
	t.count(i, i.price)
	t.recent = append(t.recent, signature{at: now, agent: p.Agent})
	for t.recent[0].at.Before(now.Add(-budget.BusyWindow)) {
		t.recent = t.recent[1:]
	}
}

func (t *Tally) count(i item, price money.Dollars) {
	day := budget.DayOf(i.created)
	t.days[day] += price
	t.months[budget.MonthOf(i.created)] += price
	t.hosts[hostDay{i.host, day}] += price
	t.agents[agentTime{i.agent, day}] += price
	t.ofAgents[agentTime{i.agent, budget.MonthOf(i.created)}] += price
	t.sessions[i.session] += price
	if i.subscription != "" {
		t.subscriptions[i.subscription] += price
	}
}

// noteEnd notes for how long what was signed may be good from now on.
func (t *Tally) noteEnd(id string, life time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if i, has := t.items[id]; has {
		i.until = time.Now().Add(life + lateness)
		t.items[id] = i
	}
}

// lives reports whether this process signed a payment, and it may still be good.
func (t *Tally) lives(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return time.Now().Before(t.items[id].until)
}

// unsettled is what this process signed out of an account that may still be on its way. It is asked while mu
// is free.
func (t *Tally) unsettled(network, asset, source string) (sum money.Amount) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, i := range t.items {
		if i.network == network && i.asset == asset && i.source == source && time.Now().Before(i.until) {
			sum, _ = sum.Add(i.amount)
		}
	}
	return sum
}

// takeBack takes a payment out of the sums that the chain showed to this process to have expired. It
// is not signed again all the same.
func (t *Tally) takeBack(id string) { t.lower(id, 0) }

// lower takes back what the chain showed to this process not to have been charged of a payment.
func (t *Tally) lower(id string, to money.Dollars) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if i, has := t.items[id]; has && to < i.price {
		t.count(i, to-i.price)
		i.price = to
		t.items[id] = i
	}
}

// signingTime is what a payment may take from its reservation, by whose time the ledger counts its
// rate, to its signature. By the tally's clock a window is that much shorter, so that a payment for
// which there was room when it was reserved is not refused when it is signed.
const signingTime = 5 * time.Second

// facts are the sealed ones with the sums of this tally alone, and with its rate: how many it signed
// lately, whatever the times of these payments. It is asked with mu held.
func (t *Tally) facts(sealed budget.Facts, q budget.Query, now time.Time) budget.Facts {
	facts := sealed
	day, month := budget.DayOf(sealed.Now), budget.MonthOf(sealed.Now)
	held := func(n money.Dollars) budget.Use { return budget.Use{Held: n} }
	facts.Used = budget.Usage{
		Session: held(t.sessions[sealed.Session.ID]), Day: held(t.days[day]),
		Month: held(t.months[month]), HostDay: map[string]budget.Use{},
	}
	facts.Subscription.Use = held(t.subscriptions[q.Subscription])
	if q.Agent != "" {
		facts.Used.Agent = budget.NodeUsage{Day: held(t.agents[agentTime{q.Agent, day}]),
			Month: held(t.ofAgents[agentTime{q.Agent, month}])}
	}
	facts.Used.Teams = map[string]budget.NodeUsage{}
	for _, team := range q.Teams {
		facts.Used.Teams[team] = budget.NodeUsage{Day: ofTeam(t.agents, day, q.Tree, team),
			Month: ofTeam(t.ofAgents, month, q.Tree, team)}
	}
	for _, entry := range q.HostEntries {
		var sum money.Dollars
		for at, price := range t.hosts {
			if at.day.Equal(day) && onHost(entry, at.host) {
				sum += price
			}
		}
		facts.Used.HostDay[entry] = held(sum)
	}
	hour := budget.RateLimit{Per: budget.BusyWindow - signingTime, NotBefore: sealed.LastUnfreeze}
	lastMinute := now.Add(signingTime - budget.RateWindow)
	facts.LastMinute = t.since(lastMinute, budget.Window{})
	facts.NodeRates = map[string]budget.RateUse{}
	for _, limit := range q.NodeRates {
		facts.NodeRates[limit.Window.Node()] = budget.RateUse{LastMinute: t.since(lastMinute, limit.Window),
			Since: sealed.RateSince}
	}
	if q.BusyHour {
		facts.LastHour = t.since(hour.Since(now), budget.Window{})
	}
	return facts
}

// ofTeam is what the agents of a team were signed for in a day or month.
func ofTeam(signed map[agentTime]money.Dollars, begin time.Time, tree budget.Teams, team string) budget.Use {
	used := map[string]budget.Use{}
	for of, sum := range signed {
		if of.begin.Equal(begin) {
			used[of.agent] = budget.Use{Held: sum}
		}
	}
	return tree.Sum(team, used)
}

// since counts what was signed after a time for an agent, a team or all.
func (t *Tally) since(after time.Time, of budget.Window) (n int) {
	for i := len(t.recent) - 1; i >= 0 && t.recent[i].at.After(after); i-- {
		if of.Has(t.recent[i].agent) {
			n++
		}
	}
	return n
}
