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

// Protect charges for what of a server has a price: tools, resources, prompts, and a session itself; the rest
// stays free. Tools added later are charged for too. Lists show the prices. Before a call is paid only the
// numbers of its progress leave; its log messages come with its answer (not so for what is paid upfront).
func (w *Paywall) Protect(server *mcp.Server) {
	server.AddReceivingMiddleware(w.entryMiddleware, w.middleware)
	server.AddSendingMiddleware(w.withheld.sendingMiddleware)
}

// Tool charges for one tool, where a server is not protected as a whole. h is what Server.AddTool
// takes; for typed handlers use Protect, and for tools that send progress or log messages, which only
// Protect withholds. Tool panics where the name has no price, because then nobody would be charged.
func (w *Paywall) Tool(name string, h mcp.ToolHandler) mcp.ToolHandler {
	t := w.tools[name]
	if t == nil || t.Kind != "" {
		panic(fmt.Sprintf("paywall: the tool %q has no price", name))
	}
	return func(ctx context.Context, request *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		run := func(ctx context.Context) (mcp.Result, error) { return h(ctx, request) }
		answered, err := w.charge(ctx, ofCall(w.priced("", name), request, run))
		if required, ok := answered.(*paymentRequired); ok { // a tool's handler can return no other type
			return required.asTool, nil
		}
		given, _ := answered.(*mcp.CallToolResult)
		return given, err
	}
}

// asked is a request for something that costs.
type asked struct {
	tool      *tool // nil: it is free
	name      string
	arguments json.RawMessage
	request   mcp.Request
	meta      mcp.Meta
	extra     *mcp.RequestExtra
	run       toolRun
}

func ofCall(t *tool, r *mcp.CallToolRequest, run toolRun) asked {
	return asked{tool: t, name: r.Params.Name, arguments: r.Params.Arguments, request: r, meta: r.Params.Meta,
		extra: r.Extra, run: run}
}

func (w *Paywall) middleware(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, request mcp.Request) (mcp.Result, error) {
		run := func(ctx context.Context) (mcp.Result, error) {
			answered, err := next(ctx, method, request)
			if err == nil && isNone(answered) {
				err = fmt.Errorf("the server answered with %T", answered)
			}
			return answered, err
		}
		switch r := request.(type) {
		case *mcp.CallToolRequest:
			return w.charge(ctx, ofCall(w.priced("", r.Params.Name), r, run))
		case *mcp.ReadResourceRequest:
			if err := w.refuseUnclear(r.Params.URI); err != nil {
				return nil, err
			}
			return w.charge(ctx, asked{tool: w.pricedResource(r.Params.URI), name: r.Params.URI, request: r,
				meta: r.Params.Meta, extra: r.Extra, run: run})
		case *mcp.GetPromptRequest:
			return w.charge(ctx, asked{tool: w.priced(OfPrompt, r.Params.Name), name: r.Params.Name,
				arguments: jsonOf(r.Params.Arguments), request: r, meta: r.Params.Meta, extra: r.Extra,
				run: run})
		}
		answered, err := next(ctx, method, request)
		if err != nil {
			return answered, err
		}
		if list, ok := answered.(*mcp.ListToolsResult); ok {
			return w.withPrices(list), nil
		}
		answered, _ = w.withWarePrices(answered)
		return answered, nil
	}
}

// charge sells what costs, and gives what is free. Neither holds a resource that costs something else.
func (w *Paywall) charge(ctx context.Context, a asked) (mcp.Result, error) {
	run := a.run
	a.run = func(ctx context.Context) (mcp.Result, error) {
		given, err := run(ctx)
		if err == nil && !isNone(given) {
			if label := w.leaked(given, a.tool); label != "" {
				return nil, leakError(label)
			}
		}
		return given, err
	}
	if a.tool == nil {
		return a.run(ctx)
	}
	if sale := FromContext(ctx); sale != nil && sale.Tool == a.tool.label() {
		// a tool of a protected server that was wrapped as well
		return run(ctx)
	}
	answered, _, err := w.sellMCP(ctx, a)
	return answered, err
}

func (w *Paywall) sellMCP(ctx context.Context, a asked) (mcp.Result, result, error) {
	header := http.Header{}
	if a.extra != nil {
		header = a.extra.Header
	}
	paid := func(context.Context, bool) {}
	if !a.tool.Upfront || w.options.VerifyOnly { // what is paid upfront may send anything
		a.run, paid = w.withheld.track(a.request, a.meta, a.run)
	}
	call := mcpRequest(a, header)
	call.signIn = signInOf(header, a.meta)
	call.traceparent = steps.Named(a.meta, header)
	call.isAbandoned = func() bool { return isAbandoned(ctx, header) }
	r := w.sell(ctx, call)
	noteOutcome(ctx, r)
	paid(ctx, r.answer == deliver && r.replayed == nil)
	answered, err := w.answerCall(a, r)
	return answered, r, err
}

