package evm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"

	"x402-wallet/money"
	"x402-wallet/x402"
)

// JSON-RPC is spoken here by hand: go-ethereum's rpc package would bring a WebSocket client, metrics and OpenTelemetry
// (which reads the environment) into the wallet, for the ninety lines below.

const (
	// callTimeout bounds one question to a node: public nodes answer within a second, and a person is waiting.
	callTimeout = 10 * time.Second
	// maxAnswer bounds a node's answer, decompressed, in bytes: the largest we ask for is the receipt of one transaction,
	// which a batch of a thousand payments makes about 1 MB.
	maxAnswer = 4 << 20
	// maxSkew is how far our clock may be from the node's before signing (case G13): a signature's life is counted on it.
	maxSkew = 120 * time.Second
	// clockAge is how long a look at the node's clock is good for.
	clockAge = 30 * time.Second
)

// Block tags of the Ethereum JSON-RPC specification.
const (
	latest    = "latest"
	finalized = "finalized"
)

// node is one network's JSON-RPC endpoint, trusted by the owner for evidence, but not for its size, speed or chain.
type node struct {
	network string
	chainID uint64
	url     string // may hold an API key: never in an error
	http    *http.Client
	now     func() time.Time

	calls    atomic.Uint64 // JSON-RPC ids
	verified atomic.Bool   // eth_chainId was the right one

	mu    sync.Mutex
	clock clockReading
}

// clockReading is the node's time and ours at one moment.
type clockReading struct{ theirs, ours time.Time }

// nodeClient gives the transport of c without redirects: the owner chose the node, and the node shall not choose another.
func nodeClient(c *http.Client) *http.Client {
	var transport http.RoundTripper
	if c != nil {
		transport = c.Transport
	}
	if transport == nil { // no Proxy: the environment is not the owner
		transport = &http.Transport{ForceAttemptHTTP2: true, TLSHandshakeTimeout: callTimeout, IdleConnTimeout: time.Minute}
	}
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
}

// refusal is a JSON-RPC error object: the node is there and does not want to answer this.
type refusal struct {
	Code    int64  `json:"code"`
	Message string `json:"message"` // a stranger's text
}

func (r *refusal) Error() string {
	return fmt.Sprintf("JSON-RPC error %d: %s", r.Code, clip(r.Message))
}

// call asks the node one question. result is a pointer; it is left alone when the answer is null. Every error is RPC_ERROR
// and carries no URL.
func (n *node) call(ctx context.Context, result any, method string, params ...any) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	id := n.calls.Add(1)
	question, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params})
	if err != nil {
		return n.failed(method, err)
	}
	status, body, err := n.post(ctx, question)
	if err != nil {
		return n.failed(method, err)
	}
	var answer struct {
		ID     json.RawMessage `json:"id"`
		Result json.RawMessage `json:"result"`
		Error  *refusal        `json:"error"`
	}
	switch err := json.Unmarshal(body, &answer); {
	case status == http.StatusTooManyRequests || status >= 500:
		return n.failed(method, fmt.Errorf("HTTP status %d", status))
	case err == nil && answer.Error != nil:
		return n.failed(method, answer.Error)
	case status != http.StatusOK:
		return n.failed(method, fmt.Errorf("HTTP status %d", status))
	case err != nil || len(answer.Result) == 0 || string(answer.ID) != strconv.FormatUint(id, 10):
		return n.failed(method, errors.New("not an answer to our question"))
	}
	if err := json.Unmarshal(answer.Result, result); err != nil {
		return n.failed(method, errors.New("an answer of another shape"))
	}
	return nil
}

