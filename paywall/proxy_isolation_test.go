package paywall

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
)

// A failure of one buyer's upstream call costs no other buyer's sale, although they share the session.
func TestBrokenCallCostsNoOtherBuyersSale(t *testing.T) {
	for name, answer := range map[string]func(http.ResponseWriter){
		"refused": func(w http.ResponseWriter) {
			http.Error(w, "too large", http.StatusRequestEntityTooLarge)
		},
		"no JSON": func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, "{")
		},
		"a page": func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, "<p>")
		},
		"no answer": func(w http.ResponseWriter) { w.WriteHeader(http.StatusAccepted) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := behind()
			handler := testworld.Streamable(t, server, nil)
			arrived, over := make(chan struct{}), make(chan struct{})
			at := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				r.Body = io.NopCloser(bytes.NewReader(body))
				switch {
				case bytes.Contains(body, []byte(`"hello"`)):
					answer(w)
					return
				case bytes.Contains(body, []byte(`"search"`)):
					close(arrived)
					<-over
				}
				handler.ServeHTTP(w, r)
			}))
			t.Cleanup(at.Close)
			l := newLab(t, nil)
			f := &Proxy{Paywall: l.paywall, URL: at.URL, Log: slog.New(slog.DiscardHandler)}
			require.NoError(t, f.Open(t.Context()))
			l.client = stdioClient(t, f, nil)
			c := l.call(t, nil, nil).challenge()
			go func() {
				defer close(over)
				<-arrived
				_, err := l.client.CallTool(t.Context(), &mcp.CallToolParams{Name: "hello"})
				assert.Error(t, err)
			}()
			require.Equal(t, product, l.call(t, nil, meta(c, l.payer.sign(t, c, 0, nil))).text)
			require.Len(t, l.Settlements(), 1)
		})
	}
}
