// Package evmtest is an EVM node for tests, and what they have in common: a key, a token, the moment of the
// reference client's vectors.
//
// What must stay true: it is strict. It fails the test on a question that is not one of a wallet's, or not in
// the shape of the Ethereum JSON-RPC specification.
package evmtest

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
	Sepolia  = "eip155:84532"
	Payee    = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"
	Stranger = "0x857b06519E91e3A54538791bDbb0E22373e36b66"
	Us       = "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"
	Vault    = "0x5FbDB2315678afecb367f032d93F642f64180aa3"
)

var (
	USDC = x402.AssetInfo{Network: Sepolia, Address: "0x036CbD53842c5426634e7929541eC2318f3dCF7e",
		Symbol: "USDC", Decimals: 6, Name: "USDC", Version: "2"}
	Noon = time.Unix(1740672089, 0) // the vectors' now
)

func ReadJSON[T any](t testing.TB, path string) (v T) {
	t.Helper()
	content := must.Get(os.ReadFile(path))(t)
	require.NoError(t, json.Unmarshal(content, &v))
	return v
}

type Signer struct {
	Key   *ecdsa.PrivateKey
	Own   string
	Spoil func([65]byte) [65]byte
	Err   error

	mu      sync.Mutex
	Digests [][32]byte
}

func (s *Signer) Address() string { return s.Own }

func (s *Signer) Sign(_ context.Context, d onchain.Draft) (signatures []byte, err error) {
	for _, digest := range d.Signs {
		signature, err := s.signDigest([32]byte(digest))
		if err != nil {
			return nil, err
		}
		signatures = append(signatures, signature[:]...)
	}
	return signatures, nil
}

func (s *Signer) signDigest(digest [32]byte) (signature [65]byte, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Digests = append(s.Digests, digest)
	if s.Err != nil {
		return signature, s.Err
	}
	made, err := crypto.Sign(digest[:], s.Key)
	copy(signature[:], made)
	signature[64] += 27
	if s.Spoil != nil {
		signature = s.Spoil(signature)
	}
	return signature, err
}

func NewSigner(t testing.TB) *Signer {
	key := must.Get(crypto.HexToECDSA("ac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80"))(t)
	return &Signer{Key: key, Own: Us}
}

// Counting is the vectors' source of random bytes: 01 02 03 …
type Counting struct{ next byte }

func (c *Counting) Read(p []byte) (int, error) {
	for i := range p {
		c.next++
		p[i] = c.next
	}
	return len(p), nil
}

// Log is one of a receipt's, as the JSON-RPC specification has it.
type Log struct {
	Address         common.Address `json:"address"`
	Topics          []common.Hash  `json:"topics"`
	Data            hexutil.Bytes  `json:"data"`
	BlockNumber     hexutil.Uint64 `json:"blockNumber"`
	TransactionHash common.Hash    `json:"transactionHash"`
	Removed         bool           `json:"removed"`
}

// The token's events.
var (
	TopicUsed     = crypto.Keccak256Hash([]byte("AuthorizationUsed(address,bytes32)"))
	TopicTransfer = crypto.Keccak256Hash([]byte("Transfer(address,address,uint256)"))
)

// Node is a strict JSON-RPC node with one token: it knows the six methods that this package may
// call, in exactly the shapes of the Ethereum JSON-RPC specification, and fails the test on
// anything else.
type Node struct {
	T   testing.TB
	URL string

	Mu                                sync.Mutex
	ChainID                           uint64
	Date                              string // Date header; "" sends none
	Head, Final, Born, Period, Pruned uint64 // block n has time born + n·period
	Balance                           money.Amount
	Allowance                         money.Amount // of Permit2
	NoPermits                         bool         // the token has no EIP-2612
	NoPermit2                         bool
	PermitUsed                        bool   // the payment's own nonce
	PermitNonce                       byte   // its next
	Vault                             []byte // what state() answers at the address vault; nil: no contract
	Count                             uint64 // of the agent's own transactions, at the finalized block
	UsedAt                            uint64 // the nonce is used from this block on; 0: never
	Logs                              []Log
	Receipts                          map[string]any
	Sends                             Sending
	MaxRange                          uint64 // widest eth_getLogs; 0: any
	// per method: answer it all yourself
	Override map[string]func(http.ResponseWriter) bool
	id       json.RawMessage // of the request that is answered now
	Asked    map[string]int
	StatesAt []string // the blocks at which authorizationState was asked
}

func NewNode(t testing.TB) *Node {
	f := &Node{T: t, ChainID: 84532, Date: Noon.UTC().Format(http.TimeFormat), Head: 1_000_000,
		Final: 999_900, Period: 2,
		Receipts: map[string]any{}, Override: map[string]func(http.ResponseWriter) bool{},
		Asked: map[string]int{}}
	f.Born = uint64(Noon.Unix()) - f.Head*f.Period
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	f.URL = server.URL + "/v2/SECRET-API-KEY"
	return f
}

