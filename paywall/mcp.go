package paywall

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"x402-wallet/x402"
)

// codePaymentRequired is JSON-RPC's code for a challenge, as seeds/004 maps x402's errors.
const codePaymentRequired = 402

// Protect charges for the tools of a server that have a price; the others stay free. Tools added
// later are charged for too. tools/list shows the prices.
func (w *Paywall) Protect(server *mcp.Server) { server.AddReceivingMiddleware(w.middleware) }

// Tool charges for one tool, where a server is not protected as a whole. h is what Server.AddTool
// takes; for typed handlers use Protect. Tool panics where the name has no price, because then
// nobody would be charged.
func (w *Paywall) Tool(name string, h mcp.ToolHandler) mcp.ToolHandler {
	if w.tools[name] == nil {
		panic(fmt.Sprintf("paywall: the tool %q has no price", name))
	}
	return func(ctx context.Context, request *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		answered, err := w.sellCall(ctx, request, name, func(ctx context.Context) (*mcp.CallToolResult,
			error) {
			return h(ctx, request)
		})
		if required, ok := answered.(*paymentRequired); ok { // a tool's handler can return no other type
			return required.asTool, nil
		}
		given, _ := answered.(*mcp.CallToolResult)
		return given, err
	}
}

// UnknownTools lists the priced names that a server has no tool for. A misspelt name would give its
// tool away for free.
func (w *Paywall) UnknownTools(ctx context.Context, server *mcp.Server) (names []string, err error) {
	near, far := mcp.NewInMemoryTransports()
	there, err := server.Connect(ctx, near, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = there.Close() }()
	client, err := mcp.NewClient(&mcp.Implementation{Name: "paywall"}, nil).Connect(ctx, far, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = client.Close() }()
	left := map[string]bool{}
	for name := range w.tools {
		left[name] = true
	}
	for tool, err := range client.Tools(ctx, nil) {
		if err != nil {
			return nil, err
		}
		delete(left, tool.Name)
	}
	for name := range left {
		names = append(names, name)
	}
	return names, nil
}

func (w *Paywall) middleware(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, request mcp.Request) (mcp.Result, error) {
		switch r := request.(type) {
		case *mcp.CallToolRequest:
			return w.sellCall(ctx, r, r.Params.Name, func(ctx context.Context) (*mcp.CallToolResult, error) {
				answered, err := next(ctx, method, request)
				given, _ := answered.(*mcp.CallToolResult)
				if err == nil && given == nil {
					err = fmt.Errorf("the tool answered with %T", answered)
				}
				return given, err
			})
		case *mcp.ListToolsRequest:
			answered, err := next(ctx, method, request)
			if list, ok := answered.(*mcp.ListToolsResult); ok && err == nil {
				return w.withPrices(list), nil
			}
			return answered, err
		}
		return next(ctx, method, request)
	}
}

// sellCall sells one call.
func (w *Paywall) sellCall(ctx context.Context, request *mcp.CallToolRequest, name string,
	run func(context.Context) (*mcp.CallToolResult, error)) (mcp.Result, error) {
	t := w.tools[name]
	if t == nil || t.Free {
		return run(ctx)
	}
	if sale := FromContext(ctx); sale != nil && sale.Tool == name {
		// a tool of a protected server that was wrapped as well
		return run(ctx)
	}
	header := http.Header{}
	if extra := request.Extra; extra != nil {
		header = extra.Header
	}
	sold := w.sell(ctx, toolRequest(t, name, request, header, run))
	return w.answerCall(t, request, sold)
}

func toolRequest(t *tool, name string, r *mcp.CallToolRequest, header http.Header,
	run func(context.Context) (*mcp.CallToolResult, error)) request {
	resource := t.Resource
	if resource == "" {
		resource = "mcp://tool/" + name
	}
	return request{
		tool: t, call: Call{Tool: name, Arguments: r.Params.Arguments, Header: header}, resource: resource,
		callHash: callHash(resource, r.Params.Arguments),
		decode:   func() (*payment, error) { return paymentInCall(r.Params.Meta, header) },
		invoke: func(ctx context.Context) (toolResult, error) {
			given, err := run(ctx)
			if err != nil || given == nil {
				return toolResult{}, err
			}
			return toolResult{value: given, failed: given.IsError, needsInput: given.NeedsInput() ||
				len(given.InputRequests) > 0,
				encode: func() []byte { return encodeResult(given) }}, nil
		},
	}
}

// maxReplay bounds an answer that is stored so that it can be replayed.
const maxReplay = 1 << 20

