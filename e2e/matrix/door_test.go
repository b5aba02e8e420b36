package matrix

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What a door does with the next payment that comes.
type fault int

const (
	passes       fault = iota
	losesAnswer        // the seller has served, and the wallet never hears of it
	holdsPayment       // the payment waits before the seller, which never gets it
	holdsAnswer        // the seller has served, and its answer waits
)

// door is before a seller: what the wallet sends goes through it.
type door struct {
	URL    string
	seller *url.URL
	held   chan struct{} // a payment or an answer waits
	free   chan struct{} // ends that
	mu     sync.Mutex
	next   fault
	saw    []http.Header // of payments that the seller got
}

// openDoor opens a door until the test ends.
func openDoor(t *testing.T) *door {
	t.Helper()
	d := &door{held: make(chan struct{}), free: make(chan struct{})}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(d.seller)
			r.Out.Host = r.In.Host
		},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch d.fault(r) {
		case passes:
			proxy.ServeHTTP(w, r)
			return
		case losesAnswer:
			served(proxy, r)
		case holdsAnswer:
			served(proxy, r)
			d.wait()
		case holdsPayment:
			d.wait()
		}
		panic(http.ErrAbortHandler)
	}))
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	d.URL = server.URL
	return d
}

// served lets the seller serve a request, whatever becomes of the wallet, and drops its answer.
func served(proxy http.Handler, r *http.Request) {
	proxy.ServeHTTP(httptest.NewRecorder(), r.WithContext(context.WithoutCancel(r.Context())))
}

func (d *door) wait() {
	d.held <- struct{}{}
	<-d.free
}

// fault is what to do with a request.
func (d *door) fault(r *http.Request) (f fault) {
	if !isPayment(r) {
		return passes
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !strings.HasPrefix(r.URL.Path, "/payment-channel/") { // of the channel itself: no purchase
		f, d.next = d.next, passes
	}
	if f != holdsPayment {
		d.saw = append(d.saw, r.Header)
	}
	return f
}

// isPayment reports whether a request brings what the seller is paid by, or signs in.
func isPayment(r *http.Request) bool {
	for _, name := range []string{"Payment-Signature", "Sign-In-With-X", "X-Payment-Channel-Data"} {
		if r.Header.Get(name) != "" {
			return true
		}
	}
	return strings.HasPrefix(r.Header.Get("Authorization"), "Payment ")
}

// will says what becomes of the next payment.
func (d *door) will(f fault) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.next = f
}

// awaits waits until a payment is held, or the call that makes it has ended without one.
func (d *door) awaits(t *testing.T, ended <-chan error) {
	t.Helper()
	err := errors.New("no payment came")
	select {
	case <-d.held:
		return
	case err = <-ended:
	case <-time.After(time.Minute):
	}
	d.will(passes)
	require.NoError(t, err, "the call ended before its payment came")
	t.Fatal("the call ended before its payment came")
}

// sent are the payments that the seller got, and forgets them.
func (d *door) sent() []http.Header {
	d.mu.Lock()
	defer d.mu.Unlock()
	saw := d.saw
	d.saw = nil
	return saw
}
