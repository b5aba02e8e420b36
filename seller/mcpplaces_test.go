package seller

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/must"
	"x402-wallet/x402"
)

const asCounter = "SELLER_TEST_COUNTER"

// newCounter is a server that counts a session's calls, one after the other in each.
func newCounter() *mcp.Server {
	var mu sync.Mutex
	calls := map[*mcp.ServerSession]int{}
	s := mcp.NewServer(&mcp.Implementation{Name: "counter", Version: "1"}, nil)
	s.AddTool(&mcp.Tool{Name: "count", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			mu.Lock()
			defer mu.Unlock()
			calls[r.Session]++
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{
				Text: fmt.Sprint("call ", calls[r.Session])}}}, nil
		})
	return s
}

type agentKey struct{}

func as(t *testing.T, agent string) context.Context {
	return context.WithValue(t.Context(), agentKey{}, agent)
}

func byContext(ctx context.Context) string {
	agent, _ := ctx.Value(agentKey{}).(string)
	return agent
}

func counted(t *testing.T, m *Client, agent, endpoint string) string {
	t.Helper()
	a := must.Get(m.Ask(as(t, agent), toolCall(Target(endpoint, "count"))))(t)
	said := must.JSON[struct{ Content []struct{ Text string } }](a.Content)(t)
	return said.Content[0].Text
}

// counters serves a counter over each wire that has sessions.
func counters(t *testing.T, o Options) (m *Client, endpoints []string) {
	counter := newCounter()
	mux := http.NewServeMux()
	mux.Handle("/mcp", testworld.Streamable(t, counter, nil))
	mux.Handle("/old", mcp.NewSSEHandler(func(*http.Request) *mcp.Server { return counter }, nil))
	s := serve(t, mux.ServeHTTP)
	t.Cleanup(s.CloseClientConnections)
	self := must.Get(os.Executable())(t)
	o.Agent = byContext
	o.Servers = map[string]Server{"counter": {Command: []string{"/usr/bin/env", asCounter + "=1", self}}}
	return reach(t, o, s.URL), []string{s.URL + "/mcp", s.URL + "/old", commandScheme + "://counter"}
}

func TestEachAgentHasItsOwnSession(t *testing.T) {
	m, endpoints := counters(t, Options{})
	for _, endpoint := range endpoints {
		t.Run(endpoint, func(t *testing.T) {
			for _, c := range []struct {
				agent string
				calls int
			}{{"ann", 1}, {"ann", 2}, {"bob", 1}, {"", 1}, {"bob", 2}, {"ann", 3}, {"", 2}} {
				require.Equal(t, fmt.Sprint("call ", c.calls), counted(t, m, c.agent, endpoint), c.agent)
			}
		})
	}
}

// An agent's session that it does not use ends, and its program with it; what is in use stays, and what
// belongs to a caller without a name.
func TestAnUnusedSessionEnds(t *testing.T) {
	m, endpoints := counters(t, Options{unused: 50 * time.Millisecond})
	for _, endpoint := range endpoints {
		t.Run(endpoint, func(t *testing.T) {
			at := must.Get(url.Parse(endpoint))(t)
			inUse := must.Get(m.endpointAt(as(t, "bob"), at))(t)
			for _, agent := range []string{"ann", "bob", ""} {
				require.Equal(t, "call 1", counted(t, m, agent, endpoint))
			}
			kept := func(agent string) bool {
				m.mu.Lock()
				defer m.mu.Unlock()
				return m.endpoints[place{agent, endpoint}] != nil
			}
			m.mu.Lock()
			ofAnn := m.endpoints[place{"ann", endpoint}]
			m.mu.Unlock()
			if ofAnn != nil {
				require.Eventually(t, func() bool { return !kept("ann") && ofAnn.live() == nil },
					time.Minute, time.Millisecond)
			}
			m.mu.Lock()
			inUse.used = time.Time{}
			m.mu.Unlock()
			m.endUnused(inUse) // as by a timer that was not stopped in time
			require.Equal(t, "call 1", counted(t, m, "ann", endpoint), "it begins anew")
			require.Equal(t, "call 2", counted(t, m, "bob", endpoint))
			require.Equal(t, "call 2", counted(t, m, "", endpoint))
			m.release(inUse)
			require.Eventually(t, func() bool { return !kept("bob") }, time.Minute, time.Millisecond)
			require.True(t, kept(""))
		})
	}
}

func fill(t *testing.T, m *Client, agent, form string, n int) {
	t.Helper()
	for i := range n {
		at := must.Get(url.Parse(fmt.Sprintf(form, i)))(t)
		p := must.Get(m.endpointAt(as(t, agent), at))(t)
		m.release(p)
	}
}

func placesOf(m *Client, agent string) (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for of := range m.endpoints {
		if of.agent == agent {
			n++
		}
	}
	return n
}

// An agent makes room for its own servers first, and where all places are taken, whoever has the most of
// them.
func TestAgentsPlacesAreBounded(t *testing.T) {
	m := New(Options{Agent: byContext})
	defer func() { require.NoError(t, m.Close()) }()
	fill(t, m, "bob", "https://bob.example/%d", 2)
	fill(t, m, "ann", "https://ann.example/%d", maxEndpoints+4)
	require.Equal(t, maxEndpoints, placesOf(m, "ann"))
	require.Equal(t, 2, placesOf(m, "bob"), "ann's are ann's")
	require.Nil(t, m.endpoints[place{"ann", "https://ann.example/0"}])

	for i := range maxAllEndpoints/maxEndpoints - 1 {
		fill(t, m, fmt.Sprint("a", i), "https://a.example/%d", maxEndpoints-2)
	}
	for i := 0; len(m.endpoints) < maxAllEndpoints; i++ {
		fill(t, m, fmt.Sprint("b", i), "https://b.example/%d", 1)
	}
	fill(t, m, "cy", "https://cy.example/%d", 1)
	require.Len(t, m.endpoints, maxAllEndpoints)
	require.Equal(t, maxEndpoints-1, placesOf(m, "ann"))
	require.Equal(t, 2, placesOf(m, "bob"))
}

// Programs have fewer places, no agent more than half of them; what is in use is not ended.
func TestProgramsAreBounded(t *testing.T) {
	require.LessOrEqual(t, 2*maxEndpoints, maxPrograms)
	m := New(Options{Agent: byContext})
	defer func() { require.NoError(t, m.Close()) }()
	fill(t, m, "ann", commandScheme+"://s%d", maxPrograms)
	fill(t, m, "bob", commandScheme+"://s%d", maxPrograms)
	fill(t, m, "cy", commandScheme+"://s%d", 1)
	require.Len(t, m.endpoints, maxPrograms)
	fill(t, m, "cy", "https://cy.example/%d", 1)
	require.Len(t, m.endpoints, maxPrograms+1, "which is no program")

	for _, p := range m.endpoints {
		must.Get(m.endpointAt(as(t, p.agent), p.url))(t)
	}
	_, err := m.endpointAt(as(t, "dee"), &url.URL{Scheme: commandScheme, Host: "s"})
	require.Equal(t, x402.ServerUnavailable, code(err))
	require.ErrorContains(t, err, "programs")
}
