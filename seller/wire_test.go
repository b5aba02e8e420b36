package seller

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"x402-wallet/x402"
)

// shop is a paid seller that notes what came over each of its connections.
type shop struct {
	*httptest.Server
	mu    sync.Mutex
	conns []*shopConn
}

// shopConn is a connection with its requests: a method, with a + where it paid.
type shopConn struct {
	resumed  bool // TLS: nothing had to be proven anew
	requests []string
}

type connKey struct{}

// openShop opens a shop over TLS, whose certificate is for example.com, and a client that has its address.
func openShop(t *testing.T) (*shop, *Client, *fakeNet) {
	t.Helper()
	s := &shop{}
	s.Server = httptest.NewUnstartedServer(s)
	s.Config.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
		c := &shopConn{}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.conns = append(s.conns, c)
		return context.WithValue(ctx, connKey{}, c)
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	f := &fakeNet{answers: [][]string{{"8.8.8.8"}}, to: s.Listener.Addr().String()}
	roots := s.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	return s, closed(t, New(Options{Resolver: f, RootCAs: roots, dial: f.dial})), f
}

// ServeHTTP implements http.Handler.
func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c, paid := r.Context().Value(connKey{}).(*shopConn), r.Header.Get("Payment-Signature") != ""
	s.mu.Lock()
	defer s.mu.Unlock()
	c.resumed = r.TLS.DidResume
	if paid {
		c.requests = append(c.requests, r.Method+"+")
		return
	}
	c.requests = append(c.requests, r.Method)
	w.Header().Set("PAYMENT-REQUIRED", base64.StdEncoding.EncodeToString([]byte(challenge)))
	w.WriteHeader(http.StatusPaymentRequired)
}

// seen is what came, by connection, in their order.
func (s *shop) seen() (all [][]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		all = append(all, c.requests)
	}
	return all
}

// buy makes one paid call.
func buy(t *testing.T, h *Client, method string) {
	t.Helper()
	r := Request{Method: method, URL: "https://example.com/"}
	a, err := h.Ask(t.Context(), r)
	require.NoError(t, err)
	require.NotNil(t, a.Challenge)
	a, err = h.Present(t.Context(), r, x402.Attachment{Header: "PAYMENT-SIGNATURE", Value: "x"})
	require.NoError(t, err)
	require.Equal(t, 200, a.Status)
}

// Questions that may be asked twice follow one another on one connection. A payment, and whatever has an
// effect, has one of its own, for which the host need not prove anew who it is.
func TestConnections(t *testing.T) {
	s, h, f := openShop(t)
	for range 2 {
		buy(t, h, "GET")
		buy(t, h, "POST")
	}
	assert.ElementsMatch(t, [][]string{{"GET", "GET"}, {"GET+"}, {"GET+"}, {"POST"}, {"POST"}, {"POST+"},
		{"POST+"}}, s.seen())
	assert.Len(t, f.lookups, 1)
	for i, c := range s.conns {
		assert.Equal(t, i > 0, c.resumed, i)
	}
}

// The certificate of a host that is resumed with was verified for that name.
func TestNoSessionForAnotherName(t *testing.T) {
	_, h, _ := openShop(t)
	buy(t, h, "GET")
	_, err := h.Ask(t.Context(), Request{URL: "https://other.example/"})
	assert.Equal(t, x402.NetworkError, code(err))
	assert.ErrorContains(t, err, "certificate")
}

// A host that is asked for TLS 1.2 resumes, too.
func TestResumptionBeforeTLS13(t *testing.T) {
	s, h, _ := openShop(t)
	s.TLS.MaxVersion = tls.VersionTLS12
	buy(t, h, "POST")
	assert.True(t, s.conns[1].resumed)
}
