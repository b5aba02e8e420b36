package metrics

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/x402/money"
	"x402-wallet/x402/observe"
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
		value := must.Get(strconv.ParseFloat(m[3], 64))(t)
		series := strings.TrimSuffix(lines[i], " "+m[3])
		_, twice := samples[series]
		require.False(t, twice, "a series stands once: %s", series)
		samples[series] = value
	}
	return samples
}

func scrape(t *testing.T, sources ...Source) string {
	t.Helper()
	w := httptest.NewRecorder()
	Handler(sources...).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	require.Equal(t, http.StatusOK, w.Code)
	require.Equal(t, "text/plain; version=0.0.4; charset=utf-8", w.Header().Get("Content-Type"))
	return w.Body.String()
}

// has compares what was scraped; buckets that are not named are passed over, and nothing else.
func has(t *testing.T, text string, wanted map[string]float64) {
	t.Helper()
	got := read(t, text)
	for series, value := range wanted {
		is, found := got[series]
		require.True(t, found, "%s\n%s", series, text)
		require.InDelta(t, value, is, 1e-9, series)
		delete(got, series)
	}
	for series := range got {
		require.Contains(t, series, "_bucket{", "nothing else")
	}
}

func TestCalls(t *testing.T) {
	var c Calls
	c.Call(Call{"ann", "paid", "", "eip155:8453", 1000, 20 * time.Millisecond})
	c.Call(Call{"ann", "paid", "", "eip155:8453", 1_500_000, 25 * time.Millisecond})
	c.Call(Call{"ann", "paid", "", "solana:x", 1, 25 * time.Millisecond})
	c.Call(Call{Agent: "bob", Outcome: "failed", Code: "BUDGET_EXCEEDED", Took: 2 * time.Minute})
	c.Call(Call{Outcome: "free", Took: 3 * time.Second})
	c.Step("sign", time.Millisecond)
	c.Step("sign", 2*time.Millisecond)
	has(t, scrape(t, &c), map[string]float64{
		`x402_wallet_payments_total{agent="ann",outcome="paid",code=""}`:                  3,
		`x402_wallet_payments_total{agent="bob",outcome="failed",code="BUDGET_EXCEEDED"}`: 1,
		`x402_wallet_payments_total{agent="",outcome="free",code=""}`:                     1,
		`x402_wallet_paid_dollars_total{agent="ann",network="eip155:8453"}`:               1.501,
		`x402_wallet_paid_dollars_total{agent="ann",network="solana:x"}`:                  0.000001,
		`x402_wallet_payment_seconds_bucket{le="0.01"}`:                                   0,
		`x402_wallet_payment_seconds_bucket{le="0.025"}`:                                  3,
		`x402_wallet_payment_seconds_bucket{le="2.5"}`:                                    3,
		`x402_wallet_payment_seconds_bucket{le="5"}`:                                      4,
		`x402_wallet_payment_seconds_bucket{le="60"}`:                                     4,
		`x402_wallet_payment_seconds_bucket{le="+Inf"}`:                                   5,
		`x402_wallet_payment_seconds_count`:                                               5,
		`x402_wallet_payment_seconds_sum`:                                                 123.07,
		`x402_wallet_payment_step_seconds_bucket{step="sign",le="0.001"}`:                 1,
		`x402_wallet_payment_step_seconds_count{step="sign"}`:                             2,
		`x402_wallet_payment_step_seconds_sum{step="sign"}`:                               0.003,
	})
}

