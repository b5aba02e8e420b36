package seller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"x402-wallet/internal/mcpconn"
	"x402-wallet/x402"
)

// listLimits bound a server's list of tools.
var listLimits = mcpconn.Limits{Pages: 32, Items: 1000, Bytes: 8 << 20}

// Tools lists what a server offers, its names checked: everything else in it is a stranger's text.
func (m *Client) Tools(ctx context.Context, endpoint string) (list []*mcp.Tool, err error) {
	p, err := m.endpointNamed(ctx, endpoint)
	if err != nil {
		return nil, err
	}
	defer m.release(p)
	s, _, err := p.session(ctx)
	if err != nil {
		return nil, err
	}
	all, err := p.list(ctx, s)
	if err != nil {
		return nil, err
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

// Ware is a resource, a template of resources, or a prompt, as its server lists it: a stranger's text.
type Ware struct {
	Method      string // that buys it: ReadResource or GetPrompt
	Name        string // URI, template of URIs, or name of a prompt
	Description string
	Meta        mcp.Meta
	Arguments   []*mcp.PromptArgument
}

// Wares lists the resources and prompts of a server, as far as it does list them.
func (m *Client) Wares(ctx context.Context, endpoint string) (list []Ware, err error) {
	p, err := m.endpointNamed(ctx, endpoint)
	if err != nil {
		return nil, err
	}
	defer m.release(p)
	s, _, err := p.session(ctx)
	if err != nil {
		return nil, err
	}
	defer p.watch(ctx, s)()
	add := func(w Ware) {
		if w.Name != "" && canBeAsked(w.Name) {
			list = append(list, w)
		}
	}
	has := &mcp.ServerCapabilities{}
	if hello := s.mcp.InitializeResult(); hello != nil && hello.Capabilities != nil {
		has = hello.Capabilities
	}
	if has.Resources != nil {
		resources, _ := mcpconn.Resources(ctx, s.mcp, listLimits)
		for _, r := range resources {
			add(Ware{ReadResource, r.URI, r.Description, r.Meta, nil})
		}
		templates, _ := mcpconn.ResourceTemplates(ctx, s.mcp, listLimits)
		for _, t := range templates {
			add(Ware{ReadResource, t.URITemplate, t.Description, t.Meta, nil})
		}
	}
	if has.Prompts != nil {
		prompts, _ := mcpconn.Prompts(ctx, s.mcp, listLimits)
		for _, p := range prompts {
			add(Ware{GetPrompt, p.Name, p.Description, p.Meta, p.Arguments})
		}
	}
	return list, nil
}

// readySession is a session on which a tool can be called.
func (p *endpoint) readySession(ctx context.Context) (*session, error) {
	s, isNew, err := p.session(ctx)
	if err != nil {
		return nil, err
	}
	if isNew { // its tools may be others than those of the session before
		p.mcp.changed(p.url)
	}
	if p.wantsHeaders.Load() && !s.listed.Load() {
		_, err = p.list(ctx, s)
	}
	return s, err
}

// list reads a server's tools. From then on the SDK sends with a call of the session, as Mcp-Param headers,
// the arguments that a tool's schema marks by x-mcp-header (SEP-2243).
func (p *endpoint) list(ctx context.Context, s *session) ([]*mcp.Tool, error) {
	watched := p.watch(ctx, s)
	all, err := mcpconn.Tools(ctx, s.mcp, listLimits)
	watched()
	if errors.Is(err, mcpconn.ErrListTooLong) {
		return nil, x402.Errorf(x402.ResponseTooLarge, "%s: %w", hostOf(p.url), err)
	}
	if err != nil {
		return nil, nothingPaid(p.mcp.unanswered(ctx, mcpRequest{endpoint: p.url}, err))
	}
	s.listed.Store(true)
	return all, nil
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

const maxToolName = 128

// isName reports whether a name is one that MCP allows (2025-11-25, tools, names). Others are not
// called by mistake.
func isName(name string) bool {
	return token().MatchString(name) && len(name) <= maxToolName
}

// codeNoResource is the JSON-RPC error of an unknown resource before MCP 2026-07-28.
const codeNoResource = -32002

// explain is the error of the outside for a request without payment that a server refused, or that
// came to nothing.
func (m *Client) explain(ctx context.Context, w mcpRequest, err error) error {
	refused, isRefusal := errors.AsType[*refusal](err)
	if !isRefusal {
		return nothingPaid(m.unanswered(ctx, w, err))
	}
	said := func(x *x402.Error) *x402.Error {
		return x.WithDetail("jsonrpcCode", refused.said.Code).
			WithDetail("said", x402.Quote(refused.said.Message))
	}
	switch refused.said.Code {
	case jsonrpc.CodeInvalidParams, jsonrpc.CodeMethodNotFound, codeNoResource:
		if w.method == ReadResource {
			return said(x402.Errorf(x402.InvalidArgument, "%s has no resource %s; nothing was paid",
				hostOf(w.endpoint), x402.Quote(w.name)))
		}
		if names := m.otherTools(ctx, w); names != nil {
			return said(noSuchTool(w, names))
		}
		return said(x402.Errorf(x402.InvalidArgument, "%s does not take these arguments; nothing was paid",
			hostOf(w.endpoint)).
			WithHint("x402_list_tools shows the schema; details.said is what the server says"))
	default:
		return said(x402.Errorf(x402.ToolExecutionFailed, "%s failed before it asked for payment; nothing "+
			"was paid", hostOf(w.endpoint)).
			WithNext(x402.Next{Do: x402.Change, Why: "details.said is the server's reason: change the " +
				"arguments, or make the same call once more, which pays only if it is asked to"}))
	}
}

// nothingPaid says of a request without payment that came to nothing what to do next.
func nothingPaid(err error) error {
	e, ok := err.(*x402.Error) //nolint:errorlint // an *EntryError stays one
	if !ok || e.Next != nil {
		return err
	}
	if e.Code == x402.SessionTerminated {
		e.WithNext(x402.Next{Do: x402.Repeat, Why: "nothing was paid; the next call opens a session again. " +
			"Whether the tool ran nobody knows"})
	}
	return e
}

// otherTools are the names of a server's tools, where none is the one that was called.
func (m *Client) otherTools(ctx context.Context, w mcpRequest) (names []string) {
	if w.method != CallTool {
		return nil
	}
	tools, err := m.Tools(ctx, w.endpoint.String())
	if err != nil {
		return nil
	}
	names = []string{}
	for _, t := range tools {
		if t.Name == w.name {
			return nil
		}
		names = append(names, t.Name)
	}
	return names
}

// noSuchTool names the tools that a wrong name comes closest to.
func noSuchTool(w mcpRequest, names []string) *x402.Error {
	e := x402.Errorf(x402.ToolNotFound, "%s has no tool called %s", hostOf(w.endpoint), x402.Quote(w.name))
	const most = 3
	var quoted []string
	for _, name := range Closest(w.name, names, most) {
		quoted = append(quoted, x402.Quote(name))
	}
	hint := fmt.Sprintf("nothing was paid; x402_list_tools names the %d that it has", len(names))
	if len(quoted) > 0 {
		hint += ", the closest are " + strings.Join(quoted, ", ")
	}
	return e.WithHint("%s", hint).WithNext(x402.Next{Do: x402.Change, Why: "call a tool that the server has"})
}

// Closest are up to n of the names, those first that take the fewest letters to make them of name, of those
// that share something with it.
func Closest(name string, names []string, n int) []string {
	if len(name) > maxToolName {
		return nil
	}
	distance := map[string]int{}
	list := slices.DeleteFunc(slices.Clone(names), func(other string) bool {
		a, b := strings.ToLower(name), strings.ToLower(other)
		far := editDistance(a, b)
		distance[other] = far
		holds := len(a) > 2 && len(b) > 2 && (strings.Contains(a, b) || strings.Contains(b, a))
		return !holds && 2*far > max(len(a), len(b))
	})
	slices.SortStableFunc(list, func(a, b string) int { return cmp.Compare(distance[a], distance[b]) })
	return list[:min(n, len(list))]
}

// editDistance is Levenshtein's.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
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
