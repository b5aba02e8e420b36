// Package seals is what sealed rows of the audit chain say: which signatures there are, and the sums of them.
package seals

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"x402-wallet/budget"
	"x402-wallet/history/internal/audit"
	"x402-wallet/history/sqldb"
	"x402-wallet/x402/money"
)

// Sums are those of what was signed and did not expire.
type Sums struct {
	Days    []WindowSum `json:"days"`   // the newest two in which anything was signed
	Months  []WindowSum `json:"months"` // likewise; Day is the month's first
	Session SessionSum  `json:"session"`
	// how much was signed, by the second in the last minute and by the minute in the last hour, of
	// the payments' own times
	Seconds Rate `json:"seconds"`
	Minutes Rate `json:"minutes"`
	// Failures are the payments in a row that came to nothing, by their numbers; Settled is the last
	// one that did not.
	Failures []int64 `json:"failures"`
	Settled  int64   `json:"settled"`
	Memory   string  `json:"memory"` // the root, hex
	// Subscriptions are what the owner's standing orders took, by their IDs. Those that are over stay: each
	// was made with the passphrase, so there are few.
	Subscriptions map[string]SubscriptionSum `json:"subscriptions,omitempty"`
}

// WindowSum is what was signed in a day or a month.
type WindowSum struct {
	Day   int64           `json:"day"` // since 1970
	Sum   money.Dollars   `json:"sum"`
	Hosts []string        `json:"hosts,omitempty"` // of a day, in their order; Paid is what each was paid
	Paid  []money.Dollars `json:"paid,omitempty"`
	// Agents, in their order, and what each spent.
	Agents []string        `json:"agents,omitempty"`
	Spent  []money.Dollars `json:"spent,omitempty"`
}

// Rate is how many were signed in each of the newest seconds or minutes.
type Rate struct {
	From   int64 `json:"from"` // since 1970
	Counts []int `json:"counts"`
}

type SessionSum struct {
	ID   string         `json:"id"`
	Last int64          `json:"last"` // the newest payment's time, microseconds
	Cap  *money.Dollars `json:"cap"`
	Sum  money.Dollars  `json:"sum"`
}

// SubscriptionSum is what was signed for a subscription in all, and what and whom it paid last.
type SubscriptionSum struct {
	Sum   money.Dollars `json:"sum"`
	Price money.Dollars `json:"price"`
	PayTo string        `json:"payTo"`
}

// at returns the window of a day, or nil.
func at(list []WindowSum, day int64) *WindowSum {
	i := slices.IndexFunc(list, func(w WindowSum) bool { return w.Day == day })
	if i < 0 {
		return nil
	}
	return &list[i]
}

// keptWindows is how many days and months the sums know: what was held before midnight may be
// signed after it.
const keptWindows = 2

// Knows reports whether all that was signed in the windows of a time is known: they are among the newest.
func (s *Sums) Knows(created time.Time) bool {
	isOld := func(list []WindowSum, day int64) bool { return len(list) == keptWindows && day < list[0].Day }
	return !isOld(s.Days, sqldb.DayNumber(created)) &&
		!isOld(s.Months, sqldb.DayNumber(budget.MonthOf(created)))
}

func withWindow(list []WindowSum, day int64) []WindowSum {
	if at(list, day) != nil {
		return list
	}
	list = append(list, WindowSum{Day: day})
	slices.SortFunc(list, func(a, b WindowSum) int { return int(a.Day - b.Day) })
	return list[max(0, len(list)-keptWindows):]
}

// Add counts a signature. Its session and its windows must have been looked at.
func (s *Sums) Add(g Signature) {
	day, month := sqldb.DayNumber(g.created()), sqldb.DayNumber(budget.MonthOf(g.created()))
	s.Days, s.Months = withWindow(s.Days, day), withWindow(s.Months, month)
	at(s.Days, day).add(g.Host, g.Agent, g.Price)
	at(s.Months, month).add("", g.Agent, g.Price)
	if s.Session.ID != g.Session {
		s.Session = SessionSum{ID: g.Session, Cap: g.SessionCap}
	}
	s.Session.Sum += g.Price
	s.Session.Last = max(s.Session.Last, g.Created)
	if id, _, ok := budget.SubscriptionOf(g.Key); ok && g.PayTo != "" {
		s.subscribed(id, g)
	}
	s.count(g.created())
}

