package evm

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/stretchr/testify/require"

	"x402-wallet/chain/evm/message"
	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/onchain"
)

const (
	sepolia  = "eip155:84532"
	payee    = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"
	stranger = "0x857b06519E91e3A54538791bDbb0E22373e36b66"
	us       = "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"
)

var (
	usdc = x402.AssetInfo{Network: sepolia, Address: "0x036CbD53842c5426634e7929541eC2318f3dCF7e",
		Symbol: "USDC", Decimals: 6, Name: "USDC", Version: "2"}
	noon = time.Unix(1740672089, 0) // the vectors' now
)

// vectors are the reference client's (@x402/* 2.27.0), with the public test key of Anvil and
// Hardhat.
type vectors struct {
	EVMPrivateKey, EVMAddress string
	Vectors                   map[string]struct {
		Payload   struct{ Payload json.RawMessage }
		TypedData []struct{ Digest, DomainSeparator, Signature string }
	}
}

func readJSON[T any](t testing.TB, path string) (v T) {
	t.Helper()
	content := must.Get(os.ReadFile(path))(t)
	require.NoError(t, json.Unmarshal(content, &v))
	return v
}

type keySigner struct {
	key     *ecdsa.PrivateKey
	address string
	spoil   func([65]byte) [65]byte
	err     error

	mu      sync.Mutex
	digests [][32]byte
}

func (s *keySigner) Address() string { return s.address }

func (s *keySigner) Sign(_ context.Context, d onchain.Draft) (signatures []byte, err error) {
	for _, digest := range d.Signs {
		signature, err := s.signDigest([32]byte(digest))
		if err != nil {
			return nil, err
		}
		signatures = append(signatures, signature[:]...)
	}
	return signatures, nil
}

func (s *keySigner) signDigest(digest [32]byte) (signature [65]byte, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.digests = append(s.digests, digest)
	if s.err != nil {
		return signature, s.err
	}
	made, err := crypto.Sign(digest[:], s.key)
	copy(signature[:], made)
	signature[64] += 27
	if s.spoil != nil {
		signature = s.spoil(signature)
	}
	return signature, err
}

func testSigner(t testing.TB) *keySigner {
	key := must.Get(crypto.HexToECDSA("ac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80"))(t)
	return &keySigner{key: key, address: us}
}

// counting is the vectors' source of random bytes: 01 02 03 …
type counting struct{ next byte }

func (c *counting) Read(p []byte) (int, error) {
	for i := range p {
		c.next++
		p[i] = c.next
	}
	return len(p), nil
}

// fakeNode is a strict JSON-RPC node with one token: it knows the six methods that this package may
// call, in exactly the shapes of the Ethereum JSON-RPC specification, and fails the test on
// anything else.
type fakeNode struct {
	t   testing.TB
	url string

	mu                                sync.Mutex
	chainID                           uint64
	date                              string // Date header; "" sends none
	head, final, born, period, pruned uint64 // block n has time born + n·period
	balance                           money.Amount
	allowance                         money.Amount // of Permit2
	noPermits                         bool         // the token has no EIP-2612
	noPermit2                         bool
	permitUsed                        bool   // the payment's own nonce
	permitNonce                       byte   // its next
	vault                             []byte // what state() answers at the address vault; nil: no contract
	count                             uint64 // of the agent's own transactions, at the finalized block
	usedAt                            uint64 // the nonce is used from this block on; 0: never
	logs                              []logEntry
	receipts                          map[string]any
	sends                             sending
	maxRange                          uint64 // widest eth_getLogs; 0: any
	// per method: answer it all yourself
	override map[string]func(http.ResponseWriter) bool
	id       json.RawMessage // of the request that is answered now
	asked    map[string]int
	statesAt []string // the blocks at which authorizationState was asked
}

func newFakeNode(t testing.TB) *fakeNode {
	f := &fakeNode{t: t, chainID: 84532, date: noon.UTC().Format(http.TimeFormat), head: 1_000_000,
		final: 999_900, period: 2,
		receipts: map[string]any{}, override: map[string]func(http.ResponseWriter) bool{},
		asked: map[string]int{}}
	f.born = uint64(noon.Unix()) - f.head*f.period
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	f.url = server.URL + "/v2/SECRET-API-KEY"
	return f
}

func (f *fakeNode) timesAsked(method string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked[method]
}

