package budget

import (
	"fmt"
	"iter"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

type fake []row

type row struct {
	at            time.Time
	session, host string
	price         money.Dollars
	held          bool
	agent         string
}

func (f fake) facts(q Query, now time.Time, s Session) Facts {
	day := DayOf(now)
	facts := Facts{
		Now: now, Session: s, Payee: PayeeHistory{Paid: true, PaidHere: true},
		LastMinute: f.count(now.Add(-RateWindow)), LastHour: f.count(now.Add(-BusyWindow)),
		Used: Usage{
			Session: f.used(func(r row) bool { return r.session == s.ID }),
			Day:     f.used(func(r row) bool { return !r.at.Before(day) }),
			Month:   f.used(func(r row) bool { return !r.at.Before(MonthOf(now)) }),
			HostDay: map[string]Use{},
		},
	}
	for _, host := range q.HostEntries {
		facts.Used.HostDay[host] = f.used(func(r row) bool { return r.host == host && !r.at.Before(day) })
	}
	of := func(is func(agent string) bool) NodeUsage {
		return NodeUsage{
			Day:   f.used(func(r row) bool { return is(r.agent) && !r.at.Before(day) }),
			Month: f.used(func(r row) bool { return is(r.agent) && !r.at.Before(MonthOf(now)) }),
		}
	}
	if q.Agent != "" {
		facts.Used.Agent = of(func(agent string) bool { return agent == q.Agent })
	}
	facts.Used.Teams, facts.NodeRates = map[string]NodeUsage{}, map[string]RateUse{}
	for _, team := range q.Teams {
		facts.Used.Teams[team] = of(func(agent string) bool { return q.Tree.Have(team, agent) })
	}
	for _, limit := range q.NodeRates {
		var mine fake
		for _, r := range f {
			if limit.Window.Has(r.agent) {
				mine = append(mine, r)
			}
		}
		use := RateUse{LastMinute: mine.count(now.Add(-RateWindow))}
		if use.LastMinute >= limit.Max {
			times := slices.SortedFunc(mine.times(), func(a, b time.Time) int { return b.Compare(a) })
			use.Since = times[limit.Max-1]
		}
		facts.NodeRates[limit.Window.Node()] = use
	}
	if q.EachAgent {
		facts.Used.Agents = map[string]NodeUsage{}
		for _, r := range f {
			facts.Used.Agents[r.agent] = of(func(agent string) bool { return agent == r.agent })
		}
	}
	if nth := max(q.Rate, 1); facts.LastMinute >= nth {
		times := slices.SortedFunc(f.times(), func(a, b time.Time) int { return b.Compare(a) })
		facts.RateSince = times[nth-1]
	}
	return facts
}

func (f fake) times() iter.Seq[time.Time] {
	return func(yield func(time.Time) bool) {
		for _, r := range f {
			if !yield(r.at) {
				return
			}
		}
	}
}

func (f fake) used(which func(row) bool) (u Use) {
	for _, r := range f {
		switch {
		case !which(r):
		case r.held:
			u.Held += r.price
		default:
			u.Spent += r.price
		}
	}
	return u
}

func (f fake) count(since time.Time) (n int) {
	for at := range f.times() {
		if at.After(since) {
			n++
		}
	}
	return n
}

func check(r Rules, a Ask, f fake) error { return checkAt(r, a, f, noon, current) }

func checkAt(r Rules, a Ask, f fake, now time.Time, s Session) error {
	return must.Err(r.Decide(a, f.facts(r.Query(a), now, s)))
}

var current = Session{ID: "s", Started: noon, Last: noon}

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func dollars(t *testing.T, text string) money.Dollars { return must.Get(money.ParseDollars(text))(t) }

func rules(t *testing.T) Rules {
	session := dollars(t, "5")
	return Rules{PerCall: dollars(t, "1"), Session: &session, Day: dollars(t, "10"), Month: dollars(t, "100"),
		ApproveAbove: dollars(t, "1"), Rate: 3}
}

func ask(t *testing.T, price string) Ask { return Ask{Price: dollars(t, price), Host: "api.example"} }

// Each limit passes at the limit and refuses one micro-dollar above it, with the numbers.
func TestEveryLimitToTheMicroDollar(t *testing.T) {
	spent := func(price string, when time.Time, session string) fake {
		return fake{{when, session, "api.example", dollars(t, price), false, ""}}
	}
	for _, c := range []struct {
		name, layer string
		ledger      fake
		at, over    string
		change      func(*Rules)
		resets      string
	}{
		{"per call", "per_call", nil, "1", "1.000001", nil, ""},
		{"session", "session", spent("4.5", noon.Add(-2*time.Hour), "s"), "0.5", "0.500001", nil,
			"2026-11-21T20:00:00Z"},
		{"day", "day", spent("9.5", noon.Add(-12*time.Hour), "old"), "0.5", "0.500001", nil,
			"2026-11-22T00:00:00Z"},
		{"month", "month", spent("99.5", noon.AddDate(0, 0, -20), "old"), "0.5", "0.500001", nil,
			"2026-12-01T00:00:00Z"},
		{"host", "host", spent("0.5", noon.Add(-time.Hour), "old"), "0.5", "0.500001",
			func(r *Rules) {
				r.HostDay = map[string]money.Dollars{"api.example": 1_000_000}
			}, "2026-11-22T00:00:00Z"},
		{"held counts as spent", "session", fake{{noon.Add(-2 * time.Hour), "s", "h", dollars(t, "4.5"),
			true, ""}}, "0.5", "0.500001", nil, "2026-11-21T20:00:00Z"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := rules(t)
			if c.change != nil {
				c.change(&r)
			}
			require.NoError(t, check(r, ask(t, c.at), c.ledger))
			err := check(r, ask(t, c.over), c.ledger)
			require.True(t, x402.HasCode(err, x402.BudgetExceeded), "%v", err)
			details := x402.AsError(err).Details
			require.Equal(t, c.layer, details["layer"])
			require.Equal(t, dollars(t, c.over), details["requested"])
			if c.resets != "" {
				require.Equal(t, c.resets, details["resetsAt"])
			}
		})
	}
}

