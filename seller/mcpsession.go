package seller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"x402-wallet/internal/child"
	"x402-wallet/internal/mcpconn"
	"x402-wallet/x402"
)

const (
	// maxEndpoints is how many servers are kept at a time: an agent may name any number of URLs.
	maxEndpoints = 32
	// openTimeout is how long a server may take to be ready; some are downloaded first.
	openTimeout = 60 * time.Second
	// discoverTimeout is how long server/discover may stay unanswered before initialize is tried:
	// servers of the older protocols exist that never answer what they do not know.
	discoverTimeout = 8 * time.Second
	// closeTimeout bounds the end of all sessions: hosts kill what takes longer.
	closeTimeout = 5 * time.Second
	// legacyVersion is the last protocol that begins with initialize, which can be paid for.
	legacyVersion = "2025-11-25"
)

// endpoint is one server with its session.
type endpoint struct {
	mcp *Client
	url *url.URL

	turn    chan struct{} // one at a time opens a session
	entry   chan struct{} // one at a time pays for it
	current *session

	users int       // under the MCP's lock, as used
	used  time.Time // last
}

// endpointAt finds the endpoint of a URL, and counts its caller in; release counts it out. When
// there are too many, the one that is unused longest is closed.
func (m *Client) endpointAt(at *url.URL) (*endpoint, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, x402.Errorf(x402.ServerUnavailable, "the wallet is being closed")
	}
	p := m.endpoints[at.String()]
	if p == nil {
		if len(m.endpoints) >= maxEndpoints && !m.evict() {
			return nil, x402.Errorf(x402.ServerUnavailable, "%d MCP servers are in use; no more at a time",
				maxEndpoints).WithHint("wait until other calls have ended")
		}
		p = &endpoint{mcp: m, url: at, turn: make(chan struct{}, 1), entry: make(chan struct{}, 1)}
		m.endpoints[at.String()] = p
	}
	p.users++
	return p, nil
}

// endpointNamed is endpointAt, by the URL as text.
func (m *Client) endpointNamed(endpoint string) (*endpoint, error) {
	at, err := m.parseEndpoint(endpoint)
	if err != nil {
		return nil, err
	}
	return m.endpointAt(at)
}

func (m *Client) release(p *endpoint) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p.users--
	p.used = time.Now()
}

func (m *Client) evict() bool {
	var oldest *endpoint
	for _, p := range m.endpoints {
		if p.users == 0 && (oldest == nil || p.used.Before(oldest.used)) {
			oldest = p
		}
	}
	if oldest == nil {
		return false
	}
	delete(m.endpoints, oldest.url.String())
	go oldest.close()
	return true
}

// Close ends all sessions, and the commands that were started for them.
func (m *Client) Close() error {
	m.mu.Lock()
	endpoints := m.endpoints
	m.endpoints, m.closed = map[string]*endpoint{}, true
	m.mu.Unlock()
	m.end() // of what is being opened
	var all sync.WaitGroup
	for p := range maps.Values(endpoints) {
		all.Go(p.close)
	}
	all.Go(m.dropped.Wait)
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-time.After(closeTimeout):
		return errors.New("an MCP server did not end in time")
	}
}

func (p *endpoint) close() {
	p.turn <- struct{}{}
	defer func() { <-p.turn }()
	if p.current != nil {
		p.current.close()
		p.current = nil
	}
}

// dropSession drops a session that ended, unless another call did.
func (p *endpoint) dropSession(s *session) {
	p.turn <- struct{}{}
	defer func() { <-p.turn }()
	if p.current == s {
		p.drop()
	}
}

// drop gives up the session. The calls that are under way on it may still get their answers;
// then it is closed.
func (p *endpoint) drop() {
	s := p.current
	p.current = nil
	if s == nil {
		return
	}
	unused := s.unused()
	if unused == nil {
		s.close()
		return
	}
	p.mcp.mu.Lock()
	defer p.mcp.mu.Unlock()
	if p.mcp.closed {
		go s.close()
		return
	}
	p.mcp.dropped.Go(func() {
		select {
		case <-unused:
		case <-s.quit:
		}
		s.close()
	})
}

// lock waits until no other call opens a session.
func (p *endpoint) lock(ctx context.Context) (done func(), err error) {
	select {
	case p.turn <- struct{}{}:
		return func() { <-p.turn }, nil
	case <-ctx.Done():
		return nil, p.mcp.unanswered(ctx, mcpRequest{endpoint: p.url}, ctx.Err())
	}
}

// LockEntry waits until no other call buys Initialize at an endpoint: a call that had to wait may find
// the session open. done lets the next one.
func (m *Client) LockEntry(ctx context.Context, endpoint string) (done func(), err error) {
	p, err := m.endpointNamed(endpoint)
	if err != nil {
		return nil, err
	}
	select {
	case p.entry <- struct{}{}:
		return func() { <-p.entry; m.release(p) }, nil
	case <-ctx.Done():
		m.release(p)
		return nil, m.unanswered(ctx, mcpRequest{endpoint: p.url}, ctx.Err())
	}
}

