// Package rpc asks a network's node over JSON-RPC. The owner chose the node and trusts it for
// evidence, but not for its size, its speed or its manners.
//
// What must stay true: no error shows where the node is. With many providers its address is as good
// as a key, and the agent reads errors. And no answer counts before the node has shown which chain it is on.
//
// It is spoken here by hand, because the clients of the chains' libraries read answers without a
// bound and bring WebSockets, metrics, loggers and variables of the environment into the wallet.
package rpc

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"x402-wallet/internal/steps"
	"x402-wallet/x402"
	"x402-wallet/x402/observe"
)

const (
	// timeout bounds one question to a node: public nodes answer within a second, and a person is waiting.
	timeout = 10 * time.Second
	// maxAnswer bounds a node's answer, decompressed, in bytes: the largest asked for is the
	// receipt of one EVM transaction, which a batch of a thousand payments makes about 1 MB.
	maxAnswer = 4 << 20
)

// Node is one network's JSON-RPC endpoint. It is safe for concurrent use.
type Node struct {
	Network  string               // its name in config.toml
	identify func(Ask) error      // may be nil
	isKnown  atomic.Bool          // identify was satisfied
	onDate   func(date time.Time) // the Date of an answer; may be nil
	observe  observe.NodeObserver // may be nil
	url      string               // may hold an API key: never in an error
	http     *http.Client
	calls    atomic.Uint64 // JSON-RPC ids
}

type Options struct {
	Network, URL string
	HTTP         *http.Client         // the transport that the owner wants; nil: a plain one without a proxy
	OnDate       func(date time.Time) // is called with the Date of every answer; nil: nobody asks
	// Identify asks the node which chain it is on; its error, as CHECK_FAILED, is that of every question
	// until there is none. nil: it may be on any chain.
	Identify func(Ask) error
	Observe  observe.NodeObserver // hears of every question; nil: nobody does
}

// Ask asks the node one question, as Call, but whatever chain it is on.
type Ask func(result any, method string, params ...any) error

func New(o Options) *Node {
	c := o.HTTP
	if c == nil { // no Proxy: the environment is not the owner
		c = &http.Client{Transport: &http.Transport{
			ForceAttemptHTTP2: true, TLSHandshakeTimeout: timeout, IdleConnTimeout: time.Minute,
		}}
	}
	client := *c
	// The owner chose the node, and the node shall not choose another.
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Node{Network: o.Network, identify: o.Identify, onDate: o.OnDate, observe: o.Observe,
		url: o.URL, http: &client}
}

// refusal is a JSON-RPC error object: the node is there and does not want to answer this.
type refusal struct {
	Code    int64  `json:"code"`
	Message string `json:"message"` // a stranger's text
}

func (r *refusal) Error() string {
	return fmt.Sprintf("JSON-RPC error %d: %s", r.Code, x402.Quote(r.Message))
}

// Refused reports whether the node answered with a JSON-RPC error, and with one of the codes where
// any are named.
func Refused(err error, codes ...int64) bool {
	failure, ok := errors.AsType[*refusal](err)
	return ok && (len(codes) == 0 || slices.Contains(codes, failure.Code))
}

// Call asks the node one question. result is a pointer; an answer of null leaves it as it is. Every
// error is Failed's or Ready's. The first questions are asked beside the one for the chain, so that the two
// take one round trip; what would change something waits for it.
func (n *Node) Call(ctx context.Context, result any, method string, params ...any) error {
	if n.identify == nil || n.isKnown.Load() {
		return n.ask(ctx, result, method, params...)
	}
	if !isQuestion(method) {
		if err := n.Ready(ctx); err != nil {
			return err
		}
		return n.ask(ctx, result, method, params...)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var answer error
	var asking sync.WaitGroup
	asking.Go(func() { answer = n.ask(ctx, result, method, params...) })
	err := n.Ready(ctx)
	if err != nil {
		cancel()
	}
	asking.Wait()
	return cmp.Or(err, answer)
}

// Ready verifies, once, that the node is on the chain that the network's name stands for.
// Every error is Failed's or Identify's, and the node is asked again next time.
func (n *Node) Ready(ctx context.Context) error {
	if n.identify == nil || n.isKnown.Load() {
		return nil
	}
	err := n.identify(func(result any, method string, params ...any) error {
		return n.ask(ctx, result, method, params...)
	})
	if err == nil {
		n.isKnown.Store(true)
	}
	return err
}

func (n *Node) ask(ctx context.Context, result any, method string, params ...any) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if params == nil {
		params = []any{}
	}
	ctx, step := steps.Begin(ctx, steps.Node)
	step.Asked(n.Network, "", method) // where it is is as good as a key
	began := time.Now()
	err := n.call(ctx, step, result, method, params)
	if n.observe != nil && !errors.Is(ctx.Err(), context.Canceled) { // else it was not given its time
		n.observe(n.Network, outcomeOf(err), time.Since(began))
	}
	if err != nil {
		err = n.Failed(method, err)
	}
	step.End(err)
	return err
}

