package tools

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/stretchr/testify/require"
)

// gate knows ann, by a token, an access token and a certificate, as long as it is not closed.
type gate struct {
	closed   atomic.Bool
	until    time.Time // of her access token
	resource Resource
}

func (g *gate) ByToken(token string) (string, bool) { return "ann", token == "own" && !g.closed.Load() }

func (g *gate) ByAccessToken(_ context.Context, token string) (string, time.Time, error) {
	if token != "access" || g.closed.Load() {
		return "", time.Time{}, errors.New("it is wrong")
	}
	return "ann", g.until, nil
}

func (g *gate) ByCertificate(subject string) (string, bool) {
	return "ann", subject == "CN=ann" && !g.closed.Load()
}

func (g *gate) Resource() Resource { return g.resource }

func door(g *gate, next http.HandlerFunc) *httpFront {
	return &httpFront{agents: g, log: slog.New(slog.DiscardHandler), next: next, lookAgain: time.Millisecond,
		writeTime: time.Minute, calls: share{most: 4}}
}

func visit(method, token string) *http.Request {
	r := httptest.NewRequest(method, "http://127.0.0.1:8402/mcp", strings.NewReader("{}"))
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return r
}

func answered(f *httpFront, r *http.Request) *httptest.ResponseRecorder {
	out := httptest.NewRecorder()
	f.ServeHTTP(out, r)
	return out
}

func byCertificate(name string) *http.Request {
	r, shown := visit("POST", ""), &x509.Certificate{Subject: pkix.Name{CommonName: name}}
	r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{shown},
		VerifiedChains: [][]*x509.Certificate{{shown}}}
	return r
}

// Who is let in is a user of the SDK's, and nothing behind the door sees by what.
func TestWhoIsLetInOverHTTP(t *testing.T) {
	g := &gate{until: time.Now().Add(time.Hour)}
	for name, r := range map[string]*http.Request{"token": visit("POST", "own"),
		"access token": visit("POST", "access"), "certificate": byCertificate("ann")} {
		served := false
		answered(door(g, func(_ http.ResponseWriter, r *http.Request) {
			served = true
			require.Equal(t, "ann", auth.TokenInfoFromContext(r.Context()).UserID, name)
			require.Equal(t, "Bearer known", r.Header.Get("Authorization"), name)
		}), r)
		require.True(t, served, name)
	}
}

// Who shows nothing is told the way in, however often: clients begin like that. Who shows something wrong is
// not answered for long, and who is right among them always is.
func TestGuessing(t *testing.T) {
	f := door(&gate{}, func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusAccepted) })
	for range 3 * maxWrong {
		out := answered(f, visit("POST", ""))
		require.Equal(t, http.StatusUnauthorized, out.Code)
		require.NotContains(t, out.Header().Get("WWW-Authenticate"), "error")
	}
	for range maxWrong / 2 {
		out := answered(f, visit("POST", "wrong"))
		require.Equal(t, http.StatusUnauthorized, out.Code)
		require.Contains(t, out.Header().Get("WWW-Authenticate"), `error="invalid_token"`)
		out = answered(f, byCertificate("eve"))
		require.Equal(t, http.StatusUnauthorized, out.Code)
		require.NotContains(t, out.Header().Get("WWW-Authenticate"), "error", "she showed no token")
	}
	for _, r := range []*http.Request{visit("POST", "wrong"), byCertificate("eve")} {
		require.Equal(t, http.StatusTooManyRequests, answered(f, r).Code)
	}
	require.Equal(t, http.StatusAccepted, answered(f, visit("POST", "own")).Code)
}

// A stream ends with its token, and when whoever opened it would not be let in any more; a call goes on.
func TestStreamsEnd(t *testing.T) { synctest.Test(t, streamsEnd) }

func streamsEnd(t *testing.T) {
	ends := func(rw http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		rw.WriteHeader(http.StatusAccepted)
	}
	subscribe := visit("POST", "access")
	subscribe.Header.Set("Mcp-Method", subscribing)
	for _, r := range []*http.Request{visit("GET", "access"), subscribe} {
		g := &gate{until: time.Now().Add(50 * time.Millisecond)}
		require.Equal(t, http.StatusAccepted, answered(door(g, ends), r).Code)
	}
	for _, token := range []string{"own", "access"} {
		g := &gate{until: time.Now().Add(time.Hour)}
		require.Equal(t, http.StatusAccepted, answered(door(g, func(rw http.ResponseWriter, r *http.Request) {
			g.closed.Store(true)
			ends(rw, r)
		}), visit("GET", token)).Code, token)
	}
	g := &gate{until: time.Now()}
	answered(door(g, func(_ http.ResponseWriter, r *http.Request) {
		g.closed.Store(true)
		time.Sleep(20 * time.Millisecond) // it was let in, and has begun
		require.NoError(t, r.Context().Err())
	}), visit("POST", "access"))
}

func TestMetadata(t *testing.T) {
	const issuer, audience = "https://login.example", "https://wallet.example/other"
	for name, c := range map[string]struct {
		resource Resource
		says     string
	}{
		"an address alone": {Resource{}, `"resource":"http://127.0.0.1:8402/mcp"`},
		"an origin":        {Resource{Origin: "https://w.example"}, `"resource":"https://w.example/mcp"`},
		"an audience": {Resource{Issuer: issuer, Audience: audience}, `"resource":"` + audience +
			`","authorization_servers":["` + issuer + `"]`},
		"both": {Resource{Origin: "https://w.example", Issuer: issuer, Audience: "api://wallet"},
			`"resource":"https://w.example/mcp","authorization_servers":["` + issuer + `"]`},
	} {
		out := httptest.NewRecorder()
		door(&gate{resource: c.resource}, nil).metadata(out, visit("GET", ""))
		said := strings.ReplaceAll(out.Body.String(), `"resource_name":"x402-wallet",`, "")
		require.Contains(t, said, c.says, name)
		require.Equal(t, c.resource.Issuer != "", strings.Contains(said, "authorization_servers"), name)
	}
}
