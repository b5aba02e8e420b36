package paywall

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"x402-wallet/internal/mcpconn"
	"x402-wallet/x402"
)

// What the upstream server has, shown as ours.

// The kinds of what is mirrored.
const (
	kindTool     = "tool"
	kindResource = "resource"
	kindTemplate = "resource template"
	kindPrompt   = "prompt"
)

// upstreamLimits bound the lists of the upstream server: the owner chose it, so they only keep a
// broken one from filling the memory.
var upstreamLimits = mcpconn.Limits{Pages: 1000, Items: 100_000, Bytes: 64 << 20}

func (f *Proxy) mirrorTools(ctx context.Context, upstream *mcp.ClientSession) error {
	if !offers(upstream, func(c *mcp.ServerCapabilities) bool { return c.Tools != nil }) {
		return nil
	}
	tools, err := mcpconn.Tools(ctx, upstream, upstreamLimits)
	if err != nil {
		return err
	}
	items := itemsOf(tools, func(t *mcp.Tool) string {
		return t.Name
	}, func(t *mcp.Tool) { f.server.AddTool(t, f.callTool) })
	f.mirror.Replace(kindTool, items, func(name string) { f.server.RemoveTools(name) })
	return nil
}

func (f *Proxy) mirrorResources(ctx context.Context, upstream *mcp.ClientSession) error {
	if !offers(upstream, func(c *mcp.ServerCapabilities) bool { return c.Resources != nil }) {
		return nil
	}
	resources, err := mcpconn.Resources(ctx, upstream, upstreamLimits)
	if err != nil {
		return err
	}
	items := itemsOf(resources, func(r *mcp.Resource) string { return r.URI },
		func(r *mcp.Resource) { f.server.AddResource(r, f.readResource) })
	f.mirror.Replace(kindResource, items, func(uri string) { f.server.RemoveResources(uri) })

	templates, err := mcpconn.ResourceTemplates(ctx, upstream, upstreamLimits)
	if err != nil {
		return nil //nolint:nilerr // many servers have resources and know nothing of templates
	}
	items = itemsOf(templates, func(t *mcp.ResourceTemplate) string { return t.URITemplate },
		func(t *mcp.ResourceTemplate) { f.server.AddResourceTemplate(t, f.readResource) })
	f.mirror.Replace(kindTemplate, items, func(uri string) { f.server.RemoveResourceTemplates(uri) })
	return nil
}

func (f *Proxy) mirrorPrompts(ctx context.Context, upstream *mcp.ClientSession) error {
	if !offers(upstream, func(c *mcp.ServerCapabilities) bool { return c.Prompts != nil }) {
		return nil
	}
	prompts, err := mcpconn.Prompts(ctx, upstream, upstreamLimits)
	if err != nil {
		return err
	}
	items := itemsOf(prompts, func(p *mcp.Prompt) string {
		return p.Name
	}, func(p *mcp.Prompt) { f.server.AddPrompt(p, f.getPrompt) })
	f.mirror.Replace(kindPrompt, items, func(name string) { f.server.RemovePrompts(name) })
	return nil
}

func offers(upstream *mcp.ClientSession, what func(*mcp.ServerCapabilities) bool) bool {
	said := upstream.InitializeResult()
	return said == nil || said.Capabilities == nil || what(said.Capabilities)
}

func itemsOf[T any](list []T, name func(T) string, add func(T)) (items []mcpconn.Item) {
	for _, one := range list {
		items = append(items, mcpconn.Item{Name: name(one), Definition: string(jsonOf(one)), Add: func() {
			add(one)
		}})
	}
	return items
}

func (f *Proxy) callTool(ctx context.Context, request *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	p := request.Params
	meta, done := f.upstreamMeta(ctx, request.Session, p.Meta, p.GetProgressToken())
	defer done()
	call := &mcp.CallToolParams{Meta: meta, Name: p.Name, InputResponses: p.InputResponses,
		RequestState: p.RequestState}
	if len(p.Arguments) > 0 {
		call.Arguments = p.Arguments
	}
	given, err := callUpstream(ctx, f, func(upstream *mcp.ClientSession) (*mcp.CallToolResult, error) {
		return upstream.CallTool(ctx, call)
	})
	if err != nil {
		return nil, err
	}
	given.Meta = downstreamMeta(given.Meta)
	return given, nil
}

