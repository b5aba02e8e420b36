package tools

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"x402-wallet/pay"
)

const (
	// maxLine bounds one message of the client, in bytes with its newline. The largest honest one
	// is a request body.
	maxLine = 16 << 20
	// lastAnswers is how long the end of the input waits for answers under way, so that requests
	// from a file or a pipe are answered too. Clients that leave wait two seconds and more before
	// they kill.
	lastAnswers = 500 * time.Millisecond
	// lateCancel is how long after an answer its cancellation may come: a client that gave up at
	// the same moment never read it. Only then the answer counts as delivered.
	lateCancel = 2 * time.Second
)

// stdioTransport is MCP's stdio transport, one JSON-RPC message a line. It is ours and not the
// SDK's for three things: a line that is no message is answered and does not end the session; a
// cancelled request gets no answer; and every call of a tool carries a pay.Call that is cancelled
// the moment its cancellation is read, and delivered when its answer was written.
type stdioTransport struct {
	in         *bufio.Reader
	source     io.Closer
	out        io.WriteCloser
	pays       func(tool string) bool // whether a tool's answers are purchases
	maxLine    int
	lateCancel time.Duration

	incoming chan jsonrpc.Message

	writing    sync.Mutex // whole lines
	mu         sync.Mutex
	requests   map[jsonrpc.ID]*clientRequest
	deliveries sync.WaitGroup // timers of requests that have not run out

	closed  chan struct{}
	closing sync.Once
	failure error // of closing
}

// clientRequest is a request of the client until it is answered; where it pays, until its answer
// counts as delivered.
type clientRequest struct {
	call     *pay.Call
	pays     bool
	delivery *time.Timer // nil: not answered yet
}

func newStdioTransport(in io.ReadCloser, out io.WriteCloser, pays func(tool string) bool) *stdioTransport {
	return &stdioTransport{
		in: bufio.NewReaderSize(in, 64<<10), source: in, out: out, pays: pays, maxLine: maxLine,
		lateCancel: lateCancel,
		incoming:   make(chan jsonrpc.Message), closed: make(chan struct{}),
		requests: map[jsonrpc.ID]*clientRequest{},
	}
}

// Connect implements mcp.Transport.
func (l *stdioTransport) Connect(context.Context) (mcp.Connection, error) {
	go l.receive()
	return l, nil
}

// SessionID implements mcp.Connection.
func (l *stdioTransport) SessionID() string { return "" }

// Read gives the next message; only the SDK's reading goroutine calls it.
func (l *stdioTransport) Read(ctx context.Context) (jsonrpc.Message, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-l.closed:
		return nil, io.EOF
	case m, more := <-l.incoming:
		if !more {
			l.drain()
			return nil, io.EOF
		}
		if r, isRequest := m.(*jsonrpc.Request); isRequest {
			l.note(r)
		}
		return m, nil
	}
}

// receive reads until the input or the session ends. It has a goroutine of its own because closing
// stdin does not end a Read.
func (l *stdioTransport) receive() {
	defer close(l.incoming)
	for {
		line, err := l.next()
		if m := l.message(bytes.TrimSpace(line), err); m != nil {
			select {
			case l.incoming <- m:
			case <-l.closed:
				return
			}
		}
		if err != nil && !errors.Is(err, errTooLong) {
			return
		}
	}
}

var errTooLong = errors.New("line too long")

