package seller

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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
	c := NodeClient(nil)
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
	assert.NoError(t, NodeClient([]string{"10.0.0.7:8899"}).Transport.(*node).check(mustRequest(t,
		"http://10.0.0.7:8899/").URL))
	_, _, err = get("http://node.example/")
	assert.ErrorContains(t, err, "https://")
	_, err = c.Post("http://node.example/", "text/plain", io.NopCloser(bytes.NewReader(nil)))
	assert.Error(t, err)
}

func mustRequest(t *testing.T, u string) *http.Request {
	r, err := http.NewRequestWithContext(t.Context(), "GET", u, strings.NewReader(""))
	require.NoError(t, err)
	return r
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
	c := NodeClient(nil)
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
