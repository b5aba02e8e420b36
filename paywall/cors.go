package paywall

import (
	"net/http"
	"slices"
	"strings"
)

// What a page needs to buy (https://fetch.spec.whatwg.org/#http-cors-protocol): the headers that it sends,
// and those of the answer that it reads.
var (
	sentByPages = strings.Join([]string{"Content-Type", "Accept", "PAYMENT-SIGNATURE", "X-PAYMENT",
		"mcp-session-id", "mcp-protocol-version", "Authorization", "Last-Event-ID",
		"Access-Control-Expose-Headers"}, ", ") // the last one is sent, too, by @x402/fetch
	readByPages = strings.Join([]string{"PAYMENT-REQUIRED", "PAYMENT-RESPONSE", "X-PAYMENT-RESPONSE",
		"mcp-session-id", "WWW-Authenticate"}, ", ")
)

// preflightLife is how long a browser remembers what a page may send, in seconds.
const preflightLife = "600"

// allowsOrigin reports whether pages of an origin may buy. "*" allows all.
func allowsOrigin(origins []string, origin string) bool {
	return slices.Contains(origins, "*") || slices.Contains(origins, origin)
}

// CORS lets web pages of exactly these origins ("https://app.example", or "*" for all) call a handler and pay
// it. Other requests pass unchanged. No cookies are taken along.
func CORS(origins []string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		origin := r.Header.Get("Origin")
		rw.Header().Add("Vary", "Origin")
		if origin == "" || !allowsOrigin(origins, origin) {
			next.ServeHTTP(rw, r)
			return
		}
		h := rw.Header()
		h.Set("Access-Control-Allow-Origin", origin)
		h.Set("Access-Control-Expose-Headers", readByPages)
		if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
			h.Set("Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, PATCH, DELETE")
			h.Set("Access-Control-Allow-Headers", sentByPages)
			h.Set("Access-Control-Max-Age", preflightLife)
			rw.WriteHeader(http.StatusNoContent)
			return
		}
		next.ServeHTTP(rw, r)
	})
}
