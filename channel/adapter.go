package channel

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"

	"x402-wallet/pay"
	"x402-wallet/seller"
	"x402-wallet/x402"
)

// adapter is one way to speak with a service (seed 003's ChannelServiceAdapter). What the seed
// would ask the service about its channel (info, sub-channel, authorize) is asked of the chain: no
// server has those tools, and the chain does not lie for it.
type adapter interface {
	// discover asks the service itself who it is, where nothing is published at its origin; nil: it
	// does not say.
	discover(ctx context.Context) (*serviceInfo, error)
	// recover asks what the service knows of the caller's channel.
	recover(ctx context.Context, token authToken) (recovery, error)
	// commit gives the service a signed SubRAV outside of any call. It reports whether the service
	// took it.
	commit(ctx context.Context, token authToken, signed signedSubRAV) (bool, error)
	// send makes one call, once.
	send(ctx context.Context, token authToken, q seller.Request, p requestPayload) (reply, error)
}

// authToken makes a DIDAuthV1 token for one request: each has its own nonce.
type authToken func(ctx context.Context, operation string, params any) (string, error)

// serviceInfo is what a service says of itself.
type serviceInfo struct {
	ServiceID  string `json:"serviceId"`
	ServiceDID string `json:"serviceDid"`
	Network    string `json:"network"` // local, dev, test, main
	Asset      string `json:"defaultAssetId"`
	BasePath   string `json:"basePath"` // of the HTTP service's own routes
}

// recovery is what a service knows of a channel.
type recovery struct {
	Channel *struct {
		ChannelID string      `json:"channelId"`
		Epoch     json.Number `json:"epoch"`
		Status    string      `json:"status"`
	} `json:"channel"`
	Pending *subRAV `json:"pendingSubRav"`
}

// reply is an answer to a call.
type reply struct {
	answer *seller.Answer   // without the payment's own part
	paid   *responsePayload // nil: nothing was said of payment
	failed bool             // the tool failed
}

// readAnswer decodes what a service says outside of payments; unknown members are no harm.
func readAnswer(text []byte, into any) error {
	if err := x402.Strict(text, maxPayload); err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		if coded := x402.AsError(err); coded.Code != x402.Internal {
			return coded
		}
		return malformed("an answer", err)
	}
	return nil
}

// mcpAdapter speaks with an MCP server: its built-in tools, and the two reserved arguments.
type mcpAdapter struct {
	client   pay.Transport
	endpoint string
}

func (a mcpAdapter) discover(ctx context.Context) (*serviceInfo, error) {
	text, err := a.builtin(ctx, toolDiscovery, json.RawMessage("{}"))
	if x402.HasCode(err, x402.ToolNotFound) || x402.HasCode(err, x402.ToolExecutionFailed) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var info serviceInfo
	return &info, readAnswer(text, &info)
}

func (a mcpAdapter) recover(ctx context.Context, token authToken) (r recovery, err error) {
	text, err := a.authorized(ctx, token, toolRecovery, nil, nil)
	if err != nil {
		return r, err
	}
	return r, readAnswer(text, &r)
}

func (a mcpAdapter) commit(ctx context.Context, token authToken, signed signedSubRAV) (bool, error) {
	arguments, err := compact(map[string]any{"subRav": signed})
	if err != nil {
		return false, err
	}
	text, err := a.authorized(ctx, token, toolCommit, arguments, nil)
	if err != nil {
		return false, err
	}
	var out struct {
		Success bool `json:"success"`
	}
	if err := readAnswer(text, &out); err != nil || out.Success {
		return out.Success, err
	}
	if _, err := a.authorized(ctx, token, toolRecovery, nil, bearing(signed)); err != nil {
		return false, err
	}
	if arguments, err = compact(map[string]string{"nonce": decimal(signed.SubRAV.Nonce)}); err != nil {
		return false, err
	}
	if text, err = a.authorized(ctx, token, toolQuery, arguments, nil); err != nil {
		return false, err
	}
	var kept storedSubRAV
	return readAnswer(text, &kept) == nil && kept.is(signed.SubRAV), nil
}

