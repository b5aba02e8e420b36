package agent

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"x402-wallet/facilitator"
	"x402-wallet/internal/sandbox"
	"x402-wallet/paywall"
)

type tool struct {
	name  string
	price string // dollars; "": free
	says  string
}

// sells makes a paid MCP server with the wallet's own paywall: a tool that fails settles nothing.
func (w *world) sells(t *testing.T, at *stand, tools []tool) http.Handler {
	server := mcp.NewServer(&mcp.Implementation{Name: "shop", Version: "1"}, nil)
	var priced []paywall.Tool
	for _, one := range tools {
		if one.price != "" {
			priced = append(priced, paywall.Tool{Name: one.name, Accepts: []paywall.Option{
				{Network: sandbox.EVM, PayTo: at.onEVM, Price: one.price}}})
		}
		schema := map[string]any{"type": "object", "required": []string{"city"},
			"properties": map[string]any{"city": map[string]any{"type": "string"}}}
		server.AddTool(&mcp.Tool{Name: one.name, Description: "Weather of a city", InputSchema: schema},
			func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				var in struct{ City string }
				_ = json.Unmarshal(r.Params.Arguments, &in)
				if in.City == "" {
					return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{
						&mcp.TextContent{Text: "the argument city is missing"}}}, nil
				}
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: one.says}}}, nil
			})
	}
	wall, err := paywall.New(paywall.Options{Tools: priced, Facilitators: facilitator.New(facilitator.Options{
		List: []facilitator.Facilitator{{Name: "sandbox", URL: w.FacilitatorURL}}})})
	require.NoError(t, err)
	wall.Protect(server)
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
}
