package seller

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
)

// A cookie that comes with the challenge goes back with the payment of the same call, and nowhere else.
func TestCookiesOfAChallenge(t *testing.T) {
	many := make([]string, 30)
	for i := range many {
		many[i] = fmt.Sprintf("c%d=v", i)
	}
	for name, c := range map[string]struct {
		set  []string
		own  string
		path string
		want string
	}{
		"a session":      {set: []string{"sid=abc; Path=/; HttpOnly"}, want: "sid=abc"},
		"two":            {set: []string{"a=1", "b=2; SameSite=Strict"}, want: "a=1; b=2"},
		"the call's own": {set: []string{"sid=abc"}, own: "sid=mine", want: "sid=mine"},
		"another path":   {set: []string{"a=1; Path=/admin", "b=2"}, want: "b=2"},
		"another host":   {set: []string{"a=1; Domain=evil.example", "b=2"}, want: "b=2"},
		"deleted": {set: []string{"a=1; Max-Age=0", "b=2; Expires=Thu, 01 Jan 1970 00:00:00 GMT"},
			want: ""},
		"none":     {want: ""},
		"too many": {set: many, want: strings.Join(many[:maxCookies], "; ")},
		"too long": {set: []string{"a=1", "b=" + strings.Repeat("x", maxCookieBytes), "c=1"},
			want: "a=1"},
		"not one":             {set: []string{"=;", "a b=1", ";"}, want: ""},
		"after a redirect":    {path: "/begin", set: []string{"a=1"}, want: "a=1"},
		"that a redirect set": {path: "/cookie", set: []string{"a=1"}, want: "a=1"},
	} {
		t.Run(name, func(t *testing.T) {
			var asked, paid []string
			s := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Payment-Signature") != "" {
					paid = append(paid, r.Header.Get("Cookie"))
					w.Header().Set("Set-Cookie", "later=1")
					return
				}
				asked = append(asked, r.Header.Get("Cookie"))
				switch r.URL.Path {
				case "/cookie":
					w.Header().Set("Set-Cookie", "hop=1; Path=/")
					fallthrough
				case "/begin":
					http.Redirect(w, r, "/shop/x", http.StatusFound)
					return
				}
				for _, set := range c.set {
					w.Header().Add("Set-Cookie", set)
				}
				w.WriteHeader(http.StatusPaymentRequired)
			})
			other := serve(t, func(_ http.ResponseWriter, r *http.Request) {
				assert.Empty(t, r.Header.Get("Cookie"), "another origin of the same host")
			})
			h := newClient(t, s.URL, other.URL)
			path := c.path
			if path == "" {
				path = "/shop/x"
			}
			r := Request{URL: s.URL + path, Cookies: &Cookies{}}
			if c.own != "" {
				r.Header = http.Header{"cookie": {c.own}}
			}
			a := must.Get(h.Ask(t.Context(), r))(t)
			r.URL = a.FinalURL
			must.Get(h.Present(t.Context(), r, signed))(t)
			must.Get(h.Present(t.Context(), Request{URL: r.URL}, signed))(t) // as a later call shows it
			elsewhere := r
			elsewhere.URL, elsewhere.Header = other.URL+"/shop/x", nil
			must.Get(h.Present(t.Context(), elsewhere, signed))(t)
			must.Get(h.Ask(t.Context(), r))(t)
			require.Equal(t, []string{c.want, ""}, paid)
			for _, cookie := range asked {
				require.Equal(t, c.own, cookie, "a question goes without them")
			}
		})
	}
}

// Over http a Secure cookie is not for this connection, and with no jar nothing is kept.
func TestCookiesOfAChallenge_Secure(t *testing.T) {
	for scheme, want := range map[string]string{"http": "b=2", "https": "a=1; b=2"} {
		at := must.Get(url.Parse(scheme + "://10.0.0.7/x"))(t)
		response := &http.Response{Header: http.Header{"Set-Cookie": {"a=1; Secure", "b=2"}}}
		c := &Cookies{}
		for _, of := range []*Cookies{c, nil} {
			of.take(at, response)
			request := must.Get(http.NewRequest(http.MethodGet, at.String(), nil))(t)
			of.give(at, request)
			require.Equal(t, map[bool]string{true: want}[of != nil], request.Header.Get("Cookie"))
		}
	}
}