// next reads a line; one that is too long is read to its end and dropped.
func (l *stdioTransport) next() ([]byte, error) {
	var line []byte
	tooLong := false
	for {
		part, err := l.in.ReadSlice('\n')
		if tooLong = tooLong || len(line)+len(part) > l.maxLine; !tooLong {
			line = append(line, part...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if tooLong && err == nil {
			return nil, errTooLong
		}
		return line, err
	}
}

// message decodes a line, or answers it itself and gives nil.
func (l *stdioTransport) message(line []byte, reading error) jsonrpc.Message {
	switch whole := json.Valid(line); {
	case errors.Is(reading, errTooLong):
		l.refuse(nil, jsonrpc.CodeInvalidRequest, "the message is longer than 16 MiB")
	case len(line) == 0, reading != nil && !whole: // blank, or the client died in the middle of it
	case !whole:
		l.refuse(nil, jsonrpc.CodeParseError, "the line is not JSON")
	case line[0] != '{':
		l.refuse(nil, jsonrpc.CodeInvalidRequest, "a message is one JSON object; batches are not supported")
	default:
		return l.decode(line)
	}
	return nil
}

// decode takes exactly what the SDK can take, because it would end the session over anything else.
func (l *stdioTransport) decode(line []byte) jsonrpc.Message {
	var head struct{ ID, Method, Result, Error json.RawMessage }
	_ = json.Unmarshal(line, &head) // it is a JSON object
	m, err := jsonrpc.DecodeMessage(line)
	request, isRequest := m.(*jsonrpc.Request)
	switch {
	case head.Method == nil && (head.Result != nil || head.Error != nil):
		// an answer; complaining about those could go on for ever
		if err != nil {
			return nil
		}
	case !utf8.Valid(line):
		l.refuse(head.ID, jsonrpc.CodeParseError, "the line is not UTF-8")
		return nil
	case err != nil:
		l.refuse(head.ID, jsonrpc.CodeInvalidRequest,
			"not a JSON-RPC 2.0 message, or one that nests too deep")
		return nil
	case isRequest && !faithful(request.ID, head.ID):
		l.refuse(head.ID, jsonrpc.CodeInvalidRequest, "an id is a string or an integer below 2^53")
		return nil
	}
	return m
}

// faithful reports whether an id comes back as it was given: the SDK reads numbers as floats.
func faithful(id jsonrpc.ID, given json.RawMessage) bool {
	n, isNumber := id.Raw().(int64)
	return !isNumber || strconv.FormatInt(n, 10) == string(given)
}

// refuse answers what never became a request. Without a usable id JSON-RPC 2.0 §5 wants null.
func (l *stdioTransport) refuse(id json.RawMessage, code int, message string) {
	if len(id) == 0 || id[0] != '"' && id[0] != '-' && (id[0] < '0' || id[0] > '9') || !utf8.Valid(id) {
		id = json.RawMessage("null")
	}
	text, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "error": map[string]any{"code": code,
		"message": message}})
	_ = l.write(append(text, '\n')) // the next answer fails too, and ends the session
}

// note begins calls and cancels them, before the next message is read: a call behind a cancellation
// finds the cancelled one's payment left by its client.
func (l *stdioTransport) note(r *jsonrpc.Request) {
	if r.IsCall() {
		l.begin(r)
		return
	}
	if r.Method != "notifications/cancelled" {
		return
	}
	var params struct {
		RequestID any `json:"requestId"`
	}
	if json.Unmarshal(r.Params, &params) != nil {
		return
	}
	if id, err := jsonrpc.MakeID(params.RequestID); err == nil {
		l.cancel(id)
	}
}

