package paywall

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

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
	Dial    Dial
	Version string
	Log     *slog.Logger

	server   *mcp.Server
	client   *mcp.Client
	bodyTime time.Duration
	tokens   atomic.Int64
	progress sync.Map // our token → *follower

	mu      sync.Mutex // of the session, and of what is shown
	session *mcp.ClientSession
	shown   map[string]json.RawMessage // kind and name → as it is shown

	unanswered atomic.Int64 // requests that were read, and whose answers are not written

	life    sync.Mutex // of what follows
	updates sync.WaitGroup
	ended   bool
}

// Dial makes a way to the server behind; it is called again when that one ended.
type Dial func() mcp.Transport

// connectTime is how long the server behind may take to start: npx may have to unpack it first.
const connectTime = 60 * time.Second

// Command starts the server as a program; its stderr goes to the one given.
func Command(argv []string, stderr io.Writer) Dial {
	return func() mcp.Transport {
		command := exec.Command(argv[0],
			argv[1:]...) //nolint:gosec,noctx // the owner's own command; it ends with its session
		command.Stderr = stderr
		return &mcp.CommandTransport{Command: command, TerminateDuration: 2 * time.Second}
	}
}

// URL speaks to a server over streamable HTTP. Redirects are not followed: the owner named this
// one.
func URL(endpoint string) Dial {
	client := &http.Client{Transport: alone{}, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	return func() mcp.Transport {
		return &mcp.StreamableClientTransport{Endpoint: endpoint, HTTPClient: client}
	}
}

// alone is the way to a server over HTTP on which a call that is refused, or whose answer is no
// message, fails alone. The SDK takes both for the end of the session, and so of every buyer's
// call.
type alone struct{}

// opening are the messages whose fate is the session's.
var opening = []string{"initialize", "notifications/initialized", "server/discover", "subscriptions/listen"}

// RoundTrip implements http.RoundTripper.
func (alone) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := http.DefaultTransport.RoundTrip(r)
	if err != nil || r.Method != http.MethodPost || r.GetBody == nil ||
		response.StatusCode == http.StatusNotFound {
		// 404: the session is unknown
		return response, err
	}
	var sent struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
	}
	body, err := r.GetBody()
	if err != nil {
		return nil, err
	}
	if bad := json.NewDecoder(body).Decode(&sent); bad != nil || slices.Contains(opening, sent.Method) {
		return response, nil //nolint:nilerr // no message, or one whose fate is the session's
	}
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	isGood := response.StatusCode >= 200 && response.StatusCode < 300
	if isGood && (sent.ID == nil || kind == "text/event-stream") {
		return response, nil
	}
	text, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	m, bad := jsonrpc.DecodeMessage(text)
	_, isAnswer := m.(*jsonrpc.Response)
	switch {
	case sent.ID == nil:
		response.StatusCode, text = http.StatusAccepted, nil
	case err != nil || bad != nil || !isAnswer || isGood && kind != "application/json":
		response.StatusCode = http.StatusOK
		response.Header.Set("Content-Type", "application/json")
		text = fmt.Appendf(nil,
			`{"jsonrpc":"2.0","id":%s,"error":{"code":-32603,"message":"the server behind the paywall gave no answer"}}`, sent.ID)
	}
	response.Body, response.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	return response, nil
}

// follower is who waits for the progress of a call.
type follower struct {
	ctx     context.Context
	session *mcp.ServerSession
	token   any
}

// Open reaches the server behind and takes over what it has. A price for a tool that it has not is
// an error: a misspelt name would give the tool away.
func (f *Proxy) Open(ctx context.Context) error {
	f.bodyTime = bodyTime
	f.client = mcp.NewClient(&mcp.Implementation{Name: "x402-wallet paywall", Version: f.Version},
		&mcp.ClientOptions{
			Capabilities: &mcp.ClientCapabilities{},
			// questions are the buyer's to answer
			MultiRoundTrip: &mcp.MultiRoundTripOptions{Disabled: true},
			ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) {
				f.update(f.takeTools)
			},
			PromptListChangedHandler: func(context.Context, *mcp.PromptListChangedRequest) {
				f.update(f.takePrompts)
			},
			ResourceListChangedHandler: func(context.Context, *mcp.ResourceListChangedRequest) {
				f.update(f.takeResources)
			},
			ProgressNotificationHandler: f.passProgress,
		})
	f.mu.Lock()
	defer f.mu.Unlock()
	f.shown = map[string]json.RawMessage{}
	if err := f.reach(ctx); err != nil {
		f.Log.Error("open the server behind the paywall", "err", err)
		return &x402.Error{Code: x402.ServerUnavailable,
			Message: "the server behind the paywall cannot be reached, or does not speak MCP", Err: err}
	}
	var missing []string
	for name := range f.Paywall.tools {
		if _, there := f.shown["tool "+name]; !there {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return fmt.Errorf("the server has no tool %s; it has %s", strings.Join(missing, ", "),
			strings.Join(f.names("tool "), ", "))
	}
	return nil
}