func (s *Sums) subscribed(id string, g Signature) {
	if s.Subscriptions == nil {
		s.Subscriptions = map[string]SubscriptionSum{}
	}
	of := s.Subscriptions[id]
	of.Sum += g.Price
	if g.Price > 0 { // a voucher's was counted with its deposit
		of.Price = g.Price
	}
	of.PayTo = payee(g.Network, g.PayTo)
	s.Subscriptions[id] = of
}

// Subscription is what was signed for a subscription, all of it as held; nothing where that is not asked for.
func (s *Sums) Subscription(id string) (use budget.SubscriptionUse) {
	if of, any := s.Subscriptions[id]; any {
		use.Held, use.LastPrice, use.LastPayTo = of.Sum, &of.Price, of.PayTo
	}
	return use
}

// count adds to the rate, and forgets what is over.
func (s *Sums) count(created time.Time) {
	s.Seconds.add(created.Unix())
	s.Minutes.add(created.Unix() / 60)
}

// rateSpan is how far back a rate goes: a minute of seconds, an hour of minutes.
const rateSpan = 60

func (r *Rate) add(at int64) {
	if len(r.Counts) == 0 {
		r.From = at
	}
	if at < r.From { // room before it, as far back as a rate goes
		before := max(0, min(r.From-at, rateSpan+1-int64(len(r.Counts))))
		r.Counts, r.From = slices.Insert(r.Counts, 0, make([]int, before)...), r.From-before
	}
	from := max(r.From, at-rateSpan)
	r.Counts = slices.Delete(r.Counts, 0, int(min(from-r.From, int64(len(r.Counts)))))
	r.From = from
	for r.From+int64(len(r.Counts)) <= at {
		r.Counts = append(r.Counts, 0)
	}
	if at >= r.From {
		r.Counts[at-r.From]++
	}
}

// Between counts what was signed after one time and up to another.
func (r *Rate) Between(after, upTo int64) (n int) {
	for i, count := range r.Counts {
		if at := r.From + int64(i); at > after && at <= upTo {
			n += count
		}
	}
	return n
}

// add counts a price in all, and for a host and an agent; "": for none.
func (w *WindowSum) add(host, agent string, price money.Dollars) {
	w.Sum += price
	if host != "" {
		addTo(&w.Hosts, &w.Paid, host, price)
	}
	if agent != "" {
		addTo(&w.Agents, &w.Spent, agent, price)
	}
}

// addTo adds a price to the sum of a name, in lists of names in their order and of their sums.
func addTo(names *[]string, sums *[]money.Dollars, name string, price money.Dollars) {
	i, known := slices.BinarySearch(*names, name)
	if !known {
		*names, *sums = slices.Insert(*names, i, name), slices.Insert(*sums, i, 0)
	}
	(*sums)[i] += price
}

// Lower takes back what was signed for and not charged: all of it where the signature expired.
func (s *Sums) Lower(g Signature, by money.Dollars) {
	if d := at(s.Days, sqldb.DayNumber(g.created())); d != nil {
		d.add(g.Host, g.Agent, -by)
	}
	if m := at(s.Months, sqldb.DayNumber(budget.MonthOf(g.created()))); m != nil {
		m.add("", g.Agent, -by)
	}
	if s.Session.ID == g.Session {
		s.Session.Sum -= by
	}
	id, _, _ := budget.SubscriptionOf(g.Key)
	if of, any := s.Subscriptions[id]; any {
		of.Sum -= by
		s.Subscriptions[id] = of
	}
}

// FailuresWithin is among how many of the newest payments failures are counted.
const FailuresWithin = 200

