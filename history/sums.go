package history

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"x402-wallet/budget"
	"x402-wallet/x402/money"
)

// sums is what was signed and did not expire.
type sums struct {
	Days    []windowSum `json:"days"`   // the newest two in which anything was signed
	Months  []windowSum `json:"months"` // likewise; Day is the month's first
	Session sessionSum  `json:"session"`
	// how much was signed, by the second in the last minute and by the minute in the last hour, of
	// the payments' own times
	Seconds rate `json:"seconds"`
	Minutes rate `json:"minutes"`
	// Failures are the payments in a row that came to nothing, by their numbers; Settled is the last
	// one that did not.
	Failures []int64 `json:"failures"`
	Settled  int64   `json:"settled"`
	Memory   string  `json:"memory"` // the root, hex
	// Subscriptions are what the owner's standing orders took, by their IDs. Those that are over stay: each
	// was made with the passphrase, so there are few.
	Subscriptions map[string]subscriptionSum `json:"subscriptions,omitempty"`
}

type windowSum struct {
	Day   int64           `json:"day"` // since 1970
	Sum   money.Dollars   `json:"sum"`
	Hosts []string        `json:"hosts,omitempty"` // of a day, in their order; Paid is what each was paid
	Paid  []money.Dollars `json:"paid,omitempty"`
	// Agents, in their order, and what each spent.
	Agents []string        `json:"agents,omitempty"`
	Spent  []money.Dollars `json:"spent,omitempty"`
}

// rate is how many were signed in each of the newest seconds or minutes.
type rate struct {
	From   int64 `json:"from"` // since 1970
	Counts []int `json:"counts"`
}

type sessionSum struct {
	ID   string         `json:"id"`
	Last int64          `json:"last"` // the newest payment's time, microseconds
	Cap  *money.Dollars `json:"cap"`
	Sum  money.Dollars  `json:"sum"`
}

// subscriptionSum is what was signed for a subscription in all, and what and whom it paid last.
type subscriptionSum struct {
	Sum   money.Dollars `json:"sum"`
	Price money.Dollars `json:"price"`
	PayTo string        `json:"payTo"`
}

// signature is what a sealed row says of one, and the terms of its payment.
type signature struct {
	ID          string         `json:"id"`  // of the payment
	Row         string         `json:"row"` // Payment.digest
	SessionCap  *money.Dollars `json:"sessionCap,omitempty"`
	Created     int64          `json:"created"` // microseconds
	Key         string         `json:"key,omitempty"`
	Unique      string         `json:"unique"`              // hash of its nonce or our signature
	Evidence    string         `json:"evidence"`            // digest of what the chain is asked by
	SignedBytes string         `json:"sha256,omitempty"`    // digest of what was signed, where that is not stored yet
	Stored      string         `json:"stored"`              // storedDigest
	Submitted   bool           `json:"submitted,omitempty"` // it may leave: the record has the payload
	Voucher     *voucher       `json:"voucher,omitempty"`

	terms
}

// givenBack is what a sealed row says of a signature whose money is free again: all of it, because it
// expired, or what was not charged.
type givenBack struct {
	Unique    string    `json:"unique"`
	Charged   string    `json:"charged,omitempty"`  // what was less than was signed for
	Returned  int64     `json:"returned,omitempty"` // of its price
	Signature signature `json:"signature"`
}

func (r auditRow) readGivenBack() (d givenBack, err error) {
	err = json.Unmarshal([]byte(r.detail), &d)
	return d, err
}

// terms are those columns of a payment, all in its digest, that sums and memory are made of.
type terms struct {
	Session  string        `json:"session"`
	Agent    string        `json:"agent,omitempty"`
	Host     string        `json:"host"`
	Network  string        `json:"network"`
	Asset    string        `json:"asset"`
	PayTo    string        `json:"payTo"`
	Resource string        `json:"resource"`
	Price    money.Dollars `json:"price"`
}

func (p Payment) terms() terms {
	return terms{Session: p.Session, Agent: p.Agent, Host: p.Host, Network: p.Network, Asset: p.Asset,
		PayTo: p.PayTo, Resource: p.Resource(), Price: p.Price}
}