func TestParties(t *testing.T) {
	var p Parties
	before := float64(time.Now().UnixMilli()) / 1000
	p.Facilitator("cdp", "verify", observe.Answered, 20*time.Millisecond)
	p.Facilitator("cdp", "settle", observe.NoAnswer, time.Second)
	p.Facilitator("own", "settle", observe.InError, time.Second)
	p.Node("eip155:8453", observe.Answered, 30*time.Millisecond)
	p.Node("solana:x", observe.NoAnswer, 10*time.Second)
	text := scrape(t, &p)
	got := read(t, text)
	require.InDelta(t, 1, got[`x402_wallet_facilitator_requests_total{facilitator="cdp",request="settle",`+
		`outcome="no_answer"}`], 0)
	require.InDelta(t, 2, got[`x402_wallet_facilitator_request_seconds_count{facilitator="cdp"}`], 0)
	require.InDelta(t, 1.02, got[`x402_wallet_facilitator_request_seconds_sum{facilitator="cdp"}`], 1e-9)
	require.InDelta(t, 1, got[`x402_wallet_node_requests_total{network="solana:x",outcome="no_answer"}`], 0)
	require.InDelta(t, 1, got[`x402_wallet_node_request_seconds_bucket{network="eip155:8453",le="0.05"}`], 0)
	for _, answered := range []string{`x402_wallet_facilitator_answered_timestamp_seconds{facilitator="cdp"}`,
		`x402_wallet_node_answered_timestamp_seconds{network="eip155:8453"}`} {
		require.GreaterOrEqual(t, got[answered], before)
	}
	require.NotContains(t, text, `answered_timestamp_seconds{facilitator="own"}`, "it never did")
	require.NotContains(t, text, `answered_timestamp_seconds{network="solana:x"}`)
}

func standing(s Standing, err error) Ledger {
	return Ledger{Read: func(context.Context) (Standing, error) { return s, err }}
}

func TestLedger(t *testing.T) {
	now := time.UnixMilli(1_764_000_000_500)
	limit := money.Dollars(5_000_000)
	s := Standing{Now: now, Frozen: true, FrozenAccounts: 2, Working: 3, InQueue: 4,
		Held: map[string]Open{"ann": Open{}.Add(10, now, false)},
		Unknown: map[string]Open{"bob": Open{}.Add(2_000_000, now.Add(-time.Minute), false).
			Add(1, now, true)},
		Waiting: map[string]Open{"ann": Open{}.Add(1, now.Add(-time.Hour), false), "bob": {}},
		Budgets: []Budget{{Window: "day", Agent: "ann", Limit: &limit, Used: 4_000_000},
			{Window: "session", Used: 7}},
		Balances: []Balance{{Network: "solana:x", Asset: "USDC", Source: "delegation", Dollars: 1_250_000,
			Read: now}},
		Sessions: map[string]int{"ann": 2, "bob": 0}}
	has(t, scrape(t, standing(s, nil)), map[string]float64{
		`x402_wallet_sessions{agent="ann"}`:                                                2,
		`x402_wallet_sessions{agent="bob"}`:                                                0,
		`x402_wallet_ledger_readable`:                                                      1,
		`x402_wallet_held_payments{agent="ann"}`:                                           1,
		`x402_wallet_held_dollars{agent="ann"}`:                                            0.00001,
		`x402_wallet_unknown_payments{agent="bob"}`:                                        2,
		`x402_wallet_unknown_dollars{agent="bob"}`:                                         2.000001,
		`x402_wallet_unknown_overdue_payments{agent="bob"}`:                                1,
		`x402_wallet_unknown_oldest_age_seconds{agent="bob"}`:                              60,
		`x402_wallet_approvals_waiting{agent="ann"}`:                                       1,
		`x402_wallet_approvals_waiting{agent="bob"}`:                                       0,
		`x402_wallet_approvals_oldest_age_seconds{agent="ann"}`:                            3600,
		`x402_wallet_approvals_oldest_age_seconds{agent="bob"}`:                            0,
		`x402_wallet_frozen`:                                                               1,
		`x402_wallet_frozen_accounts`:                                                      2,
		`x402_wallet_budget_limit_dollars{window="day",agent="ann",host=""}`:               5,
		`x402_wallet_budget_used_dollars{window="day",agent="ann",host=""}`:                4,
		`x402_wallet_budget_used_dollars{window="session",agent="",host=""}`:               0.000007,
		`x402_wallet_balance_dollars{network="solana:x",asset="USDC",source="delegation"}`: 1.25,
		`x402_wallet_balance_read_timestamp_seconds{network="solana:x",asset="USDC",` +
			`source="delegation"}`: 1_764_000_000.5,
		`x402_wallet_calls_working`: 3,
		`x402_wallet_calls_waiting`: 4,
	})
}

