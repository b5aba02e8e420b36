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
	// questionTime is how long a buyer may take to answer what the server behind asks.
	questionTime = 5 * time.Minute
	// maxQuestions is how many of them one buyer has before them at once.
	maxQuestions = 8
)

// A server of before 2026-07-28 asks its client back (elicitation, sampling, roots) and logs in
// requests and notifications of their own, which do not say for which call. So that no buyer is
// asked or told what is another's, a buyer who can be asked has a session of their own with such a
// server, which hears this buyer's capabilities. All others share one, which declares none. From
// 2026-07-28 on questions are part of a call's answer, and capabilities part of each call.

// cancelTime is how long the server behind may take to hear that its calls are cancelled.
const cancelTime = 2 * time.Second

// ownCall is a call of one buyer's at the server behind.
type ownCall struct {
	ctx    context.Context
	cancel context.CancelFunc
}

// buyer is the client's side of a session with the server behind that one buyer has alone.
type buyer struct {
	proxy  *Proxy
	asked  *mcp.ServerSession // who is asked
	client *mcp.Client
	bought bool // under Proxy.buyersMu

	connecting sync.Mutex
	mu         sync.Mutex
	session    *mcp.ClientSession // nil: not open
	calls      []*ownCall         // under way: a question goes out with the answer of one
	// whether one of them was cancelled
	hasCancelled bool
	questions    int
	last         time.Time
	ended        bool
	// whether the server behind has to be, and is being, told that the roots are others
	rootsChanged, telling bool
}

// canAsk reports whether the server behind can have a session for one buyer alone: over stdio there
// is but one buyer, and over HTTP to the server behind a session costs little. A process for each of
// many buyers is too dear.
func (f *Proxy) canAsk() bool { return f.version < sessionless && (f.single || f.URL != "") }

// passable is what can be passed on of what a client can do; nil: nothing.
func passable(c *mcp.ClientCapabilities) *mcp.ClientCapabilities {
	if c == nil || (c.RootsV2 == nil && c.Sampling == nil && c.Elicitation == nil) {
		return nil
	}
	return &mcp.ClientCapabilities{RootsV2: c.RootsV2, Sampling: c.Sampling, Elicitation: c.Elicitation}
}

// claims is passable as the _meta of a request of 2026-07-28 has it.
func claims(c *mcp.ClientCapabilities) map[string]any {
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

// buyerOf gives the buyer who has this session, if they are to have one of their own with the server
// behind; nil, nil: they share one.
func (f *Proxy) buyerOf(ctx context.Context, session *mcp.ServerSession) (*buyer, error) {
	if session == nil || !f.canAsk() {
		return nil, nil
	}
	said, bought := session.InitializeParams(), hasBought(ctx)
	f.buyersMu.Lock()
	defer f.buyersMu.Unlock()
	if b := f.buyers[session]; b != nil {
		b.bought = b.bought || bought
		return b, nil
	}
	if said == nil || said.ProtocolVersion >= sessionless {
		return nil, nil
	}
	can := passable(said.Capabilities)
	if can == nil && f.levels[session] == "" {
		return nil, nil
	}
	if len(f.buyers) >= max(cmp.Or(f.Limits.Sessions, defaultSessions)/4, 1) && !f.dropOne(bought) {
		return nil, (&refusal{retryAfter: 5, message: "the server behind the paywall is busy"}).rpcError()
	}
	b := &buyer{proxy: f, asked: session, bought: bought, last: time.Now()}
	b.client = f.newClient(can, b)
	f.buyers[session] = b
	return b, nil
}

// dropOne closes the session that was not used for the longest, of who bought nothing if there is one:
// it is opened again when needed. For who bought, one with a call under way has to go too.
func (f *Proxy) dropOne(bought bool) bool {
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
	delete(f.buyers, found.asked)
	f.updates.Go(found.end)
	return true
}

// sessionClosed releases what a closed session of a client had.
func (f *Proxy) sessionClosed(session *mcp.ServerSession) {
	f.buyersMu.Lock()
	b := f.buyers[session]
	delete(f.buyers, session)
	delete(f.levels, session)
	f.buyersMu.Unlock()
	if b != nil {
		b.end()
	}
	f.unsubscribeAll(session)
}

// end closes the buyer's session with the server behind, once that has heard that its calls are cancelled:
// the SDK says so beside them, and no more when the session is closing.
func (b *buyer) end() {
	b.mu.Lock()
	b.ended = true
	session, hasCancelled := b.session, b.hasCancelled || len(b.calls) > 0
	b.session = nil
	for _, call := range b.calls {
		call.cancel()
	}
	b.mu.Unlock()
	if session == nil {
		return
	}
	if hasCancelled && !b.proxy.single {
		ctx, cancel := context.WithTimeout(context.Background(), cancelTime)
		defer cancel()
		for b.isBusy() && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		_ = session.Ping(ctx, nil) // it comes after
	}
	_ = session.Close()
}

// reach gives the session with the server behind, made where there is none (any more).
func (b *buyer) reach(ctx context.Context) (*mcp.ClientSession, error) {
	b.connecting.Lock()
	defer b.connecting.Unlock()
	if b.proxy.single { // its session is the one there is
		b.proxy.adopt(b)
		session, err := b.proxy.upstream(ctx)
		b.mu.Lock()
		isNew := b.session != session
		b.session = session
		b.mu.Unlock()
		if isNew {
			b.setLevel(ctx)
		}
		return session, err
	}
	b.mu.Lock()
	session := b.session
	b.mu.Unlock()
	if session != nil {
		return session, nil
	}
	limited, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	session, err := b.client.Connect(limited, b.proxy.transport(),
		&mcp.ClientSessionOptions{ProtocolVersion: b.proxy.version})
	if err != nil {
		return nil, upstreamError(err)
	}
	b.mu.Lock()
	if b.ended {
		b.mu.Unlock()
		_ = session.Close()
		return nil, context.Canceled
	}
	b.session = session
	b.mu.Unlock()
	b.setLevel(limited)
	return session, nil
}

// setLevel tells the server behind which log messages the buyer wants, if there is a session with it.
func (b *buyer) setLevel(ctx context.Context) {
	b.proxy.buyersMu.Lock()
	level := b.proxy.levels[b.asked]
	b.proxy.buyersMu.Unlock()
	b.mu.Lock()
	session := b.session
	b.mu.Unlock()
	if level != "" && session != nil {
		_ = session.SetLoggingLevel(ctx, &mcp.SetLoggingLevelParams{Level: level}) // it logs as it did
	}
}

// forget lets the next request open a session again.
func (b *buyer) forget(session *mcp.ClientSession) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.session == session {
		b.session = nil
	}
}