// session is the current session, or a new one.
func (p *endpoint) session(ctx context.Context) (s *session, isNew bool, err error) {
	done, err := p.lock(ctx)
	if err != nil {
		return nil, false, err
	}
	defer done()
	if p.current != nil && p.current.alive() {
		return p.current, false, nil
	}
	p.drop()
	e := p.mcp.newExchange(Initialize, x402.Attachment{})
	p.current, err = p.open(ctx, e, "")
	if err != nil {
		a, noAnswer := e.answer(p.url.String())
		if noAnswer == nil && (a.Challenge != nil || a.ChallengeErr != nil) {
			return nil, false, &EntryError{Endpoint: p.url.String(), err: x402.Errorf(x402.ServerUnavailable,
				"%s asks for payment before anything else", hostOf(p.url))}
		}
		return nil, false, err
	}
	return p.current, true, nil
}

// initialize is initialize as a request of its own: what it costs, or with a payment.
func (p *endpoint) initialize(ctx context.Context, with x402.Attachment) (*exchange, error) {
	done, err := p.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	e := p.mcp.newExchange(Initialize, with)
	if p.current != nil && p.current.alive() && !e.pays() {
		e.result = json.RawMessage("{}") // a session is open already
		return e, nil
	}
	p.drop()
	p.current, err = p.open(ctx, e, legacyVersion)
	if err != nil && !e.sent.Load() {
		return nil, err
	}
	if err == nil {
		p.mcp.changed(p.url)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.failure = err
	return e, nil
}

// session is one connection with a server.
type session struct {
	mcp      *mcp.ClientSession
	conn     mcp.Connection
	stop     context.CancelFunc
	ended    chan struct{}
	quit     <-chan struct{} // the wallet is being closed
	tokens   atomic.Int64
	progress sync.Map // progress token → func(Progress)

	mu    sync.Mutex
	calls int           // under way
	idle  chan struct{} // of one that was given up: closed when the last call is over
}

// beginCall counts a call in; done counts it out.
func (s *session) beginCall() (done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.calls--
		if s.idle != nil && s.calls == 0 {
			close(s.idle)
			s.idle = nil
		}
	}
}

// unused is closed when the calls that are under way are over; nil: there are none.
func (s *session) unused() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls > 0 && s.idle == nil {
		s.idle = make(chan struct{})
	}
	return s.idle
}

func (s *session) alive() bool {
	select {
	case <-s.ended:
		return false
	default:
		return true
	}
}

// close ends the connection first: the SDK's own closing would wait for calls that nobody answers.
func (s *session) close() {
	_ = s.conn.Close()
	s.stop()
	_ = s.mcp.Close()
	<-s.ended
}

// capturedTransport is a mcp.Transport that remembers its connection.
type capturedTransport struct {
	mcp.Transport
	conn mcp.Connection
}

// Connect implements mcp.Transport.
func (o *capturedTransport) Connect(ctx context.Context) (c mcp.Connection, err error) {
	o.conn, err = o.Transport.Connect(ctx)
	return o.conn, err
}

// open opens a session; e is the exchange of initialize. The session lives longer than the call
// that opens it.
func (p *endpoint) open(ctx context.Context, e *exchange, version string) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	defer context.AfterFunc(p.mcp.life, cancel)()
	if p.url.Scheme == commandScheme {
		return p.connect(ctx, e, version, func(*session) mcp.Transport {
			s, log := p.mcp.options.Servers[p.url.Host], p.mcp.options.Log.With("server", p.url.Host)
			program := child.Program{Argv: s.Command, Env: s.Env, Sandbox: s.Sandbox}
			return recorded{Transport: mcpconn.Command(program, log, nil), isLast: true}
		})
	}
	client := func(s *session, twoStreams bool) *http.Client {
		return mcpconn.Client(newSessionTransport(p.mcp.http, p.url, s, twoStreams))
	}
	s, err := p.connect(ctx, e, version, func(s *session) mcp.Transport {
		return mcpconn.Streamable(p.url.String(), client(s, false))
	})
	coded, isOurs := errors.AsType[*x402.Error](err)
	isDecided := isOurs && coded.Code != x402.ServerUnavailable
	if err == nil || isDecided || e.http != nil || e.pays() || ctx.Err() != nil {
		return s, err
	}
	// Servers of 2024-11-05 know no POST here (MCP, transports, backwards compatibility).
	old, oldErr := p.connect(ctx, e, legacyVersion, func(s *session) mcp.Transport {
		return recorded{Transport: &mcp.SSEClientTransport{
			Endpoint: p.url.String(), HTTPClient: client(s, true), MaxEventSize: x402.MaxMCPMessage,
		}, isLast: false}
	})
	if oldErr != nil {
		return nil, err // the first one says more
	}
	return old, nil
}