func (l *stdioTransport) begin(r *jsonrpc.Request) {
	c := &clientRequest{call: pay.NewCall()}
	if r.Method == "tools/call" {
		var params struct {
			Name string `json:"name"`
		}
		_ = json.Unmarshal(r.Params, &params) // the SDK says what is wrong with it
		c.pays = l.pays(params.Name)
		attachCall(r, c.call)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.requests[r.ID]
	if before != nil && before.delivery == nil {
		return // the SDK refuses a second request by the id of one that is not answered
	}
	if before != nil && before.delivery.Stop() { // the id is free again: the client has read the answer
		before.call.Deliver()
		l.deliveries.Done()
	}
	l.requests[r.ID] = c
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

// Write passes an answer on, and nothing to who has cancelled the request.
func (l *stdioTransport) Write(_ context.Context, m jsonrpc.Message) error {
	response, isAnswer := m.(*jsonrpc.Response)
	if !isAnswer {
		return l.send(m)
	}
	presentable(response)
	l.mu.Lock()
	c := l.requests[response.ID]
	l.mu.Unlock()
	if c == nil {
		return l.send(m)
	}
	if c.call.Cancelled() {
		l.forget(response.ID, c)
		return nil
	}
	err := l.send(m)
	switch {
	case err != nil:
		l.forget(response.ID, c)
		c.call.Cancel()
	case c.pays:
		l.deliverLater(response.ID, c)
	default:
		l.forget(response.ID, c)
		c.call.Deliver()
	}
	return err
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
	l.deliveries.Add(1)
	c.delivery = time.AfterFunc(l.lateCancel, func() {
		defer l.deliveries.Done()
		l.forget(id, c)
		c.call.Deliver()
	})
}

func (l *stdioTransport) send(m jsonrpc.Message) error {
	text, err := jsonrpc.EncodeMessage(m)
	if err != nil {
		return err
	}
	return l.write(append(text, '\n'))
}

func (l *stdioTransport) write(line []byte) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	n, err := l.out.Write(line)
	if err == nil && n < len(line) {
		err = io.ErrShortWrite
	}
	return err
}

// presentable gives an error a number where the SDK has none (0, before initialize), and other
// words where the SDK describes params that it cannot read by its own types.
func presentable(r *jsonrpc.Response) {
	var coded *jsonrpc.Error
	if r.Error != nil && strings.HasPrefix(r.Error.Error(), "handling '") &&
		strings.Contains(r.Error.Error(), `: unmarshaling "`) {
		r.Error = &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams,
			Message: "the params are not of the form that this method takes"}
	}
	if r.Error != nil && (!errors.As(r.Error, &coded) || coded.Code == 0) {
		r.Error = &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: r.Error.Error()}
	}
}

// drain gives requests that were read before the input ended a moment to be answered. Not while a
// payment is under way: then the client is gone, and the payment has to know that.
func (l *stdioTransport) drain() {
	for end := time.Now().Add(lastAnswers); l.answering() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}

func (l *stdioTransport) answering() (some bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.requests {
		switch {
		case c.delivery != nil:
		case c.pays:
			return false
		default:
			some = true
		}
	}
	return some
}

// Close ends both streams. What was written is delivered.
func (l *stdioTransport) Close() error {
	l.closing.Do(func() {
		l.mu.Lock()
		close(l.closed)
		rest := slices.Collect(maps.Values(l.requests))
		l.mu.Unlock()
		for _, c := range rest {
			if c.delivery != nil && c.delivery.Stop() {
				c.call.Deliver()
				l.deliveries.Done()
			}
		}
		l.deliveries.Wait()
		if err := errors.Join(l.source.Close(), l.out.Close()); !errors.Is(err, os.ErrClosed) {
			l.failure = err
		}
	})
	return l.failure
}

// callKey is where a request's extra has its pay.Call.
const callKey = "x402-wallet/call"

// attachCall lets a request carry its call to the handler. What a transport puts into RequestExtra
// the SDK hands on as it is; of that only a token's Extra holds values of any kind. On stdio there
// are no tokens; another transport adds the call to what its own tokens say.
func attachCall(r *jsonrpc.Request, c *pay.Call) {
	r.Extra = &mcp.RequestExtra{TokenInfo: &auth.TokenInfo{Extra: map[string]any{callKey: c}}}
}

// withCall is the context of a request's handler: it carries the call that the transport attached,
// if any, and ends with it.
func withCall(ctx context.Context, request mcp.Request) context.Context {
	extra := request.GetExtra()
	if extra == nil || extra.TokenInfo == nil {
		return ctx
	}
	if c, ok := extra.TokenInfo.Extra[callKey].(*pay.Call); ok {
		return pay.WithCall(ctx, c)
	}
	return ctx
}