func encodeResult(given *mcp.CallToolResult) []byte {
	text, err := json.Marshal(given)
	if err != nil || len(text) > maxReplay {
		return nil
	}
	return text
}

// callHash identifies a call: the resource and its arguments, however their JSON is spelt.
func callHash(resource string, arguments json.RawMessage) [32]byte {
	var value any
	d := json.NewDecoder(bytes.NewReader(arguments))
	d.UseNumber()
	if d.Decode(&value) == nil {
		arguments = jsonOf(value) // keys in order
	}
	return sha256.Sum256(append([]byte(resource+"\x00"), arguments...))
}

// paymentInCall finds the payment of a call: in _meta under the specification's key or npm
// x402-mcp's, as an object or in base64; or in the header of the HTTP request (Cloudflare's servers
// take it there). Some clients send it twice; two that differ are an error.
func paymentInCall(meta mcp.Meta, header http.Header) (*payment, error) {
	var found *payment
	add := func(raw []byte, err error) error {
		var p *payment
		if err == nil {
			p, err = decodePayment(raw)
		}
		switch {
		case err != nil:
			return err
		case found != nil && !sameJSON(found.raw, p.raw):
			return fmt.Errorf("%w: there are two, and they differ", ErrInvalidRequest)
		}
		found = p
		return nil
	}
	for _, key := range []string{x402.MetaPayment, x402.MetaPaymentMCPV1} {
		value, there := meta[key]
		if !there || value == nil {
			continue
		}
		var err error
		switch said := value.(type) {
		case string:
			err = add(decodeBase64(key, said))
		case map[string]any:
			err = add(json.Marshal(said))
		default:
			err = fmt.Errorf("%w: _meta[%q] is neither an object nor base64", ErrInvalidRequest, key)
		}
		if err != nil {
			return nil, err
		}
	}
	for _, name := range []string{x402.HeaderPayment, x402.HeaderPaymentV1} {
		if said := header.Get(name); found == nil && said != "" {
			if err := add(decodeBase64(name, said)); err != nil {
				return nil, err
			}
		}
	}
	return found, nil
}

func sameJSON(a, b json.RawMessage) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}

// answerCall is a sale's outcome in the dialect.
func (w *Paywall) answerCall(t *tool, request *mcp.CallToolRequest, r result) (mcp.Result, error) {
	switch r.answer {
	case deliver:
		return w.deliverResult(r)
	case inputRequired:
		out := *r.toolResult.value.(*mcp.CallToolResult)
		out.Meta = w.withReceipt(r, out.Meta) // upfront
		return &out, nil
	case toolFailed:
		return w.failureResult(r)
	case reject:
		code := int64(jsonrpc.CodeInvalidParams)
		if errors.Is(r.cause, errNotJSON) {
			code = jsonrpc.CodeParseError
		}
		return nil, &jsonrpc.Error{Code: code, Message: r.reason, Data: jsonOf(w.errorBody(r))}
	case unavailable:
		body := w.errorBody(r)
		if w.options.Dialect == DialectError {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: r.reason, Data: jsonOf(body)}
		}
		return w.errorResult(r, body, nil), nil
	default:
		return w.challengeResult(t, request, r)
	}
}

// deliverResult is what was bought, with the receipt.
func (w *Paywall) deliverResult(r result) (mcp.Result, error) {
	given, _ := r.toolResult.value.(*mcp.CallToolResult)
	if r.replayed != nil {
		given = &mcp.CallToolResult{}
		if err := json.Unmarshal(r.replayed, given); err != nil {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError,
				Message: "the stored answer of this payment cannot be read any more"}
		}
	}
	out := *given
	out.Meta = w.withReceipt(r, out.Meta)
	return &out, nil
}

// failureResult is the tool's own, with a receipt where the buyer paid for the try.
func (w *Paywall) failureResult(r result) (mcp.Result, error) {
	if err, ok := r.toolResult.value.(error); ok {
		var own *jsonrpc.Error
		if errors.As(err, &own) { // bare: the SDK knows no other
			return nil, own
		}
		out := &mcp.CallToolResult{}
		out.SetError(err)
		out.Meta = w.withReceipt(r, nil)
		return out, nil
	}
	out := *r.toolResult.value.(*mcp.CallToolResult)
	out.Meta = w.withReceipt(r, out.Meta)
	return &out, nil
}

// withReceipt adds the settlement to a copy of a result's _meta, under the keys of the dialect.
func (w *Paywall) withReceipt(r result, meta mcp.Meta) mcp.Meta {
	if !r.receipt || r.settlement == nil {
		return meta
	}
	meta = maps.Clone(meta)
	if meta == nil {
		meta = mcp.Meta{}
	}
	meta[x402.MetaReceipt] = receiptJSON(r.settlement)
	if w.options.Dialect == DialectX402MCP {
		meta[x402.MetaReceiptMCPV1] = receiptJSON(r.settlement)
	}
	return meta
}

