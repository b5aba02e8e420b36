package paywall

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"x402-wallet/x402"
)

// What the server behind has, shown as ours. The takers hold Front.mu.

func (f *Proxy) takeTools(ctx context.Context, behind *mcp.ClientSession) error {
	if !has(behind, func(c *mcp.ServerCapabilities) bool { return c.Tools != nil }) {
		return nil
	}
	left := f.left("tool ")
	for tool, err := range behind.Tools(ctx, nil) {
		if err != nil {
			return err
		}
		delete(left, tool.Name)
		f.show("tool ", tool.Name, tool, func() { f.server.AddTool(tool, f.callTool) })
	}
	f.drop("tool ", left, f.server.RemoveTools)
	return nil
}

func (f *Proxy) takeResources(ctx context.Context, behind *mcp.ClientSession) error {
	if !has(behind, func(c *mcp.ServerCapabilities) bool { return c.Resources != nil }) {
		return nil
	}
	left := f.left("resource ")
	for resource, err := range behind.Resources(ctx, nil) {
		if err != nil {
			return err
		}
		delete(left, resource.URI)
		f.show("resource ", resource.URI, resource, func() { f.server.AddResource(resource, f.readResource) })
	}
	f.drop("resource ", left, f.server.RemoveResources)
	left = f.left("template ")
	for template, err := range behind.ResourceTemplates(ctx, nil) {
		if err != nil {
			return nil //nolint:nilerr // many servers have resources and know nothing of templates
		}
		delete(left, template.URITemplate)
		f.show("template ", template.URITemplate, template, func() {
			f.server.AddResourceTemplate(template, f.readResource)
		})
	}
	f.drop("template ", left, f.server.RemoveResourceTemplates)
	return nil
}

func (f *Proxy) takePrompts(ctx context.Context, behind *mcp.ClientSession) error {
	if !has(behind, func(c *mcp.ServerCapabilities) bool { return c.Prompts != nil }) {
		return nil
	}
	left := f.left("prompt ")
	for prompt, err := range behind.Prompts(ctx, nil) {
		if err != nil {
			return err
		}
		delete(left, prompt.Name)
		f.show("prompt ", prompt.Name, prompt, func() { f.server.AddPrompt(prompt, f.getPrompt) })
	}
	f.drop("prompt ", left, f.server.RemovePrompts)
	return nil
}

func has(behind *mcp.ClientSession, what func(*mcp.ServerCapabilities) bool) bool {
	said := behind.InitializeResult()
	return said == nil || said.Capabilities == nil || what(said.Capabilities)
}

// left are the names of a kind that are shown now.
func (f *Proxy) left(kind string) map[string]bool {
	left := map[string]bool{}
	for _, name := range f.names(kind) {
		left[name] = true
	}
	return left
}

// show adds what is new, and what changed; adding the same again would tell every client of a
// change that is none. The SDK panics over what it cannot show, a schema that is no object for one:
// that is left out, and not given away.
func (f *Proxy) show(kind, name string, what any, add func()) {
	text := jsonOf(what)
	if bytes.Equal(f.shown[kind+name], text) {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			f.Log.Warn("left out: "+kind+name, "why", fmt.Sprint(p))
		}
	}()
	add()
	f.shown[kind+name] = text
}

func (f *Proxy) drop(kind string, names map[string]bool, remove func(...string)) {
	for name := range names {
		delete(f.shown, kind+name)
		remove(name)
	}
}

func (f *Proxy) callTool(ctx context.Context, request *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	p := request.Params
	meta, done := f.forward(ctx, request.Session, p.Meta, p.GetProgressToken())
	defer done()
	call := &mcp.CallToolParams{Meta: meta, Name: p.Name, InputResponses: p.InputResponses,
		RequestState: p.RequestState}
	if len(p.Arguments) > 0 {
		call.Arguments = p.Arguments
	}
	given, err := asked(ctx, f, func(behind *mcp.ClientSession) (*mcp.CallToolResult, error) {
		return behind.CallTool(ctx, call)
	})
	if err != nil {
		return nil, err
	}
	given.Meta = backward(given.Meta)
	return given, nil
}

func (f *Proxy) readResource(ctx context.Context, request *mcp.ReadResourceRequest) (*mcp.ReadResourceResult,
	error) {
	p := request.Params
	meta, done := f.forward(ctx, request.Session, p.Meta, p.GetProgressToken())
	defer done()
	read := &mcp.ReadResourceParams{Meta: meta, URI: p.URI, InputResponses: p.InputResponses,
		RequestState: p.RequestState}
	given, err := asked(ctx, f, func(behind *mcp.ClientSession) (*mcp.ReadResourceResult, error) {
		return behind.ReadResource(ctx, read)
	})
	if err != nil {
		return nil, err
	}
	given.Meta = backward(given.Meta)
	return given, nil
}

func (f *Proxy) getPrompt(ctx context.Context, request *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
	p := request.Params
	meta, done := f.forward(ctx, request.Session, p.Meta, p.GetProgressToken())
	defer done()
	get := &mcp.GetPromptParams{Meta: meta, Name: p.Name, Arguments: p.Arguments,
		InputResponses: p.InputResponses, RequestState: p.RequestState}
	given, err := asked(ctx, f, func(behind *mcp.ClientSession) (*mcp.GetPromptResult, error) {
		return behind.GetPrompt(ctx, get)
	})
	if err != nil {
		return nil, err
	}
	given.Meta = backward(given.Meta)
	return given, nil
}

func (f *Proxy) complete(ctx context.Context, request *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
	p := *request.Params
	p.Meta, _ = f.forward(ctx, request.Session, p.Meta, nil)
	return asked(ctx, f, func(behind *mcp.ClientSession) (*mcp.CompleteResult, error) {
		return behind.Complete(ctx, &p)
	})
}

// asked makes a request of the server behind; once more where that one does not know the session
// (any more), and so did nothing.
func asked[R any](ctx context.Context, f *Proxy, do func(*mcp.ClientSession) (R, error)) (R, error) {
	var none R
	for tries := 0; ; tries++ {
		behind, err := f.at(ctx)
		if err != nil {
			return none, err
		}
		given, err := do(behind)
		switch {
		case err == nil:
			return given, nil
		case tries == 0 && errors.Is(err, mcp.ErrSessionMissing):
			f.forget(behind)
		default:
			return none, bare(err)
		}
	}
}

// forward is _meta as the server behind gets it: without the payment, which it could settle itself,
// without what speaks of the session with the buyer, and with a progress token of ours.
func (f *Proxy) forward(ctx context.Context, session *mcp.ServerSession, meta mcp.Meta, token any) (mcp.Meta,
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
	f.progress.Store(ours, &follower{ctx, session, token})
	return meta, func() { f.progress.Delete(ours) }
}

func (f *Proxy) passProgress(_ context.Context, request *mcp.ProgressNotificationClientRequest) {
	ours, _ := request.Params.ProgressToken.(string)
	if who, there := f.progress.Load(ours); there {
		to := who.(*follower)
		p := *request.Params
		p.ProgressToken = to.token
		_ = to.session.NotifyProgress(to.ctx, &p) // who left does not follow it any more
	}
}

// backward is _meta of an answer: without who the server behind says that it is.
func backward(meta mcp.Meta) mcp.Meta {
	meta = maps.Clone(meta)
	delete(meta, mcp.MetaKeyServerInfo)
	return meta
}

// codeRejected is the SDK's own, of a request that its transport could not deliver.
const codeRejected = -32005

// bare is an error of the server behind as it was: the SDK knows no wrapped ones.
func bare(err error) error {
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