func (f *Node) TimesAsked(method string) int {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	return f.Asked[method]
}

func (f *Node) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	var q struct {
		JSONRPC, Method string
		ID              json.RawMessage
		Params          []json.RawMessage
	}
	if r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json" ||
		json.NewDecoder(r.Body).Decode(&q) != nil {
		f.T.Errorf("not a JSON-RPC request: %s %s", r.Method, r.Header)
	}
	f.Asked[q.Method]++
	f.id = q.ID
	w.Header()["Date"] = nil
	if f.Date != "" {
		w.Header().Set("Date", f.Date)
	}
	if answer := f.Override[q.Method]; answer != nil && answer(w) {
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

func (f *Node) answer(method string, params []json.RawMessage) (any, string) {
	switch method {
	case "eth_chainId":
		return hexutil.Uint64(f.ChainID), ""
	case "eth_getBlockByNumber":
		n, ok := f.blockNumber(params[0])
		if !ok || n < f.Pruned || string(params[1]) != "false" {
			return nil, ""
		}
		return map[string]any{"number": hexutil.Uint64(n), "timestamp": hexutil.Uint64(f.Time(n)),
			"baseFeePerGas": hexutil.Uint64(f.Sends.BaseFee)}, ""
	case "eth_getCode":
		if f.NoPermit2 || string(params[0]) != `"`+message.Permit2Address+`"` {
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
		return f.Receipts[hash], ""
	case "eth_estimateGas", "eth_getBalance", "eth_maxPriorityFeePerGas":
		return f.Sends.answer(f.T, method, params)
	case "eth_getTransactionCount":
		if f.Sends.Gas > 0 {
			return f.Sends.answer(f.T, method, params)
		}
		if at, ok := f.blockNumber(params[1]); !ok || at != f.Final {
			f.T.Errorf("eth_getTransactionCount %s", params)
		}
		return hexutil.Uint64(f.Count), ""
	}
	f.T.Errorf("the node was asked %s", method)
	return nil, "method not found"
}

func (f *Node) Time(n uint64) uint64 { return f.Born + n*f.Period }

func (f *Node) blockNumber(tag json.RawMessage) (uint64, bool) {
	switch string(tag) {
	case `"latest"`:
		return f.Head, true
	case `"finalized"`:
		return f.Final, true
	}
	var n hexutil.Uint64
	err := json.Unmarshal(tag, &n)
	return uint64(n), err == nil && uint64(n) <= f.Head
}

func (f *Node) ethCall(params []json.RawMessage) (any, string) {
	var call struct {
		To   common.Address
		Data hexutil.Bytes
	}
	at, ok := f.blockNumber(params[1])
	if json.Unmarshal(params[0], &call) != nil || !ok {
		f.T.Errorf("eth_call %s", params)
		return nil, "bad call"
	}
	if call.To == common.HexToAddress(Vault) && f.Vault != nil {
		if call.Data.String() != "0xc19d93fb" {
			f.T.Errorf("the vault was asked %s", call.Data)
		}
		return hexutil.Bytes(f.Vault), ""
	}
	if call.To == common.HexToAddress(message.Permit2Address) {
		return f.permit2Call(call.Data), ""
	}
	if call.To != common.HexToAddress(USDC.Address) {
		return "0x", "" // no code there
	}
	switch {
	case strings.HasPrefix(call.Data.String(), "0x70a08231") && len(call.Data) == 36:
		word := f.Balance.Bytes32()
		return hexutil.Bytes(word[:]), ""
	case strings.HasPrefix(call.Data.String(), "0xe94a0102") && len(call.Data) == 68:
		f.StatesAt = append(f.StatesAt, string(params[1]))
		word := make([]byte, 32)
		if f.UsedAt > 0 && at >= f.UsedAt {
			word[31] = 1
		}
		return hexutil.Bytes(word), ""
	case strings.HasPrefix(call.Data.String(), "0xdd62ed3e") && len(call.Data) == 68:
		word := f.Allowance.Bytes32()
		return hexutil.Bytes(word[:]), ""
	case strings.HasPrefix(call.Data.String(), "0x7ecebe00") && len(call.Data) == 36 && !f.NoPermits:
		return hexutil.Bytes(append(make([]byte, 31), f.PermitNonce)), ""
	}
	return nil, "execution reverted"
}

func (f *Node) permit2Call(data hexutil.Bytes) hexutil.Bytes {
	if !strings.HasPrefix(data.String(), "0x4fe02b44") || len(data) != 68 {
		f.T.Errorf("Permit2 was asked %s", data)
	}
	if f.PermitUsed {
		return bytes.Repeat([]byte{0xff}, 32)
	}
	return make([]byte, 32)
}

func (f *Node) getLogs(raw json.RawMessage) (any, string) {
	var q struct {
		Address            common.Address
		FromBlock, ToBlock hexutil.Uint64
		Topics             []json.RawMessage
	}
	if err := json.Unmarshal(raw, &q); err != nil || q.Address != common.HexToAddress(USDC.Address) ||
		len(q.Topics) != 3 ||
		q.FromBlock > q.ToBlock || uint64(q.ToBlock) > f.Head {
		f.T.Errorf("eth_getLogs %s: %v", raw, err)
	}
	if f.MaxRange > 0 && uint64(q.ToBlock-q.FromBlock)+1 > f.MaxRange {
		return nil, fmt.Sprintf("block range exceeds %d", f.MaxRange)
	}
	found := []Log{}
	for _, l := range f.Logs {
		if l.BlockNumber >= q.FromBlock && l.BlockNumber <= q.ToBlock {
			found = append(found, l)
		}
	}
	return found, ""
}

// settle puts a use of evidence's nonce into a block: its event, and a receipt with a transfer of
// amount from payer to.
func (f *Node) Settle(e x402.Evidence, at uint64, payer, to string, amount uint64, status uint64) string {
	hash := crypto.Keccak256Hash([]byte(fmt.Sprint(at, len(f.Logs))))
	token := common.HexToAddress(e.Asset)
	value := money.NewAmount(amount).Bytes32()
	used := Log{Address: token, Topics: []common.Hash{TopicUsed, Topic(e.Payer),
		common.HexToHash(e.Nonce)},
		Data: hexutil.Bytes{}, BlockNumber: hexutil.Uint64(at), TransactionHash: hash}
	logs := []Log{used}
	if to != "" {
		logs = append(logs, Log{Address: token, Topics: []common.Hash{TopicTransfer, Topic(payer),
			Topic(to)}, Data: value[:], BlockNumber: hexutil.Uint64(at), TransactionHash: hash})
	}
	f.UsedAt, f.Logs = at, append(f.Logs, used)
	f.Receipts[hash.Hex()] = map[string]any{"transactionHash": hash, "blockNumber": hexutil.Uint64(at),
		"status": hexutil.Uint64(status), "logs": logs}
	return hash.Hex()
}

func Topic(address string) common.Hash {
	return common.BytesToHash(common.HexToAddress(address).Bytes())
}

func (f *Node) Say(method string, status int, body string) {
	f.Override[method] = func(w http.ResponseWriter) bool {
		w.WriteHeader(status)
		f.Write(w, body)
		return true
	}
}

func (f *Node) Write(w io.Writer, body string) {
	_, _ = io.WriteString(w, strings.ReplaceAll(body, `"id":ID`, `"id":`+string(f.id)))
}

func HexOf(b []byte) string { return "0x" + hex.EncodeToString(b) }

// Sending is what a fake node says of the agent's own account and its transactions; without gas it knows
// nothing of that.
type Sending struct {
	Gas                        uint64 // that it estimates
	BaseFee, Tip               uint64 // wei
	Coins                      uint64 // wei that the account has
	Count, Pending             uint64 // of its transactions, in a block and altogether
	Reverts                    bool
	Estimated                  hexutil.Bytes // what it was asked to estimate
	EstimatedTo, EstimatedFrom common.Address
}

func (s *Sending) answer(t testing.TB, method string, params []json.RawMessage) (any, string) {
	t.Helper()
	switch method {
	case "eth_maxPriorityFeePerGas":
		return hexutil.Uint64(s.Tip), ""
	case "eth_getBalance":
		require.Equal(t, []string{`"` + Us + `"`, `"latest"`}, []string{string(params[0]), string(params[1])})
		return hexutil.Uint64(s.Coins), ""
	case "eth_getTransactionCount":
		if string(params[1]) == `"pending"` {
			return hexutil.Uint64(s.Pending), ""
		}
		return hexutil.Uint64(s.Count), ""
	case "eth_estimateGas":
		message := must.JSON[struct {
			From, To common.Address
			Data     hexutil.Bytes
		}](params[0])(t)
		s.Estimated, s.EstimatedTo, s.EstimatedFrom = message.Data, message.To, message.From
		if s.Reverts {
			return nil, "execution reverted"
		}
		return hexutil.Uint64(s.Gas), ""
	}
	return nil, "method not found"
}

// Saying is a node that answers a method with a given result, whatever is asked, and "latest" and
// later blocks differently.
type Saying func(method, tag string) (result string)

func (s Saying) RoundTrip(r *http.Request) (*http.Response, error) {
	var q struct {
		ID     json.RawMessage
		Method string
		Params []json.RawMessage
	}
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		return nil, err
	}
	tag := ""
	for _, p := range q.Params { // a block's tag is the only string that is not an address or a hash
		if len(p) > 2 && p[0] == '"' && len(p) < 30 {
			tag = strings.Trim(string(p), `"`)
		}
	}
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, q.ID, s(q.Method, tag))
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)),
		Request: r}, nil
}