// voucher is how far a sealed row takes a channel.
type voucher struct {
	Service  string `json:"service"`
	Key      string `json:"key"`
	Position string `json:"position"`
}

func (g signature) created() time.Time { return fromMicros(g.Created) }

// at returns the window of a day, or nil.
func at(list []windowSum, day int64) *windowSum {
	i := slices.IndexFunc(list, func(w windowSum) bool { return w.Day == day })
	if i < 0 {
		return nil
	}
	return &list[i]
}

// keptWindows is how many days and months the sums know: what was held before midnight may be
// signed after it.
const keptWindows = 2

// knows reports whether all that was signed in the windows of a time is known: they are among the newest.
func (s *sums) knows(created time.Time) bool {
	isOld := func(list []windowSum, day int64) bool { return len(list) == keptWindows && day < list[0].Day }
	return !isOld(s.Days, dayNumber(created)) && !isOld(s.Months, dayNumber(budget.MonthOf(created)))
}

// withWindow is a list with a window in it.
func withWindow(list []windowSum, day int64) []windowSum {
	if at(list, day) != nil {
		return list
	}
	list = append(list, windowSum{Day: day})
	slices.SortFunc(list, func(a, b windowSum) int { return int(a.Day - b.Day) })
	return list[max(0, len(list)-keptWindows):]
}

// add counts a signature. Its session and its windows must have been looked at.
func (s *sums) add(g signature) {
	day, month := dayNumber(g.created()), dayNumber(budget.MonthOf(g.created()))
	s.Days, s.Months = withWindow(s.Days, day), withWindow(s.Months, month)
	at(s.Days, day).add(g.Host, g.Agent, g.Price)
	at(s.Months, month).add("", g.Agent, g.Price)
	if s.Session.ID != g.Session {
		s.Session = sessionSum{ID: g.Session, Cap: g.SessionCap}
	}
	s.Session.Sum += g.Price
	s.Session.Last = max(s.Session.Last, g.Created)
	if id, _, ok := budget.SubscriptionOf(g.Key); ok && g.PayTo != "" {
		s.subscribed(id, g)
	}
	s.count(g.created())
}

// subscribed counts a signature for a subscription.
func (s *sums) subscribed(id string, g signature) {
	if s.Subscriptions == nil {
		s.Subscriptions = map[string]subscriptionSum{}
	}
	of := s.Subscriptions[id]
	of.Sum += g.Price
	if g.Price > 0 { // a voucher's was counted with its deposit
		of.Price = g.Price
	}
	of.PayTo = payee(g.Network, g.PayTo)
	s.Subscriptions[id] = of
}

// subscription is what was signed for a subscription, all of it as held; nothing where that is not asked for.
func (s *sums) subscription(id string) (use budget.SubscriptionUse) {
	if of, any := s.Subscriptions[id]; any {
		use.Held, use.LastPrice, use.LastPayTo = of.Sum, &of.Price, of.PayTo
	}
	return use
}

// count adds to the rate, and forgets what is over.
func (s *sums) count(created time.Time) {
	s.Seconds.add(created.Unix())
	s.Minutes.add(created.Unix() / 60)
}

// rateSpan is how far back a rate goes: a minute of seconds, an hour of minutes.
const rateSpan = 60