func (f *Proxy) names(kind string) (names []string) {
	for key := range f.shown {
		if name, ok := strings.CutPrefix(key, kind); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// reach connects, and the first time makes the server that is shown, in the image of the one
// behind.
func (f *Proxy) reach(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	session, err := f.client.Connect(limited, f.Dial(), nil)
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
	var errs []error
	for _, take := range []func(context.Context, *mcp.ClientSession) error{f.takeTools, f.takeResources,
		f.takePrompts} {
		errs = append(errs, take(limited, session))
	}
	return errors.Join(errs...)
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

// forget lets the next request open a session anew.
func (f *Proxy) forget(session *mcp.ClientSession) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.session == session {
		f.session = nil
	}
}

func (f *Proxy) build(behind *mcp.InitializeResult) {
	self := &mcp.Implementation{Name: "x402-wallet paywall", Version: f.Version}
	o := &mcp.ServerOptions{Capabilities: &mcp.ServerCapabilities{}, Logger: slog.New(slog.DiscardHandler)}
	if behind != nil {
		o.Instructions = behind.Instructions
		if behind.ServerInfo != nil {
			self = behind.ServerInfo
		}
		if behind.Capabilities != nil && behind.Capabilities.Completions != nil {
			o.CompletionHandler = f.complete
		}
	}
	f.server = mcp.NewServer(self, o)
	f.Paywall.Protect(f.server)
}

// update takes over a list that has changed. Its caller is the session's reader, which must wait
// for nothing.
func (f *Proxy) update(take func(context.Context, *mcp.ClientSession) error) {
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

// at is the session, made anew where the server ended.
func (f *Proxy) at(ctx context.Context) (*mcp.ClientSession, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.session == nil {
		f.Log.Warn("the server behind the paywall ended; starting it anew")
		if err := f.reach(ctx); err != nil {
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
		err := f.server.Run(ctx, &counted{&mcp.IOTransport{Reader: in, Writer: out}, &f.unanswered})
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrClosedPipe) || errors.Is(err, context.Canceled) {
			return nil
		}
		return err
	})
}

// counted counts the requests of a client that are not answered. The SDK's own transport below does
// not learn which version was agreed on; all that means to it is that JSON-RPC batches go on being
// read.
type counted struct {
	mcp.Transport
	unanswered *atomic.Int64
}

func (c *counted) Connect(ctx context.Context) (mcp.Connection, error) {
	connection, err := c.Transport.Connect(ctx)
	return &countedConnection{connection, c.unanswered}, err
}

type countedConnection struct {
	mcp.Connection
	unanswered *atomic.Int64
}

func (c *countedConnection) Read(ctx context.Context) (jsonrpc.Message, error) {
	m, err := c.Connection.Read(ctx)
	if request, ok := m.(*jsonrpc.Request); ok && request.IsCall() {
		c.unanswered.Add(1)
	}
	return m, err
}

func (c *countedConnection) Write(ctx context.Context, m jsonrpc.Message) error {
	if _, ok := m.(*jsonrpc.Response); ok {
		defer c.unanswered.Add(-1)
	}
	return c.Connection.Write(ctx, m)
}

// HTTP serves streamable HTTP until ctx ends. Browsers' pages are kept out: requests from other
// origins, and names that were made to point here (DNS rebinding).
func (f *Proxy) HTTP(ctx context.Context, listener net.Listener) error {
	handler := f.bothEras()
	server := &http.Server{Handler: http.NewCrossOriginProtection().Handler(f.hurried(handler)),
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

// hurried bounds the time and size of a request's body; what comes after it is not in a hurry.
func (f *Proxy) hurried(next http.Handler) http.Handler {
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
	// patience is how long a stop lets sales under way end, so that who paid is answered; they are
	// written down in any case.
	patience = 4 * time.Second
	// lastWords is how long it then lets answers be written.
	lastWords = time.Second
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
	for end := time.Now().Add(lastWords); f.unanswered.Load() > 0 && time.Now().Before(end); {
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

// Close lets sales under way come to their end, and lets go of the server behind.
func (f *Proxy) Close(ctx context.Context) error {
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
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
