package dashboard

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"x402-wallet/budget"
	"x402-wallet/history/report"
	"x402-wallet/internal/passkey"
	"x402-wallet/internal/passkey/invitation"
	"x402-wallet/x402/money"
)

// The lines are at round sums, the topmost is not below the highest bar, and something is never
// nothing.
func TestDraw(t *testing.T) {
	for most, lines := range map[money.Dollars]string{
		1:           "$0.000001",
		3000:        "$0.001 $0.002 $0.003",
		500_000:     "$0.20 $0.40 $0.60",
		4_230_000:   "$2.00 $4.00 $6.00",
		100_000_000: "$50.00 $100.00",
	} {
		t.Run(fmt.Sprint(most), func(t *testing.T) {
			p := draw([]step{{Use: budget.Use{Spent: most - most/4, Held: most / 4}},
				{Use: budget.Use{Spent: 1}}, {}, {Use: budget.Use{Held: 1}}}, 2, "the last 4 days")
			var got []string
			for _, l := range p.Lines {
				got = append(got, l.Label)
			}
			require.Equal(t, lines, strings.TrimSpace(strings.Join(got, " ")))
			require.InDelta(t, 0, p.Lines[len(p.Lines)-1].Y, .01)
			for _, b := range p.Bars {
				require.GreaterOrEqual(t, b.HeldY, -.02, "%s: inside", most)
				require.InDelta(t, plotHeight, b.SpentY+b.SpentHigh, .02)
				require.Equal(t, b.Spent > 0, b.SpentHigh >= leastHigh)
				require.Equal(t, b.Held > 0, b.HeldHigh >= leastHigh)
			}
			require.Equal(t, []bool{false, true, false, true}, []bool{p.Bars[0].Labelled, p.Bars[1].Labelled,
				p.Bars[2].Labelled, p.Bars[3].Labelled}, "from the last")
		})
	}
	none := draw(make([]step, 3), 1, "the last 3 days")
	require.False(t, none.Any)
	require.Empty(t, none.Lines)
	require.Equal(t, "Nothing was spent in the last 3 days.", none.Said)
}

func TestBars(t *testing.T) {
	b := barsOf([]report.NamedSum{{Key: "a", Use: budget.Use{Spent: 60, Held: 20}},
		{Key: "b", Use: budget.Use{Spent: 1}}}, budget.Use{Spent: 80, Held: 20}, strings.ToUpper)
	require.Equal(t, bars{List: []lying{{"A", budget.Use{Spent: 60, Held: 20}, 75, 25},
		{"B", budget.Use{Spent: 1}, 1.25, 0}}, Others: 19}, b)
	require.InDelta(t, .5, percent(1, 1_000_000), 0)
	require.InDelta(t, 0, percent(0, 0), 0)
	require.InDelta(t, 100, percent(1, 0), 0)
}

func TestNoSuchRange(t *testing.T) {
	require.Equal(t, http.StatusNotFound, opened(t).get("/?range=1000y").status)
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A session is over when its person was away, and after a day in any case; pages that load themselves do not
// keep it.
func TestSessionsEnd(t *testing.T) {
	begun := time.Now()
	k := passkey.Key{ID: "AAEC"}
	var s sessions
	cookie := s.begin("phone", k, begun)
	in := func(after time.Duration, looks bool) bool {
		name, got, ok := s.of(cookie, begun.Add(after), looks)
		require.True(t, !ok || (name == "phone" && got == k))
		return ok
	}
	require.True(t, in(sessionIdle-1, false))
	require.False(t, in(sessionIdle, true), "nobody had looked")
	require.False(t, in(0, true), "what is over stays over")

	cookie = s.begin("phone", k, begun)
	for after := time.Duration(0); after < sessionLife; after += sessionIdle - 1 {
		require.True(t, in(after, true), after)
	}
	require.False(t, in(sessionLife, true))

	cookie = s.begin("phone", k, begun)
	_, _, ok := s.of(cookie+"A", begun, true)
	require.False(t, ok)
	s.end(cookie)
	require.False(t, in(0, true))
}

// Sessions are bounded: the one that nobody has looked by for longest gives way.
func TestSessionsAreBounded(t *testing.T) {
	begun := time.Now()
	var s sessions
	var cookies []string
	for i := range maxSessions + 1 {
		cookies = append(cookies, s.begin("phone", passkey.Key{}, begun.Add(time.Duration(i))))
	}
	require.Len(t, s.list, maxSessions)
	for i, cookie := range cookies {
		_, _, ok := s.of(cookie, begun, false)
		require.Equal(t, i > 0, ok, i)
	}
}

// Over TLS a cookie is this very host's, over a safe connection.
func TestCookiesOverTLS(t *testing.T) {
	s := NewService(ServiceOptions{Origin: "https://wallet.example", Checker: passkey.NewChecker(),
		Links: &invitation.Links{Home: t.TempDir()}}, Options{})
	r := httptest.NewRequest("GET", "https://wallet.example/", nil)
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	require.Regexp(t, `^__Host-x402-wallet-browser=[A-Z2-7]{26}; Path=/; HttpOnly; Secure; SameSite=Strict$`,
		w.Header().Get("Set-Cookie"))
	require.Contains(t, w.Header().Get("Content-Security-Policy"), "script-src 'self'; connect-src 'self'")
	require.Contains(t, w.Body.String(), `<script src="/passkey.js" defer></script>`)
	require.NotContains(t, w.Body.String(), s.place)

	w = httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest("GET", "https://wallet.example/passkeys/add/x", nil))
	require.Equal(t, 410, w.Code)
	require.NotContains(t, w.Header().Get("Content-Security-Policy"), "script-src", "where none is needed")
}