func mcpRequest(a asked, header http.Header) request {
	resource := a.tool.url(a.name)
	return request{
		tool: a.tool, call: Call{Tool: a.name, Arguments: a.arguments, Header: header}, resource: resource,
		callHash: callHash(resource, a.arguments),
		decode:   func() (*payment, error) { return paymentInCall(a.meta, header) },
		acknowledge: func(said map[string]any) toolResult {
			return toolResult{value: acknowledgement(a.tool.Kind, said)}
		},
		invoke: func(ctx context.Context) (toolResult, error) {
			given, err := a.run(ctx)
			if err != nil || isNone(given) {
				return toolResult{}, err
			}
			out := toolResult{value: given, needsInput: asksFirst(given),
				usage: func() (string, func() int) { return resultUsage(given) }}
			if called, isTool := given.(*mcp.CallToolResult); isTool {
				out.failed = called.IsError
			}
			if a.tool.Kind != OfEntry { // a session that was lost is not given again
				out.encode = func() []byte { return encodeResult(given) }
			}
			return out, nil
		},
	}
}

// maxReplay bounds an answer that is stored so that it can be replayed.
const maxReplay = 1 << 20

func encodeResult(given mcp.Result) []byte {
	text, err := json.Marshal(given)
	if err != nil || len(text) > maxReplay {
		return nil
	}
	return text
}

// resultUsage is what a result says that its call costs, and its length. The word is taken out of it.
func resultUsage(given mcp.Result) (said string, size func() int) {
	if value, there := given.GetMeta()[metaCharge]; there {
		said, _ = value.(string)
		said = cmp.Or(said, "nothing that can be read")
		meta := maps.Clone(given.GetMeta())
		delete(meta, metaCharge)
		given.SetMeta(meta)
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

// answerCall is a sale's outcome in the dialect. A tool's challenge is a result; what else is sold has no
// result that could say so, and its challenge is the JSON-RPC error in every dialect.
func (w *Paywall) answerCall(a asked, r result) (mcp.Result, error) {
	isError := w.options.Dialect == dialectError || a.tool.Kind != ""
	switch r.answer {
	case deliver, inputRequired, toolFailed: // the tool's own, with a receipt where it is paid for
		return w.toolAnswer(a.tool, r)
	case reject:
		code := int64(jsonrpc.CodeInvalidParams)
		if errors.Is(r.cause, selling.ErrNotJSON) {
			code = jsonrpc.CodeParseError
		}
		return nil, &jsonrpc.Error{Code: code, Message: r.reason, Data: jsonOf(errorBody(r))}
	case unavailable:
		body := errorBody(r)
		if isError {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: r.reason, Data: jsonOf(body)}
		}
		return w.errorResult(r, body, nil), nil
	default:
		return w.challengeResult(a, r, isError)
	}
}

func (w *Paywall) toolAnswer(t *tool, r result) (mcp.Result, error) {
	out := emptyResult(t.Kind)
	switch given := r.toolResult.value.(type) {
	case mcp.Result:
		out = copied(given)
	case error:
		var own *jsonrpc.Error
		if errors.As(given, &own) { // unwrapped: the SDK does not recognize wrapped ones
			return nil, own
		}
		called, isTool := out.(*mcp.CallToolResult)
		if !isTool {
			return nil, given
		}
		called.SetError(given)
	}
	if r.replayed != nil {
		if err := json.Unmarshal(r.replayed, out); err != nil {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError,
				Message: "the stored answer of this payment cannot be read any more"}
		}
	}
	if r.answer == inputRequired && !r.receipt { // content beside the questions is not paid for
		withoutContent(out)
	}
	if read, isRead := out.(*mcp.ReadResourceResult); isRead {
		read.Cacheable = mcp.Cacheable{CacheScope: "private"} // it is for this buyer
	}
	out.SetMeta(w.withReceipt(r, out.GetMeta()))
	return out, nil
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
func (w *Paywall) challengeResult(a asked, r result, isError bool) (mcp.Result, error) {
	body := w.challengeBody(a.tool, r)
	if isError {
		return nil, &jsonrpc.Error{Code: codePaymentRequired, Message: r.reason, Data: jsonOf(body)}
	}
	var meta mcp.Meta
	if w.options.Dialect == dialectCloudflare {
		meta = mcp.Meta{wire.MetaCloudflare: body}
	}
	asTool := w.errorResult(r, body, meta)
	request, isCall := a.request.(*mcp.CallToolRequest)
	if !isCall {
		return asTool, nil
	}
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
		if t := w.priced("", listed.Name); t != nil {
			listed = w.withPrice(t, listed)
		}
		out.Tools = append(out.Tools, listed)
	}
	return &out
}

func (w *Paywall) withPrice(t *tool, listed *mcp.Tool) *mcp.Tool {
	shown := *listed
	shown.Meta = w.priceMeta(t, listed.Meta)
	shown.OutputSchema = allowChallenge(listed.OutputSchema)
	return &shown
}

func (w *Paywall) priceMeta(t *tool, meta mcp.Meta) mcp.Meta {
	meta = ownMeta(meta)
	meta["agents-x402/paymentRequired"] = true
	if price := t.price(); price != "" {
		meta["agents-x402/priceUSD"] = json.Number(strings.TrimPrefix(price, "$"))
		var accepts []map[string]any
		for _, o := range t.options {
			if !o.isX402() {
				continue
			}
			accepts = append(accepts, map[string]any{"scheme": o.scheme(), "network": o.Network,
				"asset": o.Asset.Address, "amount": o.Amount, "payTo": o.PayTo})
		}
		meta["x402"] = map[string]any{"price": price, "accepts": accepts}
	}
	return meta
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