func TestSpendOfYesterdayAndOtherSessionsIsNotCounted(t *testing.T) {
	old := fake{{noon.AddDate(0, 0, -1), "old", "api.example", dollars(t, "10"), false, ""}}
	require.NoError(t, check(rules(t), ask(t, "1"), old))
	none := Session{Last: noon} // none is open: nothing is spent in it
	require.NoError(t, checkAt(rules(t), ask(t, "1"),
		fake{{noon.Add(-time.Hour), "old", "h", dollars(t, "5"), false, ""}}, noon, none))
}

// Moving an owner's money to the agent's account spends nothing: no window stands in its way, but the rate
// and the breaker do.
func TestATransferSpendsNothing(t *testing.T) {
	r := rules(t)
	full := Facts{Now: noon, Session: current, Used: Usage{Day: Use{Spent: r.Day.Add(1)}}}
	d := must.Get(r.Transfer(full))(t)
	require.NotEmpty(t, d.Caps, "a decision without caps holds nothing")
	require.Equal(t, full.Session.ID, d.Session)
	busy := full
	busy.LastMinute, busy.RateSince = r.Rate, noon
	_, err := r.Transfer(busy)
	require.True(t, x402.HasCode(err, x402.RateLimited), "%v", err)
	r.MaxFailures = 3
	tripped := full
	tripped.ConsecutiveFailures = 3
	require.ErrorIs(t, must.Err(r.Transfer(tripped)), ErrTripped)
	require.Equal(t, 3, r.TransferQuery().MaxFailures)
}

func TestRateSaysWhenToComeBack(t *testing.T) {
	ledger := fake{{at: noon.Add(-50 * time.Second)}, {at: noon.Add(-20 * time.Second)},
		{at: noon.Add(-10 * time.Second)}}
	err := check(rules(t), ask(t, "0.01"), ledger)
	require.True(t, x402.HasCode(err, x402.RateLimited))
	require.Equal(t, "2026-11-21T12:00:10Z", x402.AsError(err).Details["resetsAt"])
	for _, later := range []time.Duration{time.Nanosecond, 700 * time.Millisecond} {
		// a call that comes back at the stated time passes
		odd := fake{{at: noon.Add(later - 50*time.Second)}, ledger[1], ledger[2]}
		err := check(rules(t), ask(t, "0.01"), odd)
		require.Equal(t, "2026-11-21T12:00:11Z", x402.AsError(err).Details["resetsAt"])
		require.NoError(t, checkAt(rules(t), ask(t, "0.01"), odd, noon.Add(11*time.Second), current))
	}
	lowered := rules(t)
	for rate, at := range map[int]string{2: "2026-11-21T12:00:40Z", 1: "2026-11-21T12:00:50Z",
		0: "2026-11-21T12:00:50Z"} {
		t.Run(fmt.Sprint(rate), func(t *testing.T) {
			// of three in the last minute
			lowered.Rate = rate
			require.Equal(t, at, x402.AsError(check(lowered, ask(t, "0.01"), ledger)).Details["resetsAt"],
				rate)
		})
	}
	exact := noon.Add(10 * time.Second)
	require.NoError(t, checkAt(rules(t), ask(t, "0.01"), ledger, exact, current), "a minute old is over")
	require.Error(t, checkAt(rules(t), ask(t, "0.01"), ledger, exact.Add(-time.Nanosecond), current))
	require.NoError(t, check(rules(t), ask(t, "0.01"), ledger[1:]))
}