// What the ledger does not tell is left out; the rest is there.
func TestAnUnreadableLedger(t *testing.T) {
	has(t, scrape(t, standing(Standing{Sessions: map[string]int{"ann": 1}}, errors.New("locked"))),
		map[string]float64{`x402_wallet_ledger_readable`: 0, `x402_wallet_sessions{agent="ann"}`: 1})
}

func TestAShop(t *testing.T) {
	var sales Sales
	sales.Sale(Sale{Tool: "paid", Outcome: "sold", Network: "eip155:8453", Earned: 1000,
		Steps: map[string]time.Duration{"verify": time.Millisecond, "settle": time.Second}})
	sales.Sale(Sale{Tool: "paid", Outcome: "unpaid", Code: "PAYMENT_REQUIRED"})
	shop := Shop{Load: func() Load {
		return Load{Running: 2, Sessions: 3, Calls: map[string]int{"guest": 4},
			Refused: map[int]uint64{429: 5}}
	}, Owed: func(context.Context) (map[string]Owed, error) {
		return map[string]Owed{"eip155:8453": {Channels: 6, Dollars: 7_000_000,
			Since: time.Now().Add(-time.Hour)}}, nil
	}}
	text := scrape(t, &sales, shop)
	got := read(t, text)
	require.InDelta(t, 3600, got[`x402_wallet_owed_oldest_age_seconds{network="eip155:8453"}`], 60)
	for series, value := range map[string]float64{
		`x402_wallet_sales_total{tool="paid",outcome="sold",code=""}`:                   1,
		`x402_wallet_sales_total{tool="paid",outcome="unpaid",code="PAYMENT_REQUIRED"}`: 1,
		`x402_wallet_earned_dollars_total{tool="paid",network="eip155:8453"}`:           0.001,
		`x402_wallet_sale_step_seconds_count{step="verify"}`:                            1,
		`x402_wallet_sale_step_seconds_sum{step="settle"}`:                              1,
		`x402_wallet_sales_running`:                                                     2,
		`x402_wallet_paywall_sessions`:                                                  3,
		`x402_wallet_paywall_calls{by="guest"}`:                                         4,
		`x402_wallet_paywall_refused_total{status="429"}`:                               5,
		`x402_wallet_ledger_readable`:                                                   1,
		`x402_wallet_owed_channels{network="eip155:8453"}`:                              6,
		`x402_wallet_owed_dollars{network="eip155:8453"}`:                               7,
	} {
		require.InDelta(t, value, got[series], 1e-9, "%s\n%s", series, text)
	}
}

func TestAProcess(t *testing.T) {
	text := scrape(t, &Process{Version: "v1", Started: time.UnixMilli(1_764_000_000_500)})
	got := read(t, text)
	require.InDelta(t, 1_764_000_000.5, got["process_start_time_seconds"], 0)
	require.Contains(t, text, `x402_wallet_build_info{version="v1",goversion="go`)
	require.Positive(t, got["go_goroutines"])
	if runtime.GOOS == "linux" {
		require.Greater(t, got["process_resident_memory_bytes"], float64(1<<20))
		require.Positive(t, got["process_open_fds"])
		require.Greater(t, got["process_max_fds"], got["process_open_fds"])
		require.Contains(t, got, "process_cpu_seconds_total")
	}
}

