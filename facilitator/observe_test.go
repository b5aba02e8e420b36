package facilitator

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/x402"
)

// Whoever watches hears of each request whether the facilitator is in order: a refusal is an answer.
func TestFacilitatorsAreObserved(t *testing.T) {
	status := func(code int, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			fmt.Fprint(w, text)
		}
	}
	for name, c := range map[string]struct {
		answers http.HandlerFunc
		came    x402.Contact
	}{
		"yes":          {status(200, `{"isValid":true}`), x402.Answered},
		"no":           {status(400, `{"isValid":false}`), x402.Answered},
		"who are you":  {status(401, ``), x402.InError},
		"not here":     {status(404, ``), x402.InError},
		"too many":     {status(429, ``), x402.InError},
		"out of order": {status(503, ``), x402.InError},
		"elsewhere":    {status(302, ``), x402.InError},
		"silence": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
			x402.NoAnswer},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(c.answers)
			defer server.Close()
			type seen struct {
				name, request string
				came          x402.Contact
			}
			var all []seen
			client := New(Options{List: []Facilitator{{Name: "ours", URL: server.URL + "/at",
				Networks: []string{"eip155:84532"}}},
				Observe: func(name, request string, came x402.Contact, took time.Duration) {
					require.Positive(t, took)
					all = append(all, seen{name, request, came})
				}})
			s := Submission{Network: "eip155:84532", Version: 2, Payload: json.RawMessage(`{}`),
				Requirements: json.RawMessage(`{}`), IsJSON: true, Validity: time.Minute}
			_, _, _ = client.Verify(t.Context(), s)
			require.Contains(t, all, seen{"ours", "verify", c.came})

			gone, cancel := context.WithCancel(t.Context())
			cancel()
			before := len(all)
			_, _, err := client.Verify(gone, s)
			require.Error(t, err)
			require.Len(t, all, before, "who gave up says nothing about it")
		})
	}
}
