package paywall

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
)

// knock makes one request as a browser does, and returns the answer without its body.
func knock(t *testing.T, method, url, body string, header map[string]string) *http.Response {
	t.Helper()
	r := must.Get(http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body)))(t)
	r.Header.Set("Accept", "application/json, text/event-stream")
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for name, value := range header {
		if name == "Host" {
			r.Host = value
		}
		r.Header.Set(name, value)
	}
	response := must.Get(http.DefaultClient.Do(r))(t)
	require.NoError(t, response.Body.Close())
	return response
}

// Pages of the origins that the owner named may buy, those of others may not.
func TestPagesThatMayBuy(t *testing.T) {
	named := []string{"https://app.example", "http://localhost:6274"}
	for _, row := range []struct {
		origins        []string
		origin         string
		status, inside int // of a preflight, of a call
	}{
		{named, "https://app.example", 204, 200},
		{named, "http://localhost:6274", 204, 200},
		{named, "http://localhost:6275", 403, 403},
		{named, "https://app.example.evil.example", 403, 403},
		{named, "http://app.example", 403, 403},
		{named, "https://app.example:8443", 403, 403},
		{named, "null", 403, 403},
		{[]string{"*"}, "https://any.example", 204, 200},
		{[]string{"*"}, "null", 204, 200},
		{nil, "https://app.example", 403, 403},
	} {
		_, _, url := labOf(t, row.origins)
		asked := knock(t, http.MethodOptions, url, "", map[string]string{"Origin": row.origin,
			"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors", "Access-Control-Request-Method": "POST",
			"Access-Control-Request-Headers": "content-type,mcp-session-id,payment-signature,x-payment"})
		called := knock(t, http.MethodPost, url, opening, map[string]string{"Origin": row.origin,
			"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"})
		require.Equal(t, []int{row.status, row.inside}, []int{asked.StatusCode, called.StatusCode}, "%v", row)
		want := ""
		if row.inside == 200 {
			want = row.origin
			for _, name := range []string{"Content-Type", "Accept", "PAYMENT-SIGNATURE", "X-PAYMENT",
				"mcp-session-id", "mcp-protocol-version", "Authorization", "Last-Event-ID",
				"Access-Control-Expose-Headers"} {
				require.Contains(t, asked.Header.Get("Access-Control-Allow-Headers"), name)
			}
			for _, name := range []string{"PAYMENT-REQUIRED", "PAYMENT-RESPONSE", "X-PAYMENT-RESPONSE",
				"mcp-session-id", "WWW-Authenticate"} {
				require.Contains(t, called.Header.Get("Access-Control-Expose-Headers"), name)
			}
			require.Contains(t, called.Header.Values("Vary"), "Origin")
		}
		require.Equal(t, want, called.Header.Get("Access-Control-Allow-Origin"), "%v", row)
		require.Empty(t, called.Header.Get("Access-Control-Allow-Credentials"))
	}
}

func labOf(t *testing.T, origins []string) (*lab, *Proxy, string) {
	l, f := newLab(t, nil), &Proxy{Origins: origins}
	return l, f, overHTTP(t, l, f, Limits{})
}

// What browsers and clients look for anywhere is not here; a name that was made to lead here opens nothing.
func TestWhatIsNotHere(t *testing.T) {
	_, _, url := labOf(t, []string{"*"})
	root := strings.TrimSuffix(url, "/mcp")
	for _, path := range []string{"/.well-known/oauth-protected-resource",
		"/.well-known/oauth-protected-resource/mcp",
		"/.well-known/oauth-authorization-server", "/.well-known/x402", "/.well-known/mcp.json",
		"/favicon.ico"} {
		for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost} {
			found := knock(t, method, root+path, "", map[string]string{"Origin": "https://a.example"})
			require.Equal(t, 404, found.StatusCode, "%s %s", method, path)
			require.Equal(t, "https://a.example", found.Header.Get("Access-Control-Allow-Origin"))
		}
	}
	rebound := knock(t, http.MethodPost, url, opening, map[string]string{"Host": "evil.example",
		"Origin": "http://evil.example"})
	require.Equal(t, 421, rebound.StatusCode)
}

// A handler's 402 and its receipt can be read by a page, too.
func TestCORSBeforeAHandler(t *testing.T) {
	l := newLab(t, nil)
	at := httptest.NewServer(CORS([]string{"https://app.example"}, l.paywall.HTTP("search",
		http.NotFoundHandler())))
	t.Cleanup(at.Close)
	for origin, want := range map[string]string{"https://app.example": "https://app.example",
		"https://b.example": "", "": ""} {
		asked := knock(t, http.MethodGet, at.URL, "", map[string]string{"Origin": origin})
		require.Equal(t, 402, asked.StatusCode)
		require.Equal(t, want, asked.Header.Get("Access-Control-Allow-Origin"))
	}
}
