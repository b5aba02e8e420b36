package paywall

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"x402-wallet/internal/mcpconn"
	"x402-wallet/x402/wire"
)

// The kinds of items that are mirrored from upstream.
const (
	kindTool     = "tool"
	kindResource = "resource"
	kindTemplate = "resource template"
	kindPrompt   = "prompt"
)

// upstreamLimits bound upstream's lists. The owner chose upstream, so they only prevent a broken server from
// filling the memory.
var upstreamLimits = mcpconn.Limits{Pages: 1000, Items: 100_000, Bytes: 64 << 20}

func (f *Proxy) mirrorTools(ctx context.Context, upstream *mcp.ClientSession) error {
	return mirrorList(ctx, f, upstream, kindTool, mcpconn.Tools, func(t *mcp.Tool) (string, func()) {
		return t.Name, func() {
			f.server.AddTool(t, f.callTool)
			f.Paywall.describe(t)
		}
	}, f.server.RemoveTools)
}

func (f *Proxy) mirrorResources(ctx context.Context, upstream *mcp.ClientSession) error {
	err := mirrorList(ctx, f, upstream, kindResource, mcpconn.Resources,
		func(r *mcp.Resource) (string, func()) {
			return r.URI, func() { f.server.AddResource(r, f.readResource) }
		}, f.server.RemoveResources)
	if err == nil { // many servers have resources but no templates
		_ = mirrorList(ctx, f, upstream, kindTemplate, mcpconn.ResourceTemplates,
			func(t *mcp.ResourceTemplate) (string, func()) {
				return t.URITemplate, func() { f.server.AddResourceTemplate(t, f.readResource) }
			}, f.server.RemoveResourceTemplates)
	}
	return err
}

func (f *Proxy) mirrorPrompts(ctx context.Context, upstream *mcp.ClientSession) error {
	return mirrorList(ctx, f, upstream, kindPrompt, mcpconn.Prompts, func(p *mcp.Prompt) (string, func()) {
		return p.Name, func() { f.server.AddPrompt(p, f.getPrompt) }
	}, f.server.RemovePrompts)
}

// mirrorList registers a list of upstream's in the proxy's own server, if upstream has it; of returns an
// item's name and a function that registers it.
func mirrorList[T any](ctx context.Context, f *Proxy, upstream *mcp.ClientSession, kind string,
	list func(context.Context, *mcp.ClientSession, mcpconn.Limits) ([]T, error),
	of func(T) (name string, add func()), remove func(names ...string)) error {
	if said := upstream.InitializeResult(); said != nil && said.Capabilities != nil {
		c := said.Capabilities
		has := map[string]bool{kindTool: c.Tools != nil, kindPrompt: c.Prompts != nil,
			kindResource: c.Resources != nil, kindTemplate: c.Resources != nil}
		if !has[kind] {
			return nil
		}
	}
	shown, err := list(ctx, upstream, upstreamLimits)
	if err != nil {
		return err
	}
	var items []mcpconn.Item
	for _, one := range shown {
		name, add := of(one)
		items = append(items, mcpconn.Item{Name: name, Definition: string(jsonOf(one)), Add: add})
	}
	f.mirror.Replace(kind, items, func(name string) { remove(name) })
	return nil
}

func (f *Proxy) callTool(ctx context.Context, request *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	p := request.Params
	call := &mcp.CallToolParams{Meta: p.Meta, Name: p.Name, InputResponses: p.InputResponses,
		RequestState: p.RequestState}
	if len(p.Arguments) > 0 {
		call.Arguments = p.Arguments
	}
	return forward(ctx, f, request, call, (*mcp.ClientSession).CallTool)
}

func (f *Proxy) readResource(ctx context.Context, request *mcp.ReadResourceRequest) (*mcp.ReadResourceResult,
	error) {
	p := request.Params
	given, err := forward(ctx, f, request, &mcp.ReadResourceParams{Meta: p.Meta, URI: p.URI,
		InputResponses: p.InputResponses, RequestState: p.RequestState}, (*mcp.ClientSession).ReadResource)
	if given != nil { // the SDK's server takes no null in a list
		isNull := func(c *mcp.ResourceContents) bool { return c == nil }
		given.Contents = slices.DeleteFunc(given.Contents, isNull)
	}
	return given, err
}

func (f *Proxy) getPrompt(ctx context.Context, request *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
	p := request.Params
	return forward(ctx, f, request, &mcp.GetPromptParams{Meta: p.Meta, Name: p.Name,
		Arguments: p.Arguments, InputResponses: p.InputResponses, RequestState: p.RequestState},
		(*mcp.ClientSession).GetPrompt)
}

// metaCarrier is anything with a _meta: request parameters or a result.
type metaCarrier interface {
	GetMeta() map[string]any
	SetMeta(map[string]any)
}

type buyerRequest interface {
	GetSession() mcp.Session
	ClientCapabilities() *mcp.ClientCapabilities
}

