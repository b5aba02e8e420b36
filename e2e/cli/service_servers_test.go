//go:build unix

package cli

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
)

// mcpCounter is a free MCP server on stdio that counts its calls.
func mcpCounter() {
	var calls atomic.Int64
	server := mcp.NewServer(&mcp.Implementation{Name: "counter", Version: "1"}, nil)
	server.AddTool(&mcp.Tool{Name: "count", InputSchema: map[string]any{"type": "object"}},
		func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{
				Text: fmt.Sprint("call ", calls.Add(1))}}}, nil
		})
	_ = server.Run(context.Background(), &mcp.StdioTransport{})
}

// What an MCP server knows of its session is one agent's, of whichever sessions it has with the service: by
// the tool that calls other servers' tools, and by a mounted tool.
func TestAgentsAtOneMCPServer(t *testing.T) {
	t.Parallel()
	_, s, alice, bob := named(t,
		"\n[servers.counter]\ncommand = [\"mcp-counter\"]\nmount = true\n")
	said := regexp.MustCompile(`call \d+`)
	count := func(token, session, name, arguments string) string {
		_, _, body := s.send(s.post(token, session, callOf(name, arguments)))
		return said.FindString(body)
	}
	first, second, ofBob := s.open(alice), s.open(alice), s.open(bob)
	require.Eventually(t, func() bool { // a server that is slow to start is mounted later
		_, _, body := s.send(s.post(bob, ofBob, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`))
		return strings.Contains(body, "counter__count")
	}, time.Minute, 10*time.Millisecond)
	for _, c := range []struct{ token, session, says string }{{alice, first, "call 1"},
		{bob, ofBob, "call 1"}, {alice, second, "call 3"}, {bob, ofBob, "call 3"}} {
		require.Equal(t, c.says, count(c.token, c.session, "counter__count", "{}"))
		next := strings.NewReplacer("1", "2", "3", "4").Replace(c.says)
		require.Equal(t, next, count(c.token, c.session, "x402_call_tool",
			`{"server":"counter","tool":"count","arguments":{}}`))
	}
}
