package paywall

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	// questionTimeout is how long a buyer may take to answer a question of upstream's.
	questionTimeout = 5 * time.Minute
	// maxQuestions is the maximum number of open questions to one buyer.
	maxQuestions = 8
)

// Before MCP 2026-07-28 servers ask their client (elicitation, sampling, roots) and log in requests and
// notifications that do not say which call they belong to. So that no buyer receives what is meant for
// another, each buyer that can be asked has its own session with such an upstream server, which declares that
// buyer's capabilities. All other buyers share one session, which declares none. Since 2026-07-28 questions
// are part of a call's result, and capabilities part of each call. An upstream server of both eras is spoken
// to in the buyer's.

// cancelTimeout is how long upstream may take to acknowledge that calls were cancelled.
const cancelTimeout = 2 * time.Second

type upstreamCall struct {
	ctx    context.Context
	cancel context.CancelFunc
}

// buyer is a client with an upstream session of its own.
type buyer struct {
	proxy      *Proxy
	downstream *mcp.ServerSession
	client     *mcp.Client
	bought     bool // under Proxy.buyersMu

	connecting        sync.Mutex
	mu                sync.Mutex
	upstream          *mcp.ClientSession // nil: not open
	calls             []*upstreamCall    // running; a question goes out on the response of one
	hasCancelledCalls bool               // some call was cancelled
	questions         int
	last              time.Time
	isClosed          bool
	// whether upstream has yet to be told, and is being told, that the roots have changed
	rootsChanged, isNotifying bool
}

// hasBuyerSessions reports whether buyers can have upstream sessions of their own: over stdio there is only
// one buyer, and over HTTP an upstream session costs little. Starting a process for each of many buyers would
// cost too much.
func (f *Proxy) hasBuyerSessions() bool {
	return f.legacy != "" && (f.single || f.URL != "")
}

// forwardableCapabilities returns the client capabilities that the paywall can forward; nil if there are
// none.
func forwardableCapabilities(c *mcp.ClientCapabilities) *mcp.ClientCapabilities {
	if c == nil || (c.RootsV2 == nil && c.Sampling == nil && c.Elicitation == nil) {
		return nil
	}
	return &mcp.ClientCapabilities{RootsV2: c.RootsV2, Sampling: c.Sampling, Elicitation: c.Elicitation}
}

// capabilitiesMeta returns the forwardable capabilities as the _meta of a request of MCP 2026-07-28 has them.
func capabilitiesMeta(c *mcp.ClientCapabilities) map[string]any {
	said := map[string]any{}
	if c == nil {
		return said
	}
	if c.RootsV2 != nil {
		said["roots"] = c.RootsV2
	}
	if c.Sampling != nil {
		said["sampling"] = c.Sampling
	}
	if c.Elicitation != nil {
		said["elicitation"] = c.Elicitation
	}
	return said
}

// buyerOf returns the buyer of a session, if it is to have an upstream session of its own; nil, nil: it
// shares one.
func (f *Proxy) buyerOf(ctx context.Context, session *mcp.ServerSession) (*buyer, error) {
	if session == nil || !f.hasBuyerSessions() {
		return nil, nil
	}
	bought := hasBought(ctx)
	f.buyersMu.Lock()
	defer f.buyersMu.Unlock()
	if b := f.buyers[session]; b != nil {
		b.bought = b.bought || bought
		return b, nil
	}
	if !isLegacy(session) {
		return nil, nil
	}
	can := forwardableCapabilities(session.InitializeParams().Capabilities)
	if can == nil && f.levels[session] == "" {
		return nil, nil
	}
	if len(f.buyers) >= max(cmp.Or(f.Limits.Sessions, defaultSessions)/4, 1) && !f.evictBuyer(bought) {
		return nil, (&refusal{retryAfter: 5, message: "the server behind the paywall is busy"}).rpcError()
	}
	b := &buyer{proxy: f, downstream: session, bought: bought, last: time.Now()}
	b.client = f.newClient(can, b)
	f.buyers[session] = b
	return b, nil
}

// evictBuyer closes the least recently used upstream session, preferably of a buyer that bought nothing; it
// is opened again when needed. For a buyer that bought something, it also closes sessions with running calls.
func (f *Proxy) evictBuyer(bought bool) bool {
	var found *buyer
	var oldest time.Time
	least := 0
	for _, b := range f.buyers {
		b.mu.Lock()
		rank, last := 0, b.last
		switch isIdle := len(b.calls) == 0; {
		case !b.bought && isIdle:
			rank = 3
		case !b.bought && bought:
			rank = 2
		case bought && isIdle:
			rank = 1
		}
		b.mu.Unlock()
		if rank > least || (found != nil && rank == least && last.Before(oldest)) {
			found, oldest, least = b, last, rank
		}
	}
	if found == nil {
		return false
	}
	delete(f.buyers, found.downstream)
	f.background.Go(found.close)
	return true
}