func (f *fakeNode) exact(t testing.TB, signer onchain.Signer) *Exact {
	return New(Options{Signer: signer, RPC: map[string]string{sepolia: f.url}, Rand: &counting{},
		Now: func() time.Time {
			return noon
		}})
}

func (f *fakeNode) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var q struct {
		JSONRPC, Method string
		ID              json.RawMessage
		Params          []json.RawMessage
	}
	if r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json" ||
		json.NewDecoder(r.Body).Decode(&q) != nil {
		f.t.Errorf("not a JSON-RPC request: %s %s", r.Method, r.Header)
	}
	f.asked[q.Method]++
	f.id = q.ID
	w.Header()["Date"] = nil
	if f.date != "" {
		w.Header().Set("Date", f.date)
	}
	if answer := f.override[q.Method]; answer != nil && answer(w) {
		return
	}
	result, refused := f.answer(q.Method, q.Params)
	reply := map[string]any{"jsonrpc": "2.0", "id": q.ID, "result": result}
	if refused != "" {
		delete(reply, "result")
		reply["error"] = map[string]any{"code": -32005, "message": refused}
	}
	_ = json.NewEncoder(w).Encode(reply)
}

func (f *fakeNode) answer(method string, params []json.RawMessage) (any, string) {
	switch method {
	case "eth_chainId":
		return hexutil.Uint64(f.chainID), ""
	case "eth_getBlockByNumber":
		n, ok := f.blockNumber(params[0])
		if !ok || n < f.pruned || string(params[1]) != "false" {
			return nil, ""
		}
		return map[string]any{"number": hexutil.Uint64(n), "timestamp": hexutil.Uint64(f.time(n)),
			"baseFeePerGas": hexutil.Uint64(f.sends.baseFee)}, ""
	case "eth_getCode":
		if f.noPermit2 || string(params[0]) != `"`+message.Permit2Address+`"` {
			return "0x", ""
		}
		return "0x6001", ""
	case "eth_call":
		return f.ethCall(params)
	case "eth_getLogs":
		return f.getLogs(params[0])
	case "eth_getTransactionReceipt":
		var hash string
		_ = json.Unmarshal(params[0], &hash)
		return f.receipts[hash], ""
	case "eth_estimateGas", "eth_getBalance", "eth_maxPriorityFeePerGas":
		return f.sends.answer(f.t, method, params)
	case "eth_getTransactionCount":
		if f.sends.gas > 0 {
			return f.sends.answer(f.t, method, params)
		}
		if at, ok := f.blockNumber(params[1]); !ok || at != f.final {
			f.t.Errorf("eth_getTransactionCount %s", params)
		}
		return hexutil.Uint64(f.count), ""
	}
	f.t.Errorf("the node was asked %s", method)
	return nil, "method not found"
}

func (f *fakeNode) time(n uint64) uint64 { return f.born + n*f.period }

func (f *fakeNode) blockNumber(tag json.RawMessage) (uint64, bool) {
	switch string(tag) {
	case `"latest"`:
		return f.head, true
	case `"finalized"`:
		return f.final, true
	}
	var n hexutil.Uint64
	err := json.Unmarshal(tag, &n)
	return uint64(n), err == nil && uint64(n) <= f.head
}

func (f *fakeNode) ethCall(params []json.RawMessage) (any, string) {
	var call struct {
		To   common.Address
		Data hexutil.Bytes
	}
	at, ok := f.blockNumber(params[1])
	if json.Unmarshal(params[0], &call) != nil || !ok {
		f.t.Errorf("eth_call %s", params)
		return nil, "bad call"
	}
	if call.To == common.HexToAddress(vault) && f.vault != nil {
		if call.Data.String() != "0xc19d93fb" {
			f.t.Errorf("the vault was asked %s", call.Data)
		}
		return hexutil.Bytes(f.vault), ""
	}
	if call.To == common.HexToAddress(message.Permit2Address) {
		return f.permit2Call(call.Data), ""
	}
	if call.To != common.HexToAddress(usdc.Address) {
		return "0x", "" // no code there
	}
	switch {
	case strings.HasPrefix(call.Data.String(), "0x70a08231") && len(call.Data) == 36:
		word := f.balance.Bytes32()
		return hexutil.Bytes(word[:]), ""
	case strings.HasPrefix(call.Data.String(), "0xe94a0102") && len(call.Data) == 68:
		f.statesAt = append(f.statesAt, string(params[1]))
		word := make([]byte, 32)
		if f.usedAt > 0 && at >= f.usedAt {
			word[31] = 1
		}
		return hexutil.Bytes(word), ""
	case strings.HasPrefix(call.Data.String(), "0xdd62ed3e") && len(call.Data) == 68:
		word := f.allowance.Bytes32()
		return hexutil.Bytes(word[:]), ""
	case strings.HasPrefix(call.Data.String(), "0x7ecebe00") && len(call.Data) == 36 && !f.noPermits:
		return hexutil.Bytes(append(make([]byte, 31), f.permitNonce)), ""
	}
	return nil, "execution reverted"
}

