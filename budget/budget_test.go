package budget

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// fake is a ledger of plain rows.
type fake []row

type row struct {
	at      time.Time
	session string
	host    string
	price   money.Dollars
	held    bool
}

func (f fake) Used(w Window) (u Use, _ error) {
	for _, r := range f {
		if w.Session != "" && r.session != w.Session || w.Host != "" && r.host != w.Host ||
			r.at.Before(w.Since) {
			continue
		}
		if r.held {
			u.Held += r.price
		} else {
			u.Spent += r.price
		}
	}
	return u, nil
}

func (f fake) Count(since time.Time) (n int, _ error) {
	for _, r := range f {
		if r.at.After(since) {
			n++
		}
	}
	return n, nil
}

func (f fake) Oldest(since time.Time, skip int) (time.Time, error) {
	var times []time.Time
	for _, r := range f {
		if r.at.After(since) {
			times = append(times, r.at)
		}
	}
	slices.SortFunc(times, time.Time.Compare)
	return times[skip], nil
}

func (f fake) PayeeHistory(string, Payee) (Memory, error) {
	return Memory{Paid: true, PaidHere: true}, nil
}

func (f fake) ConsecutiveFailures(time.Time, int) (int, error) { return 0, nil }

func (f fake) LastUnfreeze() (time.Time, error) { return time.Time{}, nil }

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func dollars(t *testing.T, text string) money.Dollars {
	t.Helper()
	d, err := money.ParseDollars(text)
	require.NoError(t, err)
	return d
}

func rules(t *testing.T) Rules {
	session := dollars(t, "5")
	return Rules{PerCall: dollars(t, "1"), Session: &session, Day: dollars(t, "10"), Month: dollars(t, "100"),
		ApproveAbove: dollars(t, "1"), Rate: 3}
}

func ask(t *testing.T, price string) Ask {
	return Ask{Price: dollars(t, price), Host: "api.example", Now: noon,
		Session: Session{ID: "s", Started: noon, Last: noon}}
}

// Each limit passes at the limit and refuses one micro-dollar above it, with the numbers.
func TestEveryLimitToTheMicroDollar(t *testing.T) {
	spent := func(price string, when time.Time, session string) fake {
		return fake{{when, session, "api.example", dollars(t, price), false}}
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
			true}}, "0.5", "0.500001", nil, "2026-11-21T20:00:00Z"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := rules(t)
			if c.change != nil {
				c.change(&r)
			}
			require.NoError(t, r.Check(ask(t, c.at), c.ledger))
			err := r.Check(ask(t, c.over), c.ledger)
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

func TestYesterdayAndOtherSessionsDoNotCount(t *testing.T) {
	old := fake{{noon.AddDate(0, 0, -1), "old", "api.example", dollars(t, "10"), false}}
	require.NoError(t, rules(t).Check(ask(t, "1"), old))
	fresh := ask(t, "1")
	fresh.Session = Session{Last: noon} // none is open: nothing is spent in it
	require.NoError(t,
		rules(t).Check(fresh, fake{{noon.Add(-time.Hour), "old", "h", dollars(t, "5"), false}}))
}

func TestRateSaysWhenToComeBack(t *testing.T) {
	ledger := fake{{at: noon.Add(-50 * time.Second)}, {at: noon.Add(-20 * time.Second)},
		{at: noon.Add(-10 * time.Second)}}
	err := rules(t).Check(ask(t, "0.01"), ledger)
	require.True(t, x402.HasCode(err, x402.RateLimited))
	require.Equal(t, "2026-11-21T12:00:10Z", x402.AsError(err).Details["resetsAt"])
	for _, later := range []time.Duration{time.Nanosecond, 700 * time.Millisecond} {
		// whoever comes back when told to passes
		odd := fake{{at: noon.Add(later - 50*time.Second)}, ledger[1], ledger[2]}
		err := rules(t).Check(ask(t, "0.01"), odd)
		require.Equal(t, "2026-11-21T12:00:11Z", x402.AsError(err).Details["resetsAt"])
		again := ask(t, "0.01")
		again.Now = noon.Add(11 * time.Second)
		require.NoError(t, rules(t).Check(again, odd))
	}
	lowered := rules(t)
	for rate, at := range map[int]string{2: "2026-11-21T12:00:40Z", 1: "2026-11-21T12:00:50Z",
		0: "2026-11-21T12:00:50Z"} {
		// of three in the last minute
		lowered.Rate = rate
		require.Equal(t, at, x402.AsError(lowered.Check(ask(t, "0.01"), ledger)).Details["resetsAt"], rate)
	}
	exact := ask(t, "0.01")
	exact.Now = noon.Add(10 * time.Second)
	require.NoError(t, rules(t).Check(exact, ledger), "a minute old is over")
	exact.Now = exact.Now.Add(-time.Nanosecond)
	require.Error(t, rules(t).Check(exact, ledger))
	require.NoError(t, rules(t).Check(ask(t, "0.01"), ledger[1:]))
}

func TestTheDelegationCapsASessionWithoutACap(t *testing.T) {
	r := rules(t)
	r.Session = nil
	a := ask(t, "1")
	require.NoError(t, r.Check(a, fake{}))
	limit := dollars(t, "0.5")
	a.Session.Cap = &limit
	require.True(t, x402.HasCode(r.Check(a, fake{}), x402.BudgetExceeded))
}

func TestAPersonIsAskedAboveTheThreshold(t *testing.T) {
	r := rules(t)
	r.ApproveAbove = dollars(t, "0.10")
	require.NoError(t, r.Check(ask(t, "0.10"), fake{}))
	a := ask(t, "0.11")
	require.True(t, x402.HasCode(r.Check(a, fake{}), x402.ApprovalRequired))
	a.Approved = func() (bool, error) { return false, nil }
	require.True(t, x402.HasCode(r.Check(a, fake{}), x402.ApprovalRequired))
	a.Approved = func() (bool, error) { return true, nil }
	require.NoError(t, r.Check(a, fake{}))
	a.Price = dollars(t, "1.01") // a person's yes lifts no limit
	require.True(t, x402.HasCode(r.Check(a, fake{}), x402.BudgetExceeded))
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
		require.Equal(t, want, r.CheckHost(host) == nil, host)
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
			a := Ask{Price: money.Dollars(price), Now: noon, Session: Session{ID: "s"}}
			if r.Check(a, ledger) == nil {
				ledger = append(ledger, row{noon, "s", "", a.Price, rapid.Bool().Draw(rt, "held")})
			}
		}
		u, _ := ledger.Used(Window{})
		require.LessOrEqual(t, u.Spent+u.Held, limit)
	})
}

// Each host's own budget is reported, by name.
func TestReportHosts(t *testing.T) {
	r := rules(t)
	r.HostDay = map[string]money.Dollars{"b.example": 300, "a.example": 500}
	list, err := r.ReportHosts(noon, fake{{at: noon, host: "b.example", price: 100},
		{at: noon, host: "b.example", price: 50, held: true}, {at: noon.AddDate(0, 0, -1), host: "a.example",
			price: 7}})
	require.NoError(t, err)
	limit := func(d money.Dollars) *money.Dollars { return &d }
	require.Equal(t, []HostLine{
		{"a.example", Line{Limit: limit(500), Remaining: limit(500), ResetsAt: "2026-11-22T00:00:00Z"}},
		{"b.example", Line{Limit: limit(300), Spent: 100, Held: 50, Remaining: limit(150),
			ResetsAt: "2026-11-22T00:00:00Z"}},
	}, list)
}
