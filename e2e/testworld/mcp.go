package testworld

import (
	"net/http"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Streamable serves server over streamable HTTP. Sessions that clients could not end, because they or
// the way to them were gone, end with the test: make it before what it is served by is told to close.
func Streamable(t testing.TB, server *mcp.Server, o *mcp.StreamableHTTPOptions) http.Handler {
	EndSessions(t, server)
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, o)
}

// EndSessions ends with the test what sessions there are on server.
func EndSessions(t testing.TB, server *mcp.Server) {
	t.Cleanup(func() {
		for session := range server.Sessions() {
			_ = session.Close()
		}
	})
}

// Bearer shows an agent's token with each request.
type Bearer string

func (b Bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}