func (f *fakeNode) permit2Call(data hexutil.Bytes) hexutil.Bytes {
	if !strings.HasPrefix(data.String(), "0x4fe02b44") || len(data) != 68 {
		f.t.Errorf("Permit2 was asked %s", data)
	}
	if f.permitUsed {
		return bytes.Repeat([]byte{0xff}, 32)
	}
	return make([]byte, 32)
}

func (f *fakeNode) getLogs(raw json.RawMessage) (any, string) {
	var q struct {
		Address            common.Address
		FromBlock, ToBlock hexutil.Uint64
		Topics             []json.RawMessage
	}
	if err := json.Unmarshal(raw, &q); err != nil || q.Address != common.HexToAddress(usdc.Address) ||
		len(q.Topics) != 3 ||
		q.FromBlock > q.ToBlock || uint64(q.ToBlock) > f.head {
		f.t.Errorf("eth_getLogs %s: %v", raw, err)
	}
	if f.maxRange > 0 && uint64(q.ToBlock-q.FromBlock)+1 > f.maxRange {
		return nil, fmt.Sprintf("block range exceeds %d", f.maxRange)
	}
	found := []logEntry{}
	for _, l := range f.logs {
		if l.BlockNumber >= q.FromBlock && l.BlockNumber <= q.ToBlock {
			found = append(found, l)
		}
	}
	return found, ""
}

// settle puts a use of evidence's nonce into a block: its event, and a receipt with a transfer of
// amount from payer to.
func (f *fakeNode) settle(e x402.Evidence, at uint64, payer, to string, amount uint64, status uint64) string {
	hash := crypto.Keccak256Hash([]byte(fmt.Sprint(at, len(f.logs))))
	token := common.HexToAddress(e.Asset)
	value := money.NewAmount(amount).Bytes32()
	used := logEntry{Address: token, Topics: []common.Hash{topicUsed, topic(e.Payer),
		common.HexToHash(e.Nonce)},
		Data: hexutil.Bytes{}, BlockNumber: hexutil.Uint64(at), TransactionHash: hash}
	logs := []logEntry{used}
	if to != "" {
		logs = append(logs, logEntry{Address: token, Topics: []common.Hash{topicTransfer, topic(payer),
			topic(to)}, Data: value[:], BlockNumber: hexutil.Uint64(at), TransactionHash: hash})
	}
	f.usedAt, f.logs = at, append(f.logs, used)
	f.receipts[hash.Hex()] = map[string]any{"transactionHash": hash, "blockNumber": hexutil.Uint64(at),
		"status": hexutil.Uint64(status), "logs": logs}
	return hash.Hex()
}

func topic(address string) common.Hash {
	return common.BytesToHash(common.HexToAddress(address).Bytes())
}

func (f *fakeNode) say(method string, status int, body string) {
	f.override[method] = func(w http.ResponseWriter) bool {
		w.WriteHeader(status)
		f.write(w, body)
		return true
	}
}

func (f *fakeNode) write(w io.Writer, body string) {
	_, _ = io.WriteString(w, strings.ReplaceAll(body, `"id":ID`, `"id":`+string(f.id)))
}

func requirement(version int) x402.Requirement {
	return x402.Requirement{Version: version, Scheme: "exact", Network: sepolia,
		Amount: money.NewAmount(10000), Asset: usdc.Address, PayTo: payee, MaxTimeout: time.Minute,
		Extra: map[string]json.RawMessage{"name": json.RawMessage(`"USDC"`),
			"version": json.RawMessage(`"2"`)}}
}

func order(version int) onchain.Order {
	return onchain.Order{Requirement: requirement(version), Asset: usdc, Source: us, Validity: time.Minute,
		Now: noon}
}

func hexOf(b []byte) string { return "0x" + hex.EncodeToString(b) }
func requireCode(t *testing.T, want x402.Code, err error) {
	require.True(t, x402.HasCode(err, want), "%v", err)
}