// outcomeOf is what came of a question. A JSON-RPC error is an answer.
func outcomeOf(err error) observe.Outcome {
	_, isLost := errors.AsType[transportError](err)
	switch {
	case err == nil, Refused(err):
		return observe.Answered
	case isLost:
		return observe.NoAnswer
	}
	return observe.InError
}

func (n *Node) call(ctx context.Context, step *steps.Span, result any, method string, params []any) error {
	id := n.calls.Add(1)
	question, err := json.Marshal(
		map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params})
	if err != nil {
		return err
	}
	status, body, err := n.post(ctx, question, isQuestion(method))
	step.Answered(status)
	if err != nil {
		return err
	}
	var answer struct {
		ID     json.RawMessage `json:"id"`
		Result json.RawMessage `json:"result"`
		Error  *refusal        `json:"error"`
	}
	err = json.Unmarshal(body, &answer)
	switch {
	case status == http.StatusTooManyRequests || status >= 500: // it is overloaded, whatever else it answers
		return fmt.Errorf("HTTP status %d", status)
	case err == nil && answer.Error != nil:
		answer.Error.Message = n.redact(answer.Error.Message)
		return answer.Error
	case status != http.StatusOK:
		return fmt.Errorf("HTTP status %d", status)
	case err != nil || len(answer.Result) == 0 || string(answer.ID) != strconv.FormatUint(id, 10):
		return errors.New("no answer to our question")
	}
	if json.Unmarshal(answer.Result, result) != nil { // integers are read as such, exactly, or not at all
		return errors.New("an answer of another shape")
	}
	return nil
}

// redact takes out of a node's text what its address is made of: providers repeat a key that
// they do not know.
func (n *Node) redact(text string) string {
	const shortestKey = 6 // letters; what is shorter ("v2", a port) is no key
	parts := strings.FieldsFunc(n.url, func(r rune) bool { return strings.ContainsRune("/?&=@:#", r) })
	slices.SortFunc(parts, func(a, b string) int { return len(b) - len(a) }) // one may be part of another
	for _, part := range parts {
		plain, err := url.QueryUnescape(part)
		for _, part := range []string{part, plain} {
			if len(part) >= shortestKey && err == nil {
				text = strings.ReplaceAll(text, part, "***")
			}
		}
	}
	return text
}

// isQuestion reports whether a method is known to change nothing.
func isQuestion(method string) bool {
	return slices.ContainsFunc([]string{"eth_call", "eth_chainId", "eth_get", "get", "rooch_get"},
		func(prefix string) bool { return strings.HasPrefix(method, prefix) })
}

// post brings a question to the node and its answer back. again says that it may be sent once more if the
// connection that was kept for it turns out to be dead.
func (n *Node) post(ctx context.Context, question []byte, again bool) (status int, body []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, n.url, bytes.NewReader(question))
	if err != nil {
		return 0, nil, errors.New("rpc in config.toml is not a URL")
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json")
	if trace := steps.Traceparent(ctx); trace != "" {
		request.Header.Set(steps.Header, trace)
	}
	if again { // net/http takes this for the header, and sends none
		request.Header["Idempotency-Key"] = nil
	}
	response, err := n.http.Do(request)
	if err != nil {
		return 0, nil, transportError{cause: err}
	}
	defer response.Body.Close()
	if date, err := http.ParseTime(response.Header.Get("Date")); err == nil && n.onDate != nil {
		n.onDate(date)
	}
	body, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err != nil {
		return 0, nil, transportError{cause: err}
	}
	if len(body) > maxAnswer {
		return 0, nil, fmt.Errorf("more than %d bytes", maxAnswer)
	}
	return response.StatusCode, body, nil
}

// transportError is why no answer came. It keeps the cause for errors.Is, but does not print it, and
// hands on no *url.Error: net/http names the URL, and net the node's host.
type transportError struct{ cause error }

func (e transportError) Unwrap() error {
	if withURL, ok := errors.AsType[*url.Error](e.cause); ok {
		return withURL.Err
	}
	return e.cause
}

func (e transportError) Error() string {
	if errors.Is(e.cause, context.DeadlineExceeded) {
		return "no answer in time"
	}
	if number, ok := errors.AsType[syscall.Errno](e.cause); ok {
		return number.Error()
	}
	return "no connection"
}

// Failed is the RPC_ERROR of a question; why goes into the details: a node's words are a stranger's.
func (n *Node) Failed(method string, why error) *x402.Error {
	said, hint := "did not answer "+method, ""
	if refusal, ok := errors.AsType[*refusal](why); ok {
		said = fmt.Sprintf("refused %s with JSON-RPC error %d", method, refusal.Code)
		hint = "what it said is in details.node; "
		if !isQuestion(method) {
			hint += "whose transaction it is may have too little of the network's coin for gas; "
		}
	}
	e := x402.Errorf(x402.RPCError, "the node of %s %s", x402.Title(n.Network), said).
		WithHint(hint+"try again; if it persists, the owner looks at rpc under [networks.%q] in config.toml",
			n.Network).WithDetail("node", why.Error())
	e.Err = why
	return e
}
