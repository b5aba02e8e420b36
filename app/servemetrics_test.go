package app

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/metrics"
	"x402-wallet/internal/steps"
	"x402-wallet/paywall/book"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

func scraped(sources ...metrics.Source) string {
	w := httptest.NewRecorder()
	metrics.Handler(sources...).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return w.Body.String()
}

func TestWhatIsOwed(t *testing.T) {
	assets := x402.NewRegistry(nil)
	base, _ := assets.Named("eip155:8453", "")
	early, late := time.Unix(1_764_000_000, 0), time.Unix(1_764_000_100, 0)
	channel := func(charged, claimed uint64, since time.Time) book.SoldChannel {
		return book.SoldChannel{Network: base.Network, Config: x402.ChannelConfig{Token: base.Address},
			Charged: money.NewAmount(charged), Claimed: money.NewAmount(claimed), OwedSince: since}
	}
	require.Equal(t, map[string]metrics.Owed{base.Network: {Channels: 2, Dollars: 1_000_003, Since: early}},
		owedIn([]book.SoldChannel{channel(1_500_000, 500_000, late), channel(3, 0, early)}, assets))
}

// A facilitator's and a node's part of a step is counted where they are asked, and what did not settle earned
// nothing.
func TestWhatASaleCounts(t *testing.T) {
	var sales metrics.Sales
	count := countSales(&sales)
	report := steps.Report{Tool: "weather", Outcome: "delivered", Paid: steps.Paid{Network: "eip155:8453",
		Price: 1000, State: string(book.SaleSettled)}, Steps: []steps.Step{
		{Name: steps.Verify, Took: time.Second}, {Name: steps.Facilitator, Peer: "cdp", Took: time.Second},
		{Name: steps.Verify, Took: time.Second}}}
	count(report)
	report.State, report.Outcome, report.Code = string(book.SaleUnknown), "unavailable", "OUTCOME_UNKNOWN"
	count(report)
	text := scraped(&sales)
	for _, line := range []string{`x402_wallet_sales_total{tool="weather",outcome="delivered",code=""} 1`,
		`x402_wallet_sales_total{tool="weather",outcome="unavailable",code="OUTCOME_UNKNOWN"} 1`,
		`x402_wallet_earned_dollars_total{tool="weather",network="eip155:8453"} 0.001`,
		`x402_wallet_sale_step_seconds_sum{step="verify"} 4`} {
		require.Contains(t, text, line+"\n")
	}
	require.NotContains(t, text, "cdp")
	require.NotContains(t, text, `step="facilitator"`)
}
