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
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
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
	// cancelTime is what a cancellation needs to reach the ledger (the SDK passes it on in a
	// goroutine of its own). The very same call right behind it must find the payment without a
	// caller, or it would be taken for another purchase.
	cancelTime = 100 * time.Millisecond
)

// lines is MCP's stdio transport, one JSON-RPC message a line. It is ours and not the SDK's for
// three things: a line that is no message is answered and does not end the session; what a client
// has cancelled it is not told; and which purchases reached the client is noted, because only those
// may be made again.
type lines struct {
	in         *bufio.Reader
	source     io.Closer
	out        io.WriteCloser
	purchases  purchases
	maxLine    int
	lateCancel time.Duration

	incoming chan jsonrpc.Message
	cancels  bool // the message before was a cancellation; of Read

	writing sync.Mutex // whole lines
	mu      sync.Mutex
	open    map[jsonrpc.ID]*request // being answered
	told    map[jsonrpc.ID]*told    // answered, and perhaps cancelled at the same moment
	telling sync.WaitGroup          // those of told that are being noted

	closed  chan struct{}
	closing sync.Once
	failure error // of closing
}

// purchases hears what became of the answers to payments.
type purchases interface {
	pays(tool string) bool              // whether a tool's answers are purchases
	delivered(status, paymentID string) // the client has it
	lost(paymentID string)              // the client does not have it, and does not wait for it
}

type request struct{ pays, cancelled bool }

type told struct {
	purchase
	timer *time.Timer // nil while it is being written
}

// purchase is what an answer of a tool that pays says about its payment.
type purchase struct {
	Status    string `json:"status"`
	PaymentID string `json:"paymentId"`
}

func newLines(in io.ReadCloser, out io.WriteCloser, p purchases) *lines {
	return &lines{
		in: bufio.NewReaderSize(in, 64<<10), source: in, out: out, purchases: p, maxLine: maxLine,
		lateCancel: lateCancel,
		incoming:   make(chan jsonrpc.Message), closed: make(chan struct{}),
		open: map[jsonrpc.ID]*request{}, told: map[jsonrpc.ID]*told{},
	}
}

// Connect implements mcp.Transport.
func (l *lines) Connect(context.Context) (mcp.Connection, error) {
	go l.receive()
	return l, nil
}

// SessionID implements mcp.Connection.
func (l *lines) SessionID() string { return "" }

// Read gives the next message; only the SDK's reading goroutine calls it.
func (l *lines) Read(ctx context.Context) (jsonrpc.Message, error) {
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
		if l.cancels {
			time.Sleep(cancelTime)
		}
		l.cancels = l.note(m)
		return m, nil
	}
}

