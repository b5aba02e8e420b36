package svm

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
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gagliardetto/solana-go"

	"x402-wallet/x402"
)

// JSON-RPC is spoken here by hand: solana-go's client reads answers without a bound, and brings a logger, a rate limiter and
// a second JSON library into the wallet, for the eighty lines below.

const (
	// callTimeout bounds one question to a node: public nodes answer within a second, and a person is waiting.
	callTimeout = 10 * time.Second
	// maxAnswer bounds a node's answer, decompressed, in bytes: the largest we ask for is a page of 1000 signatures, which
	// memos of 256 bytes make about 700 KB.
	maxAnswer = 4 << 20
)

// Commitments of Solana's JSON-RPC.
const (
	confirmed = "confirmed" // voted for by two thirds of the stake: what may be spent, what has landed
	finalized = "finalized" // cannot be rolled back: what is proven not to have landed
)

// JSON-RPC errors that mean something to us.
const (
	methodNotFound     = -32601
	unsupportedVersion = -32015 // a transaction of a version we did not say we read
)

// node is one network's JSON-RPC endpoint: trusted by the owner for evidence, but not for its size, speed or chain.
type node struct {
	network string
	url     string // may hold an API key: never in an error
	http    *http.Client

	calls    atomic.Uint64 // JSON-RPC ids
	verified atomic.Bool   // getGenesisHash was the right one
	clock    atomic.Int64  // the Date of its last answer in Unix seconds; 0: it sends none
	past     past
}

func notConfigured(network string) *x402.Error {
	return invalid("the network is not configured").WithDetail("network", clip(network)).
		WithHint("the person sets rpc for the network in config.toml")
}

// node returns the network's node after it has shown, once, that it is on that network (B5). Errors: INVALID_REQUIREMENT
// when none is configured, RPC_ERROR when it is silent, CHECK_FAILED when it is on another chain; none is remembered.
func (e *Exact) node(ctx context.Context, network string) (*node, error) {
	where := e.options.RPC[network]
	if where == "" {
		return nil, notConfigured(network)
	}
	e.mu.Lock()
	n := e.nodes[network]
	if n == nil {
		n = &node{network: network, url: where, http: nodeClient(e.options.HTTP)}
		e.nodes[network] = n
	}
	e.mu.Unlock()
	if n.verified.Load() {
		return n, nil
	}
	var genesis string
	if err := n.call(ctx, &genesis, "getGenesisHash"); err != nil {
		return nil, err
	}
	if !x402.IsGenesis(network, genesis) {
		return nil, x402.Errorf(x402.CheckFailed, "the node for %s is on another chain", x402.Title(network)).
			WithHint("the person corrects rpc in config.toml: nothing is signed, and nothing released, on the word of this node").
			WithDetail("genesis", clip(genesis))
	}
	n.verified.Store(true)
	return n, nil
}

// nodeClient is the owner's client without redirects: he chose the node, and the node shall not choose another.
func nodeClient(c *http.Client) *http.Client {
	if c == nil { // no Proxy: the environment is not the owner
		c = &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true, TLSHandshakeTimeout: callTimeout, IdleConnTimeout: time.Minute}}
	}
	client := *c
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &client
}

// refusal is a JSON-RPC error object: the node is there and does not want to answer this.
type refusal struct {
	Code    int64  `json:"code"`
	Message string `json:"message"` // a stranger's text
}

func (r *refusal) Error() string {
	return fmt.Sprintf("JSON-RPC error %d: %q", r.Code, clip(r.Message))
}

// refused reports whether the node refused with one of the codes.
func refused(err error, code int64) bool {
	var said *refusal
	return errors.As(err, &said) && said.Code == code
}

// call asks the node one question. result is a pointer; an answer of null leaves it as it is. Every error is RPC_ERROR and
// carries no URL.
func (n *node) call(ctx context.Context, result any, method string, params ...any) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	id := n.calls.Add(1)
	if params == nil {
		params = []any{}
	}
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
	err = json.Unmarshal(body, &answer)
	switch {
	case err == nil && answer.Error != nil:
		return n.failed(method, answer.Error)
	case status != http.StatusOK:
		return n.failed(method, fmt.Errorf("HTTP status %d", status))
	case err != nil || len(answer.Result) == 0 || string(answer.ID) != strconv.FormatUint(id, 10):
		return n.failed(method, errors.New("no answer to our question"))
	}
	if err := json.Unmarshal(answer.Result, result); err != nil { // integers are read as such, exactly, or not at all
		return n.failed(method, errors.New("an answer of another shape"))
	}
	return nil
}

