package seller

import (
	"encoding/base64"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"x402-wallet/x402"
)

// visits are a server's connections, by their remote addresses: how many requests each carried.
type visits struct {
	sync.Mutex
	requests map[string]int
	open     int
}

func (v *visits) note(c net.Conn, state http.ConnState) {
	v.Lock()
	defer v.Unlock()
	switch state {
	case http.StateNew:
		v.open++
		v.requests[c.RemoteAddr().String()] = 0
	case http.StateClosed:
		v.open--
	}
}

// carried is how many requests each connection carried that there was.
func (v *visits) carried() []int {
	v.Lock()
	defer v.Unlock()
	return slices.Collect(maps.Values(v.requests))
}

// await waits until so many connections are open.
func (v *visits) await(t *testing.T, open int, atMost time.Duration) {
	t.Helper()
	require.Eventually(t, func() bool {
		v.Lock()
		defer v.Unlock()
		return v.open == open
	}, atMost, time.Millisecond)
}

// Over http:// a payment's connection is dialled when the seller has asked for money, not before, and
// carries the payment alone; one that no payment takes is soon ended, because the server may serve no
// other meanwhile.
func TestANearSpare(t *testing.T) {
	v := &visits{requests: map[string]int{}}
	var h *Client
	asksForMoney := false
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v.Lock()
		v.requests[r.RemoteAddr]++
		v.Unlock()
		if r.Header.Get("PAYMENT-SIGNATURE") != "" || !asksForMoney {
			return
		}
		assert.Empty(t, h.http.near.list(), "it has not answered")
		w.Header().Set("PAYMENT-REQUIRED", base64.StdEncoding.EncodeToString([]byte(challenge)))
		w.WriteHeader(http.StatusPaymentRequired)
	}))
	s.Config.ConnState = v.note
	s.Start()
	t.Cleanup(s.Close)
	h = newClient(t, s.URL)
	ask := func() {
		_, err := h.Ask(t.Context(), Request{URL: s.URL})
		require.NoError(t, err)
	}
	ask()
	assert.Empty(t, h.http.near.list(), "it asks for nothing")

	asksForMoney = true
	ask()
	v.await(t, 2, time.Second)
	_, err := h.Present(t.Context(), Request{URL: s.URL},
		x402.Attachment{Header: "PAYMENT-SIGNATURE", Value: "x"})
	require.NoError(t, err)
	assert.ElementsMatch(t, []int{2, 1}, v.carried(), "the questions on one, the payment on the other")

	ask()
	v.await(t, 2, time.Second)
	v.await(t, 1, spareLife/2)
	assert.ElementsMatch(t, []int{3, 1, 0}, v.carried())
}