// receive reads until the input or the session ends. It has a goroutine of its own because closing
// stdin does not end a Read.
func (l *lines) receive() {
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
func (l *lines) next() ([]byte, error) {
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
func (l *lines) message(line []byte, reading error) jsonrpc.Message {
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
func (l *lines) decode(line []byte) jsonrpc.Message {
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
func (l *lines) refuse(id json.RawMessage, code int, message string) {
	if len(id) == 0 || id[0] != '"' && id[0] != '-' && (id[0] < '0' || id[0] > '9') || !utf8.Valid(id) {
		id = json.RawMessage("null")
	}
	text, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "error": map[string]any{"code": code,
		"message": message}})
	_ = l.write(append(text, '\n')) // the next answer fails too, and ends the session
}

// note remembers requests and their cancellations. It reports whether a payment was cancelled.
func (l *lines) note(m jsonrpc.Message) bool {
	r, ok := m.(*jsonrpc.Request)
	if !ok {
		return false
	}
	if r.Method == "notifications/cancelled" {
		var params struct {
			RequestID any `json:"requestId"`
		}
		if json.Unmarshal(r.Params, &params) != nil {
			return false
		}
		id, err := jsonrpc.MakeID(params.RequestID)
		return err == nil && l.cancel(id)
	}
	if r.IsCall() {
		var params struct {
			Name string `json:"name"`
		}
		if r.Method == "tools/call" {
			_ = json.Unmarshal(r.Params, &params) // the SDK says what is wrong with it
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.open[r.ID] == nil { // a second request by the same id gets no answer from the SDK
			l.open[r.ID] = &request{pays: l.purchases.pays(params.Name)}
		}
	}
	return false
}

func (l *lines) cancel(id jsonrpc.ID) bool {
	l.mu.Lock()
	r, t := l.open[id], l.told[id]
	if r != nil {
		r.cancelled = true
	}
	delete(l.told, id)
	l.mu.Unlock()
	if t != nil && (t.timer == nil || t.timer.Stop()) {
		l.purchases.lost(t.PaymentID)
		if t.timer != nil {
			l.telling.Done()
		}
	}
	return r != nil && r.pays
}

// Write passes an answer on.
func (l *lines) Write(_ context.Context, m jsonrpc.Message) error {
	response, isAnswer := m.(*jsonrpc.Response)
	if !isAnswer {
		return l.send(m)
	}
	presentable(response)
	l.mu.Lock()
	r := l.open[response.ID]
	delete(l.open, response.ID)
	t := &told{}
	if r != nil && r.pays {
		t.purchase = purchaseIn(response.Result)
	}
	cancelled := r != nil && r.cancelled
	if t.PaymentID != "" && !cancelled { // from here on its cancellation is a late one
		l.told[response.ID] = t
	}
	l.mu.Unlock()
	if cancelled {
		l.lose(t.purchase)
		return nil
	}
	err := l.send(m)
	l.written(response.ID, t, err)
	return err
}

func (l *lines) send(m jsonrpc.Message) error {
	text, err := jsonrpc.EncodeMessage(m)
	if err != nil {
		return err
	}
	return l.write(append(text, '\n'))
}

func (l *lines) write(line []byte) error {
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

func purchaseIn(result json.RawMessage) purchase {
	var mounted struct {
		Meta struct {
			Receipt *purchase `json:"x402-wallet/payment"`
		} `json:"_meta"`
	}
	if json.Unmarshal(result, &mounted) == nil && mounted.Meta.Receipt != nil {
		// all else in it is a stranger's
		return *mounted.Meta.Receipt
	}
	var r struct {
		IsError           bool     `json:"isError"`
		StructuredContent purchase `json:"structuredContent"`
	}
	if json.Unmarshal(result, &r) != nil || r.IsError {
		return purchase{}
	}
	return r.StructuredContent
}

func (l *lines) lose(p purchase) {
	if p.PaymentID != "" {
		l.purchases.lost(p.PaymentID)
	}
}

// written notes a purchase as lost if its answer could not be written, and otherwise as delivered,
// when its cancellation cannot come any more.
func (l *lines) written(id jsonrpc.ID, t *told, failure error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.told[id] != t { // no purchase, or cancelled while it was written
		return
	}
	if failure != nil {
		delete(l.told, id)
		l.lose(t.purchase)
		return
	}
	select {
	case <-l.closed: // nobody waits for telling any more
		delete(l.told, id)
		l.purchases.delivered(t.Status, t.PaymentID)
		return
	default:
	}
	l.telling.Add(1)
	t.timer = time.AfterFunc(l.lateCancel, func() {
		defer l.telling.Done()
		l.mu.Lock()
		if l.told[id] == t {
			delete(l.told, id)
		}
		l.mu.Unlock()
		l.purchases.delivered(t.Status, t.PaymentID)
	})
}

// drain gives requests that were read before the input ended a moment to be answered. Not while a
// payment is under way: then the client is gone, and the payment has to know that.
func (l *lines) drain() {
	for end := time.Now().Add(lastAnswers); l.answering() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}

func (l *lines) answering() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.open {
		if r.pays {
			return false
		}
	}
	return len(l.open) > 0
}

// Close ends both streams. What was written is delivered.
func (l *lines) Close() error {
	l.closing.Do(func() {
		close(l.closed)
		l.mu.Lock()
		rest := maps.Clone(l.told)
		l.mu.Unlock()
		for _, t := range rest {
			if t.timer != nil && t.timer.Stop() {
				l.purchases.delivered(t.Status, t.PaymentID)
				l.telling.Done()
			}
		}
		l.telling.Wait()
		if err := errors.Join(l.source.Close(), l.out.Close()); !errors.Is(err, os.ErrClosed) {
			l.failure = err
		}
	})
	return l.failure
}
