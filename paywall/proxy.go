package paywall

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"x402-wallet/internal/child"
	"x402-wallet/internal/loopback"
	"x402-wallet/internal/mcpconn"
	"x402-wallet/x402"
	"x402-wallet/x402/wire"
)

// Proxy puts a paywall in front of another MCP server (upstream) and exposes it as it is: its tools,
// resources and prompts, changes of their lists and of resources, completions, progress, cancellation, log
// messages, structured content and errors, and its questions to the client (elicitation, sampling, roots).
// Upstream never sees a payment. What cannot be forwarded (buyer.go says when) is not advertised, to either
// side; tasks never are.
type Proxy struct {
	Paywall *Paywall
	Command []string  // starts the upstream server as a program; none: it is at URL
	Env     []string  // the program's, all of it
	Stderr  io.Writer // the program's
	Sandbox child.Sandbox
	URL     string
	// Through says what to URL goes through the owner's proxy (seller.Through)
	Through func(*http.Request) (*url.URL, error)
	Limits  Limits // of HTTP
	Listed  bool   // over HTTP, GET /discovery/resources lists what can be found here
	// over HTTP, the origins whose web pages may buy; "*": all
	Origins []string
	Version string
	Log     *slog.Logger

	direct      *http.Client // for URL
	server      *mcp.Server
	client      *mcp.Client
	bodyTime    time.Duration
	cancelCalls func()                  // cancels calls over HTTP; nil: there is no HTTP server
	limits      atomic.Pointer[limiter] // of HTTP; nil likewise
	tokens      atomic.Int64
	progress    sync.Map // our token → *progressListener

	version string // of MCP, in the shared session with upstream
	legacy  string // upstream's newest version that has sessions; "": it has none
	single  bool   // there is only one buyer (stdio)
	// what upstream supports
	logs, subscribable bool

	buyersMu sync.Mutex
	buyers   map[*mcp.ServerSession]*buyer           // with upstream sessions of their own
	levels   map[*mcp.ServerSession]mcp.LoggingLevel // that buyers set

	subscribing sync.Mutex
	subscribed  map[string]map[*mcp.ServerSession]bool // by URI

	updateQueueMu sync.Mutex
	updateQueue   map[updateTarget]map[string]bool // URIs to notify

	mu      sync.Mutex // guards the fields below
	adopted *buyer     // the only user of session; nil: all buyers
	session *mcp.ClientSession
	mirror  mcpconn.Mirror

	unanswered atomic.Int64 // requests whose responses are not written yet

	closeMu    sync.Mutex // guards the fields below
	background sync.WaitGroup
	isClosed   bool
}

// connectTimeout is how long upstream may take to start: npx may have to unpack it first.
const connectTimeout = 60 * time.Second

// transport starts upstream as a program, or connects to it over streamable HTTP. Redirects are not followed,
// because the owner named this server. A call that is refused, or whose response is no MCP message, fails
// alone: all buyers share the session.
func (f *Proxy) transport() mcp.Transport {
	if len(f.Command) > 0 {
		program := child.Program{Argv: f.Command, Env: f.Env, Sandbox: f.Sandbox}
		return mcpconn.Command(program, f.Log, f.Stderr)
	}
	return mcpconn.Streamable(f.URL, f.direct)
}

// Open connects to upstream and mirrors what it offers. A price for a tool that upstream does not have is an
// error: with a misspelt name the tool would be free.
func (f *Proxy) Open(ctx context.Context) error {
	f.bodyTime, f.direct = bodyTime, mcpconn.Client(mcpconn.Direct(f.Through))
	f.buyers, f.levels = map[*mcp.ServerSession]*buyer{}, map[*mcp.ServerSession]mcp.LoggingLevel{}
	f.subscribed = map[string]map[*mcp.ServerSession]bool{}
	f.updateQueue = map[updateTarget]map[string]bool{}
	f.client = f.newClient(nil, nil)
	f.client.AddSendingMiddleware(f.noteVersions)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mirror.Log = f.Log
	if err := f.connect(ctx); err != nil {
		f.Log.Error("open the server behind the paywall", "err", x402.Brief(err.Error()))
		return &x402.Error{Code: x402.ServerUnavailable,
			Message: "the server behind the paywall cannot be reached, or does not speak MCP", Err: err}
	}
	return errors.Join(f.missing(kindTool, ""), f.missing(kindResource, OfResource),
		f.missing(kindPrompt, OfPrompt))
}

