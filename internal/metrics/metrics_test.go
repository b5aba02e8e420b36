package metrics

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/x402/money"
)

var (
	helpLine   = regexp.MustCompile(`^# HELP ([a-z][a-z0-9_]*) [A-Z][^\\]*\.$`)
	typeLine   = regexp.MustCompile(`^# TYPE ([a-z][a-z0-9_]*) (counter|gauge|histogram)$`)
	sampleLine = regexp.MustCompile(`^([a-z][a-z0-9_]*)(?:\{(.*)\})? (\S+)$`)
	labelText  = regexp.MustCompile(`^([a-z]+)="((?:[^"\\]|\\["\\n])*)"(?:,|$)`)
)

// read takes a text in the format 0.0.4 strictly apart: each family once, with help and type before its
// samples, which are numbers, each of a series of its own. It gives the samples by series, labels as they
// are written.
func read(t *testing.T, text string) map[string]float64 {
	t.Helper()
	require.True(t, strings.HasSuffix(text, "\n"))
	samples, types, family := map[string]float64{}, map[string]string{}, ""
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for i := 0; i < len(lines); i++ {
		if m := helpLine.FindStringSubmatch(lines[i]); m != nil {
			require.NotContains(t, types, m[1], "a family stands once")
			i++
			kind := typeLine.FindStringSubmatch(lines[i])
			require.NotNil(t, kind, lines[i])
			require.Equal(t, m[1], kind[1])
			family, types[m[1]] = m[1], kind[2]
			require.Equal(t, kind[2] == "counter", strings.HasSuffix(family, "_total"), family)
			continue
		}
		m := sampleLine.FindStringSubmatch(lines[i])
		require.NotNil(t, m, "%q", lines[i])
		name := m[1]
		if types[family] == "histogram" {
			name = regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")
		}
		require.Equal(t, family, name, "a sample stands in its family")
		for rest := m[2]; rest != ""; {
			label := labelText.FindString(rest)
			require.NotEmpty(t, label, "%q", lines[i])
			rest = rest[len(label):]
		}
		value, err := strconv.ParseFloat(m[3], 64)
		require.NoError(t, err)
		series := strings.TrimSuffix(lines[i], " "+m[3])
		require.NotContains(t, samples, series, "a series stands once")
		samples[series] = value
	}
	return samples
}

func scrape(t *testing.T, p *Process, s Standing, err error) string {
	t.Helper()
	w := httptest.NewRecorder()
	p.Handler(func(context.Context) (Standing, error) { return s, err }).ServeHTTP(w,
		httptest.NewRequest(http.MethodGet, "/metrics", nil))
	require.Equal(t, http.StatusOK, w.Code)
	require.Equal(t, "text/plain; version=0.0.4; charset=utf-8", w.Header().Get("Content-Type"))
	return w.Body.String()
}

func TestMetrics(t *testing.T) {
	p := &Process{Started: time.UnixMilli(1_764_000_000_500)}
	p.Call("ann", "paid", "", 1000, 20*time.Millisecond)
	p.Call("ann", "paid", "", 1_500_000, 25*time.Millisecond)
	p.Call("bob", "failed", "BUDGET_EXCEEDED", 0, 2*time.Minute)
	p.Call("", "free", "", 0, 3*time.Second)
	s := Standing{Held: map[string]money.Dollars{"ann": 10},
		Unknown: map[string]money.Dollars{"bob": 2_000_000},
		Waiting: map[string]int{"ann": 3}, Sessions: map[string]int{"ann": 2, "bob": 0}, Frozen: true}
	text := scrape(t, p, s, nil)
	got := read(t, text)
	for series, value := range map[string]float64{
		`x402_wallet_payments_total{agent="ann",outcome="paid",code=""}`:                  2,
		`x402_wallet_payments_total{agent="bob",outcome="failed",code="BUDGET_EXCEEDED"}`: 1,
		`x402_wallet_payments_total{agent="",outcome="free",code=""}`:                     1,
		`x402_wallet_paid_dollars_total{agent="ann"}`:                                     1.501,
		`x402_wallet_payment_seconds_bucket{le="0.01"}`:                                   0,
		`x402_wallet_payment_seconds_bucket{le="0.025"}`:                                  2,
		`x402_wallet_payment_seconds_bucket{le="2.5"}`:                                    2,
		`x402_wallet_payment_seconds_bucket{le="5"}`:                                      3,
		`x402_wallet_payment_seconds_bucket{le="60"}`:                                     3,
		`x402_wallet_payment_seconds_bucket{le="+Inf"}`:                                   4,
		`x402_wallet_payment_seconds_count`:                                               4,
		`x402_wallet_payment_seconds_sum`:                                                 123.045,
		`process_start_time_seconds`:                                                      1_764_000_000.5,
		`x402_wallet_sessions{agent="ann"}`:                                               2,
		`x402_wallet_sessions{agent="bob"}`:                                               0,
		`x402_wallet_held_dollars{agent="ann"}`:                                           0.00001,
		`x402_wallet_unknown_dollars{agent="bob"}`:                                        2,
		`x402_wallet_approvals_waiting{agent="ann"}`:                                      3,
		`x402_wallet_frozen`:                                                              1,
		`x402_wallet_ledger_readable`:                                                     1,
	} {
		has, found := got[series]
		require.True(t, found, series)
		require.InDelta(t, value, has, 1e-9, series)
		delete(got, series)
	}
	for series := range got {
		require.Contains(t, series, "_bucket{", "nothing else")
	}
	if tool, err := exec.LookPath("promtool"); err == nil {
		check := exec.CommandContext(t.Context(), tool, "check", "metrics")
		check.Stdin = strings.NewReader(text)
		said, err := check.CombinedOutput()
		require.NoError(t, err, "%s", said)
	}
}

// What the ledger does not tell is left out; the rest is there.
func TestAnUnreadableLedger(t *testing.T) {
	got := read(t, scrape(t, &Process{}, Standing{Sessions: map[string]int{"ann": 1}}, errors.New("locked")))
	require.Zero(t, got["x402_wallet_ledger_readable"])
	require.InDelta(t, 1, got[`x402_wallet_sessions{agent="ann"}`], 0)
	require.NotContains(t, got, "x402_wallet_frozen")
}

// A label stays one, whatever is in it.
func TestLabelsAreEscaped(t *testing.T) {
	p := &Process{}
	p.Call("a\"\\\n} 1", "paid", "", 0, 0)
	got := read(t, scrape(t, p, Standing{}, nil))
	require.Contains(t, got, `x402_wallet_payments_total{agent="a\"\\\n} 1",outcome="paid",code=""}`)
}

func TestOnlyMetricsAreThere(t *testing.T) {
	w := httptest.NewRecorder()
	(&Process{}).Handler(nil).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	require.Equal(t, http.StatusNotFound, w.Code)
}
