// Package budget is the owner's rules about money and the arithmetic of the first two budget
// layers: this call, and the owner's windows (SPEC §5). It is pure: what was spent so far it asks a
// Ledger, what time it is it is told.
//
// What must stay true: a payment passes only if, with everything held and spent in a window, it
// stays at or below that window's limit. What is held counts like what is spent.
package budget

import (
	"cmp"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// SessionIdle is how long a session lives after its last payment (SPEC §5).
const SessionIdle = 8 * time.Hour

// rateWindow is the window of Rules.Rate.
const rateWindow = time.Minute

// Rules are the owner's limits. Nothing an agent or a stranger says is in here.
type Rules struct {
	PerCall      money.Dollars
	Session      *money.Dollars // nil: the delegation found at the session's start is the cap
	Day, Month   money.Dollars  // UTC calendar day and month
	ApproveAbove money.Dollars  // above it a person is asked
	Rate         int            // payments per minute
	HostDay      map[string]money.Dollars
	AllowHosts   []string // empty: any
	DenyHosts    []string
	NewPayee     Rule    // a payTo that was never paid on its network
	PayeeChange  Rule    // a payTo that is not one paid before for its host, network and asset
	PriceJump    float64 // a person is asked at this many times the price paid last; 0: never
	// payments in a row that come to nothing before the circuit breaker stops all; 0: there is no
	// breaker
	MaxLost int
}

// Rule is what to do about something unusual.
type Rule string

// The rules; "" is RuleAllow.
const (
	RuleAllow  Rule = "allow"
	RuleAsk    Rule = "ask"
	RuleRefuse Rule = "refuse"
)

// Ledger answers what was spent. Its figures must be those of the transaction that will insert the
// payment.
type Ledger interface {
	// Used sums the payments of a window.
	Used(w Window) (Use, error)
	// Count counts payments made after since, failed ones too: an attempt is an attempt.
	Count(since time.Time) (int, error)
	// Oldest is when the oldest of the payments that Count(since) counts was made, after skipping
	// the skip oldest; zero where there are no more.
	Oldest(since time.Time, skip int) (time.Time, error)
	// Remember says what is known of a host's payee and of what a resource cost.
	PayeeHistory(host string, p Payee) (Memory, error)
	// Lost counts the newest payments in a row, made after since, that were signed and came to
	// nothing; it stops at most.
	ConsecutiveFailures(since time.Time, most int) (int, error)
	// Looked is when the owner last lifted a freeze; zero: never.
	LastUnfreeze() (time.Time, error)
}

// Window selects payments; zero fields do not restrict.
type Window struct {
	Session string
	Host    string // as the owner wrote it: without a port it covers every port
	Since   time.Time
}

// Use is what a window's payments took.
type Use struct{ Spent, Held money.Dollars }

// Session is the durable session a payment falls into.
type Session struct {
	ID      string // "": the next payment begins one
	Started time.Time
	Last    time.Time      // its last payment, or its start
	Cap     *money.Dollars // the delegation found at its start; nil: none
}

// Ask is a payment that wants to happen.
type Ask struct {
	Price   money.Dollars
	Host    string
	Payee   Payee
	Now     time.Time
	Session Session
	Always  string // why a person is asked whatever it costs; "": nothing of the kind
	// Approved takes a person's yes to exactly this quote, if there is one. It is called last, and
	// only where a person is needed. Nil: nobody said yes.
	Approved func() (bool, error)
}

// Check refuses what breaks a rule, with the numbers and when that window begins anew. Rules are
// asked in the order in which their answer helps most: hosts, this call, the circuit breaker, the
// payee, the windows from the smallest to the largest, the rate, the person.
func (r Rules) Check(a Ask, l Ledger) error {
	if err := r.CheckHost(a.Host); err != nil {
		return err
	}
	if err := r.CheckCall(a.Price); err != nil {
		return err
	}
	if err := r.checkBreaker(a.Now, l); err != nil {
		return err
	}
	questions, err := r.unusual(a, l)
	if err != nil {
		return err
	}
	for _, line := range r.lines(a.Session, a.Host, a.Now) {
		if line.Limit == nil {
			continue
		}
		use, err := l.Used(line.Window)
		if err != nil {
			return err
		}
		if use.Spent.Add(use.Held).Add(a.Price) > *line.Limit {
			return exceeded(line, use, a.Price)
		}
	}
	if err := r.checkRate(a.Now, l); err != nil {
		return err
	}
	if len(questions) == 0 {
		return nil
	}
	if a.Approved != nil {
		if yes, err := a.Approved(); yes || err != nil {
			return err
		}
	}
	return askPerson(a, questions)
}

// CheckHost applies deny_hosts and allow_hosts. An entry covers the host itself and, written
// "*.example.com", every host below it; "host:port" covers just that port.
func (r Rules) CheckHost(host string) error {
	covers := func(entry string) bool { return hostMatches(entry, host) }
	if slices.ContainsFunc(r.DenyHosts, covers) {
		return x402.Errorf(x402.PolicyDenied, "the owner does not allow payments to %s", host).
			WithHint("use another seller; which ones are paid is the owner's to say")
	}
	if len(r.AllowHosts) > 0 && !slices.ContainsFunc(r.AllowHosts, covers) {
		return x402.Errorf(x402.PolicyDenied, "%s is not among the hosts the owner allows", host).
			WithHint("use another seller; which ones are paid is the owner's to say")
	}
	return nil
}

func hostMatches(entry, host string) bool {
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

// CheckCall applies per_call.
func (r Rules) CheckCall(price money.Dollars) error {
	if price <= r.PerCall {
		return nil
	}
	e := x402.Errorf(x402.BudgetExceeded, "the price %s is above the owner's limit of %s for one call",
		price.Price(), r.PerCall.Price()).
		WithHint("ask for something that costs at most %s", r.PerCall.Price()).
		WithDetail("layer", "per_call").WithDetail("limit", r.PerCall).WithDetail("requested", price).
		WithDetail("spent", money.Dollars(0)).WithDetail("held", money.Dollars(0))
	e.FixedBy = x402.ByPerson
	return e
}

func (r Rules) checkRate(now time.Time, l Ledger) error {
	since := now.Add(-rateWindow)
	n, err := l.Count(since)
	if err != nil || n < r.Rate {
		return err
	}
	// those before it have to be over, too, if the owner lowered the rate since
	oldest, err := l.Oldest(since, n-max(r.Rate, 1))
	if err != nil {
		return err
	}
	return x402.Errorf(x402.RateLimited, "%d payments in the last minute; the owner allows %d", n, r.Rate).
		WithHint("wait until %s", stamp(oldest.Add(rateWindow))).
		WithDetail("limit", r.Rate).WithDetail("resetsAt", stamp(oldest.Add(rateWindow)))
}

// line is one row of the second layer.
type line struct {
	Name   string
	Limit  *money.Dollars // nil: no limit
	Window Window
	Resets time.Time
}

func (r Rules) lines(s Session, host string, now time.Time) []line {
	now = now.UTC()
	day := time.Date(now.Year(), now.Month(), now.Day(), 0, 0, 0, 0, time.UTC)
	month := time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC)
	sessionCap := r.Session
	if sessionCap == nil {
		sessionCap = s.Cap
	}
	rows := []line{
		{"session", sessionCap, Window{Session: cmp.Or(s.ID, "none yet")}, s.Last.Add(SessionIdle)},
		{"day", &r.Day, Window{Since: day}, day.AddDate(0, 0, 1)},
		{"month", &r.Month, Window{Since: month}, month.AddDate(0, 1, 0)},
	}
	for entry, limit := range r.HostDay {
		if hostMatches(entry, host) {
			rows = append(rows, line{"host", &limit, Window{Host: entry, Since: day}, day.AddDate(0, 0, 1)})
		}
	}
	return rows
}

func exceeded(l line, use Use, price money.Dollars) error {
	left := l.Limit.SubFloor(use.Spent.Add(use.Held))
	e := x402.Errorf(x402.BudgetExceeded, "the price %s is above what is left of the owner's %s budget: "+
		"%s of %s",
		price.Price(), l.Name, left.Price(), l.Limit.Price()).
		WithHint("up to %s would pass now; the %s budget begins anew at %s", left.Price(), l.Name,
			stamp(l.Resets)).
		WithDetail("layer", l.Name).WithDetail("limit", *l.Limit).WithDetail("spent",
		use.Spent).WithDetail("held", use.Held).
		WithDetail("requested", price).WithDetail("resetsAt", stamp(l.Resets))
	if price > *l.Limit {
		e.FixedBy = x402.ByPerson // waiting will not help
		e.Hint = "up to " + left.Price() + " would pass now"
	}
	return e
}

// stamp names a time in whole seconds, none too early: who comes back then passes.
func stamp(t time.Time) string {
	return t.Add(time.Second - time.Nanosecond).Truncate(time.Second).UTC().Format(time.RFC3339)
}

// Line is one budget as the outside sees it (SPEC §7.1b). Limit nil: none is set.
type Line struct {
	Limit     *money.Dollars `json:"limit"`
	Spent     money.Dollars  `json:"spent"`
	Held      money.Dollars  `json:"held"`
	Remaining *money.Dollars `json:"remaining"`
	ResetsAt  string         `json:"resetsAt,omitempty"`
}

// Report is what is left of each budget.
type Report struct {
	PerCall money.Dollars `json:"perCall"`
	Session Line          `json:"session"`
	Day     Line          `json:"day"`
	Month   Line          `json:"month"`
}

// Report reads the windows as they stand.
func (r Rules) Report(s Session, now time.Time, l Ledger) (Report, error) {
	out := Report{PerCall: r.PerCall}
	for i, row := range r.lines(s, "", now) {
		shown, err := row.report(l)
		if err != nil {
			return out, err
		}
		*[]*Line{&out.Session, &out.Day, &out.Month}[i] = shown
	}
	return out, nil
}

func (l line) report(ledger Ledger) (Line, error) {
	use, err := ledger.Used(l.Window)
	shown := Line{Limit: l.Limit, Spent: use.Spent, Held: use.Held, ResetsAt: stamp(l.Resets)}
	if l.Limit != nil {
		left := l.Limit.SubFloor(use.Spent.Add(use.Held))
		shown.Remaining = &left
	}
	return shown, err
}

// HostLine is a host's own budget of the day, by the owner's name for it.
type HostLine struct {
	Host string
	Line
}

// ReportHosts reads the hosts' budgets as they stand, by name.
func (r Rules) ReportHosts(now time.Time, l Ledger) (list []HostLine, err error) {
	for _, entry := range slices.Sorted(maps.Keys(r.HostDay)) {
		only := Rules{HostDay: map[string]money.Dollars{entry: r.HostDay[entry]}}
		rows := only.lines(Session{}, entry, now)
		shown, err := rows[len(rows)-1].report(l)
		if err != nil {
			return nil, err
		}
		list = append(list, HostLine{entry, shown})
	}
	return list, nil
}