// sessionClosed releases what the closed session of a client used.
func (f *Proxy) sessionClosed(session *mcp.ServerSession) {
	f.buyersMu.Lock()
	b := f.buyers[session]
	delete(f.buyers, session)
	delete(f.levels, session)
	f.buyersMu.Unlock()
	if b != nil {
		b.close()
	}
	f.unsubscribeAll(session)
}

// close closes the buyer's upstream session once upstream has heard that its calls are cancelled: the SDK
// sends cancellations asynchronously, and drops them when the session closes.
func (b *buyer) close() {
	b.mu.Lock()
	b.isClosed = true
	session, hasCancelledCalls := b.upstream, b.hasCancelledCalls || len(b.calls) > 0
	b.upstream = nil
	for _, call := range b.calls {
		call.cancel()
	}
	b.mu.Unlock()
	if session == nil {
		return
	}
	if hasCancelledCalls && !b.proxy.single {
		ctx, cancel := context.WithTimeout(context.Background(), cancelTimeout)
		defer cancel()
		for b.isBusy() && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		_ = session.Ping(ctx, nil) // arrives after the cancellations
	}
	_ = session.Close()
}

// upstreamSession returns the buyer's upstream session, and opens it if there is none (any more).
func (b *buyer) upstreamSession(ctx context.Context) (*mcp.ClientSession, error) {
	b.connecting.Lock()
	defer b.connecting.Unlock()
	if b.proxy.single { // it has the shared session to itself
		b.proxy.adopt(b)
		session, err := b.proxy.upstreamSession(ctx)
		b.mu.Lock()
		isNew := b.upstream != session
		b.upstream = session
		b.mu.Unlock()
		if isNew {
			b.setLevel(ctx)
		}
		return session, err
	}
	b.mu.Lock()
	session := b.upstream
	b.mu.Unlock()
	if session != nil {
		return session, nil
	}
	limited, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	session, err := b.client.Connect(limited, b.proxy.transport(),
		&mcp.ClientSessionOptions{ProtocolVersion: b.proxy.legacy})
	if err != nil {
		return nil, upstreamError(err)
	}
	b.mu.Lock()
	if b.isClosed {
		b.mu.Unlock()
		_ = session.Close()
		return nil, context.Canceled
	}
	b.upstream = session
	b.mu.Unlock()
	b.setLevel(limited)
	return session, nil
}

// setLevel sets upstream's log level for the buyer, if its session is open.
func (b *buyer) setLevel(ctx context.Context) {
	b.proxy.buyersMu.Lock()
	level := b.proxy.levels[b.downstream]
	b.proxy.buyersMu.Unlock()
	b.mu.Lock()
	session := b.upstream
	b.mu.Unlock()
	if level != "" && session != nil {
		_ = session.SetLoggingLevel(ctx, &mcp.SetLoggingLevelParams{Level: level}) // else it logs as before
	}
}

// forget lets the next request open a session again.
func (b *buyer) forget(session *mcp.ClientSession) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.upstream == session {
		b.upstream = nil
	}
}

func (b *buyer) isBusy() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.calls) > 0
}

// trackCall registers a running call until done.
func (b *buyer) trackCall(ctx context.Context) (_ context.Context, done func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	call := &upstreamCall{}
	call.ctx, call.cancel = context.WithCancel(ctx)
	b.calls = append(b.calls, call)
	return call.ctx, func() {
		defer call.cancel()
		b.mu.Lock()
		defer b.mu.Unlock()
		i := slices.Index(b.calls, call)
		b.calls = slices.Delete(b.calls, i, i+1)
		b.hasCancelledCalls = b.hasCancelledCalls || call.ctx.Err() != nil
		b.last = time.Now()
	}
}

// deliveryContext returns the context in which upstream's messages are sent to the buyer: that of the newest
// running call, so that they go out on its response, or else of the session's own stream.
func (b *buyer) deliveryContext() context.Context {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := len(b.calls); n > 0 {
		return b.calls[n-1].ctx
	}
	return context.Background()
}

func (f *Proxy) rootsChanged(_ context.Context, r *mcp.RootsListChangedRequest) {
	f.buyersMu.Lock()
	b := f.buyers[r.Session]
	f.buyersMu.Unlock()
	if b != nil {
		b.notifyRootsChanged()
	}
}

