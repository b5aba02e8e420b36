package seller

import (
	"bytes"
	"context"
	"encoding/base64"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/wire"
)

// shop is a paid seller that notes what came over each of its connections.
type shop struct {
	*httptest.Server
	mu    sync.Mutex
	conns []*shopConn
}

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
	h.http.transport.IdleConnTimeout = time.Hour
	return s, h, f
}

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

func (s *shop) requests() (all [][]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		all = append(all, c.requests)
	}
	return all
}

var signed = wire.Attachment{Header: "PAYMENT-SIGNATURE", Value: "x"}

// A payment goes out on the connection that brought the challenge, and so does the next call. Once it is
// closed, a host that proved who it is need not do so again.
func TestRoundTrips(t *testing.T) {
	for _, method := range []string{"GET", "POST"} {
		t.Run(method, func(t *testing.T) {
			s, h, f := openShop(t)
			r := Request{Method: method, URL: "https://example.com/"}
			buy := func() {
				a := must.Get(h.Ask(t.Context(), r))(t)
				require.NotNil(t, a.Challenge)
				a = must.Get(h.Present(t.Context(), r, signed))(t)
				require.Equal(t, 200, a.Status)
			}
			buy()
			buy()
			h.http.transport.CloseIdleConnections()
			buy()
			paid := method + "+"
			assert.Equal(t, [][]string{{method, paid, method, paid}, {method, paid}}, s.requests())
			assert.Len(t, f.lookups, 2)
			s.mu.Lock()
			defer s.mu.Unlock()
			assert.False(t, s.conns[0].resumed)
			assert.True(t, s.conns[1].resumed)
		})
	}
}

// A certificate that was verified for one name says nothing about another.
func TestNoSessionForAnotherName(t *testing.T) {
	_, h, _ := openShop(t)
	must.Get(h.Ask(t.Context(), Request{URL: "https://example.com/"}))(t)
	_, err := h.Ask(t.Context(), Request{URL: "https://other.example/"})
	assert.Equal(t, x402.NetworkError, code(err))
	assert.ErrorContains(t, err, "certificate")
}

// cutting is a connection that ends once so many bytes were written after it was armed.
type cutting struct {
	net.Conn
	armed *atomic.Bool
	left  int
}

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

// Wherever the kept connection breaks, a payment leaves once and is called sent.
func TestPayment_KeptConnectionCut(t *testing.T) {
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
		must.Get(h.Ask(t.Context(), r))(t)
		armed.Store(true)
		_, err := h.Present(t.Context(), r, signed)
		armed.Store(false)
		came := 0
		for _, requests := range s.requests() {
			if slices.Contains(requests, "GET+") {
				came++
			}
		}
		assert.Len(t, f.dialled, 1, "nobody dials to send it again")
		if err == nil {
			assert.Equal(t, 1, came)
			served++
			continue
		}
		assert.True(t, wasSent(t, err))
		assert.LessOrEqual(t, came, 1)
	}
	assert.Positive(t, served)
	assert.Less(t, served, last/16)
}

// However many calls there are at once, a connection carries one request at a time.
func TestPaymentsAtOnce(t *testing.T) {
	s, h, f := openShop(t)
	r := Request{URL: "https://example.com/"}
	var all sync.WaitGroup
	for range 40 {
		all.Go(func() {
			for range 3 {
				assert.NoError(t, must.Err(h.Ask(t.Context(), r)))
				assert.NoError(t, must.Err(h.Present(t.Context(), r, signed)))
			}
		})
	}
	all.Wait()
	paid := 0
	for _, requests := range s.requests() {
		for _, one := range requests {
			if one == "GET+" {
				paid++
			}
		}
	}
	assert.Equal(t, 120, paid)
	assert.Less(t, len(f.dialled), 240)
}

func TestNodeClient(t *testing.T) {
	var elsewhere atomic.Int32
	other := serve(t, func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) })
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		assert.Empty(t, r.Header.Get("Cookie"))
		w.Header().Set("Set-Cookie", "a=b")
		switch r.URL.Path {
		case "/away":
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
		case "/flood":
			flood(w)
		case "/full":
			_, _ = w.Write(make([]byte, maxNodeBody))
		}
	})
	c := NodeClient(nil, "")
	defer c.CloseIdleConnections()
	get := func(u string) (int, int, error) {
		r, err := c.Get(u)
		if err != nil {
			return 0, 0, err
		}
		defer r.Body.Close()
		n, err := io.Copy(io.Discard, r.Body)
		return r.StatusCode, int(n), err
	}
	status, _, err := get(s.URL + "/")
	require.NoError(t, err)
	assert.Equal(t, 200, status)
	status, _, err = get(s.URL + "/away")
	require.NoError(t, err)
	assert.Equal(t, 307, status)
	assert.Zero(t, elsewhere.Load())
	_, n, err := get(s.URL + "/full")
	require.NoError(t, err)
	assert.Equal(t, maxNodeBody, n)
	_, n, err = get(s.URL + "/flood")
	var tooLong *http.MaxBytesError
	require.ErrorAs(t, err, &tooLong)
	assert.Equal(t, maxNodeBody, n)

	_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
	_, _, err = get("http://localhost:" + port + "/")
	require.NoError(t, err)
	for _, u := range []string{"http://10.0.0.7:8899/?api-key=sekret", "http://node.example/sekret",
		"ftp://127.0.0.1/"} {
		t.Run(u, func(t *testing.T) {
			err := c.Transport.(*node).check(mustRequest(t, u).URL)
			require.Error(t, err, u)
			assert.NotContains(t, err.Error(), "sekret")
		})
	}
	assert.NoError(t, NodeClient([]string{"10.0.0.7:8899"}, "").Transport.(*node).check(mustRequest(t,
		"http://10.0.0.7:8899/").URL))
	_, _, err = get("http://node.example/")
	assert.ErrorContains(t, err, "https://")
	_, err = c.Post("http://node.example/", "text/plain", io.NopCloser(bytes.NewReader(nil)))
	assert.Error(t, err)
}

func mustRequest(t *testing.T, u string) *http.Request {
	t.Helper()
	return must.Get(http.NewRequestWithContext(t.Context(), "GET", u, strings.NewReader("")))(t)
}

// What calls need that come together is there for the next, without a proof of who the node is.
func TestConnectionsToANodeAreKept(t *testing.T) {
	var mu sync.Mutex
	all := sync.NewCond(&mu)
	opened, here, resumed := 0, 0, false
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		resumed = r.TLS.DidResume
		if r.URL.Path != "/" {
			return
		}
		here++ // nobody is answered before all are here, so each has a connection
		for all.Broadcast(); here%maxIdleNode != 0; {
			all.Wait()
		}
	}))
	s.Config.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
		mu.Lock()
		defer mu.Unlock()
		opened++
		return ctx
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	c := NodeClient(nil, "")
	defer c.CloseIdleConnections()
	f := &fakeNet{answers: [][]string{{"127.0.0.1"}}}
	n := c.Transport.(*node)
	n.resolver = f
	n.transport.TLSClientConfig.RootCAs = s.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	n.transport.TLSHandshakeTimeout = time.Minute // a slow machine shakes many hands
	_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
	get := func(path string) {
		r, err := c.Get("https://example.com:" + port + path)
		if assert.NoError(t, err) {
			_ = r.Body.Close()
		}
	}
	for range 2 {
		var callers sync.WaitGroup
		for range maxIdleNode {
			callers.Go(func() { get("/") })
		}
		callers.Wait()
	}
	assert.Equal(t, maxIdleNode, opened)
	c.CloseIdleConnections()
	get("/alone")
	assert.True(t, resumed)
}
