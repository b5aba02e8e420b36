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

	"x402-wallet/internal/mcpconn"
	"x402-wallet/x402"
)

const (
	// maxPlaces is how many servers are kept at a time: an agent may name any number of URLs.
	maxPlaces = 32
	// openTime is how long a server may take to be ready; some are downloaded first.
	openTime = 60 * time.Second
	// discoverTime is how long server/discover may stay unanswered before initialize is tried:
	// servers of the older protocols exist that never answer what they do not know.
	discoverTime = 8 * time.Second
	// closeTime bounds the end of all sessions: hosts kill what takes longer.
	closeTime = 5 * time.Second
	// legacy is the last protocol that begins with initialize, which can be paid for.
	legacy = "2025-11-25"
)

// place is one endpoint with its session.
type place struct {
	mcp *MCP
	at  *url.URL

	turn    chan struct{} // one at a time opens a session
	paying  chan struct{} // one at a time pays for it
	current *session

	users int       // under the MCP's lock, as used
	used  time.Time // last
}

// place finds an endpoint's place, and counts its caller in. When there are too many, the one that
// is unused longest goes.
func (m *MCP) place(at *url.URL) (*place, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, x402.Errorf(x402.ServerUnavailable, "the wallet is being closed")
	}
	p := m.places[at.String()]
	if p == nil {
		if len(m.places) >= maxPlaces && !m.evict() {
			return nil, x402.Errorf(x402.ServerUnavailable, "%d MCP servers are in use; no more at a time",
				maxPlaces).WithHint("wait until other calls have ended")
		}
		p = &place{mcp: m, at: at, turn: make(chan struct{}, 1), paying: make(chan struct{}, 1)}
		m.places[at.String()] = p
	}
	p.users++
	return p, nil
}

// placeOf is place, by the name of the endpoint.
func (m *MCP) placeOf(endpoint string) (*place, error) {
	at, err := m.endpoint(endpoint)
	if err != nil {
		return nil, err
	}
	return m.place(at)
}

func (m *MCP) leave(p *place) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p.users--
	p.used = time.Now()
}

func (m *MCP) evict() bool {
	var oldest *place
	for _, p := range m.places {
		if p.users == 0 && (oldest == nil || p.used.Before(oldest.used)) {
			oldest = p
		}
	}
	if oldest == nil {
		return false
	}
	delete(m.places, oldest.at.String())
	go oldest.close()
	return true
}

// Close ends all sessions, and the commands that were started for them.
func (m *MCP) Close() error {
	m.mu.Lock()
	places := m.places
	m.places, m.closed = map[string]*place{}, true
	m.mu.Unlock()
	m.end() // of what is being opened
	var all sync.WaitGroup
	for p := range maps.Values(places) {
		all.Go(p.close)
	}
	all.Go(m.dropped.Wait)
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-time.After(closeTime):
		return errors.New("an MCP server did not end in time")
	}
}

func (p *place) close() {
	p.turn <- struct{}{}
	defer func() { <-p.turn }()
	if p.current != nil {
		p.current.close()
		p.current = nil
	}
}

// forget drops a session that died, unless another call did.
func (p *place) forget(s *session) {
	p.turn <- struct{}{}
	defer func() { <-p.turn }()
	if p.current == s {
		p.drop()
	}
}

