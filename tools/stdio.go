package tools

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"x402-wallet/internal/mcpconn"
	"x402-wallet/pay"
	"x402-wallet/x402/wire"
)

const (
	// lastAnswers is how long the end of the input waits for answers under way, so that requests from a
	// file or a pipe are answered too. Clients that leave wait two seconds and more before they kill.
	lastAnswers = 500 * time.Millisecond
	// maxOfOne is how many requests of one client among many may be unanswered: what they take of memory
	// and time is the others'.
	maxOfOne = 256
	// codeBusy is the JSON-RPC error code of a server that is busy for a moment.
	codeBusy = -32000
	// lateCancel is how long after an answer its cancellation may come: a client that gave up at
	// the same moment never read it. Only then the answer counts as delivered.
	lateCancel = 2 * time.Second
)

// stdioTransport is mcpconn's connection with a client on stdio, and what is known here of the
// client's waiting: a cancelled request gets no answer, and every call of a tool carries a pay.Call
// that is cancelled the moment its cancellation is read, and delivered when its answer was written.
type stdioTransport struct {
	mcp.Connection
	stdio      mcp.Transport          // makes it
	pays       func(tool string) bool // whether a tool's answers are purchases
	passed     passer                 // nil: what was written is with the client
	agent      string                 // the name of the client's; "": it has none
	lateCancel time.Duration
	// how many requests may be unanswered, more are refused; 0: any number
	maxUnanswered int

	mu         sync.Mutex
	requests   map[jsonrpc.ID]*clientRequest
	unanswered int
	repeats    repeats
	deliveries sync.WaitGroup // timers of requests that have not run out

	closed   chan struct{}
	closing  sync.Once
	closeErr error
}

// passer is an output behind which somebody passes on to the client what is written.
type passer interface {
	// OnPassed has f called once: when all that was written so far was passed on, or never will be.
	OnPassed(f func(passed bool))
}

// clientRequest is a request of the client until it is answered; where it pays, until its answer
// counts as delivered.
type clientRequest struct {
	call     *pay.Call
	pays     bool
	same     [sha256.Size]byte // of the tool and its arguments
	givenUp  bool              // its client may no longer wait for it, without having said so
	repeated bool              // and made it again
	answered bool
	delivery *time.Timer // nil: not yet with the client
}

func newStdioTransport(in io.ReadCloser, out io.WriteCloser, pays func(tool string) bool) *stdioTransport {
	passed, _ := out.(passer)
	return &stdioTransport{passed: passed,
		stdio: mcpconn.Stdio(in, out, wire.MaxMCPMessage, false), pays: pays, lateCancel: lateCancel,
		requests: map[jsonrpc.ID]*clientRequest{}, closed: make(chan struct{}),
	}
}

func (l *stdioTransport) Connect(ctx context.Context) (_ mcp.Connection, err error) {
	l.Connection, err = l.stdio.Connect(ctx)
	return l, err
}

// Read gives the next message; only the SDK's reading goroutine calls it.
func (l *stdioTransport) Read(ctx context.Context) (jsonrpc.Message, error) {
	for {
		l.repeats.reading(true)
		m, err := l.Connection.Read(ctx)
		l.repeats.reading(false)
		if errors.Is(err, io.EOF) {
			l.drain()
		}
		r, isRequest := m.(*jsonrpc.Request)
		if !isRequest || l.note(r) {
			return m, err
		}
		if err := l.Connection.Write(ctx, tooMany(r.ID)); err != nil {
			return nil, err
		}
	}
}

func tooMany(id jsonrpc.ID) *jsonrpc.Response {
	return &jsonrpc.Response{ID: id, Error: &jsonrpc.Error{Code: codeBusy,
		Message: "too many requests of this session are unanswered; make it again when some are"}}
}

// note begins calls and cancels them, before the next message is read: a call behind a cancellation
// finds the cancelled one's payment left by its client. It reports false for a request too many.
func (l *stdioTransport) note(r *jsonrpc.Request) bool {
	if r.IsCall() {
		return l.begin(r)
	}
	if r.Method != "notifications/cancelled" {
		return true
	}
	var params struct {
		RequestID any `json:"requestId"`
	}
	if json.Unmarshal(r.Params, &params) != nil {
		return true
	}
	if id, err := jsonrpc.MakeID(params.RequestID); err == nil {
		l.cancel(id)
	}
	return true
}

