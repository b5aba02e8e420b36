package paywall

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// What is kept of what a client says of itself, for as long as its session lasts.
const (
	maxClaims = 4 << 10 // bytes of JSON, of experimental capabilities and of extensions
	maxName   = 256     // bytes of each name
)

// guard is the gate's part inside the SDK: it knows sessions by their names, keeps little of what a client
// says of itself, and counts calls until they are over, not only until nobody waits for them any more.
func (f *Proxy) guard(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, request mcp.Request) (mcp.Result, error) {
		v, g := visitorOf(ctx), gateOf(ctx)
		session, ok := request.GetSession().(*mcp.ServerSession)
		if v == nil || !ok || strings.HasPrefix(method, "notifications/") {
			return next(ctx, method, request)
		}
		ctx, done, refused := g.begin(ctx, v)
		if refused != nil {
			return nil, refused.asError()
		}
		defer done()
		if session.ID() != "" && method != "initialize" && method != "ping" && !g.isNamed(v) {
			// the SDK lets some through, of a session that nothing would end
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest,
				Message: "the session is not initialized"}
		}
		switch r := request.(type) {
		case *mcp.ServerRequest[*mcp.InitializeParams]:
			r.Params = modest(r.Params)
			answer, err := next(ctx, method, request)
			if err == nil && session.ID() != "" {
				g.name(v, session.ID(), func() {
					_ = session.Close()
					f.left(session)
				})
			}
			return answer, err
		case *mcp.SubscriptionsListenRequest:
			refused := g.park(v)
			if refused != nil {
				return nil, refused.asError()
			}
		}
		return next(ctx, method, request)
	}
}

// translate lets no more be advertised, and done, than the server behind can and can be passed on.
func (f *Proxy) translate(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, request mcp.Request) (mcp.Result, error) {
		session, _ := request.GetSession().(*mcp.ServerSession)
		switch r := request.(type) {
		case *mcp.ServerRequest[*mcp.InitializeParams]:
			answer, err := next(ctx, method, request)
			if said, ok := answer.(*mcp.InitializeResult); ok && err == nil && !f.canAsk() {
				said.Capabilities.Logging = nil // of whose call a message is nobody could tell
			}
			return answer, err
		case *mcp.ServerRequest[*mcp.DiscoverParams]:
			answer, err := next(ctx, method, request)
			if said, ok := answer.(*mcp.DiscoverResult); ok && err == nil {
				said.Capabilities.Logging = nil
			}
			return answer, err
		case *mcp.ServerRequest[*mcp.SetLoggingLevelParams]:
			err := f.setLevel(ctx, session, r.Params.Level)
			if err != nil {
				return nil, err
			}
		case *mcp.SubscribeRequest:
			if f.subscribable {
				return &mcp.ResultBase{}, f.subscribe(ctx, session, r.Params.URI)
			}
		case *mcp.UnsubscribeRequest:
			if f.subscribable {
				f.unsubscribe(session, r.Params.URI)
				return &mcp.ResultBase{}, nil
			}
		}
		return next(ctx, method, request)
	}
}

// levels of logging, by RFC 5424.
var levels = []mcp.LoggingLevel{"debug", "info", "notice", "warning", "error", "critical", "alert",
	"emergency"}

// setLevel lets a buyer hear log messages of the server behind: from the session with it that the
// buyer has alone.
func (f *Proxy) setLevel(ctx context.Context, session *mcp.ServerSession, level mcp.LoggingLevel) error {
	switch {
	case !f.logs || !f.canAsk():
		return &jsonrpc.Error{
			Code:    jsonrpc.CodeMethodNotFound,
			Message: "this server does not log to its clients",
		}
	case !slices.Contains(levels, level):
		return &jsonrpc.Error{
			Code:    jsonrpc.CodeInvalidParams,
			Message: fmt.Sprintf("a level is one of %v", levels),
		}
	}
	f.buyersMu.Lock()
	f.levels[session] = level
	b := f.buyers[session]
	f.buyersMu.Unlock()
	if b != nil {
		b.setLevel(ctx)
	}
	return nil
}

// hasBought reports whether a call is of a visitor who bought something, or is being paid for; and where
// nobody is counted (stdio).
func hasBought(ctx context.Context) bool {
	v, g := visitorOf(ctx), gateOf(ctx)
	if v == nil || FromContext(ctx) != nil {
		return true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return v.bought
}

// asError is the refusal where HTTP has answered already.
func (r *refusal) asError() error {
	return &jsonrpc.Error{Code: codeBusy, Message: r.why, Data: jsonOf(map[string]any{"retryAfter": r.retry})}
}

// modest is what a client says of itself without what nobody here needs.
func modest(p *mcp.InitializeParams) *mcp.InitializeParams {
	if p == nil {
		return nil
	}
	out := &mcp.InitializeParams{ProtocolVersion: short(p.ProtocolVersion)}
	if p.ClientInfo != nil {
		out.ClientInfo = &mcp.Implementation{Name: short(p.ClientInfo.Name), Title: short(p.ClientInfo.Title),
			Version: short(p.ClientInfo.Version)}
	}
	if p.Capabilities != nil {
		c := *p.Capabilities
		if !isSmall(c.Experimental) {
			c.Experimental = nil
		}
		if !isSmall(c.Extensions) {
			c.Extensions = nil
		}
		out.Capabilities = &c
	}
	return out
}

func short(s string) string { return strings.Clone(s[:min(len(s), maxName)]) }

func isSmall(m map[string]any) bool {
	text, err := json.Marshal(m)
	return err == nil && len(text) <= maxClaims
}

// note remembers what a visitor's call came to.
func note(ctx context.Context, r result) {
	v, g := visitorOf(ctx), gateOf(ctx)
	if v == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case r.replayed != nil: // what one session bought makes buyers of no others
	case r.receipt && r.settlement != nil && r.settlement.Success:
		v.bought = true
	case r.answer == challenge:
		v.asked = g.now()
	}
}