// bearing is the payment part of a request that is not paid for itself: 0.7.0's commit does
// nothing, but a SubRAV that comes with any free request is verified and stored (reference: nuwa
// §3.6).
func bearing(signed signedSubRAV) *requestPayload {
	return &requestPayload{Version: payloadVersion, ClientTxRef: uuid(), Signed: &signed}
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
	return k.SubRAV.ChannelID == objectID(s.Channel).String() && k.SubRAV.Nonce.String() == decimal(s.Nonce) &&
		k.SubRAV.Amount.String() == s.Amount.String()
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
	q.Body, err = withReserved(q.Body, auth, &p)
	if err != nil {
		return reply{}, err
	}
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
	if err := json.Unmarshal(answer.Content, &result); err != nil {
		return r, malformed("a result", err)
	}
	if list, given := result["content"]; given {
		if err := json.Unmarshal(list, &items); err != nil {
			return r, malformed("a result", err)
		}
	}
	rest, paid, err := splitContent(items)
	if err != nil {
		return r, err
	}
	if rest == nil {
		rest = []json.RawMessage{}
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

func (a mcpAdapter) authorized(ctx context.Context, token authToken, tool string, arguments json.RawMessage,
	payment *requestPayload) ([]byte, error) {
	auth, err := token(ctx, opTool, toolParams{Tool: tool, ClientTxRef: uuid()})
	if err != nil {
		return nil, err
	}
	if arguments, err = withReserved(arguments, auth, payment); err != nil {
		return nil, err
	}
	return a.builtin(ctx, tool, arguments)
}

// builtin calls one of the service's own tools; its answer is the first text.
func (a mcpAdapter) builtin(ctx context.Context, tool string, arguments json.RawMessage) ([]byte, error) {
	answer, err := a.client.Ask(ctx, seller.Request{Method: seller.CallTool, URL: seller.Target(a.endpoint,
		tool), Body: arguments})
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
	for _, c := range result.Content {
		if c.Type == "text" {
			text = c.Text
			break
		}
	}
	if answer.ToolFailed {
		return nil, x402.Errorf(x402.ToolExecutionFailed, "the service's %s failed: %s", tool,
			x402.Quote(text))
	}
	return []byte(text), nil
}

// httpAdapter speaks with an HTTP service: a header both ways, and routes below its base path.
type httpAdapter struct {
	client pay.Transport
	origin string // scheme://host:port
	base   string // from its discovery
}

func (httpAdapter) discover(context.Context) (*serviceInfo, error) { return nil, nil }

func (a httpAdapter) recover(ctx context.Context, token authToken) (r recovery, err error) {
	return r, a.route(ctx, token, http.MethodGet, "/recovery", nil, nil, &r)
}

func (a httpAdapter) commit(ctx context.Context, token authToken, signed signedSubRAV) (bool, error) {
	body, err := compact(map[string]any{"subRav": signed})
	if err != nil {
		return false, err
	}
	var out struct {
		Success bool `json:"success"`
	}
	if err := a.route(ctx, token, http.MethodPost, "/commit", body, nil, &out); err != nil || out.Success {
		return out.Success, err
	}
	if err := a.route(ctx, token, http.MethodGet, "/recovery", nil, bearing(signed), nil); err != nil {
		return false, err
	}
	var kept storedSubRAV
	err = a.route(ctx, token, http.MethodGet, "/subrav?nonce="+decimal(signed.SubRAV.Nonce), nil, nil, &kept)
	return err == nil && kept.is(signed.SubRAV), err
}

// route asks one of the service's own routes, whose answers are {"success":…,"data":…}.
func (a httpAdapter) route(ctx context.Context, token authToken, method, path string, body []byte,
	payment *requestPayload, into any) error {
	q := seller.Request{Method: method, URL: a.origin + a.base + path, Body: body}
	auth, err := token(ctx, opHTTP, httpParams{URI: q.URL, Method: method})
	if err != nil {
		return err
	}
	q.Header = http.Header{authHeader: {auth}}
	ask := a.client.Ask
	if payment != nil {
		value, err := payment.header()
		if err != nil {
			return err
		}
		ask = func(ctx context.Context, q seller.Request) (*seller.Answer, error) {
			return a.client.Present(ctx, q, x402.Attachment{Header: paymentHeader, Value: value})
		}
	}
	answer, err := ask(ctx, q)
	if err != nil {
		return err
	}
	var out struct {
		Success bool            `json:"success"`
		Data    json.RawMessage `json:"data"`
		Error   *serviceError   `json:"error"`
	}
	if err := readAnswer(answer.Content, &out); err != nil {
		return err
	}
	if answer.Status != http.StatusOK || !out.Success {
		e := x402.Errorf(x402.PaymentRejected, "the service answered %s with status %d", path, answer.Status)
		if out.Error != nil {
			e.WithDetail("service", x402.Brief(out.Error.Code)).WithDetail("said",
				x402.Quote(out.Error.Message))
		}
		return e
	}
	if len(out.Data) == 0 || into == nil {
		return nil
	}
	return json.Unmarshal(out.Data, into)
}

func (a httpAdapter) send(ctx context.Context, token authToken, q seller.Request, p requestPayload) (r reply,
	err error) {
	auth, err := token(ctx, opHTTP, httpParams{URI: q.URL, Method: q.Method})
	if err != nil {
		return r, err
	}
	value, err := p.header()
	if err != nil {
		return r, err
	}
	q.Header = q.Header.Clone()
	if q.Header == nil {
		q.Header = http.Header{}
	}
	q.Header.Set(authHeader, auth)
	answer, err := a.client.Present(ctx, q, x402.Attachment{Header: paymentHeader, Value: value})
	if err != nil {
		return r, err
	}
	paid, err := readHeader(answer.Header.Get(paymentHeader))
	if err != nil {
		return r, err
	}
	shown := *answer
	shown.Challenge, shown.ChallengeErr = nil, nil
	return reply{answer: &shown, paid: paid, failed: answer.Status >= http.StatusBadRequest && paid == nil},
		nil
}

// unsent reports whether provably nothing of a call left.
func unsent(err error) bool {
	var send *seller.SendError
	return errors.As(err, &send) && !send.Sent
}
