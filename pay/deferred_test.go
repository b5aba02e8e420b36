package pay

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/seller"
	"x402-wallet/x402"
)

// deferredSellers are those under /channel/; what is bought there is noted.
type deferredSellers struct {
	asked  int
	bought []Charge
}

func (d *deferredSellers) Serves(_ context.Context, r seller.Request) (string, bool) {
	d.asked++
	return "service", strings.Contains(r.URL, "/channel/")
}

func (d *deferredSellers) Buy(_ context.Context, service string, c Charge) (Result, error) {
	d.bought = append(d.bought, c)
	return Result{Status: StatusPaid, PaymentID: service}, nil
}

// The engine chooses who pays a seller: whoever calls it need not know which sellers have channels.
func TestDeferredSellersAreDispatched(t *testing.T) {
	b := newBench(t, "50000", nil)
	deferred := &deferredSellers{}
	b.Deferred = deferred
	q := get("https://api.example/channel/echo")
	q.Method, q.MaxAmount = "get", "$0.10"

	r, err := b.Pay(t.Context(), q)
	require.NoError(t, err)
	require.Equal(t, "service", r.PaymentID)
	require.Len(t, deferred.bought, 1)
	require.Equal(t, "GET", deferred.bought[0].Request().Method, "the request is normalized")
	require.Equal(t, "$0.10", deferred.bought[0].in.MaxAmount)

	_, err = b.Estimate(t.Context(), q)
	require.True(t, x402.HasCode(err, x402.EstimateFailed), "%v", err)

	entry := q
	entry.Method = seller.Initialize
	_, served := b.deferred(t.Context(), intent{Request: entry})
	require.False(t, served, "being let in is paid by x402, whoever lets in")

	b.Rules.DenyHosts = []string{"api.example"}
	asked := deferred.asked
	_, err = b.Pay(t.Context(), q)
	require.True(t, x402.HasCode(err, x402.PolicyDenied), "%v", err)
	require.Equal(t, asked, deferred.asked, "a forbidden host is not even asked whether it has channels")
	require.Len(t, deferred.bought, 1)
}
