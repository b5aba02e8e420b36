package rpc

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/x402"
)

// Whoever watches hears of each question whether the node is in order. A refusal is an answer, and who gave
// up himself says nothing about the node.
func TestNodesAreObserved(t *testing.T) {
	for name, c := range map[string]struct {
		answers http.HandlerFunc
		came    x402.Contact
	}{
		"answer": {func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"jsonrpc":"2.0","id":1,"result":"yes"}`)
		}, x402.Answered},
		"refusal": {func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"jsonrpc":"2.0","id":1,"error":{"code":3,"message":"reverted"}}`)
		}, x402.Answered},
		"overload": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusTooManyRequests)
		}, x402.InError},
		"a page":  {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") }, x402.InError},
		"silence": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, x402.NoAnswer},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(c.answers)
			defer server.Close()
			var came []x402.Contact
			node := New(Options{Network: network, URL: server.URL,
				Observe: func(of string, is x402.Contact, took time.Duration) {
					require.Equal(t, network, of)
					require.Positive(t, took)
					came = append(came, is)
				}})
			var text string
			_ = node.Call(t.Context(), &text, "ask")
			require.Equal(t, []x402.Contact{c.came}, came)

			gone, cancel := context.WithCancel(t.Context())
			cancel()
			require.Error(t, node.Call(gone, &text, "ask"))
			require.Len(t, came, 1)
		})
	}
}
