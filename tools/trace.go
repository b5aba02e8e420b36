package tools

import (
	"context"
	"net/http"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"x402-wallet/internal/steps"
)

// traced is a call's context with how it is made, and the trace that the agent's host names for it. A mounted
// tool's name is its server's: it is not said.
func traced(ctx context.Context, call *mcp.CallToolRequest) context.Context {
	name := "tools/call"
	if strings.HasPrefix(call.Params.Name, "x402_") {
		name += " " + call.Params.Name
	}
	var header http.Header
	if call.Extra != nil {
		header = call.Extra.Header
	}
	return steps.Calling(ctx, name, steps.Named(call.Params.Meta, header))
}
