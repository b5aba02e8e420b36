package seller

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"x402-wallet/internal/mcpconn"
	"x402-wallet/x402"
)

// listLimits bound a server's list of tools.
var listLimits = mcpconn.Limits{Pages: 32, Items: 1000, Bytes: 8 << 20}

// Tools lists what a server offers, its names checked: everything else in it is a stranger's text.
func (m *Client) Tools(ctx context.Context, endpoint string) (list []*mcp.Tool, err error) {
	p, err := m.endpointNamed(endpoint)
	if err != nil {
		return nil, err
	}
	defer m.release(p)
	s, _, err := p.session(ctx)
	if err != nil {
		return nil, err
	}
	watched := p.watch(ctx, s)
	all, err := mcpconn.Tools(ctx, s.mcp, listLimits)
	watched()
	if errors.Is(err, mcpconn.ErrListTooLong) {
		return nil, x402.Errorf(x402.ResponseTooLarge, "%s: %w", hostOf(p.url), err)
	}
	if err != nil {
		return nil, m.unanswered(ctx, mcpRequest{endpoint: p.url}, err)
	}
	taken := map[string]bool{}
	for _, t := range all {
		if isName(t.Name) && !taken[t.Name] {
			taken[t.Name] = true
			list = append(list, t)
		}
	}
	return list, nil
}

// Changes hears, for one listener, that a server's tools may be others now: it says so, or a call
// had to open its session again.
func (m *Client) Changes(endpoint string) (<-chan struct{}, error) {
	at, err := m.parseEndpoint(endpoint)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	news := m.changes[at.String()]
	if news == nil {
		news = make(chan struct{}, 1)
		m.changes[at.String()] = news
	}
	return news, nil
}

func (m *Client) changed(at *url.URL) {
	m.mu.Lock()
	defer m.mu.Unlock()
	select {
	case m.changes[at.String()] <- struct{}{}:
	default: // nobody wants to know, or knows already
	}
}

// isName reports whether a name is one that MCP allows (2025-11-25, tools, names). Others are not
// called by mistake.
func isName(name string) bool {
	return token().MatchString(name) && len(name) <= 128
}

// explain is the error of the outside for a request without payment that a server refused, or that
// came to nothing.
func (m *Client) explain(ctx context.Context, w mcpRequest, err error) error {
	refused, isRefusal := errors.AsType[*refusal](err)
	if !isRefusal {
		return m.unanswered(ctx, w, err)
	}
	said := func(x *x402.Error) *x402.Error {
		return x.WithDetail("jsonrpcCode", refused.said.Code).
			WithDetail("said", x402.Quote(refused.said.Message))
	}
	switch refused.said.Code {
	case jsonrpc.CodeInvalidParams, jsonrpc.CodeMethodNotFound:
		if w.method == CallTool && m.lacksTool(ctx, w) {
			return said(x402.Errorf(x402.ToolNotFound, "%s has no tool called %s", hostOf(w.endpoint),
				x402.Quote(w.name)).WithHint("x402_list_tools names those it has"))
		}
		return said(x402.Errorf(x402.InvalidArgument, "%s does not take these arguments",
			hostOf(w.endpoint)).WithHint("x402_list_tools shows the schema"))
	default:
		return said(x402.Errorf(x402.ToolExecutionFailed, "%s failed; nothing was paid", hostOf(w.endpoint)))
	}
}

func (m *Client) lacksTool(ctx context.Context, w mcpRequest) bool {
	tools, err := m.Tools(ctx, w.endpoint.String())
	return err == nil && !slices.ContainsFunc(tools, func(t *mcp.Tool) bool { return t.Name == w.name })
}

// unanswered is the error of the outside for an exchange that has no answer.
func (m *Client) unanswered(ctx context.Context, w mcpRequest, err error) error {
	coded, isOurs := errors.AsType[*x402.Error](err)
	switch host, why := hostOf(w.endpoint), (failure{err}); {
	case isOurs:
		return coded
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return &x402.Error{Code: x402.Timeout, Message: "no complete answer from " + host + " in time",
			Err: why}
	case ctx.Err() != nil:
		return &x402.Error{Code: x402.NetworkError, Message: "the call was cancelled before " + host +
			" answered", Err: why}
	default:
		return &x402.Error{Code: x402.SessionTerminated,
			Message: fmt.Sprintf("the session with %s ended before it answered", host),
			Hint:    "the next call opens it again", Err: why}
	}
}
