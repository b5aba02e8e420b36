package history

import (
	"cmp"
	"encoding/json"
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
	Seconds []rateCount `json:"seconds"`
	Minutes []rateCount `json:"minutes"`
	// Failures are the payments in a row that came to nothing, by their numbers; Settled is the last
	// one that did not.
	Failures []int64 `json:"failures"`
	Settled  int64   `json:"settled"`
	Memory   string  `json:"memory"` // the root, hex
}

type windowSum struct {
	Day   int64         `json:"day"` // since 1970
	Sum   money.Dollars `json:"sum"`
	Hosts []hostSum     `json:"hosts,omitempty"` // of a day, by their names
}

type hostSum struct {
	Host string        `json:"host"`
	Sum  money.Dollars `json:"sum"`
}

// rateCount is how many were signed in a second or a minute, since 1970.
type rateCount struct {
	At    int64 `json:"at"`
	Count int   `json:"n"`
}

type sessionSum struct {
	ID   string         `json:"id"`
	Last int64          `json:"last"` // the newest payment's time, microseconds
	Cap  *money.Dollars `json:"cap"`
	Sum  money.Dollars  `json:"sum"`
}

// signature is what a sealed row says of one.
type signature struct {
	Number      int64          `json:"n"` // the payment's, in the order of creation
	Session     string         `json:"session"`
	SessionCap  *money.Dollars `json:"sessionCap"`
	Created     int64          `json:"created"` // microseconds
	Host        string         `json:"host"`
	Network     string         `json:"network"`
	Asset       string         `json:"asset"`
	PayTo       string         `json:"payTo"`
	Amount      money.Amount   `json:"amount"`
	Price       money.Dollars  `json:"microdollars"`
	Resource    string         `json:"resource"`
	Key         string         `json:"key,omitempty"`
	Unique      string         `json:"unique"`   // its nonce or our signature
	Evidence    string         `json:"evidence"` // SHA-256 of what the chain is asked by
	SignedBytes string         `json:"sha256"`   // of what was signed, or of the payload with it
	Voucher     *voucher       `json:"voucher,omitempty"`
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
	d := at(s.Days, day)
	d.Sum += g.Price
	d.add(g.Host, g.Price)
	at(s.Months, month).Sum += g.Price
	if s.Session.ID != g.Session {
		s.Session = sessionSum{ID: g.Session, Cap: g.SessionCap}
	}
	s.Session.Sum += g.Price
	s.Session.Last = max(s.Session.Last, g.Created)
	s.count(g.created())
}

// count adds to the rate, and forgets what is over.
func (s *sums) count(created time.Time) {
	second, minute := created.Unix(), created.Unix()/60
	s.Seconds, s.Minutes = countAt(s.Seconds, second), countAt(s.Minutes, minute)
	newest := s.Seconds[len(s.Seconds)-1].At
	isOver := func(since int64) func(rateCount) bool { return func(c rateCount) bool { return c.At < since } }
	s.Seconds = slices.DeleteFunc(s.Seconds, isOver(newest-60))
	s.Minutes = slices.DeleteFunc(s.Minutes, isOver(newest/60-60))
}

// countAt adds one to a list that goes by time.
func countAt(list []rateCount, at int64) []rateCount {
	i, known := slices.BinarySearchFunc(list, at,
		func(c rateCount, at int64) int { return cmp.Compare(c.At, at) })
	if !known {
		list = slices.Insert(list, i, rateCount{At: at})
	}
	list[i].Count++
	return list
}

// countBetween counts what was signed after one time and up to another.
func countBetween(list []rateCount, after, upTo int64) (n int) {
	for _, c := range list {
		if c.At > after && c.At <= upTo {
			n += c.Count
		}
	}
	return n
}

// add counts a price for a host of a day.
func (w *windowSum) add(host string, price money.Dollars) {
	i, known := slices.BinarySearchFunc(w.Hosts, host,
		func(h hostSum, host string) int { return strings.Compare(h.Host, host) })
	if !known {
		w.Hosts = slices.Insert(w.Hosts, i, hostSum{Host: host})
	}
	w.Hosts[i].Sum += price
}

// subtract takes a signature back that expired.
func (s *sums) subtract(g signature) {
	if d := at(s.Days, dayNumber(g.created())); d != nil {
		d.Sum -= g.Price
		d.add(g.Host, -g.Price)
	}
	if m := at(s.Months, dayNumber(budget.MonthOf(g.created()))); m != nil {
		m.Sum -= g.Price
	}
	if s.Session.ID == g.Session {
		s.Session.Sum -= g.Price
	}
}

// maxFailuresKept bounds Failures, as failuresWithin bounds what the breaker looks at.
const maxFailuresKept = failuresWithin

// apply takes a row of the chain into account that needs no seal.
func (s *sums) apply(event, detail string) {
	var d struct {
		Number    int64           `json:"n"`
		Chain     json.RawMessage `json:"chain"`
		Delivered bool            `json:"delivered"`
	}
	switch event {
	case string(Settled), string(Unknown), string(Failed), deliveredEvent, unfrozenEvent:
	default:
		return
	}
	if json.Unmarshal([]byte(detail), &d) != nil || d.Number == 0 {
		return
	}
	isThis := func(n int64) bool { return n == d.Number }
	switch {
	case event == string(Settled), event == unfrozenEvent:
		s.Settled = max(s.Settled, d.Number)
		s.Failures = slices.DeleteFunc(s.Failures, func(n int64) bool { return n <= s.Settled })
	case event == deliveredEvent:
		s.Failures = slices.DeleteFunc(s.Failures, isThis)
	case event == string(Unknown) && !d.Delivered, event == string(Failed) && d.Chain != nil:
		if d.Number > s.Settled && !slices.ContainsFunc(s.Failures, isThis) {
			s.Failures = append(s.Failures, d.Number)
			s.Failures = s.Failures[max(0, len(s.Failures)-maxFailuresKept):]
		}
	}
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
	for _, list := range [][]windowSum{c.Days, c.Months} {
		for i := range list {
			list[i].Hosts = slices.Clone(list[i].Hosts)
		}
	}
	c.Seconds, c.Minutes = slices.Clone(s.Seconds), slices.Clone(s.Minutes)
	return c
}

// usage is what was signed in the windows of a time, all of it as held.
func (s *sums) usage(session string, entries []string, at time.Time) (u budget.Usage) {
	day, month := dayNumber(budget.DayOf(at)), dayNumber(budget.MonthOf(at))
	u.HostDay = map[string]budget.Use{}
	if session == s.Session.ID {
		u.Session.Held = s.Session.Sum
	}
	for _, w := range s.Months {
		if w.Day >= month {
			u.Month.Held += w.Sum
		}
	}
	for _, w := range s.Days {
		if w.Day < day {
			continue
		}
		u.Day.Held += w.Sum
		for _, entry := range entries {
			u.HostDay[entry] = budget.Use{Held: u.HostDay[entry].Held + w.host(entry)}
		}
	}
	return u
}

// host is what a day's payments to a host of the owner's entry come to: with any port.
func (w windowSum) host(entry string) (sum money.Dollars) {
	for _, h := range w.Hosts {
		if h.Host == entry || strings.HasPrefix(h.Host, entry+":") {
			sum += h.Sum
		}
	}
	return sum
}
