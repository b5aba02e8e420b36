package nuwa

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"

	"x402-wallet/pay"
	"x402-wallet/seller"
	"x402-wallet/x402"
	"x402-wallet/x402/wire"
)

// adapter is one way to speak with a service. What nuwa-kit's design would ask the service about its
// channel (info, sub-channel, authorize) is asked of the chain: no server has those tools, and the
// chain does not lie for it.
type adapter interface {
	// own asks what the service answers itself, and for nothing. into may be nil.
	own(ctx context.Context, token authToken, q ownQuestion, into any) error
	// send makes one call, once.
	send(ctx context.Context, token authToken, q seller.Request, p requestPayload) (reply, error)
}

// ownQuestion is a tool over MCP, with body as its arguments, and a route below the base path over
// HTTP, where a GET has no body.
type ownQuestion struct {
	tool         string
	method, path string
	body         []byte
	payment      *requestPayload // nil: nothing of payment is said
}

// recoveryQuestion asks what the service knows of the caller's channel.
func recoveryQuestion(payment *requestPayload) ownQuestion {
	return ownQuestion{tool: toolRecovery, method: http.MethodGet, path: "/recovery", payment: payment}
}

// commit gives the service a signed SubRAV outside of any call. It reports whether the service took
// it. 0.7.0's own commit does nothing, but a SubRAV that comes with any free request is verified
// and stored.
func commit(ctx context.Context, to adapter, token authToken, signed signedSubRAV) (bool, error) {
	body, err := compact(map[string]any{"subRav": signed})
	if err != nil {
		return false, err
	}
	var out struct {
		Success bool `json:"success"`
	}
	q := ownQuestion{tool: toolCommit, method: http.MethodPost, path: "/commit", body: body}
	err = to.own(ctx, token, q, &out)
	if err != nil || out.Success {
		return out.Success, err
	}
	payment := &requestPayload{Version: payloadVersion, ClientTxRef: uuid(), Signed: &signed}
	if err := to.own(ctx, token, recoveryQuestion(payment), nil); err != nil {
		return false, err
	}
	nonce := decimal(signed.SubRAV.Nonce)
	body, err = compact(map[string]string{"nonce": nonce})
	if err != nil {
		return false, err
	}
	var kept storedSubRAV
	q = ownQuestion{tool: toolQuery, method: http.MethodGet, path: "/subrav?nonce=" + nonce, body: body}
	err = to.own(ctx, token, q, &kept)
	if x402.HasCode(err, x402.ResponseMalformed) { // whatever that shows
		return false, nil
	}
	return err == nil && kept.is(signed.SubRAV), err
}

// authToken makes a DIDAuthV1 token for one request: each has its own nonce.
type authToken func(ctx context.Context, operation string, params any) (string, error)

// serviceInfo is what a service says of itself.
type serviceInfo struct {
	Version    json.Number `json:"version"` // "": not said
	ServiceDID string      `json:"serviceDid"`
	Network    string      `json:"network"` // local, dev, test, main
	Asset      string      `json:"defaultAssetId"`
	BasePath   string      `json:"basePath"` // of the HTTP service's own routes
	Endpoints  struct {
		MCP string `json:"mcp"` // "": where config.toml says
	} `json:"endpoints"`
}

// check refuses a description of another version than the one that is known.
func (i serviceInfo) check() error {
	if i.Version == "" || i.Version == "1" {
		return nil
	}
	return x402.Errorf(x402.InvalidRequirement,
		"the service's description has version %s, this wallet knows 1", x402.Quote(i.Version.String()))
}

// recovery is what a service knows of a channel.
type recovery struct {
	Channel *struct {
		ChannelID string `json:"channelId"`
	} `json:"channel"`
	Pending *subRAV `json:"pendingSubRav"`
}

type reply struct {
	answer *seller.Answer   // without the payment's own part
	paid   *responsePayload // nil: nothing was said of payment
	failed bool             // the tool failed
}

// storedSubRAV is what a service shows of a SubRAV that it verified; its numbers come as such, or
// as text.
type storedSubRAV struct {
	SubRAV struct {
		ChannelID string      `json:"channelId"`
		Nonce     json.Number `json:"nonce"`
		Amount    json.Number `json:"accumulatedAmount"`
	} `json:"subRav"`
}

func (k storedSubRAV) is(s subRAV) bool {
	r := k.SubRAV
	return r.ChannelID == objectID(s.Channel).String() && r.Nonce.String() == decimal(s.Nonce) &&
		r.Amount.String() == s.Amount.String()
}

// mcpAdapter speaks with an MCP server: its built-in tools, and the two reserved arguments.
type mcpAdapter struct {
	client   pay.Transport
	endpoint string
}

// discover asks the service itself who it is, where nothing is published at its origin; nil: it
// does not say.
func (a mcpAdapter) discover(ctx context.Context) (*serviceInfo, error) {
	text, err := a.builtin(ctx, toolDiscovery, json.RawMessage("{}"))
	if x402.HasCode(err, x402.ToolNotFound) || x402.HasCode(err, x402.ToolExecutionFailed) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var info serviceInfo
	if err := readStrict("an answer", text, &info); err != nil {
		return nil, err
	}
	return &info, info.check()
}

func (a mcpAdapter) own(ctx context.Context, token authToken, q ownQuestion, into any) error {
	auth, err := token(ctx, opTool, toolParams{Tool: q.tool, ClientTxRef: uuid()})
	if err != nil {
		return err
	}
	arguments, err := withReserved(q.body, auth, q.payment)
	if err != nil {
		return err
	}
	text, err := a.builtin(ctx, q.tool, arguments)
	if err != nil || into == nil {
		return err
	}
	return readStrict("an answer", text, into)
}

