package paywall

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"x402-wallet/internal/steps"
	"x402-wallet/scheme/selling"
	"x402-wallet/x402/wire"
)

// codePaymentRequired is JSON-RPC's code for a challenge, as x402's specs/transports-v2/mcp.md maps its
// errors.
const codePaymentRequired = 402

// Protect charges for the tools of a server that have a price; the others stay free. Tools added
// later are charged for too. tools/list shows the prices. Before a call is paid only the numbers of
// its progress leave; its log messages come with its answer (not so for a tool that is paid upfront).
func (w *Paywall) Protect(server *mcp.Server) {
	server.AddReceivingMiddleware(w.middleware)
	server.AddSendingMiddleware(w.withheld.sendingMiddleware)
}

// Tool charges for one tool, where a server is not protected as a whole. h is what Server.AddTool
// takes; for typed handlers use Protect, and for tools that send progress or log messages, which only
// Protect withholds. Tool panics where the name has no price, because then nobody would be charged.
func (w *Paywall) Tool(name string, h mcp.ToolHandler) mcp.ToolHandler {
	if w.tools[name] == nil {
		panic(fmt.Sprintf("paywall: the tool %q has no price", name))
	}
	return func(ctx context.Context, request *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		run := func(ctx context.Context) (*mcp.CallToolResult, error) { return h(ctx, request) }
		answered, err := w.sellCall(ctx, request, name, run)
		if required, ok := answered.(*paymentRequired); ok { // a tool's handler can return no other type
			return required.asTool, nil
		}
		given, _ := answered.(*mcp.CallToolResult)
		return given, err
	}
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

func (w *Paywall) sellCall(ctx context.Context, request *mcp.CallToolRequest, name string,
	run toolRun) (mcp.Result, error) {
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
	paid := func(context.Context, bool) {}
	if !t.Upfront || w.options.VerifyOnly { // a tool that is paid upfront may send anything
		run, paid = w.withheld.track(request, run)
	}
	asked := toolRequest(t, name, request.Params, header, run)
	asked.signIn = signInOf(header, request.Params.Meta)
	asked.traceparent = steps.Named(request.Params.Meta, header)
	asked.isAbandoned = func() bool { return isAbandoned(ctx, header) }
	r := w.sell(ctx, asked)
	noteOutcome(ctx, r)
	paid(ctx, r.answer == deliver && r.replayed == nil)
	return w.answerCall(t, request, r)
}

func toolRequest(t *tool, name string, p *mcp.CallToolParamsRaw, header http.Header, run toolRun) request {
	resource := cmp.Or(t.Resource, "mcp://tool/"+name)
	return request{
		tool: t, call: Call{Tool: name, Arguments: p.Arguments, Header: header}, resource: resource,
		callHash: callHash(resource, p.Arguments),
		decode:   func() (*payment, error) { return paymentInCall(p.Meta, header) },
		acknowledge: func(said map[string]any) toolResult {
			return toolResult{value: &mcp.CallToolResult{StructuredContent: said,
				Content: []mcp.Content{&mcp.TextContent{Text: string(jsonOf(said))}}}}
		},
		invoke: func(ctx context.Context) (toolResult, error) {
			given, err := run(ctx)
			if err != nil || given == nil {
				return toolResult{}, err
			}
			return toolResult{value: given, failed: given.IsError,
				needsInput: given.NeedsInput() || len(given.InputRequests) > 0,
				encode:     func() []byte { return encodeResult(given) },
				usage:      func() (string, func() int) { return resultUsage(given) }}, nil
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

// resultUsage is what a result says that its call costs, and its length. The word is taken out of it.
func resultUsage(given *mcp.CallToolResult) (said string, size func() int) {
	if value, there := given.Meta[metaCharge]; there {
		said, _ = value.(string)
		said = cmp.Or(said, "nothing that can be read")
		given.Meta = maps.Clone(given.Meta)
		delete(given.Meta, metaCharge)
	}
	return said, func() int {
		text, _ := json.Marshal(given) // what cannot be written is not sent either
		return len(text)
	}
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
func paymentInCall(meta mcp.Meta, header http.Header) (found *payment, err error) {
	for _, key := range wire.PaymentKeys() {
		switch said := meta[key].(type) {
		case nil:
		case string:
			found, err = found.add(selling.Unwrap(key, said))
		case map[string]any:
			found, err = found.add(json.Marshal(said))
		default:
			err = fmt.Errorf("%w: _meta[%q] is neither an object nor base64", ErrInvalidRequest, key)
		}
		if err != nil {
			return nil, err
		}
	}
	for _, name := range wire.PaymentHeaders() {
		if said := header.Get(name); found == nil && said != "" {
			found, err = found.add(selling.Unwrap(name, said))
		}
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// answerCall is a sale's outcome in the dialect.
func (w *Paywall) answerCall(t *tool, request *mcp.CallToolRequest,
	r result) (mcp.Result, error) {
	switch r.answer {
	case deliver, inputRequired, toolFailed: // the tool's own, with a receipt where it is paid for
		return w.toolAnswer(r)
	case reject:
		code := int64(jsonrpc.CodeInvalidParams)
		if errors.Is(r.cause, selling.ErrNotJSON) {
			code = jsonrpc.CodeParseError
		}
		return nil, &jsonrpc.Error{Code: code, Message: r.reason, Data: jsonOf(errorBody(r))}
	case unavailable:
		body := errorBody(r)
		if w.options.Dialect == dialectError {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: r.reason, Data: jsonOf(body)}
		}
		return w.errorResult(r, body, nil), nil
	default:
		return w.challengeResult(t, request, r)
	}
}

func (w *Paywall) toolAnswer(r result) (mcp.Result, error) {
	var out mcp.CallToolResult
	switch given := r.toolResult.value.(type) {
	case *mcp.CallToolResult:
		out = *given
	case error:
		var own *jsonrpc.Error
		if errors.As(given, &own) { // unwrapped: the SDK does not recognize wrapped ones
			return nil, own
		}
		out.SetError(given)
	}
	if r.replayed != nil {
		if err := json.Unmarshal(r.replayed, &out); err != nil {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError,
				Message: "the stored answer of this payment cannot be read any more"}
		}
	}
	if r.answer == inputRequired && !r.receipt { // content beside the questions is not paid for
		out.Content, out.StructuredContent, out.Meta = nil, nil, nil
	}
	out.Meta = w.withReceipt(r, out.Meta)
	return &out, nil
}

// withReceipt adds the settlement to a copy of a result's _meta, under the keys of the dialect.
func (w *Paywall) withReceipt(r result, meta mcp.Meta) mcp.Meta {
	if !r.receipt || r.settlement == nil {
		return meta
	}
	meta = ownMeta(meta)
	meta[wire.MetaReceipt] = r.receiptJSON()
	if w.options.Dialect == dialectX402MCP {
		meta[wire.MetaReceiptMCPV1] = r.receiptJSON()
	}
	return meta
}

// ownMeta is a copy that can be written to.
func ownMeta(meta mcp.Meta) mcp.Meta {
	if meta == nil {
		return mcp.Meta{}
	}
	return maps.Clone(meta)
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
	body := w.challengeBody(t, r)
	if w.options.Dialect == dialectError {
		return nil, &jsonrpc.Error{Code: codePaymentRequired, Message: r.reason, Data: jsonOf(body)}
	}
	var meta mcp.Meta
	if w.options.Dialect == dialectCloudflare {
		meta = mcp.Meta{wire.MetaCloudflare: body}
	}
	asTool := w.errorResult(r, body, meta)
	if capabilities := request.ClientCapabilities(); capabilities != nil &&
		request.ProtocolVersion() >= extensionSince {
		if _, knows := capabilities.Extensions[wire.MCPExtension]; knows {
			return &paymentRequired{ResultBase: mcp.ResultBase{Meta: asTool.Meta}, asTool: asTool,
				ResultType: "payment_required", PaymentRequired: jsonOf(body)}, nil
		}
	}
	return asTool, nil
}

// errorResult is a tool result that is an error, as structured content and the same as text.
// Cloudflare's clients find it in _meta.
func (w *Paywall) errorResult(r result, body map[string]any, meta mcp.Meta) *mcp.CallToolResult {
	text := jsonOf(body)
	out := &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: string(text)}}}
	if w.options.Dialect != dialectCloudflare {
		out.StructuredContent = text
	}
	out.Meta = w.withReceipt(r, meta)
	return out
}

// withPrices adds to each tool what it costs: under Cloudflare's keys, and in the form of a
// challenge's accepts.
func (w *Paywall) withPrices(list *mcp.ListToolsResult) *mcp.ListToolsResult {
	out := *list
	out.Tools = []*mcp.Tool{}
	for _, listed := range list.Tools {
		if t := w.tools[listed.Name]; t != nil && !t.Free {
			listed = w.withPrice(t, listed)
		}
		out.Tools = append(out.Tools, listed)
	}
	return &out
}

func (w *Paywall) withPrice(t *tool, listed *mcp.Tool) *mcp.Tool {
	shown := *listed
	shown.Meta = ownMeta(listed.Meta)
	shown.Meta["agents-x402/paymentRequired"] = true
	if price := t.price(); price != "" {
		shown.Meta["agents-x402/priceUSD"] = json.Number(strings.TrimPrefix(price, "$"))
		var accepts []map[string]any
		for _, o := range t.options {
			accepts = append(accepts, map[string]any{"scheme": o.scheme(), "network": o.Network,
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