func (l *stdioTransport) begin(r *jsonrpc.Request) bool {
	c := &clientRequest{call: &pay.Call{Began: time.Now()}}
	if r.Method == "tools/call" {
		var params struct {
			Name      string          `json:"name"`
			Arguments json.RawMessage `json:"arguments"`
		}
		_ = json.Unmarshal(r.Params, &params) // the SDK says what is wrong with it
		c.pays = l.pays(params.Name)
		c.same = sha256.Sum256(slices.Concat([]byte(params.Name), []byte{0}, params.Arguments))
		attachCall(r, c.call, l.agent)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.requests[r.ID]
	if before != nil && !before.answered {
		return true // the SDK refuses a second request by the id of one that is not answered
	}
	if l.maxUnanswered > 0 && l.unanswered >= l.maxUnanswered {
		return false
	}
	if before != nil && !before.call.Late() { // the id is free again: the client has read the answer
		before.call.Deliver()
		if before.delivery != nil && before.delivery.Stop() {
			l.deliveries.Done()
		}
	}
	l.requests[r.ID] = c
	l.unanswered++
	if c.pays {
		l.repeats.begin(c)
	}
	return true
}

// cancel takes effect also after the answer, until it counts as delivered: the client gave up at
// the same moment.
func (l *stdioTransport) cancel(id jsonrpc.ID) {
	l.mu.Lock()
	c := l.requests[id]
	l.mu.Unlock()
	if c != nil {
		c.call.Cancel()
	}
}

// Write passes an answer on, and nothing to a client that has cancelled the request.
func (l *stdioTransport) Write(ctx context.Context, m jsonrpc.Message) error {
	var c *clientRequest
	response, isAnswer := m.(*jsonrpc.Response)
	if isAnswer {
		l.mu.Lock()
		c = l.requests[response.ID]
		l.mu.Unlock()
	}
	if c == nil {
		return l.Connection.Write(ctx, m)
	}
	repeated := c.pays && l.repeats.answer(c)
	if c.call.Cancelled() {
		l.answer(c)
		l.forget(response.ID, c)
		return nil
	}
	err := l.Connection.Write(ctx, m)
	l.answer(c)
	switch {
	case err != nil, repeated:
		l.forget(response.ID, c)
		c.call.Cancel()
	case c.pays && l.passed != nil:
		l.passed.OnPassed(func(passed bool) { l.onPassed(response.ID, c, passed) })
	case c.pays:
		l.deliverLater(response.ID, c)
	default:
		l.forget(response.ID, c)
		c.call.Deliver()
	}
	return err
}

func (l *stdioTransport) answer(c *clientRequest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !c.answered {
		c.answered = true
		l.unanswered--
	}
}

// onPassed takes an answer as written when the client has it.
func (l *stdioTransport) onPassed(id jsonrpc.ID, c *clientRequest, passed bool) {
	if passed {
		l.deliverLater(id, c)
		return
	}
	l.forget(id, c)
	c.call.Cancel()
}

func (l *stdioTransport) forget(id jsonrpc.ID, c *clientRequest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.requests[id] == c {
		delete(l.requests, id)
	}
}

// deliverLater delivers an answer that was written, when its cancellation cannot come any more.
func (l *stdioTransport) deliverLater(id jsonrpc.ID, c *clientRequest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.closed: // it cannot come any more
		delete(l.requests, id)
		c.call.Deliver()
		return
	default:
	}
	wait := l.lateCancel
	if c.call.Late() {
		wait = pay.LateAnswerRepeats
	}
	l.deliveries.Add(1)
	c.delivery = time.AfterFunc(wait, func() {
		defer l.deliveries.Done()
		l.forget(id, c)
		c.call.Deliver()
	})
}

// drain gives requests that were read before the input ended a moment to be answered. Not while a
// payment is under way: then the client is gone, and the payment has to know that.
func (l *stdioTransport) drain() {
	for end := time.Now().Add(lastAnswers); l.answering() && time.Now().Before(end); {
		select {
		case <-l.closed:
			return
		case <-time.After(time.Millisecond):
		}
	}
}

func (l *stdioTransport) answering() (some bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.requests {
		switch {
		case c.answered:
		case c.pays:
			return false
		default:
			some = true
		}
	}
	return some
}

// Close ends both streams. What was written is delivered, but for what may have come too late.
func (l *stdioTransport) Close() error {
	l.closing.Do(func() {
		l.mu.Lock()
		close(l.closed)
		rest := slices.Collect(maps.Values(l.requests))
		l.mu.Unlock()
		for _, c := range rest {
			if c.delivery == nil || !c.delivery.Stop() {
				continue
			}
			if c.call.Late() {
				c.call.Cancel()
			} else {
				c.call.Deliver()
			}
			l.deliveries.Done()
		}
		l.deliveries.Wait()
		l.closeErr = l.Connection.Close()
	})
	return l.closeErr
}

// Where a request's extra has its pay.Call, and the name of the agent that makes it.
const (
	callKey  = "x402-wallet/call"
	agentKey = "x402-wallet/agent"
)

// attachCall lets a request carry its call to the handler. What a transport puts into RequestExtra
// the SDK hands on as it is; of that only a token's Extra holds values of any kind.
func attachCall(r *jsonrpc.Request, c *pay.Call, agent string) {
	r.Extra = &mcp.RequestExtra{TokenInfo: &auth.TokenInfo{
		Extra: map[string]any{callKey: c, agentKey: agent}}}
}

// withCall is the context of a request's handler: it carries the call and the agent that the transport
// attached, if any, and ends with the call, as the call does with it. done is called when the handler
// returns.
func withCall(ctx context.Context, request mcp.Request) (_ context.Context, done func()) {
	extra := request.GetExtra()
	if extra == nil || extra.TokenInfo == nil {
		return ctx, func() {}
	}
	c, ok := extra.TokenInfo.Extra[callKey].(*pay.Call)
	if !ok {
		return ctx, func() {}
	}
	if agent, _ := extra.TokenInfo.Extra[agentKey].(string); agent != "" {
		ctx = pay.WithAgent(ctx, agent)
	}
	stop := context.AfterFunc(ctx, c.Cancel)
	return pay.WithCall(ctx, c), func() { stop() }
}
