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

// Bounds of what is kept of a client's initialize request while its session lasts.
const (
	maxCapabilities = 4 << 10 // bytes of JSON, of experimental capabilities and of extensions each
	maxName         = 256     // bytes of each name
)

// limitMCP is the SDK receiving middleware that applies what limitHTTP cannot see: it records sessions when
// they are initialized, trims what a client says about itself, and counts calls until they end, which may be
// long after their client hung up.
func (f *Proxy) limitMCP(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, request mcp.Request) (mcp.Result, error) {
		v, l := visitorFrom(ctx), limiterFrom(ctx)
		session, ok := request.GetSession().(*mcp.ServerSession)
		if v == nil || !ok || strings.HasPrefix(method, "notifications/") {
			return next(ctx, method, request)
		}
		ctx, done, refused := l.acquireHandler(ctx, v)
		if refused != nil {
			return nil, refused.rpcError()
		}
		defer done()
		if session.ID() != "" && method != "initialize" && method != "ping" && !l.hasSession(v) {
			// the SDK lets some of these through, in a session that nothing would ever close
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest,
				Message: "the session is not initialized"}
		}
		switch r := request.(type) {
		case *mcp.ServerRequest[*mcp.InitializeParams]:
			r.Params = trimClientInfo(r.Params)
			answer, err := next(ctx, method, request)
			if err == nil && session.ID() != "" {
				l.openSession(v, session.ID(), func() {
					_ = session.Close()
					f.sessionClosed(session)
				})
			}
			return answer, err
		case *mcp.SubscriptionsListenRequest:
			refused := l.addStream(v)
			if refused != nil {
				return nil, refused.rpcError()
			}
		}
		return next(ctx, method, request)
	}
}

// adaptToUpstream is the SDK receiving middleware that advertises and serves only what upstream supports and
// the paywall can forward.
func (f *Proxy) adaptToUpstream(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, request mcp.Request) (mcp.Result, error) {
		session, _ := request.GetSession().(*mcp.ServerSession)
		switch r := request.(type) {
		case *mcp.ServerRequest[*mcp.InitializeParams]:
			answer, err := next(ctx, method, request)
			if said, ok := answer.(*mcp.InitializeResult); ok && err == nil && !f.hasBuyerSessions() {
				said.Capabilities.Logging = nil // log messages do not say which call they belong to
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

// logLevels are those of RFC 5424.
var logLevels = []mcp.LoggingLevel{"debug", "info", "notice", "warning", "error", "critical", "alert",
	"emergency"}

// setLevel has upstream's log messages sent to a buyer, from the buyer's own upstream session.
func (f *Proxy) setLevel(ctx context.Context, session *mcp.ServerSession, level mcp.LoggingLevel) error {
	switch {
	case !f.logs || !f.hasBuyerSessions():
		return &jsonrpc.Error{
			Code:    jsonrpc.CodeMethodNotFound,
			Message: "this server does not log to its clients",
		}
	case !slices.Contains(logLevels, level):
		return &jsonrpc.Error{
			Code:    jsonrpc.CodeInvalidParams,
			Message: fmt.Sprintf("a level is one of %v", logLevels),
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

// hasBought reports whether a call is made by a visitor that bought something, or is being paid for. It is
// always true over stdio, where nothing is limited.
func hasBought(ctx context.Context) bool {
	v, l := visitorFrom(ctx), limiterFrom(ctx)
	if v == nil || FromContext(ctx) != nil {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return v.bought
}

// trimClientInfo returns what a client says about itself without large members that the paywall does not
// need.
func trimClientInfo(p *mcp.InitializeParams) *mcp.InitializeParams {
	if p == nil {
		return nil
	}
	out := &mcp.InitializeParams{ProtocolVersion: truncate(p.ProtocolVersion)}
	if p.ClientInfo != nil {
		out.ClientInfo = &mcp.Implementation{Name: truncate(p.ClientInfo.Name),
			Title: truncate(p.ClientInfo.Title), Version: truncate(p.ClientInfo.Version)}
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

func truncate(s string) string { return strings.Clone(s[:min(len(s), maxName)]) }

func isSmall(m map[string]any) bool {
	text, err := json.Marshal(m)
	return err == nil && len(text) <= maxCapabilities
}

// noteOutcome records for the limits whether a visitor's call bought something or was told a price.
func noteOutcome(ctx context.Context, r result) {
	v, l := visitorFrom(ctx), limiterFrom(ctx)
	if v == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case r.replayed != nil: // shown again in another session, a purchase makes no buyer of that one
	case r.receipt && r.settlement != nil && r.settlement.Success && !r.isFree:
		v.bought = true
	case r.answer == challenge:
		v.askedAt = l.now()
	}
}