func (p *endpoint) connect(ctx context.Context, e *exchange, version string,
	by func(*session) mcp.Transport) (*session, error) {
	life, end := context.WithCancel(e.in(context.WithoutCancel(ctx)))
	stop := context.AfterFunc(ctx, end)
	s := &session{stop: end, ended: make(chan struct{}), quit: p.mcp.life.Done()}
	opened := &capturedTransport{Transport: by(s)}
	session, err := p.client(s).Connect(life, opened, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err == nil && !stop() {
		err = ctx.Err()
	}
	if err != nil {
		end()
		if opened.conn != nil {
			_ = opened.conn.Close()
		}
		if session != nil {
			_ = session.Close()
		}
		e.mu.Lock()
		e.failure = err
		e.mu.Unlock()
		return nil, p.unavailable(ctx, err)
	}
	s.mcp, s.conn = session, opened.conn
	go func() {
		_ = session.Wait()
		close(s.ended)
	}()
	return s, nil
}

// unavailable says why no session came about.
func (p *endpoint) unavailable(ctx context.Context, err error) error {
	coded, isOurs := errors.AsType[*x402.Error](err)
	if (isOurs && coded.Code != x402.NetworkError) || ctx.Err() != nil {
		return p.mcp.unanswered(ctx, mcpRequest{endpoint: p.url}, err)
	}
	return (&x402.Error{Code: x402.ServerUnavailable, Message: "the MCP server " + hostOf(p.url) +
		" cannot be reached, or does not speak MCP", Err: failure{err}}).
		WithHint("nothing was paid; see whether the server runs")
}

// client is our side of a session. It offers nothing a server could ask for, and says that it pays.
func (p *endpoint) client(s *session) *mcp.Client {
	offers := &mcp.ClientCapabilities{}
	offers.AddExtension(x402.MCPExtension, nil)
	c := mcp.NewClient(&mcp.Implementation{Name: "x402-wallet", Version: p.mcp.options.Version},
		&mcp.ClientOptions{
			Capabilities: offers,
			// it would send a request again, with its payment
			MultiRoundTrip: &mcp.MultiRoundTripOptions{Disabled: true},
			ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) {
				p.mcp.changed(p.url)
			},
			ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
				if listener, ok := s.progress.Load(fmt.Sprint(r.Params.ProgressToken)); ok {
					listener.(func(Progress))(Progress{Done: r.Params.Progress, Total: r.Params.Total,
						Message: r.Params.Message})
				}
			},
		})
	c.AddSendingMiddleware(prepareOpening)
	c.AddReceivingMiddleware(declineQuestions)
	return c
}

// prepareOpening bounds server/discover, and puts into initialize what pays for it.
func prepareOpening(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
		if method == "server/discover" {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, discoverTimeout)
			defer cancel()
		}
		if e := exchangeOf(ctx, method); method == Initialize && e != nil && e.with.Meta != nil {
			r.GetParams().SetMeta(metaOf(e.with))
		}
		return next(ctx, method, r)
	}
}

// declineQuestions refuses what a server asks of us. Notifications pass.
func declineQuestions(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
		switch method {
		case "elicitation/create", "sampling/createMessage", "roots/list":
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound,
				Message: "this client answers no questions"}
		}
		return next(ctx, method, r)
	}
}

func metaOf(with x402.Attachment) mcp.Meta {
	meta := mcp.Meta{}
	for key, value := range with.Meta {
		meta[key] = value
	}
	return meta
}

// call makes one exchange.
func (s *session) call(ctx context.Context, w mcpRequest, e *exchange) {
	meta := metaOf(e.with)
	if w.progress != nil {
		token := fmt.Sprint("p", s.tokens.Add(1))
		meta["progressToken"] = token
		s.progress.Store(token, w.progress)
		defer s.progress.Delete(token)
	}
	ctx, e.cancel = context.WithCancel(e.in(ctx))
	defer s.beginCall()()
	var result mcp.Result
	var err error
	switch w.method {
	case CallTool:
		result, err = s.mcp.CallTool(ctx, &mcp.CallToolParams{Meta: meta, Name: w.name,
			Arguments: w.arguments})
	case readResource: // not by the session's own method, which answers from a cache
		result, err = mcp.CallCustomMethod[*mcp.ReadResourceParams, *mcp.ReadResourceResult](ctx, s.mcp,
			w.method, &mcp.ReadResourceParams{Meta: meta, URI: w.name})
	case getPrompt:
		arguments := map[string]string{}
		err = json.Unmarshal(w.arguments, &arguments)
		if err == nil {
			result, err = s.mcp.GetPrompt(ctx, &mcp.GetPromptParams{Meta: meta, Name: w.name,
				Arguments: arguments})
		}
	}
	if err != nil {
		e.drain(ctx, s.quit)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.failure != nil: // the endpoint's own
	case err == nil && e.result == nil && e.refused == nil:
		// it was not recorded: the SDK's reading of it has to do
		e.result, e.failure = json.Marshal(result)
	default:
		e.failure = err
	}
}
