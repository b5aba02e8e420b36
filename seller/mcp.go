package seller

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"x402-wallet/x402"
	"x402-wallet/x402/wire"
)

// ContentType is what an MCP answer's content is: the whole result of a call, in JSON.
const ContentType = "application/vnd.mcp.result+json"

// maxName bounds the name of a tool or prompt, and the URI of a resource. MCP itself stops at
// 128 for tools.
const maxName = 2 << 10

// commandScheme begins the endpoint of a server that is a command: mcp://<name>.
const commandScheme = "mcp"

// Endpoint is where a server is asked: it is named as config.toml names it, or by an https URL. A
// command is never taken from a caller.
func (m *Client) Endpoint(server string) (string, error) {
	s, isNamed := m.options.Servers[server]
	switch {
	case isNamed && s.URL == "":
		return commandScheme + "://" + server, nil
	case isNamed:
		return s.URL, nil
	case strings.Contains(server, "://"):
		at, err := m.parseEndpoint(server)
		if err != nil {
			return "", err
		}
		return at.String(), nil
	default:
		return "", x402.Errorf(x402.InvalidArgument, "no MCP server of this wallet is called %s",
			x402.Quote(server)).
			WithHint("name one of the owner's config.toml, or give its https:// URL")
	}
}

// Target is the URL of a tool, resource or prompt at an endpoint.
func Target(endpoint, name string) string {
	if name == "" {
		return endpoint
	}
	return endpoint + "#" + (&url.URL{Fragment: name}).EscapedFragment()
}

// endpoint reads the URL of a server, without what is asked of it.
func (m *Client) parseEndpoint(raw string) (*url.URL, error) {
	if !strings.HasPrefix(raw, commandScheme+"://") {
		return m.http.checkURL(raw)
	}
	at, err := url.Parse(raw)
	if err != nil {
		return nil, invalid("the server cannot be read")
	}
	if s, known := m.options.Servers[at.Host]; !known || s.URL != "" || raw != commandScheme+"://"+at.Host {
		return nil, blocked("%s is not a command of the owner's config.toml", x402.Quote(raw))
	}
	return at, nil
}

// mcpRequest is a request, checked and taken apart.
type mcpRequest struct {
	endpoint  *url.URL
	method    string
	name      string // tool, URI or prompt
	arguments json.RawMessage
	progress  func(Progress)
}

// canBeAsked reports whether the name of a tool or prompt, or a resource's URI, is one that is sent.
func canBeAsked(name string) bool {
	return len(name) <= maxName && !strings.ContainsFunc(name, func(r rune) bool {
		return r < ' ' || r == 0x7f || r == 0xfffd
	})
}

func (m *Client) check(r Request) (mcpRequest, error) {
	raw, fragment, _ := strings.Cut(r.URL, "#")
	at, err := m.parseEndpoint(raw)
	if err != nil {
		return mcpRequest{}, err
	}
	name, err := url.PathUnescape(fragment)
	switch {
	case err != nil || !canBeAsked(name):
		return mcpRequest{}, invalid("a name has at most %d characters, and no control characters", maxName)
	case (name == "") != (r.Method == Initialize):
		return mcpRequest{}, invalid("the name of what is asked for is missing")
	case len(r.Header) > 0:
		return mcpRequest{}, invalid("an MCP request has no headers")
	case len(r.Body) > maxRequestBody:
		return mcpRequest{}, invalid("the arguments are %d bytes long; at most %d are sent", len(r.Body),
			maxRequestBody)
	}
	w := mcpRequest{endpoint: at, method: r.Method, name: name, arguments: bytes.TrimSpace(r.Body),
		progress: r.Progress}
	if len(w.arguments) == 0 {
		w.arguments = json.RawMessage("{}")
	}
	if err := x402.DecodeStrict(w.arguments, maxRequestBody, nil); err != nil || w.arguments[0] != '{' {
		return mcpRequest{}, invalid("the arguments are not a JSON object")
	}
	return w, nil
}

// EntryError says that a server wants to be paid before anything can be asked of it: buy Initialize
// at its endpoint first.
type EntryError struct {
	Endpoint string
	err      *x402.Error
}

func (e *EntryError) Error() string { return e.err.Error() }

func (e *EntryError) Unwrap() error { return e.err }

func (m *Client) askMCP(ctx context.Context, r Request) (*Answer, error) {
	w, err := m.check(r)
	if err != nil {
		return nil, err
	}
	e, err := m.exchange(ctx, w, wire.Attachment{})
	if err != nil {
		return nil, err
	}
	a, err := e.answer(r.URL)
	if err != nil {
		return nil, m.explain(ctx, w, err)
	}
	return a, nil
}