// Apply takes a row of the chain into account that needs no seal.
func (s *Sums) Apply(r audit.Row) {
	switch r.Event {
	case audit.SettledEvent:
		if strings.HasPrefix(r.Detail, `{"proof":`) { // a sign-in has none, and says nothing of payments
			s.succeeded(r.Payment)
		}
	case audit.UnfrozenEvent:
		var d struct{ N int64 }
		if json.Unmarshal([]byte(r.Detail), &d) == nil {
			s.succeeded(d.N)
		}
	case audit.DeliveredEvent:
		s.Failures = slices.DeleteFunc(s.Failures, func(n int64) bool { return n == r.Payment })
	case audit.UnknownEvent, audit.FailedEvent:
		d, err := audit.ReadStep(r.Detail)
		isOpen := r.Event == audit.UnknownEvent && !d.Delivered
		isFailed := r.Event == audit.FailedEvent && d.Chain != ""
		isNew := r.Payment > s.Settled && !slices.Contains(s.Failures, r.Payment)
		if err == nil && (isOpen || isFailed) && isNew {
			s.Failures = append(s.Failures, r.Payment)
			s.Failures = s.Failures[max(0, len(s.Failures)-FailuresWithin):]
		}
	}
}

// succeeded says that no failure up to a payment is one in a row any more.
func (s *Sums) succeeded(payment int64) {
	s.Settled = max(s.Settled, payment)
	s.Failures = slices.DeleteFunc(s.Failures, func(n int64) bool { return n <= s.Settled })
}

func (s *Sums) Encode() []byte { return []byte(audit.JSON(s)) }

// Clone is a copy that shares nothing with the sums.
func (s *Sums) Clone() Sums {
	c := *s
	c.Days, c.Months, c.Failures = slices.Clone(s.Days), slices.Clone(s.Months), slices.Clone(s.Failures)
	c.Subscriptions = maps.Clone(s.Subscriptions)
	c.Seconds.Counts, c.Minutes.Counts = slices.Clone(s.Seconds.Counts), slices.Clone(s.Minutes.Counts)
	for _, list := range [][]WindowSum{c.Days, c.Months} {
		for i := range list {
			w := &list[i]
			w.Hosts, w.Paid = slices.Clone(w.Hosts), slices.Clone(w.Paid)
			w.Agents, w.Spent = slices.Clone(w.Agents), slices.Clone(w.Spent)
		}
	}
	return c
}

// Usage is what was signed in the windows of a time that are asked for, all of it as held.
func (s *Sums) Usage(session string, q budget.Query, at time.Time) (u budget.Usage) {
	day, month := sqldb.DayNumber(budget.DayOf(at)), sqldb.DayNumber(budget.MonthOf(at))
	u.HostDay = map[string]budget.Use{}
	if session == s.Session.ID {
		u.Session.Held = s.Session.Sum
	}
	for _, w := range s.Months {
		if w.Day >= month {
			u.Month.Held += w.Sum
			u.Agent.Month.Held += w.agent(q.Agent)
		}
	}
	for _, w := range s.Days {
		if w.Day < day {
			continue
		}
		u.Day.Held += w.Sum
		u.Agent.Day.Held += w.agent(q.Agent)
		for _, entry := range q.HostEntries {
			u.HostDay[entry] = budget.Use{Held: u.HostDay[entry].Held + w.host(entry)}
		}
	}
	if len(q.Teams) > 0 {
		u.Teams = q.OfTeams(signedSince(s.Days, day), signedSince(s.Months, month))
	}
	return u
}

// signedSince is what was signed for each agent in the windows since a day.
func signedSince(windows []WindowSum, since int64) map[string]budget.Use {
	used := map[string]budget.Use{}
	for _, w := range windows {
		for i, agent := range w.Agents {
			if w.Day >= since {
				used[agent] = budget.Use{Held: used[agent].Held + w.Spent[i]}
			}
		}
	}
	return used
}

// Agents are those that anything was signed for in the months that are known; a day's are among them.
func (s *Sums) Agents() (names []string) {
	for _, w := range s.Months {
		names = append(names, w.Agents...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// agent is what an agent's payments come to.
func (w WindowSum) agent(name string) money.Dollars {
	if i, known := slices.BinarySearch(w.Agents, name); known {
		return w.Spent[i]
	}
	return 0
}

// host is what a day's payments to a host of the owner's entry come to: with any port.
func (w WindowSum) host(entry string) (sum money.Dollars) {
	for i, host := range w.Hosts {
		if budget.HostMatches(entry, host) {
			sum += w.Paid[i]
		}
	}
	return sum
}