func (f *Proxy) readResource(ctx context.Context, request *mcp.ReadResourceRequest) (*mcp.ReadResourceResult,
	error) {
	p := request.Params
	meta, done := f.upstreamMeta(ctx, request.Session, p.Meta, p.GetProgressToken())
	defer done()
	read := &mcp.ReadResourceParams{Meta: meta, URI: p.URI, InputResponses: p.InputResponses,
		RequestState: p.RequestState}
	given, err := callUpstream(ctx, f, func(upstream *mcp.ClientSession) (*mcp.ReadResourceResult, error) {
		return upstream.ReadResource(ctx, read)
	})
	if err != nil {
		return nil, err
	}
	given.Meta = downstreamMeta(given.Meta)
	return given, nil
}

func (f *Proxy) getPrompt(ctx context.Context, request *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
	p := request.Params
	meta, done := f.upstreamMeta(ctx, request.Session, p.Meta, p.GetProgressToken())
	defer done()
	get := &mcp.GetPromptParams{Meta: meta, Name: p.Name, Arguments: p.Arguments,
		InputResponses: p.InputResponses, RequestState: p.RequestState}
	given, err := callUpstream(ctx, f, func(upstream *mcp.ClientSession) (*mcp.GetPromptResult, error) {
		return upstream.GetPrompt(ctx, get)
	})
	if err != nil {
		return nil, err
	}
	given.Meta = downstreamMeta(given.Meta)
	return given, nil
}

func (f *Proxy) complete(ctx context.Context, request *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
	p := *request.Params
	p.Meta, _ = f.upstreamMeta(ctx, request.Session, p.Meta, nil)
	return callUpstream(ctx, f, func(upstream *mcp.ClientSession) (*mcp.CompleteResult, error) {
		return upstream.Complete(ctx, &p)
	})
}

// callUpstream makes a request of the upstream server; once more where that one does not know the
// session (any more), and so did nothing.
func callUpstream[R any](ctx context.Context, f *Proxy, do func(*mcp.ClientSession) (R, error)) (R, error) {
	var none R
	for tries := 0; ; tries++ {
		upstream, err := f.upstream(ctx)
		if err != nil {
			return none, err
		}
		given, err := do(upstream)
		switch {
		case err == nil:
			return given, nil
		case tries == 0 && errors.Is(err, mcp.ErrSessionMissing):
			f.forget(upstream)
		default:
			return none, upstreamError(err)
		}
	}
}

// upstreamMeta is _meta as the upstream server gets it: without the payment, which it could settle
// itself, without what speaks of the session with the buyer, and with a progress token of ours.
func (f *Proxy) upstreamMeta(ctx context.Context, session *mcp.ServerSession, meta mcp.Meta,
	token any) (mcp.Meta,
	func()) {
	meta = maps.Clone(meta)
	maps.DeleteFunc(meta, func(key string, _ any) bool {
		return key == x402.MetaPayment || key == x402.MetaPaymentMCPV1 || key == "progressToken" ||
			strings.HasPrefix(key, "io.modelcontextprotocol/")
	})
	if token == nil || session == nil {
		return meta, func() {}
	}
	if meta == nil {
		meta = mcp.Meta{}
	}
	ours := fmt.Sprintf("paywall-%d", f.tokens.Add(1))
	meta["progressToken"] = ours
	f.progress.Store(ours, &progressListener{ctx: ctx, session: session, token: token})
	return meta, func() { f.progress.Delete(ours) }
}

func (f *Proxy) passProgress(_ context.Context, request *mcp.ProgressNotificationClientRequest) {
	ours, _ := request.Params.ProgressToken.(string)
	if who, there := f.progress.Load(ours); there {
		to := who.(*progressListener)
		p := *request.Params
		p.ProgressToken = to.token
		_ = to.session.NotifyProgress(to.ctx, &p) // who left does not follow it any more
	}
}

// downstreamMeta is _meta of an answer: without who the upstream server says that it is.
func downstreamMeta(meta mcp.Meta) mcp.Meta {
	meta = maps.Clone(meta)
	delete(meta, mcp.MetaKeyServerInfo)
	return meta
}

// codeRejected is the SDK's own, of a request that its transport could not deliver.
const codeRejected = -32005

// upstreamError is an error of the upstream server as it was: the SDK knows no wrapped ones.
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
