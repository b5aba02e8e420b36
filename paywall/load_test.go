package paywall

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What a paywall has at a moment can be seen, and what found no place stays counted.
func TestLoad(t *testing.T) {
	l, f := newLab(t, nil), &Proxy{}
	endpoint := overHTTP(t, l, f, Limits{})
	crowd := func() {
		answer, err := http.Post(endpoint, "application/json", strings.NewReader("[]"))
		require.NoError(t, err)
		_ = answer.Body.Close()
		require.Equal(t, http.StatusBadRequest, answer.StatusCode)
	}
	crowd() // it serves from here on
	require.True(t, l.paywall.begin())
	require.Equal(t, Load{Running: 1, Calls: map[string]int{"guest": 0, "payer": 0, "buyer": 0},
		Refused: map[int]uint64{http.StatusBadRequest: 1}}, f.Load())
	l.paywall.end()
	require.Zero(t, f.Load().Running)

	crowd()
	limits := f.limits.Load()
	require.Equal(t, http.StatusOK, (&guest{t: t, endpoint: endpoint}).arrive())
	release, refused := limits.acquire(&visitor{}, []byte(`{"jsonrpc":"2.0","id":1,"method":"ping"}`), nil)
	require.Nil(t, refused)
	at := f.Load()
	require.Equal(t, map[int]uint64{http.StatusBadRequest: 2}, at.Refused)
	require.Equal(t, 1, at.Sessions)
	require.Equal(t, 1, at.Calls["guest"])
	require.Zero(t, at.Running)
	release()
	require.Zero(t, f.Load().Calls["guest"])
	require.Equal(t, Load{Calls: map[string]int{}}, (&Proxy{Paywall: l.paywall}).Load(), "over stdio")
}
