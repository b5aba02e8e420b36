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
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"x402-wallet/internal/child"
	"x402-wallet/internal/mcpconn"
	"x402-wallet/x402"
)

// Proxy is a wall in front of another MCP server, which it shows as it is: its tools, resources and
// prompts, changes of their lists and of resources, completions, progress, cancellation, log
// messages, structured content and errors; and its questions back (elicitation, sampling, roots).
// What the other server never sees is the payment. What cannot be passed on (buyer.go says when) is
// not advertised, to either side; tasks never.
type Proxy struct {
	Paywall *Paywall
	Command []string  // starts the upstream server as a program; none: it is at URL
	Env     []string  // the program's, all of it
	Stderr  io.Writer // the program's
	Sandbox child.Sandbox
	URL     string
	Limits  Limits // of HTTP
	Version string
	Log     *slog.Logger

	direct    *http.Client // for URL
	server    *mcp.Server
	client    *mcp.Client
	bodyTime  time.Duration
	stopCalls func() // those that came over HTTP; nil: none did
	tokens    atomic.Int64
	progress  sync.Map // our token → *progressListener

	version string // of MCP that the server behind speaks
	single  bool   // there is one buyer
	// what the server behind can
	logs, subscribable bool

	buyersMu sync.Mutex
	buyers   map[*mcp.ServerSession]*buyer           // who have a session of their own with it
	levels   map[*mcp.ServerSession]mcp.LoggingLevel // that buyers asked for

	subscribing sync.Mutex
	subscribed  map[string]map[*mcp.ServerSession]bool // to which URI

	tellingMu sync.Mutex
	telling   map[untold]map[string]bool // which URIs have to be told

	mu      sync.Mutex // of the session, and of what is shown
	adopted *buyer     // whose the session is; nil: all buyers'
	session *mcp.ClientSession
	mirror  mcpconn.Mirror

	unanswered atomic.Int64 // requests that were read, and whose answers are not written

	life    sync.Mutex // of what follows
	updates sync.WaitGroup
	ended   bool
}

// connectTime is how long the upstream server may take to start: npx may have to unpack it first.
const connectTime = 60 * time.Second

// transport starts the upstream server as a program, or speaks to it over streamable HTTP. Redirects
// are not followed: the owner named this one. A call that is refused, or whose answer is no message,
// fails alone: all buyers share the session.
func (f *Proxy) transport() mcp.Transport {
	if len(f.Command) > 0 {
		program := child.Program{Argv: f.Command, Env: f.Env, Sandbox: f.Sandbox}
		return mcpconn.Command(program, f.Log, f.Stderr)
	}
	return mcpconn.Streamable(f.URL, f.direct)
}

// Open reaches the upstream server and takes over what it has. A price for a tool that it has not
// is an error: a misspelt name would give the tool away.
func (f *Proxy) Open(ctx context.Context) error {
	f.bodyTime, f.direct = bodyTime, mcpconn.Client(nil)
	f.buyers, f.levels = map[*mcp.ServerSession]*buyer{}, map[*mcp.ServerSession]mcp.LoggingLevel{}
	f.subscribed = map[string]map[*mcp.ServerSession]bool{}
	f.telling = map[untold]map[string]bool{}
	f.client = f.newClient(nil, nil)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mirror.Log = f.Log
	if err := f.connect(ctx); err != nil {
		f.Log.Error("open the server behind the paywall", "err", x402.Brief(err.Error()))
		return &x402.Error{Code: x402.ServerUnavailable,
			Message: "the server behind the paywall cannot be reached, or does not speak MCP", Err: err}
	}
	var missing []string
	names := f.mirror.Names(kindTool)
	for name := range f.Paywall.tools {
		if !slices.Contains(names, name) {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return fmt.Errorf("the server has no tool %s; it has %s", strings.Join(missing, ", "),
			x402.Brief(strings.Join(names, ", ")))
	}
	return nil
}

// connect opens a session with the upstream server, and the first time makes ours in its image.
func (f *Proxy) connect(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	session, err := f.client.Connect(limited, f.transport(), nil)
	if err != nil {
		return err
	}
	if !f.watch(session) {
		_ = session.Close()
		return errors.New("the paywall is closing")
	}
	f.session = session
	if f.server == nil {
		f.build(session.InitializeResult())
	} else {
		f.updates.Go(func() { f.subscribeAgain(session) })
	}
	return errors.Join(f.mirrorTools(limited, session), f.mirrorResources(limited, session),
		f.mirrorPrompts(limited, session))
}

// watch notices when a session ends; false when the front is closing.
func (f *Proxy) watch(session *mcp.ClientSession) bool {
	f.life.Lock()
	defer f.life.Unlock()
	if f.ended {
		return false
	}
	f.updates.Go(func() {
		_ = session.Wait()
		_ = session.Close() // what the SDK still has going for it
		f.forget(session)
	})
	return true
}

// forget lets the next request open a session again.
func (f *Proxy) forget(session *mcp.ClientSession) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.session == session {
		f.session = nil
	}
}