// drop lets go of the session. The calls that are under way on it may still hear their answers;
// then it is closed.
func (p *place) drop() {
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

func (p *place) mine(ctx context.Context) (done func(), err error) {
	select {
	case p.turn <- struct{}{}:
		return func() { <-p.turn }, nil
	case <-ctx.Done():
		return nil, p.mcp.lost(ctx, wanted{endpoint: p.at}, ctx.Err())
	}
}

// Entering waits until no other call buys Initialize at an endpoint: who had to wait may find the
// way open. done lets the next one.
func (m *MCP) Entering(ctx context.Context, endpoint string) (done func(), err error) {
	p, err := m.placeOf(endpoint)
	if err != nil {
		return nil, err
	}
	select {
	case p.paying <- struct{}{}:
		return func() { <-p.paying; m.leave(p) }, nil
	case <-ctx.Done():
		m.leave(p)
		return nil, m.lost(ctx, wanted{endpoint: p.at}, ctx.Err())
	}
}

// session is the one that lives, or a new one.
func (p *place) session(ctx context.Context) (s *session, isNew bool, err error) {
	done, err := p.mine(ctx)
	if err != nil {
		return nil, false, err
	}
	defer done()
	if p.current != nil && p.current.alive() {
		return p.current, false, nil
	}
	p.drop()
	e := newExchange(Initialize, x402.Attachment{})
	if p.current, err = p.open(ctx, e, ""); err != nil {
		if a, entry := e.answer(p.at.String()); entry == nil &&
			(a.Challenge != nil || a.ChallengeErr != nil) {
			return nil, false, &EntryError{p.at.String(), x402.Errorf(x402.ServerUnavailable,
				"%s asks for payment before anything else", p.at.Host)}
		}
		return nil, false, err
	}
	return p.current, true, nil
}

// enter is initialize as a request of its own: what it costs, or with a payment.
func (p *place) enter(ctx context.Context, with x402.Attachment) (*exchange, error) {
	done, err := p.mine(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	e := newExchange(Initialize, with)
	if p.current != nil && p.current.alive() && !e.pays() {
		e.result = json.RawMessage("{}") // inside already
		return e, nil
	}
	p.drop()
	if p.current, err = p.open(ctx, e, legacy); err != nil && !e.sent.Load() {
		return nil, err
	}
	if err == nil {
		p.mcp.changed(p.at)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.failure = err
	return e, nil
}

// session is one connection with a server.
type session struct {
	mcp    *mcp.ClientSession
	conn   mcp.Connection
	end    context.CancelFunc
	ended  chan struct{}
	quit   <-chan struct{} // the wallet is being closed
	tokens atomic.Int64
	works  sync.Map // progress token → func(Progress)

	mu    sync.Mutex
	calls int           // under way
	idle  chan struct{} // of one that is let go of: closed when the last call is over
}

// use counts a call in; done counts it out.
func (s *session) use() (done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.calls--; s.idle != nil && s.calls == 0 {
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
	s.end()
	_ = s.mcp.Close()
	<-s.ended
}

// opening is a mcp.Transport that remembers its connection.
type opening struct {
	mcp.Transport
	conn mcp.Connection
}

// Connect implements mcp.Transport.
func (o *opening) Connect(ctx context.Context) (c mcp.Connection, err error) {
	o.conn, err = o.Transport.Connect(ctx)
	return o.conn, err
}

// open opens a session; e is the exchange of initialize. The session lives longer than the call
// that opens it.
func (p *place) open(ctx context.Context, e *exchange, version string) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	defer context.AfterFunc(p.mcp.life, cancel)()
	if p.at.Scheme == commandScheme {
		return p.connect(ctx, e, version, func(*session) mcp.Transport {
			argv, log := p.mcp.options.Servers[p.at.Host].Command, p.mcp.options.Log.With("server", p.at.Host)
			return recorded{&mcpconn.Command{Argv: argv, Log: log}, true}
		})
	}
	client := func(s *session, twoStreams bool) *http.Client {
		return mcpconn.Client(newSessionTransport(p.mcp.options.HTTP, p.at, s, twoStreams))
	}
	s, err := p.connect(ctx, e, version, func(s *session) mcp.Transport {
		return mcpconn.Streamable(p.at.String(), client(s, false))
	})
	var coded *x402.Error
	isDecided := errors.As(err, &coded) && coded.Code != x402.ServerUnavailable
	if err == nil || isDecided || e.http != nil || e.pays() || ctx.Err() != nil {
		return s, err
	}
	// Servers of 2024-11-05 know no POST here (MCP, transports, backwards compatibility).
	old, oldErr := p.connect(ctx, e, legacy, func(s *session) mcp.Transport {
		return recorded{&mcp.SSEClientTransport{
			Endpoint: p.at.String(), HTTPClient: client(s, true), MaxEventSize: x402.MaxMCPMessage,
		}, false}
	})
	if oldErr != nil {
		return nil, err // the first one says more
	}
	return old, nil
}

func (p *place) connect(ctx context.Context, e *exchange, version string, by func(*session) mcp.Transport) (
	*session, error) {
	life, end := context.WithCancel(e.in(context.WithoutCancel(ctx)))
	stop := context.AfterFunc(ctx, end)
	s := &session{end: end, ended: make(chan struct{}), quit: p.mcp.life.Done()}
	opened := &opening{Transport: by(s)}
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
func (p *place) unavailable(ctx context.Context, err error) error {
	var coded *x402.Error
	if errors.As(err, &coded) && coded.Code != x402.NetworkError || ctx.Err() != nil {
		return p.mcp.lost(ctx, wanted{endpoint: p.at}, err)
	}
	return (&x402.Error{Code: x402.ServerUnavailable, Message: "the MCP server " + p.at.Host +
		" cannot be reached, or does not speak MCP", Err: err}).
		WithHint("nothing was paid; see whether the server runs")
}

// client is our side of a session. It offers nothing a server could ask for, and says that it pays.
func (p *place) client(s *session) *mcp.Client {
	offers := &mcp.ClientCapabilities{}
	offers.AddExtension(x402.MCPExtension, nil)
	c := mcp.NewClient(&mcp.Implementation{Name: "x402-wallet", Version: p.mcp.options.Version},
		&mcp.ClientOptions{
			Capabilities: offers,
			// it would send a request again, with its payment
			MultiRoundTrip: &mcp.MultiRoundTripOptions{Disabled: true},
			ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) {
				p.mcp.changed(p.at)
			},
			ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
				if heard, ok := s.works.Load(fmt.Sprint(r.Params.ProgressToken)); ok {
					heard.(func(Progress))(Progress{r.Params.Progress, r.Params.Total, r.Params.Message})
				}
			},
		})
	c.AddSendingMiddleware(begin)
	c.AddReceivingMiddleware(decline)
	return c
}

// begin bounds server/discover, and puts into initialize what pays for it.
func begin(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
		if method == "server/discover" {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, discoverTime)
			defer cancel()
		}
		if e := exchangeOf(ctx, method); method == Initialize && e != nil && e.with.Meta != nil {
			r.GetParams().SetMeta(metaOf(e.with))
		}
		return next(ctx, method, r)
	}
}