func TestTheDelegationCapsASessionWithoutACap(t *testing.T) {
	r := rules(t)
	r.Session = nil
	a := ask(t, "1")
	require.NoError(t, check(r, a, fake{}))
	limit := dollars(t, "0.5")
	capped := current
	capped.Cap = &limit
	require.True(t, x402.HasCode(checkAt(r, a, fake{}, noon, capped), x402.BudgetExceeded))
}

func TestAPersonIsAskedAboveTheThreshold(t *testing.T) {
	r := rules(t)
	r.ApproveAbove = dollars(t, "0.10")
	require.NoError(t, check(r, ask(t, "0.10"), fake{}))
	a := ask(t, "0.11")
	require.True(t, x402.HasCode(check(r, a, fake{}), x402.ApprovalRequired))
	a.Approved = true
	require.NoError(t, check(r, a, fake{}))
	a.Price = dollars(t, "1.01") // a person's approval lifts no limit
	require.True(t, x402.HasCode(check(r, a, fake{}), x402.BudgetExceeded))
}

func TestHosts(t *testing.T) {
	r := Rules{AllowHosts: []string{"*.example.com", "api.example", "127.0.0.1:4021", "[::1]", "[::2]:80"},
		DenyHosts: []string{"bad.example.com", "[::3]"}}
	for host, want := range map[string]bool{
		"a.example.com": true, "api.example": true, "api.example:8443": true, "127.0.0.1:4021": true,
		"127.0.0.1:4022": false, "example.com": false, "bad.example.com": false, "evilexample.com": false,
		"api.example.evil": false,
		"[::1]":            true, "[::1]:80": true, "[::2]:80": true, "[::2]:81": false, "[::3]:80": false,
	} {
		t.Run(host, func(t *testing.T) { require.Equal(t, want, r.CheckHost("", host) == nil, host) })
	}
}

// Whatever is asked in whatever order, what passed never adds up to more than the limit.
func TestNeverOneUnitOver(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		limit := money.Dollars(rapid.Int64Range(0, 1000).Draw(rt, "limit"))
		r := Rules{PerCall: 1 << 40, Session: &limit, Day: 1 << 40, Month: 1 << 40, ApproveAbove: 1 << 40,
			Rate: 1 << 30}
		var ledger fake
		for _, price := range rapid.SliceOf(rapid.Int64Range(0, 400)).Draw(rt, "prices") {
			a := Ask{Price: money.Dollars(price)}
			if checkAt(r, a, ledger, noon, Session{ID: "s"}) == nil {
				ledger = append(ledger, row{noon, "s", "", a.Price, rapid.Bool().Draw(rt, "held"), ""})
			}
		}
		require.LessOrEqual(t, ledger.used(func(row) bool { return true }).Total(), limit)
	})
}

// watched is a ledger whose newest payments came to nothing, as many as failures.
type watched struct {
	fake
	failures int
	looked   time.Time
}

func (w watched) facts(q Query) Facts {
	f := w.fake.facts(q, noon, current)
	f.ConsecutiveFailures, f.LastUnfreeze = min(w.failures, q.MaxFailures), w.looked
	f.LastHour = w.count(RateLimit{Per: BusyWindow, NotBefore: w.looked}.Since(noon))
	return f
}

func busy(n int) (f fake) {
	for i := range n {
		f = append(f, row{at: noon.Add(-time.Hour + time.Duration(i+1)*time.Millisecond)})
	}
	return f
}

func TestTheBreaker(t *testing.T) {
	for _, c := range []struct {
		name       string
		ledger     watched
		rate, most int
		tripped    bool
	}{
		{"one before the last", watched{failures: 19}, 3, 20, false},
		{"as many as the owner says", watched{failures: 20}, 3, 20, true},
		{"the owner looked, and it went on", watched{failures: 20, looked: noon.Add(-time.Hour)}, 3, 20,
			true},
		{"no breaker", watched{failures: 100, fake: busy(90)}, 3, 0, false},
		{"a busy hour", watched{fake: busy(89)}, 3, 20, false},
		{"an unusual hour", watched{fake: busy(90)}, 3, 20, true},
		{"an hour ago is over", watched{fake: append(fake{{at: noon.Add(-time.Hour)}}, busy(89)...)}, 3, 20,
			false},
		{"the owner looked since", watched{fake: busy(90), looked: noon.Add(-time.Minute)}, 3, 20, false},
		{"many agents", watched{fake: busy(40_000)}, busiestRate + 1, 20, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := rules(t)
			r.Rate, r.MaxFailures = c.rate, c.most
			a := ask(t, "0.01")
			_, err := r.Decide(a, c.ledger.facts(r.Query(a)))
			if !c.tripped {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, ErrTripped)
			require.True(t, x402.HasCode(err, x402.WalletFrozen))
			require.Equal(t, "breaker", x402.AsError(err).Details["by"])
		})
	}
}