// build makes our server in the image of the one behind: it has what that has, and what can be passed on.
func (f *Proxy) build(upstream *mcp.InitializeResult) {
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
			if f.version < sessionless {
				shown.Logging, f.logs = has.Logging, has.Logging != nil
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
	f.Paywall.Protect(f.server)
	f.server.AddReceivingMiddleware(f.limitMCP, f.adaptToUpstream)
	f.server.AddSendingMiddleware(sendUpdate)
}

// onChange takes over a list that has changed. Its caller is the session's reader, which must
// wait for nothing.
func onChange[R any](f *Proxy,
	take func(context.Context, *mcp.ClientSession) error) func(context.Context, R) {
	return func(context.Context, R) {
		f.life.Lock()
		defer f.life.Unlock()
		if f.ended {
			return
		}
		f.updates.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), connectTime)
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

// upstream is the session, made again where the server ended.
func (f *Proxy) upstream(ctx context.Context) (*mcp.ClientSession, error) {
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

// adopt makes the session with the server behind the only buyer's: one that this buyer's
// capabilities open.
func (f *Proxy) adopt(b *buyer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.adopted == b {
		return
	}
	if f.session != nil {
		_ = f.session.Close() // before the next is started: perhaps there can be but one
	}
	f.adopted, f.client, f.session = b, b.client, nil
}

// Stdio serves one client over two streams, until it goes away or ctx ends.
func (f *Proxy) Stdio(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
	return f.serve(ctx, func(ctx context.Context) error {
		f.single = true
		const batches = true // it serves all versions, and MCP 2025-03-26 has them
		err := f.server.Run(ctx, &counted{unanswered: &f.unanswered,
			Transport: mcpconn.Stdio(in, out, x402.MaxMCPMessage, batches)})
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrClosedPipe) || errors.Is(err, context.Canceled) {
			return nil
		}
		return err
	})
}

// counted counts the requests of a client that are not answered. It is a transport for one
// connection, and that connection.
type counted struct {
	mcp.Transport
	mcp.Connection
	unanswered *atomic.Int64
}

func (c *counted) Connect(ctx context.Context) (_ mcp.Connection, err error) {
	c.Connection, err = c.Transport.Connect(ctx)
	return c, err
}

func (c *counted) Read(ctx context.Context) (jsonrpc.Message, error) {
	m, err := c.Connection.Read(ctx)
	if request, ok := m.(*jsonrpc.Request); ok && request.IsCall() {
		c.unanswered.Add(1)
	}
	return m, err
}

func (c *counted) Write(ctx context.Context, m jsonrpc.Message) error {
	if _, ok := m.(*jsonrpc.Response); ok {
		defer c.unanswered.Add(-1)
	}
	return c.Connection.Write(ctx, m)
}

// HTTP serves streamable HTTP until ctx ends. Browsers' pages are kept out: requests from other
// origins, and names that were made to point here (DNS rebinding).
func (f *Proxy) HTTP(ctx context.Context, listener net.Listener) error {
	limiter := newLimiter(f.Limits, f.bodyTime)
	f.stopCalls = limiter.cancel
	all := newLimitListener(listener, 2*limiter.Sessions)
	served := limiter.limitHTTP(all.markServing(f.bothEras()), isSessionless)
	server := &http.Server{
		Handler:           http.NewCrossOriginProtection().Handler(served),
		ReadHeaderTimeout: headerTime, IdleTimeout: idleTime,
		ErrorLog: slog.NewLogLogger(f.Log.Handler(), slog.LevelDebug)}
	all.watch(server)
	return f.serve(ctx, func(ctx context.Context) error {
		defer limiter.close()
		done := make(chan error, 1)
		go func() { done <- server.Serve(all) }()
		select {
		case err := <-done:
			return err
		case <-ctx.Done():
			_ = server.Close() // what hangs on it is a stream
			if err := <-done; !errors.Is(err, http.ErrServerClosed) {
				return err
			}
			return nil
		}
	})
}

// How long a client may keep a connection busy with nothing. A call's own answer and a session's
// stream have no limit.
const (
	headerTime = 10 * time.Second
	bodyTime   = 30 * time.Second // for 16 MiB that is 4 Mbit/s
	idleTime   = 2 * time.Minute
)

// sessionless is the first version of MCP that has no sessions.
const sessionless = "2026-07-28"

func isSessionless(r *http.Request) bool { return r.Header.Get("Mcp-Protocol-Version") >= sessionless }

// bothEras serves requests with sessions and without, by the version that they name.
func (f *Proxy) bothEras() http.Handler {
	server := func(*http.Request) *mcp.Server { return f.server }
	before := mcp.NewStreamableHTTPHandler(server, &mcp.StreamableHTTPOptions{MaxRequestBodyBytes: maxBody})
	since := mcp.NewStreamableHTTPHandler(server, &mcp.StreamableHTTPOptions{MaxRequestBodyBytes: maxBody,
		Stateless: true, PropagateRequestCancellation: true})
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost { // a GET is a session's stream, which has no end
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
	// shutdownTimeout is how long a stop lets sales under way end, so that who paid is answered;
	// they are written down in any case.
	shutdownTimeout = 4 * time.Second
	// flushTimeout is how long it then lets answers be written.
	flushTimeout = time.Second
)

// serve runs until it ends by itself or ctx ends; then sales under way are answered before the
// connections are cut.
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
	case <-time.After(time.Second): // a reader that waits for its stream
		return err
	}
}

// Close lets sales under way come to their end, and lets go of the upstream server.
func (f *Proxy) Close(ctx context.Context) error {
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	err := f.Paywall.Close(limited)
	if f.stopCalls != nil {
		f.stopCalls() // what is not paid for, and nobody may wait for any more
	}
	f.life.Lock()
	f.ended = true
	f.life.Unlock()
	f.buyersMu.Lock()
	buyers := slices.Collect(maps.Values(f.buyers))
	clear(f.buyers)
	f.buyersMu.Unlock()
	var ends sync.WaitGroup
	for _, b := range buyers {
		ends.Go(b.end)
	}
	ends.Wait()
	f.mu.Lock()
	session := f.session
	f.mu.Unlock()
	if session != nil {
		_ = session.Close() // a program that was killed says so
	}
	f.updates.Wait()
	return err
}
