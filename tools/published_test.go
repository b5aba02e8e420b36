package tools

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
	"x402-wallet/seller"
	"x402-wallet/x402"
)

// shop is a seller that publishes documents, and sells what the sandbox sells.
func (w *world) shop(t *testing.T, documents map[string]string) *httptest.Server {
	goods := httputil.NewSingleHostReverseProxy(must.Get(url.Parse(w.SellerURL))(t))
	s := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		document, published := documents[r.URL.Path]
		switch {
		case published:
			fmt.Fprint(out, document)
		case r.URL.Path == "/post":
			out.Header().Set("Allow", "POST")
			out.WriteHeader(http.StatusMethodNotAllowed)
		case r.URL.Path == "/weather":
			goods.ServeHTTP(out, r)
		default:
			out.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(s.Close)
	loopback := append([]string{strings.TrimPrefix(s.URL, "http://")}, w.Loopback...)
	w.wallet.Engine.Transport = seller.New(seller.Options{Loopback: loopback})
	return s
}

const someAPI = `{"openapi":"3.1.0","paths":{"/v1/fred/{series}":{"parameters":[],"get":{"summary":"FRED series",
	"parameters":[{"name":"series","in":"path"}],"x-payment-info":{"protocols":["x402"],
	"price":{"mode":"fixed","currency":"USD","amount":"0.01"}}}},"/odd":7,"/odd2":{"get":[]},
	"/free":{"get":{"summary":"free"}},"/bad path":{"get":{"x-payment-info":{}}},
	"/text":{"post":{"description":"say\u202e it","requestBody":{"x":1},"x-payment-info":{"price":"$0.5"}}},
	"/number":{"put":{"x-payment-info":{"price":0.25}}},
	"/range":{"get":{"x-payment-info":{"price":{"min":"1","max":"2"}}}},
	"/euro":{"get":{"x-payment-info":{"price":{"currency":"EUR","amount":"3"}}}},"/x":{"x-foo":{"x-payment-info":{}}}}}`

func TestDiscoverAtAnOrigin(t *testing.T) {
	w := newWorld(t, rules{}).funded(t, rules{})
	documents := map[string]string{"/openapi.json": someAPI}
	s := w.shop(t, documents)
	asset, _ := w.wallet.Engine.Assets.Named(sandbox.EVM, "")
	accepts := fmt.Sprintf(`{"scheme":"exact","network":%q,"amount":"2000","asset":%q,"payTo":%q,"maxTimeoutSeconds":60}`,
		sandbox.EVM, asset.Address, w.PayToEVM)
	documents["/.well-known/x402"] = fmt.Sprintf(`{"version":1,"resources":["%[1]s/weather","GET /weather?b","POST /post",7,
		"%[2]s/weather","//%[3]s/weather?c","/nowhere",{"resource":"%[2]s/weather?d","accepts":[%[4]s]},
		{"resource":"%[1]s/weather?e","accepts":[%[4]s]},"http://bank@%[5]s/weather?f"]}`, s.URL, w.SellerURL,
		strings.TrimPrefix(w.SellerURL, "http://"), accepts, strings.TrimPrefix(s.URL, "http://"))
	c := w.serve(t)
	for _, at := range []string{s.URL, s.URL + "/", s.URL + "/nowhere", s.URL + "/post"} {
		out := c.ok("x402_discover_services", map[string]any{"url": at, "limit": 25})
		found := map[string]map[string]any{}
		for _, one := range services(out) {
			found[strings.TrimPrefix(one["url"].(string), s.URL)] = one
		}
		require.Len(t, found, 8, "%v", found)
		require.Equal(t, []any{true, "$0.001"},
			[]any{found["/weather"]["payable"], found["/weather"]["price"]})
		require.Equal(t, true, found["/weather?b"]["payable"])
		require.Equal(t, "$0.002", found["/weather?e"]["price"], "as its list says")
		for path, price := range map[string]string{"/v1/fred/{series}": "$0.01", "/text": "$0.50",
			"/number": "$0.25", "/range": "$1.00", "/euro": ""} {
			require.Equal(t, []any{price, false}, []any{found[path]["price"], found[path]["payable"]}, path)
			require.Contains(t, found[path]["why"], "when it is called")
		}
		require.Equal(t, "FRED series", found["/v1/fred/{series}"]["description"])
		require.Equal(t, map[string]any{"method": "POST", "requestBody": map[string]any{"x": 1.0}},
			found["/text"]["inputSchema"])
	}
	list := services(c.ok("x402_discover_services", map[string]any{"url": s.URL, "maxPrice": "$0.30"}))
	require.Len(t, list, 5, "%v", list)
	require.Zero(t, w.Signatures())

	delete(documents, "/.well-known/x402")
	named := strings.Replace(s.URL, "http://", "http://bank@", 1)
	for name, document := range map[string]string{"another origin": `{"servers":[{"url":"https://evil.example"}],` +
		someAPI[1:], "a user": `{"servers":[{"url":"` + named + `"}],` + someAPI[1:], "no JSON": "<html>", "a key twice": `{"paths":{},"paths":{}}`, "deep": `{"paths":` + deep(70) + `}`,
		"too long": someAPI + strings.Repeat(" ", x402.MaxBody), "no paths": `{"paths":[]}`} {
		documents["/openapi.json"] = document
		f := c.refused("x402_discover_services", map[string]any{"url": s.URL})
		require.Equal(t, []any{x402.DiscoverFailed, x402.Change}, []any{f.Error, f.Next.Do}, name)
	}
}

// What is no paid endpoint leads to what the seller publishes, and is not repeated.
func TestPayNamesDiscovery(t *testing.T) {
	w := newWorld(t, rules{}).funded(t, rules{})
	s := w.shop(t, nil)
	c := w.serve(t)
	for path, why := range map[string]string{"/post": "The seller allows POST.",
		"/nowhere": "is it the right URL"} {
		out := c.ok("x402_pay", map[string]any{"url": s.URL + path})
		next := out["next"].(map[string]any)
		require.Equal(t, []any{"not_paid", "change"}, []any{out["status"], next["do"]})
		require.Contains(t, next["why"], why)
		require.Contains(t, next["why"], fmt.Sprintf("x402_discover_services with url %q", s.URL))
	}
}
