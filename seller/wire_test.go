package seller

import (
	"context"
	"encoding/base64"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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

// shopConn is a connection.
type shopConn struct {
	resumed  bool     // nothing had to be proven for it
	requests []string // methods, with a + where they paid
}

type connKey struct{}

// openShop opens a shop over TLS, whose certificate is for example.com, and a client that has its address.
// What the client keeps it keeps for as long as a slow machine may need.
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
	h := closed(t, New(Options{Resolver: f, RootCAs: roots, dial: f.dial}))
	h.http.spares.life, h.http.kept.IdleConnTimeout = time.Hour, time.Hour
	return s, h, f
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

// requests are what came, by connection.
func (s *shop) requests() (all [][]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		all = append(all, c.requests)
	}
	return all
}

var signed = x402.Attachment{Header: "PAYMENT-SIGNATURE", Value: "x"}

// dials waits for all that is dialled ahead, and counts all that was dialled.
func (f *fakeNet) dials(h *Client) int {
	for _, one := range h.http.spares.list() {
		<-one.dialled
	}
	f.Lock()
	defer f.Unlock()
	return len(f.dialled)
}

func (s *spares) list() []*spare {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*spare
	for _, list := range s.free {
		all = append(all, list...)
	}
	return all
}

// A payment waits for no dial: its connection is dialled while the seller is asked the first time, and is
// there when it is asked again. Plain questions follow one another on one connection; each payment, and each
// question of another kind, has one of its own. A host that proved who it is need not do so again.
func TestRoundTrips(t *testing.T) {
	for method, want := range map[string]struct {
		dialled  [2][2]int // in each call, when the seller was asked and when it was paid
		requests [][]string
	}{
		"GET":  {[2][2]int{{2, 3}, {4, 4}}, [][]string{{"GET", "GET"}, {"GET+"}, {"GET+"}, nil}},
		"POST": {[2][2]int{{2, 4}, {5, 6}}, [][]string{{"POST"}, {"POST+"}, {"POST"}, {"POST+"}, nil, nil}},
	} {
		t.Run(method, func(t *testing.T) {
			s, h, f := openShop(t)
			r := Request{Method: method, URL: "https://example.com/"}
			for i, dialled := range want.dialled {
				a, err := h.Ask(t.Context(), r)
				require.NoError(t, err)
				require.NotNil(t, a.Challenge)
				assert.Equal(t, dialled[0], f.dials(h), "asked, call %d", i+1)
				a, err = h.Present(t.Context(), r, signed)
				require.NoError(t, err)
				require.Equal(t, 200, a.Status)
				assert.Equal(t, dialled[1], f.dials(h), "paid, call %d", i+1)
			}
			assert.Len(t, f.lookups, 1)
			assert.ElementsMatch(t, want.requests, s.requests())
			s.mu.Lock()
			defer s.mu.Unlock()
			for i, c := range s.conns[2:] { // the first two are dialled before anything is proven
				assert.Equal(t, len(c.requests) > 0, c.resumed, i+2)
			}
		})
	}
}

// A certificate that was verified for one name says nothing about another.
func TestNoSessionForAnotherName(t *testing.T) {
	_, h, _ := openShop(t)
	_, err := h.Ask(t.Context(), Request{URL: "https://example.com/"})
	require.NoError(t, err)
	_, err = h.Ask(t.Context(), Request{URL: "https://other.example/"})
	assert.Equal(t, x402.NetworkError, code(err))
	assert.ErrorContains(t, err, "certificate")
}

// cutting is a connection that ends once so many bytes were written after it was armed.
type cutting struct {
	net.Conn
	armed *atomic.Bool
	left  int
}

// Write implements net.Conn.
func (c *cutting) Write(p []byte) (int, error) {
	if !c.armed.Load() {
		return c.Conn.Write(p)
	}
	n := min(c.left, len(p))
	c.left -= n
	n, err := c.Conn.Write(p[:n])
	if err == nil && n < len(p) {
		_ = c.Conn.Close()
		return n, net.ErrClosed
	}
	return n, err
}

// security.md D23: wherever a connection that was dialled ahead breaks, what was paid with leaves once, and
// is called sent.
func TestAPaymentOnASpareIsSentOnce(t *testing.T) {
	const last = 400 // the request is shorter
	served := 0
	for cut := 0; cut <= last; cut += 16 {
		s, h, f := openShop(t)
		var armed atomic.Bool
		dial := f.dial
		h.http.options.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &cutting{Conn: conn, armed: &armed, left: cut}, nil
		}
		r := Request{URL: "https://example.com/"}
		_, err := h.Ask(t.Context(), r)
		require.NoError(t, err)
		before := f.dials(h)
		armed.Store(true)
		_, err = h.Present(t.Context(), r, signed)
		armed.Store(false)
		came := 0
		for _, requests := range s.requests() {
			if slices.Contains(requests, "GET+") {
				came++
			}
		}
		if err == nil {
			assert.Equal(t, 1, came)
			served++
			continue
		}
		var e *SendError
		require.ErrorAs(t, err, &e)
		assert.True(t, e.Sent)
		assert.LessOrEqual(t, came, 1)
		assert.Equal(t, before, f.dials(h), "nobody dials to send it again")
	}
	assert.Positive(t, served)
	assert.Less(t, served, last/16)
}

// However many calls there are at once, a payment has its connection alone.
func TestPaymentsAtOnce(t *testing.T) {
	s, h, f := openShop(t)
	r := Request{URL: "https://example.com/"}
	var all sync.WaitGroup
	for range 40 {
		all.Go(func() {
			for range 3 {
				_, err := h.Ask(t.Context(), r)
				assert.NoError(t, err)
				_, err = h.Present(t.Context(), r, signed)
				assert.NoError(t, err)
			}
		})
	}
	all.Wait()
	assert.LessOrEqual(t, len(h.http.spares.list()), maxSparesOfOne)
	f.dials(h)
	paid := 0
	for _, requests := range s.requests() {
		if slices.Contains(requests, "GET+") {
			paid++
			assert.Len(t, requests, 1)
		}
	}
	assert.Equal(t, 120, paid)
}