// missing says which of a kind that have a price upstream does not have.
func (f *Proxy) missing(kind, of string) error {
	var missing []string
	names := f.mirror.Names(kind)
	for _, t := range f.Paywall.tools {
		has := func(name string) bool { return name == t.Name }
		if begin, isPattern := strings.CutSuffix(t.Name, "*"); of == OfResource && isPattern {
			has = func(name string) bool { return strings.HasPrefix(name, begin) }
		}
		fits := func(template string) bool {
			begin, _, _ := strings.Cut(template, "{")
			end := min(len(begin), len(strings.TrimSuffix(t.Name, "*")))
			return begin[:end] == t.Name[:end]
		}
		isMade := of == OfResource && slices.ContainsFunc(f.mirror.Names(kindTemplate), fits)
		if t.Kind == of && !isMade && !slices.ContainsFunc(names, has) {
			missing = append(missing, t.Name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	slices.Sort(missing)
	return fmt.Errorf("the server has no %s %s; it has %s", kind, strings.Join(missing, ", "),
		x402.Brief(strings.Join(names, ", ")))
}

// connect opens the shared session with upstream; the first time it also creates the proxy's own server.
func (f *Proxy) connect(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	version := "" // the newest of both sides
	if f.adopted != nil {
		version = f.legacy
	}
	session, err := f.client.Connect(limited, f.transport(),
		&mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		return err
	}
	if !f.watch(session) {
		_ = session.Close()
		return errors.New("the paywall is closing")
	}
	f.session = session
	if f.server == nil {
		upstream := session.InitializeResult()
		f.build(upstream, f.findLegacy(limited, upstream))
	} else {
		f.background.Go(func() { f.resubscribe(session) })
	}
	return errors.Join(f.mirrorTools(limited, session), f.mirrorResources(limited, session),
		f.mirrorPrompts(limited, session))
}

// watch forgets a session when it ends; false if the proxy is closing.
func (f *Proxy) watch(session *mcp.ClientSession) bool {
	return f.begin(func() {
		_ = session.Wait()
		_ = session.Close() // stop what the SDK still runs for it
		f.forget(session)
	})
}

// begin runs something in the background; false if the proxy is closing.
func (f *Proxy) begin(run func()) bool {
	f.closeMu.Lock()
	defer f.closeMu.Unlock()
	if !f.isClosed {
		f.background.Go(run)
	}
	return !f.isClosed
}

// forget lets the next request open a session again.
func (f *Proxy) forget(session *mcp.ClientSession) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.session == session {
		f.session = nil
	}
}

// build creates the proxy's own server, with upstream's capabilities as far as they can be forwarded.
func (f *Proxy) build(upstream *mcp.InitializeResult, legacy *mcp.ServerCapabilities) {
	self := &mcp.Implementation{Name: "x402-wallet paywall", Version: f.Version}
	shown := &mcp.ServerCapabilities{}
	o := &mcp.ServerOptions{Capabilities: shown, Logger: slog.New(slog.DiscardHandler)}
	if upstream != nil {
		o.Instructions = upstream.Instructions
		f.version = upstream.ProtocolVersion
		if upstream.ServerInfo != nil {
			self = upstream.ServerInfo
		}
		if has := upstream.Capabilities; has != nil {
			shown.Tools, shown.Prompts, shown.Resources = has.Tools, has.Prompts, has.Resources
			if f.legacy != "" && legacy != nil {
				shown.Logging, f.logs = legacy.Logging, legacy.Logging != nil
			}
			if has.Completions != nil {
				o.CompletionHandler = f.complete
			}
			f.subscribable = has.Resources != nil && has.Resources.Subscribe
			if f.subscribable {
				o.SubscribeHandler = func(ctx context.Context, r *mcp.SubscribeRequest) error {
					return f.subscribe(ctx, r.Session, r.Params.URI)
				}
				o.UnsubscribeHandler = func(_ context.Context, r *mcp.UnsubscribeRequest) error {
					f.unsubscribe(r.Session, r.Params.URI)
					return nil
				}
			}
		}
	}
	o.RootsListChangedHandler = f.rootsChanged
	f.server = mcp.NewServer(self, o)
	f.server.AddReceivingMiddleware(f.limitMCP, f.Paywall.entryMiddleware, f.adaptToUpstream,
		f.Paywall.middleware)
	f.server.AddSendingMiddleware(rewriteUpdate, restoreSchema, f.Paywall.withheld.sendingMiddleware)
}

// onChange handles a notification that a list has changed. It runs in the session's reader and must not
// block.
func onChange[R any](f *Proxy,
	take func(context.Context, *mcp.ClientSession) error) func(context.Context, R) {
	return func(context.Context, R) {
		f.begin(func() {
			ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
			defer cancel()
			f.mu.Lock()
			defer f.mu.Unlock()
			if f.session == nil {
				return
			}
			if err := take(ctx, f.session); err != nil {
				f.Log.Warn("a list of the server behind could not be read", "err", x402.Brief(err.Error()))
			}
		})
	}
}

// upstreamSession returns the shared session with upstream, and opens it again if it has ended.
func (f *Proxy) upstreamSession(ctx context.Context) (*mcp.ClientSession, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.session == nil {
		f.Log.Info("opening a session with the server behind the paywall")
		if err := f.connect(ctx); err != nil {
			f.Log.Error("the server behind the paywall cannot be reached", "err", x402.Brief(err.Error()))
		}
	}
	if f.session == nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError,
			Message: "the server behind the paywall cannot be reached"}
	}
	return f.session, nil
}