// post brings a question to the node and its answer back.
func (n *node) post(ctx context.Context, question []byte) (status int, body []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, n.url, bytes.NewReader(question))
	if err != nil {
		return 0, nil, errors.New("rpc in config.toml is not a URL")
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := n.http.Do(request)
	if err != nil {
		return 0, nil, silent(err)
	}
	defer response.Body.Close()
	if date, err := http.ParseTime(response.Header.Get("Date")); err == nil {
		n.clock.Store(date.Unix())
	}
	body, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err != nil {
		return 0, nil, silent(err)
	}
	if len(body) > maxAnswer {
		return 0, nil, fmt.Errorf("more than %d bytes", maxAnswer)
	}
	return response.StatusCode, body, nil
}

// silence is why no answer came. It keeps the cause, but does not say it: net/http names the URL and net the node's host,
// which with some providers are as good as a key, and the agent reads this.
type silence struct{ cause error }

func silent(err error) silence {
	var withURL *url.Error
	if errors.As(err, &withURL) {
		err = withURL.Err
	}
	return silence{err}
}

func (s silence) Unwrap() error { return s.cause }

func (s silence) Error() string {
	var number syscall.Errno
	switch {
	case errors.Is(s.cause, context.DeadlineExceeded):
		return "no answer in time"
	case errors.As(s.cause, &number):
		return number.Error()
	}
	return "no connection"
}

// failed is RPC_ERROR; what the node itself said goes into the details.
func (n *node) failed(method string, cause error) *x402.Error {
	e := x402.Errorf(x402.RPCError, "the node of %s did not answer %s", x402.Title(n.network), method).
		WithHint("try again; if it persists, check rpc under [networks.%q] in config.toml", n.network).WithDetail("node", cause.Error())
	e.Err = cause
	return e
}

// latestBlockhash asks for the newest blockhash at a commitment, and which slot the node was at. The answer has to make sense:
// no block is without a slot, so a block's height is at most its slot.
func (n *node) latestBlockhash(ctx context.Context, commitment string) (hash solana.Hash, lastValid, slot uint64, err error) {
	var answer struct {
		Context struct{ Slot uint64 }
		Value   struct {
			Blockhash            string
			LastValidBlockHeight uint64
		}
	}
	const method = "getLatestBlockhash"
	if err := n.call(ctx, &answer, method, map[string]any{"commitment": commitment}); err != nil {
		return hash, 0, 0, err
	}
	key, err := parseKey(answer.Value.Blockhash)
	if err != nil || key.IsZero() || answer.Value.LastValidBlockHeight < blockhashLife || answer.Context.Slot+blockhashLife < answer.Value.LastValidBlockHeight {
		return hash, 0, 0, n.failed(method, errors.New("no blockhash, or no slot and block height that belong to it"))
	}
	return solana.Hash(key), answer.Value.LastValidBlockHeight, answer.Context.Slot, nil
}

// isBlockhashValid asks whether a transaction with the blockhash could still land, as seen at a commitment.
func (n *node) isBlockhashValid(ctx context.Context, hash, commitment string) (bool, error) {
	var answer struct{ Value *bool }
	const method = "isBlockhashValid"
	if err := n.call(ctx, &answer, method, hash, map[string]any{"commitment": commitment}); err != nil {
		return false, err
	}
	if answer.Value == nil {
		return false, n.failed(method, errors.New("neither yes nor no"))
	}
	return *answer.Value, nil
}

// blockHeight asks for the block height at a commitment.
func (n *node) blockHeight(ctx context.Context, commitment string) (height uint64, err error) {
	const method = "getBlockHeight"
	if err := n.call(ctx, &height, method, map[string]any{"commitment": commitment}); err != nil {
		return 0, err
	}
	if height == 0 {
		return 0, n.failed(method, errors.New("no block height"))
	}
	return height, nil
}

// Clock asks a network's node what time it is, for people who look for what is wrong; zero when it does not say. Its errors are
// node's: a node of another chain is one.
func (e *Exact) Clock(ctx context.Context, network string) (time.Time, error) {
	n, err := e.node(ctx, network)
	if err != nil {
		return time.Time{}, err
	}
	if _, err := n.blockHeight(ctx, confirmed); err != nil {
		return time.Time{}, err
	}
	if at := n.clock.Load(); at != 0 {
		return time.Unix(at, 0).UTC(), nil
	}
	return time.Time{}, nil
}