func (b *buyer) isBusy() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.calls) > 0
}

// calling notes a call under way until done.
func (b *buyer) calling(ctx context.Context) (_ context.Context, done func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	call := &ownCall{}
	call.ctx, call.cancel = context.WithCancel(ctx)
	b.calls = append(b.calls, call)
	return call.ctx, func() {
		defer call.cancel()
		b.mu.Lock()
		defer b.mu.Unlock()
		i := slices.Index(b.calls, call)
		b.calls = slices.Delete(b.calls, i, i+1)
		b.hasCancelled = b.hasCancelled || call.ctx.Err() != nil
		b.last = time.Now()
	}
}

// way is the context under which something of the server behind goes to the buyer: with the answer
// of the newest call under way, else on the session's own stream.
func (b *buyer) way() context.Context {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := len(b.calls); n > 0 {
		return b.calls[n-1].ctx
	}
	return context.Background()
}

// rootsChanged tells the server behind that a buyer's roots are others.
func (f *Proxy) rootsChanged(_ context.Context, r *mcp.RootsListChangedRequest) {
	f.buyersMu.Lock()
	b := f.buyers[r.Session]
	f.buyersMu.Unlock()
	if b != nil {
		b.tellRoots()
	}
}

// tellRoots tells that there are others; once more where the buyer says so while it is being told, however
// often.
func (b *buyer) tellRoots() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rootsChanged = true
	if b.telling {
		return
	}
	b.telling = true
	b.proxy.updates.Go(func() {
		for b.takeRoots() {
			// the SDK tells by itself of a change of roots that it has; it has none, and is not asked
			// for them
			b.client.AddRoots(&mcp.Root{URI: "file:///"})
		}
	})
}

// takeRoots reports whether there is something to tell (any more).
func (b *buyer) takeRoots() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.telling, b.rootsChanged = b.rootsChanged, false
	return b.telling
}

// ask puts a question of the server behind to the buyer.
func ask[P, R any](ctx context.Context, b *buyer, put func(context.Context, P) (R, error),
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
	asking, cancel := context.WithTimeout(b.way(), questionTime)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)() // the server behind takes it back
	answer, err := put(asking, question)
	if err != nil {
		return none, upstreamError(err)
	}
	return answer, nil
}

// newClient is a client for one buyer's session with the server behind; nil: for the one that is shared.
func (f *Proxy) newClient(can *mcp.ClientCapabilities, b *buyer) *mcp.Client {
	o := &mcp.ClientOptions{
		Capabilities: &mcp.ClientCapabilities{},
		// questions are the buyer's to answer
		MultiRoundTrip:              &mcp.MultiRoundTripOptions{Disabled: true},
		ProgressNotificationHandler: f.passProgress,
	}
	if b == nil || f.single {
		o.ToolListChangedHandler = onChange[*mcp.ToolListChangedRequest](f, f.mirrorTools)
		o.PromptListChangedHandler = onChange[*mcp.PromptListChangedRequest](f, f.mirrorPrompts)
		o.ResourceListChangedHandler = onChange[*mcp.ResourceListChangedRequest](f, f.mirrorResources)
		o.ResourceUpdatedHandler = f.passUpdate
	}
	self := &mcp.Implementation{Name: "x402-wallet paywall", Version: f.Version}
	if b == nil {
		return mcp.NewClient(self, o)
	}
	if can != nil {
		o.Capabilities = can
	}
	o.LoggingMessageHandler = func(_ context.Context, r *mcp.LoggingMessageRequest) {
		_ = b.asked.Log(ofNobody(b.way()), r.Params) // who left misses it
	}
	o.ElicitationCompleteHandler = func(_ context.Context, r *mcp.ElicitationCompleteNotificationRequest) {
		_ = b.asked.NotifyElicitationComplete(b.way(), r.Params)
	}
	if o.Capabilities.Elicitation != nil {
		o.ElicitationHandler = func(ctx context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return ask(ctx, b, b.asked.Elicit, r.Params)
		}
	}
	if o.Capabilities.Sampling != nil {
		o.CreateMessageWithToolsHandler = func(ctx context.Context, r *mcp.CreateMessageWithToolsRequest) (
			*mcp.CreateMessageWithToolsResult, error) {
			return ask(ctx, b, b.asked.CreateMessageWithTools, r.Params)
		}
	}
	client := mcp.NewClient(self, o)
	client.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, request mcp.Request) (mcp.Result, error) {
			r, isRoots := request.(*mcp.ListRootsRequest)
			if !isRoots || o.Capabilities.RootsV2 == nil {
				return next(ctx, method, request)
			}
			return ask(ctx, b, b.asked.ListRoots, r.Params)
		}
	})
	return client
}