func (r *rate) add(at int64) {
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

// between counts what was signed after one time and up to another.
func (r *rate) between(after, upTo int64) (n int) {
	for i, count := range r.Counts {
		if at := r.From + int64(i); at > after && at <= upTo {
			n += count
		}
	}
	return n
}

// add counts a price in all, and for a host and an agent; "": for none.
func (w *windowSum) add(host, agent string, price money.Dollars) {
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

// subtract takes a signature back that expired.
func (s *sums) subtract(g signature) { s.lower(g, g.Price) }

// lower takes back a part of what was signed for, which was not charged.
func (s *sums) lower(g signature, by money.Dollars) {
	if d := at(s.Days, dayNumber(g.created())); d != nil {
		d.add(g.Host, g.Agent, -by)
	}
	if m := at(s.Months, dayNumber(budget.MonthOf(g.created()))); m != nil {
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

// maxFailuresKept bounds Failures, as failuresWithin bounds what the breaker looks at.
const maxFailuresKept = failuresWithin

// apply takes a row of the chain into account that needs no seal.
func (s *sums) apply(r auditRow) {
	isThis := func(n int64) bool { return n == r.payment }
	switch r.event {
	case string(Settled):
		if strings.HasPrefix(r.detail, `{"proof":`) { // a sign-in has none, and says nothing of payments
			s.succeeded(r.payment)
		}
	case unfrozenEvent:
		var d struct{ N int64 }
		if json.Unmarshal([]byte(r.detail), &d) == nil {
			s.succeeded(d.N)
		}
	case deliveredEvent:
		s.Failures = slices.DeleteFunc(s.Failures, isThis)
	case string(Unknown), string(Failed):
		d, err := readStep(r.detail)
		failed := (r.event == string(Unknown) && !d.Delivered) || (r.event == string(Failed) && d.Chain != "")
		if err == nil && failed && r.payment > s.Settled && !slices.ContainsFunc(s.Failures, isThis) {
			s.Failures = append(s.Failures, r.payment)
			s.Failures = s.Failures[max(0, len(s.Failures)-maxFailuresKept):]
		}
	}
}

// succeeded says that no failure up to a payment is one in a row any more.
func (s *sums) succeeded(payment int64) {
	s.Settled = max(s.Settled, payment)
	s.Failures = slices.DeleteFunc(s.Failures, func(n int64) bool { return n <= s.Settled })
}

func (s *sums) encode() []byte { return []byte(toJSON(s)) }

// lastSums are those that this process wrote or read last, and their text: reading it would take as
// long as all else that a signature is checked by.
var lastSums atomic.Pointer[struct {
	text string
	sums sums
}]

// decodeSums is what encode wrote.
func decodeSums(text string) (s sums, err error) {
	known := lastSums.Load()
	if known != nil && known.text == text {
		return known.sums.clone(), nil
	}
	err = json.Unmarshal([]byte(text), &s)
	return s, err
}

// cache has decodeSums know what this text says.
func (s *sums) cache(text []byte) {
	lastSums.Store(&struct {
		text string
		sums sums
	}{string(text), s.clone()})
}

func (s *sums) clone() sums {
	c := *s
	c.Days, c.Months, c.Failures = slices.Clone(s.Days), slices.Clone(s.Months), slices.Clone(s.Failures)
	c.Subscriptions = maps.Clone(s.Subscriptions)
	c.Seconds.Counts, c.Minutes.Counts = slices.Clone(s.Seconds.Counts), slices.Clone(s.Minutes.Counts)
	for _, list := range [][]windowSum{c.Days, c.Months} {
		for i := range list {
			w := &list[i]
			w.Hosts, w.Paid = slices.Clone(w.Hosts), slices.Clone(w.Paid)
			w.Agents, w.Spent = slices.Clone(w.Agents), slices.Clone(w.Spent)
		}
	}
	return c
}

// usage is what was signed in the windows of a time that are asked for, all of it as held.
func (s *sums) usage(session string, q budget.Query, at time.Time) (u budget.Usage) {
	day, month := dayNumber(budget.DayOf(at)), dayNumber(budget.MonthOf(at))
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
		u.Teams = teamsOf(q, signedSince(s.Days, day), signedSince(s.Months, month))
	}
	return u
}

// signedSince is what was signed for each agent in the windows since a day.
func signedSince(windows []windowSum, since int64) map[string]budget.Use {
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

// agents are those that anything was signed for in the months that are known; a day's are among them.
func (s *sums) agents() (names []string) {
	for _, w := range s.Months {
		names = append(names, w.Agents...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// agent is what an agent's payments come to.
func (w windowSum) agent(name string) money.Dollars {
	if i, known := slices.BinarySearch(w.Agents, name); known {
		return w.Spent[i]
	}
	return 0
}

// host is what a day's payments to a host of the owner's entry come to: with any port.
func (w windowSum) host(entry string) (sum money.Dollars) {
	for i, host := range w.Hosts {
		if budget.HostMatches(entry, host) {
			sum += w.Paid[i]
		}
	}
	return sum
}