// decline refuses what a server asks of us. Notifications pass.
func decline(next mcp.MethodHandler) mcp.MethodHandler {
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
func (s *session) call(ctx context.Context, w wanted, e *exchange) {
	meta := metaOf(e.with)
	if w.progress != nil {
		token := fmt.Sprint("p", s.tokens.Add(1))
		meta["progressToken"] = token
		s.works.Store(token, w.progress)
		defer s.works.Delete(token)
	}
	ctx, e.cancel = context.WithCancel(e.in(ctx))
	defer s.use()()
	var result mcp.Result
	var err error
	switch w.method {
	case CallTool:
		result, err = s.mcp.CallTool(ctx, &mcp.CallToolParams{Meta: meta, Name: w.name,
			Arguments: w.arguments})
	case ReadResource: // not by the session's own method, which answers from a cache
		result, err = mcp.CallCustomMethod[*mcp.ReadResourceParams, *mcp.ReadResourceResult](ctx, s.mcp,
			w.method, &mcp.ReadResourceParams{Meta: meta, URI: w.name})
	case GetPrompt:
		arguments := map[string]string{}
		if err = json.Unmarshal(w.arguments, &arguments); err == nil {
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
	case err == nil && e.result == nil && e.refused == nil: // unheard; what is left of it has to do
		e.result, e.failure = json.Marshal(result)
	default:
		e.failure = err
	}
}