func (a mcpAdapter) send(ctx context.Context, token authToken, q seller.Request, p requestPayload) (reply,
	error) {
	tool, err := toolOf(q)
	if err != nil {
		return reply{}, err
	}
	auth, err := token(ctx, opTool, toolParams{Tool: tool, ClientTxRef: p.ClientTxRef})
	if err != nil {
		return reply{}, err
	}
	body, err := withReserved(q.Body, auth, &p)
	if err != nil {
		return reply{}, err
	}
	q.URL, q.Body = seller.Target(a.endpoint, tool), body
	answer, err := a.client.Ask(ctx, q)
	if err != nil {
		return reply{}, err
	}
	return mcpReply(answer)
}

// mcpReply takes the payment out of a tool's result.
func mcpReply(answer *seller.Answer) (r reply, err error) {
	result := map[string]json.RawMessage{}
	var items []json.RawMessage
	err = json.Unmarshal(answer.Content, &result)
	if list, given := result["content"]; err == nil && given {
		err = json.Unmarshal(list, &items)
	}
	if err != nil {
		return r, malformed("a result", err)
	}
	rest, paid, err := splitContent(items)
	if err != nil {
		return r, err
	}
	result["content"], err = compact(rest)
	if err != nil {
		return r, err
	}
	shown := *answer
	shown.Challenge, shown.ChallengeErr = nil, nil
	shown.Content, err = compact(result)
	return reply{answer: &shown, paid: paid, failed: answer.ToolFailed}, err
}

func toolOf(q seller.Request) (string, error) {
	at, err := url.Parse(q.URL)
	if err != nil || at.Fragment == "" {
		return "", x402.Errorf(x402.InvalidArgument, "the tool's name is missing")
	}
	if IsReservedTool(at.Fragment) {
		return "", x402.Errorf(x402.ToolNotFound,
			"%s belongs to the payment channel, and is the wallet's own", x402.Quote(at.Fragment))
	}
	return at.Fragment, nil
}

// builtin calls one of the service's own tools; its answer is the first text.
func (a mcpAdapter) builtin(ctx context.Context, tool string, arguments json.RawMessage) ([]byte, error) {
	q := seller.Request{Method: seller.CallTool, URL: seller.Target(a.endpoint, tool), Body: arguments}
	answer, err := a.client.Ask(ctx, q)
	if err != nil {
		return nil, err
	}
	var result struct {
		Content []content `json:"content"`
	}
	if err := json.Unmarshal(answer.Content, &result); err != nil {
		return nil, malformed("a result", err)
	}
	text := ""
	if i := slices.IndexFunc(result.Content, func(c content) bool { return c.Type == "text" }); i >= 0 {
		text = result.Content[i].Text
	}
	if answer.ToolFailed {
		return nil, x402.Errorf(x402.ToolExecutionFailed,
			"the service's %s failed: %s", tool, x402.Quote(text))
	}
	return []byte(text), nil
}

// httpAdapter speaks with an HTTP service: a header both ways, and routes below its base path.
type httpAdapter struct {
	client pay.Transport
	origin string // scheme://host:port
	base   string // from its discovery
}

// own reads answers of the form {"success":…,"data":…}.
func (a httpAdapter) own(ctx context.Context, token authToken, asked ownQuestion, into any) error {
	q := seller.Request{Method: asked.method, URL: a.origin + a.base + asked.path}
	if asked.method == http.MethodPost {
		q.Body = asked.body
	}
	auth, err := token(ctx, opHTTP, httpParams{URI: q.URL, Method: q.Method})
	if err != nil {
		return err
	}
	q.Header = http.Header{authHeader: {auth}}
	var answer *seller.Answer
	if asked.payment == nil {
		answer, err = a.client.Ask(ctx, q)
	} else {
		answer, err = a.present(ctx, q, *asked.payment)
	}
	if err != nil {
		return err
	}
	var out struct {
		Success bool            `json:"success"`
		Data    json.RawMessage `json:"data"`
		Error   *serviceError   `json:"error"`
	}
	if err := readStrict("an answer", answer.Content, &out); err != nil {
		return err
	}
	if answer.Status != http.StatusOK || !out.Success {
		e := x402.Errorf(x402.PaymentRejected, "the service answered %s with status %d", asked.path,
			answer.Status)
		if out.Error != nil {
			e.WithDetail("service", x402.Brief(out.Error.Code)).
				WithDetail("said", x402.Quote(out.Error.Message))
		}
		return e
	}
	if len(out.Data) == 0 || into == nil {
		return nil
	}
	return json.Unmarshal(out.Data, into)
}

func (a httpAdapter) present(ctx context.Context, q seller.Request, p requestPayload) (*seller.Answer,
	error) {
	text, err := compact(p)
	if err != nil {
		return nil, err
	}
	return a.client.Present(ctx, q, wire.Attachment{Header: paymentHeader, Value: multibase(text)})
}

func (a httpAdapter) send(ctx context.Context, token authToken, q seller.Request, p requestPayload) (reply,
	error) {
	auth, err := token(ctx, opHTTP, httpParams{URI: q.URL, Method: q.Method})
	if err != nil {
		return reply{}, err
	}
	q.Header = q.Header.Clone()
	if q.Header == nil {
		q.Header = http.Header{}
	}
	q.Header.Set(authHeader, auth)
	answer, err := a.present(ctx, q, p)
	if err != nil {
		return reply{}, err
	}
	paid, err := readHeader(answer.Header.Get(paymentHeader))
	if err != nil {
		return reply{}, err
	}
	shown := *answer
	shown.Challenge, shown.ChallengeErr = nil, nil
	failed := answer.Status >= http.StatusBadRequest && paid == nil
	return reply{answer: &shown, paid: paid, failed: failed}, nil
}
