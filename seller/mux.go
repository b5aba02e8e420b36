package seller

import (
	"context"
	"slices"

	"x402-wallet/x402"
)

// The MCP methods that can be bought.
const (
	CallTool     = "tools/call"
	ReadResource = "resources/read"
	GetPrompt    = "prompts/get"
	Initialize   = "initialize"
)

// IsMCP reports whether a method is one of an MCP server, and not of HTTP.
func IsMCP(method string) bool {
	return slices.Contains([]string{CallTool, ReadResource, GetPrompt, Initialize}, method)
}

// Mux is a client for both kinds of sellers: a request's method says whether it goes over HTTP or
// MCP.
type Mux struct {
	HTTP *HTTP
	MCP  *MCP
}

// client is one way to a seller.
type client interface {
	Check(r Request) error
	Ask(ctx context.Context, r Request) (*Answer, error)
	Present(ctx context.Context, r Request, with x402.Attachment) (*Answer, error)
}

func (s Mux) client(r Request) client {
	if IsMCP(r.Method) {
		return s.MCP
	}
	return s.HTTP
}

// Check says whether a request may be made at all, without asking anybody.
func (s Mux) Check(r Request) error { return s.client(r).Check(r) }

// Ask sends a request without payment.
func (s Mux) Ask(ctx context.Context, r Request) (*Answer, error) { return s.client(r).Ask(ctx, r) }

// Present sends a request with a payment, once.
func (s Mux) Present(ctx context.Context, r Request, with x402.Attachment) (*Answer, error) {
	return s.client(r).Present(ctx, r, with)
}