// notifyRootsChanged tells upstream that the roots have changed. Changes that arrive meanwhile, however many,
// lead to one more notification.
func (b *buyer) notifyRootsChanged() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rootsChanged = true
	if b.isNotifying {
		return
	}
	b.isNotifying = true
	b.proxy.background.Go(func() {
		for b.takeRootsChanged() {
			// the SDK sends the notification when its own list of roots changes; that list is never
			// served
			b.client.AddRoots(&mcp.Root{URI: "file:///"})
		}
	})
}

// takeRootsChanged reports whether upstream has yet to be told of a change, and clears the flag.
func (b *buyer) takeRootsChanged() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.isNotifying, b.rootsChanged = b.rootsChanged, false
	return b.isNotifying
}

func askBuyer[P, R any](ctx context.Context, b *buyer, put func(context.Context, P) (R, error),
	question P) (R, error) {
	var none R
	b.mu.Lock()
	tooMany := b.questions >= maxQuestions
	if !tooMany {
		b.questions++
	}
	b.mu.Unlock()
	if tooMany {
		return none, &jsonrpc.Error{Code: codeBusy, Message: "the client has many questions to answer"}
	}
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.questions--
	}()
	asking, cancel := context.WithTimeout(b.deliveryContext(), questionTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)() // upstream withdrew the question
	answer, err := put(asking, question)
	if err != nil {
		return none, upstreamError(err)
	}
	return answer, nil
}

type schemaKey struct{}

// elicit asks the buyer what upstream asks. The schema of the form is between those two: the SDK would refuse
// some that MCP allows, so it is left out here, and put back by restoreSchema.
func (b *buyer) elicit(ctx context.Context, p *mcp.ElicitParams) (*mcp.ElicitResult, error) {
	question := *p
	question.RequestedSchema = nil
	return b.downstream.Elicit(context.WithValue(ctx, schemaKey{}, p.RequestedSchema), &question)
}

// restoreSchema is the sending middleware that puts the schema into a question.
func restoreSchema(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, request mcp.Request) (mcp.Result, error) {
		if p, ok := request.GetParams().(*mcp.ElicitParams); ok {
			p.RequestedSchema = ctx.Value(schemaKey{})
		}
		return next(ctx, method, request)
	}
}

// newClient returns a client for one buyer's upstream session; nil: for the shared one.
func (f *Proxy) newClient(can *mcp.ClientCapabilities, b *buyer) *mcp.Client {
	o := &mcp.ClientOptions{
		Capabilities: &mcp.ClientCapabilities{},
		// questions are for the buyer to answer
		MultiRoundTrip:              &mcp.MultiRoundTripOptions{Disabled: true},
		ProgressNotificationHandler: f.forwardProgress,
	}
	if b == nil || f.single {
		o.ToolListChangedHandler = onChange[*mcp.ToolListChangedRequest](f, f.mirrorTools)
		o.PromptListChangedHandler = onChange[*mcp.PromptListChangedRequest](f, f.mirrorPrompts)
		o.ResourceListChangedHandler = onChange[*mcp.ResourceListChangedRequest](f, f.mirrorResources)
		o.ResourceUpdatedHandler = f.forwardUpdate
	}
	self := &mcp.Implementation{Name: "x402-wallet paywall", Version: f.Version}
	if b == nil {
		return mcp.NewClient(self, o)
	}
	if can != nil {
		o.Capabilities = can
	}
	o.LoggingMessageHandler = func(_ context.Context, r *mcp.LoggingMessageRequest) {
		_ = b.downstream.Log(withoutCall(b.deliveryContext()), r.Params)
	}
	o.ElicitationCompleteHandler = func(_ context.Context, r *mcp.ElicitationCompleteNotificationRequest) {
		_ = b.downstream.NotifyElicitationComplete(b.deliveryContext(), r.Params)
	}
	if o.Capabilities.Sampling != nil {
		o.CreateMessageWithToolsHandler = func(ctx context.Context, r *mcp.CreateMessageWithToolsRequest) (
			*mcp.CreateMessageWithToolsResult, error) {
			return askBuyer(ctx, b, b.downstream.CreateMessageWithTools, r.Params)
		}
	}
	client := mcp.NewClient(self, o)
	client.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, request mcp.Request) (mcp.Result, error) {
			switch r := request.(type) {
			case *mcp.ListRootsRequest:
				if o.Capabilities.RootsV2 != nil {
					return askBuyer(ctx, b, b.downstream.ListRoots, r.Params)
				}
			case *mcp.ElicitRequest:
				if o.Capabilities.Elicitation != nil {
					return askBuyer(ctx, b, b.elicit, r.Params)
				}
			}
			return next(ctx, method, request)
		}
	})
	return client
}
