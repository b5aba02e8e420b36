//go:build chromium

package pages

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/facilitator"
	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
	"x402-wallet/paywall"
	"x402-wallet/paywall/book"
)

// A page of an origin that the seller named buys with @x402/fetch; the same page of another one cannot.
func TestAPageBuys(t *testing.T) {
	const set = "../lab/parties"
	bundle, err := exec.Command(set+"/node_modules/.bin/esbuild", set+"/page.mjs", "--bundle",
		"--format=iife",
		"--platform=browser").Output()
	require.NoError(t, err, "the page needs the lab's npm packages: make lab")
	page := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/page.js" {
			w.Header().Set("Content-Type", "text/javascript")
			_, _ = w.Write(bundle)
			return
		}
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<!doctype html><title>x</title><link rel=icon href=data:,>"+
			"<script src=/page.js></script>")
	})
	named, other := httptest.NewServer(page), httptest.NewServer(page)
	t.Cleanup(named.Close)
	t.Cleanup(other.Close)

	world := must.Get(sandbox.Start(sandbox.Options{}))(t)
	t.Cleanup(func() { _ = world.Close() })
	buyer, _, err := world.PlayAccounts(sandbox.USDC)
	require.NoError(t, err)
	sold := must.Get(book.Make(t.Context(), book.Place{Home: t.TempDir()}))(t)
	t.Cleanup(func() { _ = sold.Close() })
	wall := must.Get(paywall.New(paywall.Options{
		Tools: []paywall.Tool{{Name: "report",
			Accepts: []paywall.Option{{Network: sandbox.EVM, PayTo: world.PayToEVM, Price: "0.01"}}}},
		Facilitators: facilitator.New(facilitator.Options{
			List: []facilitator.Facilitator{{Name: "sandbox", URL: world.FacilitatorURL}}}),
		Store: sold,
	}))(t)
	shop := httptest.NewServer(paywall.CORS([]string{named.URL}, wall.HTTP("report",
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w,
				"the report")
		}))))
	t.Cleanup(shop.Close)

	b := open(t)
	for _, row := range []struct {
		at     string
		status int
		paid   int
	}{{other.URL, 0, 0}, {named.URL, 200, 1}} {
		b.visit(row.at)
		var got struct {
			Status int
			Text   string
			Paid   bool
		}
		b.eval(fmt.Sprintf("buy(%q, %q)", shop.URL, buyer.PlayKey), &got)
		require.Equal(t, row.status, got.Status, got.Text)
		require.Equal(t, row.paid == 1, got.Paid)
		require.Len(t, world.Settlements(), row.paid)
	}
}
