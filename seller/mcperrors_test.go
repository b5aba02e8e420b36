package seller

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/x402"
)

// What a request without payment came to says what to do next, and that nothing was paid.
func TestWhatToDoNextAfterAnMCPServersError(t *testing.T) {
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "evil words", code) }
	}
	// a server whose calls come to what a test says
	calls := func(call func(w http.ResponseWriter, r *http.Request, q question)) http.HandlerFunc {
		server := &plain{get: noStream, call: call}
		return func(w http.ResponseWriter, r *http.Request) {
			if q, ok := peek(r); ok && q.Method == "tools/list" {
				says(w, q, `"result":{"tools":[{"name":"get_weather","inputSchema":{"type":"object"}},`+
					`{"name":"get_whether","inputSchema":{"type":"object"}},`+
					`{"name":"buy","inputSchema":{"type":"object"}}]}`)
				return
			}
			server.ServeHTTP(w, r)
		}
	}
	refuses := func(code int) http.HandlerFunc {
		return calls(func(w http.ResponseWriter, _ *http.Request, q question) {
			says(w, q, fmt.Sprintf(`"error":{"code":%d,"message":"evil words"}`, code))
		})
	}
	const down = x402.ServerUnavailable
	noJSON := calls(func(w http.ResponseWriter, _ *http.Request, _ question) {
		w.Header().Set("Content-Type", "application/json")
	})
	away := calls(func(w http.ResponseWriter, r *http.Request, _ question) { status(503)(w, r) })
	for name, c := range map[string]struct {
		server http.HandlerFunc
		tool   string
		code   x402.Code
		do     x402.Step
		says   string
	}{
		"no such tool": {refuses(-32602), "getweather", x402.ToolNotFound, x402.Change,
			`names the 3 that it has, the closest are "get_weather", "get_whether"`},
		"nothing like it": {refuses(-32602), "zzzzzzzz", x402.ToolNotFound, x402.Change,
			"names the 3 that it has"},
		"wrong arguments": {refuses(-32602), "buy", x402.InvalidArgument, x402.Change, "shows the schema"},
		"its own failure": {refuses(-32603), "buy", x402.ToolExecutionFailed, x402.Change,
			"which pays only if it is asked to"},
		"an answer that is none": {noJSON, "buy", x402.SessionTerminated, x402.Repeat, "nothing was paid"},
		"a login":                {status(401), "buy", down, x402.GiveUp, "a login"},
		"another page":           {status(404), "buy", down, x402.Change, "MCP endpoint"},
		"away":                   {status(503), "buy", down, x402.Repeat, "another server"},
		"away, for a call":       {away, "buy", down, x402.Repeat, "another server"},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, c.server)
			m := reach(t, Options{}, s.URL)
			_, err := m.Ask(within(t, time.Minute), toolCall(s.URL+"#"+c.tool))
			require.Equal(t, c.code, code(err), "%v", err)
			e := x402.AsError(err)
			next := e.NextStep()
			require.Equal(t, c.do, next.Do)
			text := strings.Join([]string{e.Message, e.Hint, next.Why, next.Say}, "; ")
			require.Contains(t, text, c.says)
			require.Contains(t, text, "nothing was paid")
			require.NotContains(t, text, "evil")
		})
	}
}

// A program that does not start is its owner's to look at; an address that nobody answers at is not.
func TestWhatToDoNextWithoutAnMCPServer(t *testing.T) {
	m := reach(t, Options{Servers: map[string]Server{"gone": {Command: []string{"/nowhere/at/all"}}}},
		"http://127.0.0.1:1")
	_, err := m.Tools(within(t, time.Minute), "mcp://gone")
	require.Equal(t, x402.ServerUnavailable, code(err))
	next := x402.AsError(err).NextStep()
	require.Equal(t, []any{x402.AskPerson, "x402-wallet doctor"}, []any{next.Do, next.Command})
	require.Contains(t, next.Say, "[servers.gone] in config.toml")
	_, err = m.Tools(within(t, time.Minute), "http://127.0.0.1:1/mcp")
	require.Equal(t, x402.ServerUnavailable, code(err))
	require.Equal(t, x402.Repeat, x402.AsError(err).NextStep().Do)
}

func TestClosest(t *testing.T) {
	names := []string{"get_weather", "get_forecast", "weather", "Get_Weather", "buy", "search_the_web"}
	for name, want := range map[string][]string{
		"get_weathr":             {"get_weather", "Get_Weather", "weather"},
		"weather":                {"weather", "get_weather", "Get_Weather"},
		"by":                     {"buy"},
		"search":                 {"search_the_web"},
		"qqqqq":                  nil,
		strings.Repeat("x", 2e3): nil,
	} {
		got := closest(name, names, 3)
		require.ElementsMatch(t, want, got, name)
		if len(want) > 0 {
			require.Equal(t, want[0], got[0])
		}
	}
	require.Equal(t, 3, editDistance("kitten", "sitting"))
	require.Equal(t, 3, editDistance("", "abc"))
}