// adopt replaces the shared session by one with the capabilities of the only buyer.
func (f *Proxy) adopt(b *buyer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.adopted == b {
		return
	}
	if f.session != nil {
		_ = f.session.Close() // first: perhaps only one can run at a time
	}
	f.adopted, f.client, f.session = b, b.client, nil
}

// Stdio serves one client over two streams, until it goes away or ctx ends.
func (f *Proxy) Stdio(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
	return f.serve(ctx, func(ctx context.Context) error {
		f.single = true
		const batches = true // it serves all versions, and MCP 2025-03-26 has them
		err := f.server.Run(ctx, &countingTransport{unanswered: &f.unanswered,
			Transport: mcpconn.Stdio(in, out, wire.MaxMCPMessage, batches)})
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrClosedPipe) || errors.Is(err, context.Canceled) {
			return nil
		}
		return err
	})
}

// countingTransport counts a client's unanswered requests. It is a transport for one connection, and that
// connection.
type countingTransport struct {
	mcp.Transport
	mcp.Connection
	unanswered *atomic.Int64
}

func (c *countingTransport) Connect(ctx context.Context) (_ mcp.Connection, err error) {
	c.Connection, err = c.Transport.Connect(ctx)
	return c, err
}

func (c *countingTransport) Read(ctx context.Context) (jsonrpc.Message, error) {
	m, err := c.Connection.Read(ctx)
	if request, ok := m.(*jsonrpc.Request); ok && request.IsCall() {
		c.unanswered.Add(1)
	}
	return m, err
}

func (c *countingTransport) Write(ctx context.Context, m jsonrpc.Message) error {
	if _, ok := m.(*jsonrpc.Response); ok {
		defer c.unanswered.Add(-1)
	}
	return c.Connection.Write(ctx, m)
}

// HTTP serves streamable HTTP until ctx ends, under the names of this machine and that of Options.Origin.
func (f *Proxy) HTTP(ctx context.Context, listener net.Listener) error {
	limiter := newLimiter(f.Limits, f.bodyTime)
	f.cancelCalls = limiter.cancel
	f.limits.Store(limiter)
	all := newLimitListener(listener, 2*limiter.Sessions)
	served := f.beside(limiter.limitHTTP(all.markServing(f.mcpHandler()), isSessionless))
	own := f.Paywall.host
	door := loopback.Door{Hosts: func(host string) bool {
		return loopback.Local(host) || (host == own && own != "")
	}}
	if len(f.Origins) > 0 {
		door.Pages = func(origin string) bool { return allowsOrigin(f.Origins, origin) }
		served = CORS(f.Origins, served)
	}
	server := door.Server(served)
	server.IdleTimeout, server.ErrorLog = idleTime, slog.NewLogLogger(f.Log.Handler(), slog.LevelDebug)
	all.watch(server)
	return f.serve(ctx, func(ctx context.Context) error {
		defer limiter.close()
		done := make(chan error, 1)
		go func() { done <- server.Serve(all) }()
		select {
		case err := <-done:
			return err
		case <-ctx.Done():
			_ = server.Close() // only streams are left
			if err := <-done; !errors.Is(err, http.ErrServerClosed) {
				return err
			}
			return nil
		}
	})
}