// forward forwards a buyer's request to upstream.
func forward[P, R metaCarrier](ctx context.Context, f *Proxy, request buyerRequest, params P,
	do func(*mcp.ClientSession, context.Context, P) (R, error)) (R, error) {
	meta, done := f.upstreamMeta(ctx, request, params.GetMeta())
	defer done()
	params.SetMeta(meta)
	given, err := callUpstream(ctx, f, request, params, do)
	if err == nil {
		given.SetMeta(downstreamMeta(given.GetMeta()))
	}
	return given, err
}

func (f *Proxy) complete(ctx context.Context, request *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
	p := *request.Params
	p.Meta, _ = f.upstreamMeta(ctx, nil, p.Meta)
	return callUpstream(ctx, f, request, &p, (*mcp.ClientSession).Complete)
}

// callUpstream sends a request to upstream, in the buyer's own upstream session or the shared one (always if
// request is nil). If upstream does not know the session (any more), and therefore did nothing, it is sent
// once more in a new one.
func callUpstream[P, R any](ctx context.Context, f *Proxy, request buyerRequest, params P,
	do func(*mcp.ClientSession, context.Context, P) (R, error)) (R, error) {
	var none R
	if !hasBought(ctx) {
		done, refused := limiterFrom(ctx).acquireUpstream(visitorFrom(ctx))
		if refused != nil {
			return none, refused.rpcError()
		}
		defer done()
	}
	reach, forget := f.upstreamSession, f.forget
	if request != nil {
		session, _ := request.GetSession().(*mcp.ServerSession)
		b, err := f.buyerOf(ctx, session)
		if err != nil {
			return none, err
		}
		if b != nil {
			var done func()
			ctx, done = b.trackCall(ctx)
			defer done()
			reach = b.upstreamSession
			if !f.single {
				forget = b.forget
			}
		}
	}
	for tries := 0; ; tries++ {
		upstream, err := reach(ctx)
		if err != nil {
			return none, err
		}
		given, err := do(upstream, ctx, params)
		switch {
		case err == nil:
			return given, nil
		case tries == 0 && errors.Is(err, mcp.ErrSessionMissing):
			forget(upstream)
		default:
			return none, upstreamError(err)
		}
	}
}

// upstreamMeta returns the _meta for upstream: without the payment, which upstream could settle itself, with
// the forwardable capabilities of the buyer's client, and with a progress token of the proxy's.
func (f *Proxy) upstreamMeta(ctx context.Context, request buyerRequest, meta mcp.Meta) (
	cleaned mcp.Meta, done func()) {
	token := meta["progressToken"]
	meta = ownMeta(meta)
	maps.DeleteFunc(meta, func(key string, _ any) bool {
		return slices.Contains(wire.PaymentKeys(), key) || key == wire.HeaderSignIn ||
			key == "progressToken" ||
			strings.HasPrefix(key, "io.modelcontextprotocol/")
	})
	if request == nil {
		return meta, func() {}
	}
	session, _ := request.GetSession().(*mcp.ServerSession)
	hasOwnSession := f.hasBuyerSessions() && isLegacy(session) // if it has any capabilities
	if f.version >= sessionlessVersion && !hasOwnSession {
		meta[mcp.MetaKeyClientCapabilities] = capabilitiesMeta(request.ClientCapabilities())
	}
	if token == nil {
		return meta, func() {}
	}
	ours := fmt.Sprintf("paywall-%d", f.tokens.Add(1))
	meta["progressToken"] = ours
	f.progress.Store(ours, &progressListener{ctx: ctx, session: session, token: token})
	return meta, func() { f.progress.Delete(ours) }
}

// progressListener receives the progress of a call.
type progressListener struct {
	ctx     context.Context
	session *mcp.ServerSession
	token   any
}

func (f *Proxy) forwardProgress(_ context.Context, request *mcp.ProgressNotificationClientRequest) {
	ours, _ := request.Params.ProgressToken.(string)
	if who, there := f.progress.Load(ours); there {
		to := who.(*progressListener)
		p := *request.Params
		p.ProgressToken = to.token
		_ = to.session.NotifyProgress(to.ctx, &p)
	}
}

// downstreamMeta returns the _meta of a result without upstream's server info.
func downstreamMeta(meta mcp.Meta) mcp.Meta {
	meta = maps.Clone(meta)
	delete(meta, mcp.MetaKeyServerInfo)
	return meta
}

// codeRejected is the SDK's error code for a request that its transport could not deliver.
const codeRejected = -32005

// upstreamError returns an upstream error unwrapped: the SDK does not recognize wrapped ones.
func upstreamError(err error) error {
	var own *jsonrpc.Error
	if errors.As(err, &own) && (own.Code != codeRejected || own.Message != "rejected by transport") {
		return own
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return &jsonrpc.Error{Code: jsonrpc.CodeInternalError,
		Message: "the server behind the paywall did not answer"}
}