// paymentRequired is the result of MCP's extension for payments (org.x402/payment, 2026-07-28).
type paymentRequired struct {
	mcp.ResultBase
	ResultType      string          `json:"resultType"`
	PaymentRequired json.RawMessage `json:"paymentRequired"`

	asTool *mcp.CallToolResult
}

// extensionSince is the protocol version from which a result may be of another type.
const extensionSince = "2026-07-28"

// challengeResult is the challenge: for a client that declared MCP's payment extension in that
// form, for others in the dialect.
func (w *Paywall) challengeResult(t *tool, request *mcp.CallToolRequest, r result) (mcp.Result, error) {
	resource := r.sale.Resource
	body := w.challengeBody(t, r, resource)
	if w.options.Dialect == DialectError {
		return nil, &jsonrpc.Error{Code: codePaymentRequired, Message: r.reason, Data: jsonOf(body)}
	}
	var meta mcp.Meta
	if w.options.Dialect == DialectCloudflare {
		meta = mcp.Meta{x402.MetaCloudflare: body}
	}
	asTool := w.errorResult(r, body, meta)
	if capabilities := request.ClientCapabilities(); capabilities != nil &&
		request.ProtocolVersion() >= extensionSince {
		if _, knows := capabilities.Extensions[x402.MCPExtension]; knows {
			return &paymentRequired{
				ResultBase:      mcp.ResultBase{Meta: asTool.Meta},
				ResultType:      "payment_required",
				PaymentRequired: jsonOf(body),
				asTool:          asTool,
			}, nil
		}
	}
	return asTool, nil
}

// errorResult is a tool result that is an error, as structured content and the same as text.
// Cloudflare's clients find it in _meta.
func (w *Paywall) errorResult(r result, body map[string]any, meta mcp.Meta) *mcp.CallToolResult {
	text := jsonOf(body)
	out := &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: string(text)}}}
	if w.options.Dialect != DialectCloudflare {
		out.StructuredContent = text
	}
	out.Meta = w.withReceipt(r, meta)
	return out
}

// withPrices adds to each tool what it costs: under Cloudflare's keys, and in the form of a
// challenge's accepts.
func (w *Paywall) withPrices(list *mcp.ListToolsResult) *mcp.ListToolsResult {
	out := *list
	out.Tools = nil
	for _, listed := range list.Tools {
		if t := w.tools[listed.Name]; t != nil && !t.Free {
			listed = w.withPrice(t, listed)
		}
		out.Tools = append(out.Tools, listed)
	}
	if out.Tools == nil {
		out.Tools = []*mcp.Tool{}
	}
	return &out
}

func (w *Paywall) withPrice(t *tool, listed *mcp.Tool) *mcp.Tool {
	shown := *listed
	shown.Meta = maps.Clone(listed.Meta)
	if shown.Meta == nil {
		shown.Meta = mcp.Meta{}
	}
	shown.Meta["agents-x402/paymentRequired"] = true
	if price := t.price(); price != "" {
		shown.Meta["agents-x402/priceUSD"] = json.Number(strings.TrimPrefix(price, "$"))
		var accepts []map[string]any
		for _, o := range t.options {
			accepts = append(accepts, map[string]any{"scheme": "exact", "network": o.Network,
				"asset": o.Asset.Address, "amount": o.Amount, "payTo": o.PayTo})
		}
		shown.Meta["x402"] = map[string]any{"price": price, "accepts": accepts}
	}
	shown.OutputSchema = allowChallenge(listed.OutputSchema)
	return &shown
}

// allowChallenge lets a tool's output schema accept a challenge too: clients that validate
// structured content would refuse it otherwise (apify-mcp-server #917). Definitions that the schema
// refers to by name stay at its top.
func allowChallenge(schema any) any {
	if schema == nil {
		return nil
	}
	var own map[string]any
	text, err := json.Marshal(schema)
	if err != nil || json.Unmarshal(text, &own) != nil || own == nil {
		return schema
	}
	anyChallenge := map[string]any{"type": "object", "required": []string{"x402Version", "error"}}
	wide := map[string]any{"type": "object", "anyOf": []any{own, anyChallenge}}
	for _, shared := range []string{"$schema", "$defs", "definitions"} {
		if value, there := own[shared]; there {
			wide[shared] = value
			delete(own, shared)
		}
	}
	return wide
}
