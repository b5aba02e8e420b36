package paywall

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"x402-wallet/internal/mcpconn"
	"x402-wallet/x402"
)

// Proxy is a wall in front of another MCP server, which it shows as it is: its tools, resources and
// prompts, changes of their lists, progress, cancellation, questions back (2026-07-28), structured
// content and errors. What the other server never sees is the payment.
//
// All buyers share one session with it. A legacy server's own requests to its client (sampling,
// roots, elicitation/create) and its log messages are not passed on: on a shared session nobody can
// tell whose they are.
type Proxy struct {
	Paywall *Paywall
	Command []string  // starts the upstream server as a program; none: it is at URL
	Stderr  io.Writer // the program's
	URL     string
	Version string
	Log     *slog.Logger

	direct   *http.Client // for URL
	server   *mcp.Server
	client   *mcp.Client
	bodyTime time.Duration
	tokens   atomic.Int64
	progress sync.Map // our token → *progressListener

	mu      sync.Mutex // of the session, and of what is shown
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
		return mcpconn.Command(f.Command, f.Log, f.Stderr)
	}
	return mcpconn.Streamable(f.URL, f.direct)
}

// Open reaches the upstream server and takes over what it has. A price for a tool that it has not
// is an error: a misspelt name would give the tool away.
func (f *Proxy) Open(ctx context.Context) error {
	f.bodyTime, f.direct = bodyTime, mcpconn.Client(nil)
	o := &mcp.ClientOptions{
		Capabilities: &mcp.ClientCapabilities{},
		// questions are the buyer's to answer
		MultiRoundTrip:              &mcp.MultiRoundTripOptions{Disabled: true},
		ToolListChangedHandler:      onChange[*mcp.ToolListChangedRequest](f, f.mirrorTools),
		PromptListChangedHandler:    onChange[*mcp.PromptListChangedRequest](f, f.mirrorPrompts),
		ResourceListChangedHandler:  onChange[*mcp.ResourceListChangedRequest](f, f.mirrorResources),
		ProgressNotificationHandler: f.passProgress,
	}
	f.client = mcp.NewClient(&mcp.Implementation{Name: "x402-wallet paywall", Version: f.Version}, o)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mirror.Log = f.Log
	if err := f.connect(ctx); err != nil {
		f.Log.Error("open the server behind the paywall", "err", err)
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
			strings.Join(names, ", "))
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

func (f *Proxy) build(upstream *mcp.InitializeResult) {
	self := &mcp.Implementation{Name: "x402-wallet paywall", Version: f.Version}
	o := &mcp.ServerOptions{Capabilities: &mcp.ServerCapabilities{}, Logger: slog.New(slog.DiscardHandler)}
	if upstream != nil {
		o.Instructions = upstream.Instructions
		if upstream.ServerInfo != nil {
			self = upstream.ServerInfo
		}
		if upstream.Capabilities != nil && upstream.Capabilities.Completions != nil {
			o.CompletionHandler = f.complete
		}
	}
	f.server = mcp.NewServer(self, o)
	f.Paywall.Protect(f.server)
}

// onChange takes over a list that has changed. Its caller is the session's reader, which must wait
// for nothing.
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
				f.Log.Warn("a list of the server behind could not be read", "err", err)
			}
		})
	}
}

// upstream is the session, made again where the server ended.
func (f *Proxy) upstream(ctx context.Context) (*mcp.ClientSession, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.session == nil {
		f.Log.Warn("the server behind the paywall ended; starting it again")
		if err := f.connect(ctx); err != nil {
			f.Log.Error("the server behind the paywall cannot be reached", "err", err)
		}
	}
	if f.session == nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError,
			Message: "the server behind the paywall cannot be reached"}
	}
	return f.session, nil
}

// Stdio serves one client over two streams, until it goes away or ctx ends.
func (f *Proxy) Stdio(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
	return f.serve(ctx, func(ctx context.Context) error {
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
	server := &http.Server{Handler: http.NewCrossOriginProtection().Handler(f.bounded(f.bothEras())),
		ReadHeaderTimeout: headerTime, IdleTimeout: idleTime,
		ErrorLog: slog.NewLogLogger(f.Log.Handler(), slog.LevelDebug)}
	return f.serve(ctx, func(ctx context.Context) error {
		done := make(chan error, 1)
		go func() { done <- server.Serve(listener) }()
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

// bounded bounds the time and size of a request's body; an answer has no limit.
func (f *Proxy) bounded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(rw)
		_ = control.SetReadDeadline(time.Now().Add(f.bodyTime))
		body, err := io.ReadAll(http.MaxBytesReader(rw, r.Body, maxBody))
		if err != nil {
			http.Error(rw, "the request is too large, too slow, or cut off", http.StatusRequestEntityTooLarge)
			return
		}
		_ = control.SetReadDeadline(time.Time{})
		r.Body = io.NopCloser(bytes.NewReader(body))
		if r.Method == http.MethodPost { // a GET is a session's stream, which has no end
			f.unanswered.Add(1)
			defer f.unanswered.Add(-1)
		}
		next.ServeHTTP(rw, r)
	})
}

// sessionless is the first version of MCP that has no sessions.
const sessionless = "2026-07-28"

// bothEras serves requests with sessions and without, by the version that they name.
func (f *Proxy) bothEras() http.Handler {
	server := func(*http.Request) *mcp.Server { return f.server }
	before := mcp.NewStreamableHTTPHandler(server, &mcp.StreamableHTTPOptions{SessionTimeout: time.Hour})
	since := mcp.NewStreamableHTTPHandler(server, &mcp.StreamableHTTPOptions{Stateless: true})
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Mcp-Protocol-Version") >= sessionless {
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
	f.life.Lock()
	f.ended = true
	f.life.Unlock()
	f.mu.Lock()
	session := f.session
	f.mu.Unlock()
	if session != nil {
		_ = session.Close() // a program that was killed says so
	}
	f.updates.Wait()
	return err
}