// However many hosts, codes and names there are, a family has its bounded number of series, and counts on.
func TestStrangersMakeNoSeries(t *testing.T) {
	var calls Calls
	var sales Sales
	var parties Parties
	const flood = 10_000
	for i := range flood {
		name := fmt.Sprintf("https://%d.example", i)
		calls.Call(Call{Agent: name, Outcome: name, Code: name, Network: name, Paid: 1})
		calls.Step(name, 1)
		sales.Sale(Sale{Tool: name, Outcome: name, Code: name, Network: name, Earned: 1,
			Steps: map[string]time.Duration{name: 1}})
		parties.Facilitator(name, name, observe.Answered, 1)
		parties.Node(name, observe.Answered, 1)
	}
	text := scrape(t, &calls, &sales, &parties)
	by, sum := map[string]int{}, map[string]float64{}
	for line := range strings.Lines(text) { // not read strictly: it is long
		if !strings.HasPrefix(line, "#") {
			family, _, _ := strings.Cut(line, "{")
			value, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' '):]), 64)
			require.NoError(t, err)
			by[family]++
			sum[family] += value
		}
	}
	for family, n := range by {
		most := maxSeries
		if strings.HasSuffix(family, "_bucket") {
			most *= len(bounds) + 1
		}
		require.LessOrEqual(t, n, most, family)
	}
	for _, family := range []string{"x402_wallet_payments_total", "x402_wallet_sales_total",
		"x402_wallet_facilitator_requests_total", "x402_wallet_node_requests_total",
		"x402_wallet_payment_step_seconds_count", "x402_wallet_sale_step_seconds_count"} {
		require.Equal(t, maxSeries, by[family], family)
		require.InDelta(t, flood, sum[family], 0, "nothing is lost: %s", family)
	}
	require.InDelta(t, flood*1e-6, sum["x402_wallet_paid_dollars_total"], 1e-9)
	require.Contains(t, text, `x402_wallet_payments_total{agent="other",outcome="other",code="other"} `)
}

// A gauge of "other" would show one agent's value as that of many.
func TestLedger_GaugesAreBounded(t *testing.T) {
	sessions := map[string]int{}
	for i := range 2 * maxSeries {
		sessions[strconv.Itoa(i)] = i
	}
	text := scrape(t, Ledger{Read: func(context.Context) (Standing, error) {
		return Standing{Sessions: sessions}, nil
	}})
	require.Equal(t, maxSeries-1, strings.Count(text, "\nx402_wallet_sessions{"))
	require.NotContains(t, text, "other")
}

// A label stays one, whatever is in it.
func TestLabelsAreEscaped(t *testing.T) {
	var c Calls
	c.Call(Call{Agent: "a\"\\\n} 1", Outcome: "paid"})
	require.Contains(t, read(t, scrape(t, &c)),
		`x402_wallet_payments_total{agent="a\"\\\n} 1",outcome="paid",code=""}`)
}

// A ledger that does not answer in its time is one that cannot be read; it is read once at a time.
func TestALedgerThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reads, begun atomic.Int32
		stands := func(wantReads, wantBegun int32) {
			synctest.Wait()
			require.Equal(t, [2]int32{wantReads, wantBegun}, [2]int32{reads.Load(), begun.Load()})
		}
		h := Handler(Ledger{Read: func(ctx context.Context) (Standing, error) {
			reads.Add(1)
			begun.Add(1)
			defer reads.Add(-1)
			<-ctx.Done()
			return Standing{}, ctx.Err()
		}})
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
				require.Contains(t, w.Body.String(), "x402_wallet_ledger_readable 0\n")
			})
		}
		stands(1, 1)
		time.Sleep(readFor) // of the bubble's clock
		stands(1, 2)
		both.Wait()
	})
}

// slowReader takes nothing before it is let.
type slowReader struct {
	*httptest.ResponseRecorder
	began, may chan struct{}
}

func (s *slowReader) Write(text []byte) (int, error) {
	close(s.began)
	<-s.may
	return s.ResponseRecorder.Write(text)
}

// Who reads slowly, or not at all, holds up no payment.
func TestAScrapeHoldsUpNoCall(t *testing.T) {
	var c Calls
	w := &slowReader{httptest.NewRecorder(), make(chan struct{}), make(chan struct{})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		Handler(&c).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	}()
	<-w.began
	c.Call(Call{Outcome: "paid"}) // else it waits for ever
	require.Contains(t, scrape(t, &c), `outcome="paid"`)
	close(w.may)
	<-done
}

func TestOnlyMetricsAreThere(t *testing.T) {
	w := httptest.NewRecorder()
	Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	require.Equal(t, http.StatusNotFound, w.Code)
}