// post sends one request and reads its bounded answer, and the node's clock with it.
func (n *node) post(ctx context.Context, question []byte) (status int, body []byte, err error) {
	where, err := url.Parse(n.url)
	if err != nil || where.Scheme != "http" && where.Scheme != "https" {
		return 0, nil, errors.New("the configured rpc is not an http or https URL")
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, n.url, bytes.NewReader(question))
	if err != nil {
		return 0, nil, errors.New("the configured rpc is not a usable URL")
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json")
	response, err := n.http.Do(request)
	if err != nil {
		var withURL *url.Error
		if errors.As(err, &withURL) {
			err = withURL.Err
		}
		return 0, nil, err
	}
	defer response.Body.Close()
	if date, err := http.ParseTime(response.Header.Get("Date")); err == nil {
		n.setClock(date)
	}
	body, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err == nil && len(body) > maxAnswer {
		err = fmt.Errorf("an answer above %d bytes", maxAnswer)
	}
	return response.StatusCode, body, err
}

// failed makes the RPC_ERROR of a question.
func (n *node) failed(method string, cause error) *x402.Error {
	e := &x402.Error{Code: x402.RPCError, Message: fmt.Sprintf("the node of %s did not answer %s", x402.Title(n.network), method), Err: cause}
	e = e.WithHint("try again; if it persists, check rpc under [networks.%q] in config.toml", n.network)
	var said *refusal
	if errors.As(cause, &said) {
		return e.WithDetail("node", said.Error())
	}
	return e
}

// refused reports whether the node answered err with a JSON-RPC error, rather than not at all.
func refused(err error) bool {
	var said *refusal
	return errors.As(err, &said)
}

// ready makes sure, once, that the node serves the chain that the CAIP-2 id names (case B5): CHECK_FAILED otherwise, and
// asked again next time.
func (n *node) ready(ctx context.Context) error {
	if n.verified.Load() {
		return nil
	}
	var id hexutil.Uint64
	if err := n.call(ctx, &id, "eth_chainId"); err != nil {
		return err
	}
	if uint64(id) != n.chainID {
		e := x402.Errorf(x402.CheckFailed, "the node configured for %s serves eip155:%d", n.network, uint64(id))
		e.FixedBy = x402.ByPerson
		return e.WithHint("correct rpc under [networks.%q] in config.toml", n.network)
	}
	n.verified.Store(true)
	return nil
}

func (n *node) setClock(theirs time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.clock = clockReading{theirs, n.now()}
}

// checkClock compares now with the node's clock (its Date header, or the latest block's time where it sends none) and errs
// with CLOCK_SUSPECT beyond maxSkew: with a wrong clock a cheque for a minute can be one for a year. A node that lies here
// can only stop a payment.
func (n *node) checkClock(ctx context.Context, now time.Time) error {
	n.mu.Lock()
	clock := n.clock
	n.mu.Unlock()
	if age := now.Sub(clock.ours).Abs(); clock.ours.IsZero() || age > clockAge {
		asked := n.now()
		tip, err := n.block(ctx, latest)
		if err != nil {
			return err
		}
		n.mu.Lock()
		if n.clock.ours.Before(asked) {
			n.clock = clockReading{tip.at(), n.now()}
		}
		clock = n.clock
		n.mu.Unlock()
	}
	if skew := now.Sub(clock.theirs); skew.Abs() > maxSkew {
		return x402.Errorf(x402.ClockSuspect, "this computer's clock and the node's differ by %s, and at most %s is signed with",
			skew.Abs().Round(time.Second), maxSkew).
			WithHint("set this computer's clock").WithDetail("ours", now.UTC()).WithDetail("node", clock.theirs.UTC())
	}
	return nil
}

// Clock asks a network's node what time it is: its Date, or the time of its newest block. Its errors are RPC_ERROR, and CHECK_FAILED for
// a node of another chain.
func (e *Exact) Clock(ctx context.Context, network string) (time.Time, error) {
	n, err := e.node(network)
	if err == nil {
		err = n.ready(ctx)
	}
	if err != nil {
		return time.Time{}, err
	}
	asked := n.now()
	tip, err := n.block(ctx, latest)
	if err != nil {
		return time.Time{}, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.clock.ours.Before(asked) {
		return tip.at(), nil
	}
	return n.clock.theirs, nil
}

// block is what we need of a block's header.
type block struct {
	Number    *hexutil.Uint64 `json:"number"`
	Timestamp *hexutil.Uint64 `json:"timestamp"` // Unix seconds
}

func (b *block) at() time.Time { return time.Unix(int64(*b.Timestamp), 0).UTC() }

// block reads a header by tag. A node that does not have it is an RPC_ERROR.
func (n *node) block(ctx context.Context, tag string) (*block, error) {
	b, err := n.blockOrNil(ctx, tag)
	if err == nil && b == nil {
		err = n.failed("eth_getBlockByNumber", errors.New("it has no such block"))
	}
	return b, err
}

// blockOrNil reads a header by tag, nil when the node does not have it (pruned).
func (n *node) blockOrNil(ctx context.Context, tag string) (*block, error) {
	const method = "eth_getBlockByNumber"
	var b *block
	if err := n.call(ctx, &b, method, tag, false); err != nil {
		return nil, err
	}
	if b == nil {
		return nil, nil
	}
	if b.Number == nil || b.Timestamp == nil || *b.Timestamp > 1<<40 {
		return nil, n.failed(method, errors.New("a block without number or time"))
	}
	if tag != latest && tag != finalized && tag != b.Number.String() {
		return nil, n.failed(method, errors.New("another block than the one asked for"))
	}
	return b, nil
}

// read calls a view function of token at a block and wants exactly one 32-byte word: an address without code answers
// nothing, and nothing is not zero.
func (n *node) read(ctx context.Context, token common.Address, tag string, selector []byte, args ...[]byte) ([]byte, error) {
	data := append([]byte{}, selector...)
	for _, arg := range args {
		data = append(data, arg...)
	}
	var word hexutil.Bytes
	err := n.call(ctx, &word, "eth_call", map[string]any{"to": token.Hex(), "data": hexutil.Bytes(data)}, tag)
	if err == nil && len(word) != 32 {
		err = n.failed("eth_call", errors.New("the token's contract did not answer with one word"))
	}
	return word, err
}

// amountOf reads a 32-byte word.
func amountOf(word []byte) money.Amount {
	amount, _ := money.AmountFromBytes(word)
	return amount
}
