package seller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"x402-wallet/internal/child"
	"x402-wallet/internal/mcpconn"
	"x402-wallet/x402"
	"x402-wallet/x402/wire"
)

const (
	// openTimeout is how long a server may take to be ready; some are downloaded first.
	openTimeout = 60 * time.Second
	// discoverTimeout is how long server/discover may stay unanswered before initialize is tried:
	// servers of the older protocols exist that never answer what they do not know.
	discoverTimeout = 8 * time.Second
	// legacyVersion is the last protocol that begins with initialize, which can be paid for.
	legacyVersion = "2025-11-25"
)

// capturedTransport is a mcp.Transport that remembers its connection.
type capturedTransport struct {
	mcp.Transport
	conn mcp.Connection
}

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
		return p.connect(ctx, e, version, func(at *session) mcp.Transport {
			s, log := p.mcp.options.Servers[p.url.Host], p.mcp.options.Log.With("server", p.url.Host)
			program := child.Program{Argv: s.Command, Env: s.Env, Sandbox: s.Sandbox}
			return at.recorded(mcpconn.Command(program, log, nil), true)
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
	if err == nil || isDecided || e.asksItself() || e.pays() || ctx.Err() != nil {
		return s, err
	}
	// Servers of 2024-11-05 know no POST here (MCP, transports, backwards compatibility).
	old, oldErr := p.connect(ctx, e, legacyVersion, func(s *session) mcp.Transport {
		return s.recorded(&mcp.SSEClientTransport{
			Endpoint: p.url.String(), HTTPClient: client(s, true), MaxEventSize: wire.MaxMCPMessage,
		}, false)
	})
	if oldErr != nil {
		return nil, err // the first one says more
	}
	return old, nil
}

// recorded is a transport on which all calls share one wire.
func (s *session) recorded(t mcp.Transport, isLast bool) mcp.Transport {
	s.shared = true
	return recorded{Transport: t, isLast: isLast, heard: &s.heard}
}

// connect opens a session by one transport. It returns when ctx is over, whatever the SDK waits for then.
func (p *endpoint) connect(ctx context.Context, e *exchange, version string,
	by func(*session) mcp.Transport) (*session, error) {
	life, end := context.WithCancel(e.in(context.WithoutCancel(ctx)))
	stop := context.AfterFunc(ctx, end)
	s := &session{stop: end, ended: make(chan struct{}), quit: p.mcp.life.Done()}
	opened := &capturedTransport{Transport: by(s)}
	var err error
	connected := make(chan struct{})
	go func() {
		defer close(connected)
		s.mcp, err = p.client(s).Connect(life, opened, &mcp.ClientSessionOptions{ProtocolVersion: version})
		s.conn = opened.conn
	}()
	var why error
	select {
	case <-connected:
		if err == nil && stop() {
			go func() {
				_ = s.mcp.Wait()
				close(s.ended)
			}()
			return s, nil
		}
		why = cmp.Or(err, ctx.Err())
	case <-ctx.Done():
		why = ctx.Err()
	}
	end()
	p.endsWith(p.mcp.later(func() {
		<-connected
		if s.conn != nil {
			_ = s.conn.Close()
		}
		if s.mcp != nil {
			_ = s.mcp.Close()
		}
	}))
	e.mu.Lock()
	e.failure = why
	e.mu.Unlock()
	return nil, p.unavailable(ctx, why, e)
}

// unavailable says why no session came about.
func (p *endpoint) unavailable(ctx context.Context, err error, e *exchange) error {
	coded, isOurs := errors.AsType[*x402.Error](err)
	switch {
	case isOurs && coded.Code != x402.NetworkError:
		return coded
	case ctx.Err() != nil:
		return p.mcp.unanswered(ctx, mcpRequest{endpoint: p.url}, failure{err})
	}
	e.mu.Lock()
	refused := e.unopened
	e.mu.Unlock()
	if refused != nil {
		refused.Err = failure{err}
		return refused
	}
	down := &x402.Error{Code: x402.ServerUnavailable, Message: "the MCP server " + hostOf(p.url) +
		" cannot be reached, or does not speak MCP", Err: failure{err}, Hint: "nothing was paid"}
	if p.url.Scheme == commandScheme {
		return down.WithCommand(x402.Command("doctor"), "The program of the MCP server "+hostOf(p.url)+
			" does not start, or does not speak MCP: please look at [servers."+hostOf(p.url)+"] in "+
			"config.toml.")
	}
	return down.WithNext(x402.Next{Do: x402.Repeat,
		Why: "nothing was paid; if it stays so, the URL is wrong or the server is down: use another one"})
}

// client is our side of a session. It offers nothing a server could ask for, and says that it pays.
func (p *endpoint) client(s *session) *mcp.Client {
	offers := &mcp.ClientCapabilities{}
	offers.AddExtension(wire.MCPExtension, nil)
	c := mcp.NewClient(&mcp.Implementation{Name: "x402-wallet", Version: p.mcp.options.Version},
		&mcp.ClientOptions{
			Capabilities: offers,
			// it would send a request again, with its payment
			MultiRoundTrip: &mcp.MultiRoundTripOptions{Disabled: true},
			ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) {
				s.listed.Store(false)
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
			r.GetParams().SetMeta(metaOf(ctx, e.with))
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