// resourcesPath is where Listed shows what can be found here.
const resourcesPath = "/discovery/resources"

// beside serves the list of what can be found here, and passes everything else on but what clients and
// browsers look for on any server: a challenge or a complaint of MCP's would be taken for it.
func (f *Proxy) beside(next http.Handler) http.Handler {
	list := http.NotFoundHandler()
	if f.Listed {
		list = f.Paywall.Resources()
	}
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/favicon.ico" || strings.HasPrefix(r.URL.Path, "/.well-known/"):
			http.NotFound(rw, r)
		case f.Listed && r.URL.Path == resourcesPath:
			list.ServeHTTP(rw, r)
		case f.Listed && strings.HasPrefix(r.URL.Path, "/discovery/"): // who searches takes the list
			http.NotFound(rw, r)
		default:
			next.ServeHTTP(rw, r)
		}
	})
}

// Timeouts of client connections. The response to a call and a session's stream have none.
const (
	bodyTime = 30 * time.Second // for 16 MiB that is 4 Mbit/s
	idleTime = 2 * time.Minute
)

func isSessionless(r *http.Request) bool {
	return r.Header.Get("Mcp-Protocol-Version") >= sessionlessVersion
}

// mcpHandler serves requests with and without sessions, depending on their protocol version.
func (f *Proxy) mcpHandler() http.Handler {
	server := func(*http.Request) *mcp.Server { return f.server }
	before := f.Paywall.sellEntries(mcp.NewStreamableHTTPHandler(server, // see HTTP
		&mcp.StreamableHTTPOptions{MaxRequestBodyBytes: maxBody, DisableLocalhostProtection: true}))
	since := mcp.NewStreamableHTTPHandler(server, &mcp.StreamableHTTPOptions{MaxRequestBodyBytes: maxBody,
		Stateless: true, PropagateRequestCancellation: true, DisableLocalhostProtection: true})
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost { // a GET opens a session's stream, which does not end
			f.unanswered.Add(1)
			defer f.unanswered.Add(-1)
		}
		if isSessionless(r) {
			since.ServeHTTP(rw, r)
		} else {
			before.ServeHTTP(rw, r)
		}
	})
}

const (
	// shutdownTimeout is how long running sales may take to end during a shutdown, so that buyers that paid
	// are answered; the sales are recorded in any case.
	shutdownTimeout = 4 * time.Second
	// lastClaims is how long after them what was charged by batch-settlement may take to be claimed; what is
	// not then is claimed by the next start
	lastClaims = 20 * time.Second
	// flushTimeout is how long responses may then take to be written.
	flushTimeout = time.Second
)

// serve calls run until it ends by itself or ctx ends; then running sales are answered before connections are
// closed.
func (f *Proxy) serve(ctx context.Context, run func(context.Context) error) error {
	running, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	done := make(chan error, 1)
	go func() { done <- run(running) }()
	select {
	case err := <-done:
		return errors.Join(err, f.Close(ctx))
	case <-ctx.Done():
	}
	err := f.Close(ctx)
	for end := time.Now().Add(flushTimeout); f.unanswered.Load() > 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	cut()
	select {
	case serving := <-done:
		return errors.Join(err, serving)
	case <-time.After(time.Second): // its reader still blocks on the input
		return err
	}
}

// Close waits for running sales to end, and closes the sessions with upstream.
func (f *Proxy) Close(ctx context.Context) error {
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	err := f.Paywall.drain(limited)
	if f.cancelCalls != nil {
		f.cancelCalls() // those left are unpaid, and perhaps abandoned
	}
	f.closeMu.Lock()
	f.isClosed = true
	f.closeMu.Unlock()
	f.buyersMu.Lock()
	buyers := slices.Collect(maps.Values(f.buyers))
	clear(f.buyers)
	f.buyersMu.Unlock()
	var ends sync.WaitGroup
	for _, b := range buyers {
		ends.Go(b.close)
	}
	ends.Wait()
	f.mu.Lock()
	session := f.session
	f.mu.Unlock()
	if session != nil {
		_ = session.Close() // the error only says that the program was killed
	}
	f.background.Wait()
	claiming, cancelClaims := context.WithTimeout(context.WithoutCancel(ctx), lastClaims)
	defer cancelClaims()
	return errors.Join(err, f.Paywall.claimLast(claiming))
}
