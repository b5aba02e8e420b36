package seller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"x402-wallet/internal/steps"
	"x402-wallet/x402"
	"x402-wallet/x402/wire"
)

const (
	// closeTimeout bounds the end of all sessions: hosts kill what takes longer.
	closeTimeout = 5 * time.Second
	// maxSilence is how long a server that all calls share a wire with may say nothing while a call waits
	// for it, before that call's deadline ends the session.
	maxSilence = 15 * time.Second
)

// endpoint is one server with its session, of one agent.
type endpoint struct {
	mcp   *Client
	agent string
	url   *url.URL

	turn  chan struct{} // one at a time opens a session
	entry chan struct{} // one at a time pays for it

	// some tool wants arguments as headers, so its schema has to be known before it is called
	wantsHeaders atomic.Bool

	mu      sync.Mutex
	current *session
	// of a command: closed when the one before has ended, so that no two run at a time; may be nil
	ending <-chan struct{}

	users  int         // under the MCP's lock, like the next two
	used   time.Time   // last
	unused *time.Timer // ends it when nobody uses it; nil: never
}

// Close ends all sessions, and the commands that were started for them.
func (m *Client) Close() error {
	m.mu.Lock()
	endpoints := m.endpoints
	m.endpoints, m.closed = map[place]*endpoint{}, true
	m.mu.Unlock()
	m.end() // of what is being opened
	m.http.close()
	var all sync.WaitGroup
	for p := range maps.Values(endpoints) {
		if p.unused != nil {
			p.unused.Stop()
		}
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
	if s := p.swap(nil); s != nil {
		s.close()
	}
}

// swap puts a session in the place of the current one, which it gives back.
func (p *endpoint) swap(s *session) (before *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before, p.current = p.current, s
	return before
}

func (p *endpoint) live() *session {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current != nil && p.current.alive() {
		return p.current
	}
	return nil
}

// drop gives up a session, unless that was done already. The calls that are under way on it may still
// get their answers; then it is closed. Nobody waits for that here: a server may leave its end
// unanswered, and a program may take its time to end.
func (p *endpoint) drop(s *session) {
	p.mu.Lock()
	isCurrent := s != nil && p.current == s
	if isCurrent {
		p.current = nil
	}
	p.mu.Unlock()
	if !isCurrent {
		return
	}
	unused := s.unused()
	ended := p.mcp.later(func() {
		if unused != nil {
			select {
			case <-unused:
			case <-s.quit:
			}
		}
		s.close()
	})
	if unused == nil {
		p.endsWith(ended)
	}
}

// endsWith notes what the next program has to wait for.
func (p *endpoint) endsWith(ended <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.url.Scheme == commandScheme {
		p.ending = ended
	}
}

// clear makes room for a new session.
func (p *endpoint) clear(ctx context.Context) error {
	p.mu.Lock()
	s := p.current
	p.mu.Unlock()
	p.drop(s)
	p.mu.Lock()
	ending := p.ending
	p.mu.Unlock()
	if ending == nil {
		return nil
	}
	select {
	case <-ending:
		return nil
	case <-ctx.Done():
		return p.mcp.unanswered(ctx, mcpRequest{endpoint: p.url}, ctx.Err())
	}
}

// later does what ends a session while no call waits for it, only Close.
func (m *Client) later(f func()) (over <-chan struct{}) {
	done := make(chan struct{})
	run := func() { defer close(done); f() }
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		run()
		return done
	}
	defer m.mu.Unlock()
	m.dropped.Go(run)
	return done
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
	p, err := m.endpointNamed(ctx, endpoint)
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
	if s := p.live(); s != nil {
		return s, false, nil
	}
	if err := p.clear(ctx); err != nil {
		return nil, false, err
	}
	e := p.mcp.newExchange(Initialize, wire.Attachment{})
	s, err = p.open(ctx, e, "")
	if err != nil {
		a, noAnswer := e.answer(p.url.String())
		if noAnswer == nil && (a.Challenge != nil || a.ChallengeErr != nil) {
			return nil, false, &EntryError{Endpoint: p.url.String(), err: x402.Errorf(x402.ServerUnavailable,
				"%s asks for payment before anything else", hostOf(p.url))}
		}
		return nil, false, err
	}
	p.swap(s)
	return s, true, nil
}

// initialize is initialize as a request of its own: what it costs, or with a payment.
func (p *endpoint) initialize(ctx context.Context, with wire.Attachment) (*exchange, error) {
	done, err := p.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	e := p.mcp.newExchange(Initialize, with)
	if p.live() != nil && !e.pays() {
		e.result = json.RawMessage("{}") // a session is open already
		return e, nil
	}
	if err := p.clear(ctx); err != nil {
		return nil, err
	}
	s, err := p.open(ctx, e, legacyVersion)
	if err != nil && !e.sent.Load() {
		return nil, err
	}
	if err == nil {
		p.swap(s)
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
	listed   atomic.Bool     // its tools were read, and have not changed since
	shared   bool            // all calls share one wire: a pipe, or the stream of SSE of 2024-11-05
	heard    atomic.Int64    // messages, where they share one
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

// watch begins to watch a call on the session. The returned function ends that: it drops the session
// where the call ended by its deadline while the server said nothing at all, long enough that it is taken to
// hang: it would hold up the next call, too. Where each call is a request of its own nothing does.
func (p *endpoint) watch(ctx context.Context, s *session) (end func()) {
	began, heard := time.Now(), s.heard.Load()
	return func() {
		isSilent := s.shared && s.heard.Load() == heard && time.Since(began) >= p.mcp.options.silence
		if isSilent && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			p.mcp.options.Log.Info("an MCP server says nothing; its session is opened again", "server",
				hostOf(p.url))
			p.drop(s)
		}
	}
}

// close ends the connection first: the SDK's own closing would wait for calls that nobody answers.
func (s *session) close() {
	_ = s.conn.Close()
	s.stop()
	_ = s.mcp.Close()
	<-s.ended
}

func metaOf(ctx context.Context, with wire.Attachment) mcp.Meta {
	meta := mcp.Meta{}
	if trace := steps.PassedOn(ctx); trace != "" {
		meta[steps.Header] = trace
	}
	for key, value := range with.Meta {
		meta[key] = value
	}
	return meta
}

func (s *session) call(ctx context.Context, w mcpRequest, e *exchange) {
	meta := metaOf(ctx, e.with)
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
	case ReadResource: // not by the session's own method, which answers from a cache
		result, err = mcp.CallCustomMethod[*mcp.ReadResourceParams, *mcp.ReadResourceResult](ctx, s.mcp,
			w.method, &mcp.ReadResourceParams{Meta: meta, URI: w.name})
	case GetPrompt:
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
