package tools

import (
	"context"
	"errors"
	"iter"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// storedEvents bounds what is kept of one agent's answers for its clients that lost their connection.
const storedEvents = 16 << 20

// share counts what each agent has of something, of which one has so much at most.
type share struct {
	most int

	mu sync.Mutex
	of map[string]int
}

// take reports whether the agent may have one more.
func (s *share) take(agent string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of[agent] >= s.most {
		return false
	}
	if s.of == nil {
		s.of = map[string]int{}
	}
	s.of[agent]++
	return true
}

func (s *share) leave(agent string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of[agent]--
	if s.of[agent] == 0 {
		delete(s.of, agent)
	}
}

// events are an mcp.EventStore. They are kept for each agent by itself, so that none pushes out another's;
// and know its sessions.
type events struct {
	mu     sync.Mutex
	agents map[string]*agentEvents
	owners map[string]*agentEvents // by session
}

type agentEvents struct {
	*mcp.MemoryEventStore
	agent    string
	sessions int
}

func newEvents() *events {
	return &events{agents: map[string]*agentEvents{}, owners: map[string]*agentEvents{}}
}

// Open implements mcp.EventStore. The stream "" is a session's first: that is of the agent whose request
// opens it.
func (e *events) Open(ctx context.Context, session, stream string) error {
	if stream == "" {
		e.begin(ctx, session)
	}
	own, err := e.of(session)
	if err != nil {
		return err
	}
	return own.Open(ctx, session, stream)
}

func (e *events) begin(ctx context.Context, session string) {
	agent := ""
	if known := auth.TokenInfoFromContext(ctx); known != nil {
		agent = known.UserID
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	own := e.agents[agent]
	if own == nil {
		own = &agentEvents{MemoryEventStore: mcp.NewMemoryEventStore(nil), agent: agent}
		own.SetMaxBytes(storedEvents)
		e.agents[agent] = own
	}
	if e.owners[session] == nil {
		own.sessions++
		e.owners[session] = own
	}
}

var errSessionClosed = errors.New("the session is closed")

func (e *events) of(session string) (*agentEvents, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if own := e.owners[session]; own != nil {
		return own, nil
	}
	return nil, errSessionClosed
}

func (e *events) Append(ctx context.Context, session, stream string, data []byte) error {
	own, err := e.of(session)
	if err != nil {
		return err
	}
	return own.Append(ctx, session, stream, data)
}

func (e *events) After(ctx context.Context, session, stream string, index int) iter.Seq2[[]byte, error] {
	own, err := e.of(session)
	if err != nil {
		return func(yield func([]byte, error) bool) { yield(nil, err) }
	}
	return own.After(ctx, session, stream, index)
}

// SessionClosed implements mcp.EventStore. It is called once.
func (e *events) SessionClosed(ctx context.Context, session string) error {
	own, err := e.of(session)
	if err != nil {
		return err
	}
	e.mu.Lock()
	delete(e.owners, session)
	own.sessions--
	if own.sessions == 0 {
		delete(e.agents, own.agent)
	}
	e.mu.Unlock()
	return own.SessionClosed(ctx, session)
}