func (m *Client) presentMCP(ctx context.Context, r Request, with wire.Attachment) (*Answer, error) {
	w, err := m.check(r)
	if err != nil {
		return nil, &SendError{Err: err}
	}
	e, err := m.exchange(ctx, w, with)
	if err != nil {
		return nil, &SendError{Err: err}
	}
	a, err := e.answer(r.URL)
	if err != nil {
		return nil, &SendError{Sent: e.sent.Load(), Err: m.unanswered(ctx, w, err)}
	}
	return a, nil
}

// exchange makes a request, on a session that lives. Its error means that nothing of the request left.
func (m *Client) exchange(ctx context.Context, w mcpRequest, with wire.Attachment) (*exchange, error) {
	p, err := m.endpointAt(ctx, w.endpoint)
	if err != nil {
		return nil, err
	}
	defer m.release(p)
	if w.method == Initialize {
		return p.initialize(ctx, with)
	}
	hadHeaders := false // those of the schema that the server has now
	for tries := 0; ; tries++ {
		s, err := p.readySession(ctx)
		if err != nil {
			return nil, err
		}
		e, watched := m.newExchange(w.method, with), p.watch(ctx, s)
		s.call(ctx, w, e)
		if !e.pays() { // what was paid for may still be worked on
			watched()
		}
		isUnsent := e.failure != nil && !e.sent.Load()
		isEnded := errors.Is(e.failure, mcp.ErrConnectionClosed) || !s.alive()
		mayRetry := e.missing || (isUnsent && isEnded)
		switch {
		case e.lacksHeaders() && !e.pays() && !hadHeaders: // it did nothing, and nothing was paid
			hadHeaders = true
			p.wantsHeaders.Store(true)
			s.listed.Store(false)
		case e.missing && e.pays():
			// it has left, and does not leave again: the next call opens the session again
			p.drop(s)
			return e, nil
		case mayRetry && tries == 0 && ctx.Err() == nil:
			m.options.Log.Info("an MCP server's session had ended; it is opened again", "server",
				hostOf(w.endpoint))
			p.drop(s)
		case isUnsent:
			return nil, m.unanswered(ctx, w, e.failure)
		default:
			return e, nil
		}
	}
}

// answer is what came back, as pay judges it. Its error is what ended the exchange, or, where
// nothing was paid, a *refusal that does not ask for it.
func (e *exchange) answer(target string) (*Answer, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if a := e.http; a != nil && a.Status >= http.StatusMultipleChoices { // the endpoint itself answered
		a.FinalURL = target
		return a, nil
	}
	refused, message := e.refused, wire.MCPMessage{Result: e.result}
	switch {
	case refused != nil:
		message = wire.MCPMessage{Code: refused.Code, Data: refused.Data}
	case e.result == nil:
		return nil, e.failure
	}
	a := &Answer{Status: http.StatusOK, Content: e.result, ContentType: ContentType, FinalURL: target}
	if refused != nil {
		a.Content, _ = json.Marshal(map[string]any{"isError": true,
			"content": []map[string]string{{"type": "text", "text": refused.Message}}})
	}
	a.Challenge, a.ChallengeErr = wire.ReadMCPChallenge(message)
	if a.Challenge != nil || a.ChallengeErr != nil {
		a.Status = http.StatusPaymentRequired
	}
	e.receipt(a, message)
	switch {
	case a.Status != http.StatusOK:
	case refused != nil && !e.pays():
		return nil, &refusal{said: refused}
	case isFailure(a.Content):
		a.Status, a.ToolFailed = http.StatusInternalServerError, true
	}
	return a, nil
}

// refusal is a server's own error.
type refusal struct{ said *jsonrpc.Error }

func (r *refusal) Error() string { return r.said.Error() }

// receipt reads what says what became of the payment: in the message, or in the headers of an
// endpoint that was paid by header.
func (e *exchange) receipt(a *Answer, message wire.MCPMessage) {
	a.Settlement, a.SettlementErr = wire.ReadMCPSettlement(message)
	if e.http == nil || a.SettlementErr != nil {
		return
	}
	a.Header = e.http.Header
	inHeader, err := e.http.Settlement, e.http.SettlementErr
	if a.Settlement == nil {
		a.Settlement, a.SettlementErr = inHeader, err
		return
	}
	isContradiction := inHeader != nil &&
		(inHeader.Success != a.Settlement.Success || inHeader.Transaction != a.Settlement.Transaction)
	if isContradiction {
		a.Settlement, a.SettlementErr = nil, errors.New("two receipts that contradict each other")
	}
}

// isFailure reports whether a result is none: isError, no object, or a question to us, which is declined.
func isFailure(result json.RawMessage) bool {
	var top map[string]json.RawMessage // exact names, where a struct would take them in any case
	if json.Unmarshal(result, &top) != nil || top == nil {
		return true
	}
	return string(top["isError"]) == "true" || string(top["resultType"]) == `"input_required"`
}
