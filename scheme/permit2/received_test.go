package permit2

import (
	"encoding/json"
	"math/big"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/stretchr/testify/require"

	"x402-wallet/chain/evm"
	"x402-wallet/chain/evm/message"
	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

type permitNode struct {
	t           testing.TB
	final, head uint64 // block n has time n
	owner       string
	usedAt      map[string]uint64 // block, by nonce (0x-hex)
	logs        []evm.LogEntry
	transfers   map[common.Hash]map[string]any // transactions
	receipts    map[common.Hash]map[string]any
}

func (n *permitNode) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var q struct {
		Method string
		ID     json.RawMessage
		Params []json.RawMessage
	}
	if json.NewDecoder(r.Body).Decode(&q) != nil {
		n.t.Error("no request")
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"jsonrpc": "2.0", "id": q.ID, "result": n.answer(q.Method,
		q.Params)})
}

func (n *permitNode) number(tag json.RawMessage) uint64 {
	switch string(tag) {
	case `"latest"`:
		return n.head
	case `"finalized"`:
		return n.final
	}
	var number hexutil.Uint64
	if json.Unmarshal(tag, &number) != nil {
		n.t.Errorf("block %s", tag)
	}
	return uint64(number)
}

func (n *permitNode) answer(method string, params []json.RawMessage) any {
	var hash common.Hash
	switch method {
	case "eth_chainId":
		return "0x14a34"
	case "eth_getBlockByNumber":
		number := hexutil.Uint64(n.number(params[0]))
		return map[string]any{"number": number, "timestamp": number}
	case "eth_call":
		return n.bitmap(params)
	case "eth_getLogs":
		return n.matching(params[0])
	case "eth_getTransactionByHash":
		_ = json.Unmarshal(params[0], &hash)
		return n.transfers[hash]
	case "eth_getTransactionReceipt":
		_ = json.Unmarshal(params[0], &hash)
		return n.receipts[hash]
	}
	n.t.Errorf("the node was asked %s", method)
	return nil
}

// bitmap is nonceBitmap(owner, word), in big integers as the contract counts.
func (n *permitNode) bitmap(params []json.RawMessage) any {
	var m struct {
		To   common.Address
		Data hexutil.Bytes
	}
	if json.Unmarshal(params[0], &m) != nil || m.To != common.HexToAddress(message.Permit2Address) ||
		len(m.Data) != 68 ||
		m.Data[:4].String() != "0x4fe02b44" || common.BytesToAddress(m.Data[16:36]) != common.HexToAddress(
		n.owner) {
		n.t.Errorf("eth_call %s", params)
		return "0x"
	}
	word, at, bits := new(big.Int).SetBytes(m.Data[36:]), n.number(params[1]), new(big.Int)
	for text, block := range n.usedAt {
		nonce, _ := new(big.Int).SetString(text[2:], 16)
		if block <= at && new(big.Int).Rsh(nonce, 8).Cmp(word) == 0 {
			bits.SetBit(bits, int(nonce.Uint64()&255), 1)
		}
	}
	return hexutil.Bytes(common.BigToHash(bits).Bytes())
}

func (n *permitNode) matching(raw json.RawMessage) any {
	var q struct {
		Address            common.Address
		FromBlock, ToBlock hexutil.Uint64
		Topics             []common.Hash
	}
	if json.Unmarshal(raw, &q) != nil || len(q.Topics) != 3 {
		n.t.Errorf("eth_getLogs %s", raw)
	}
	return slices.DeleteFunc(slices.Clone(n.logs), func(l evm.LogEntry) bool {
		return l.Address != q.Address || !slices.Equal(l.Topics, q.Topics) || l.BlockNumber < q.FromBlock ||
			l.BlockNumber > q.ToBlock
	})
}

func (n *permitNode) mined(at uint64, to string, input []byte, from, payee string, amount uint64,
	status uint64) string {
	hash := crypto.Keccak256Hash(input, []byte{byte(len(n.transfers))})
	value := money.NewAmount(amount).Bytes32()
	l := evm.LogEntry{Address: common.HexToAddress(usdc.Address), Data: value[:],
		BlockNumber: hexutil.Uint64(at), TransactionHash: hash,
		Topics: []common.Hash{evm.TopicTransfer, topic(from), topic(payee)}}
	n.logs = append(n.logs, l)
	n.transfers[hash] = map[string]any{"hash": hash, "to": to, "input": hexutil.Bytes(input)}
	n.receipts[hash] = map[string]any{"transactionHash": hash, "blockNumber": hexutil.Uint64(at),
		"status": hexutil.Uint64(status), "logs": []evm.LogEntry{l}}
	return hash.Hex()
}

// settleInput is a call of the exact proxy, packed by hand.
func settleInput(selector string, words ...[]byte) []byte {
	return append(crypto.Keccak256([]byte(selector))[:4], slices.Concat(words...)...)
}

const (
	exactSettle = "settle(((address,uint256),uint256,uint256),address,(address,uint256),bytes)"
	exactPermit = "settleWithPermit((uint256,uint256,bytes32,bytes32,uint8)," +
		"((address,uint256),uint256,uint256)," +
		"address,(address,uint256),bytes)"
	uptoSettle = "settle(((address,uint256),uint256,uint256),uint256,address,(address,address,uint256),bytes)"
	uptoPermit = "settleWithPermit((uint256,uint256,bytes32,bytes32,uint8)," +
		"((address,uint256),uint256,uint256)," +
		"uint256,address,(address,address,uint256),bytes)"
)

// Whose permit a transfer was: of a stranger's, only the very payment that was asked for counts, known by the
// call that made it.
func TestReceivedByPermit2(t *testing.T) {
	const otherNonce = "0x0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f21"
	address := func(a string) []byte { return message.Word(common.HexToAddress(a)) }
	number := message.WordOfUint
	evidence := func(way string) x402.Evidence {
		e := paid(0)
		e.Way, e.Payer, e.ValidBefore, e.Amount = way, stranger, 2000, money.NewAmount(10000)
		return e
	}
	nonceOf := func(text string) []byte { return common.HexToHash(text).Bytes() }
	exact := func(nonce, owner string, amount uint64) []byte {
		return settleInput(exactSettle, address(usdc.Address), number(amount), nonceOf(nonce), number(2000),
			address(owner), address(payee), number(0), number(256), number(65))
	}
	none := number(0)
	nonce := evidence(x402.Permit2).Nonce
	for name, test := range map[string]struct {
		way, to      string
		input        []byte
		paid, status uint64
		want         x402.StatusState
	}{
		"exact": {x402.Permit2, message.ExactProxy, exact(nonce, stranger, 10000), 10000, 1, x402.Settled},
		"with a permit": {x402.Permit2, message.ExactProxy, settleInput(exactPermit, none, none, none, none,
			none, address(usdc.Address), number(10000), nonceOf(nonce), number(2000), address(stranger),
			address(payee)), 10000, 1, x402.Settled},
		"upto": {x402.Upto, message.UptoProxy, settleInput(uptoSettle, address(usdc.Address), number(50000),
			nonceOf(nonce),
			number(2000), number(10000), address(stranger), address(payee)), 10000, 1, x402.Settled},
		"upto with a permit": {x402.Upto, message.UptoProxy, settleInput(uptoPermit, none, none, none, none,
			none, address(usdc.Address), number(50000), nonceOf(nonce), number(2000), number(10000),
			address(stranger)), 10000, 1, x402.Settled},
		"another nonce of his": {x402.Permit2, message.ExactProxy, exact(otherNonce, stranger, 10000), 10000,
			1, x402.Open},
		"another owner's": {x402.Permit2, message.ExactProxy, exact(nonce, us, 10000), 10000, 1, x402.Open},
		"more was permitted": {x402.Permit2, message.ExactProxy, exact(nonce, stranger, 10001), 10000, 1,
			x402.Open},
		"less moved": {x402.Permit2, message.ExactProxy, exact(nonce, stranger, 10000), 9999, 1,
			x402.Open},
		"it failed": {x402.Permit2, message.ExactProxy, exact(nonce, stranger, 10000), 10000, 0,
			x402.Open},
		"by a lookalike": {x402.Permit2, stranger, exact(nonce, stranger, 10000), 10000, 1, x402.Open},
		"upto's proxy": {x402.Permit2, message.UptoProxy, exact(nonce, stranger, 10000), 10000, 1,
			x402.Open},
		"a plain transfer of his": {x402.Permit2, usdc.Address, []byte{0xa9, 0x05, 0x9c, 0xbb}, 10000, 1,
			x402.Open},
		"cut off": {x402.Permit2, message.ExactProxy, exact(nonce, stranger, 10000)[:100], 10000, 1,
			x402.Open},
		"nothing": {x402.Permit2, message.ExactProxy, nil, 10000, 1, x402.Open},
	} {
		t.Run(name, func(t *testing.T) {
			n := newPermitNode(t)
			n.usedAt[nonce] = 1900
			hash := n.mined(1900, test.to, test.input, stranger, payee, test.paid, test.status)
			got := must.Get(n.payer().Received(t.Context(), evidence(test.way)))(t)
			require.Equal(t, test.want, got.State, got.Note)
			require.False(t, got.Unused)
			if test.want == x402.Settled {
				require.Equal(t, hash, got.Transaction)
			}
		})
	}
	t.Run("among others", func(t *testing.T) {
		n := newPermitNode(t)
		n.usedAt[nonce], n.usedAt[otherNonce] = 1800, 1900
		hash := n.mined(1800, message.ExactProxy, exact(nonce, stranger, 10000), stranger, payee, 10000, 1)
		n.mined(1900, message.ExactProxy, exact(otherNonce, stranger, 10000), stranger, payee, 10000, 1)
		got := must.Get(n.payer().Received(t.Context(), evidence(x402.Permit2)))(t)
		require.Equal(t, []any{x402.Settled, hash}, []any{got.State, got.Transaction})
	})
}

// A stranger may sign for as long as he likes: his payment may lie before anything that ends with his permit
// would have been signed here.
func TestReceivedByPermit2OfLongAgo(t *testing.T) {
	n := newPermitNode(t)
	n.head, n.final = 9000, 8990
	e := paid(0)
	e.Way, e.Payer, e.ValidBefore = x402.Permit2, stranger, 1_000_000
	amount := e.Amount.Bytes32()
	n.usedAt[e.Nonce] = 1500
	hash := n.mined(1500, message.ExactProxy, settleInput(exactSettle, message.WordOfUint(0), amount[:],
		common.HexToHash(e.Nonce).Bytes(), message.WordOfUint(0),
		message.Word(common.HexToAddress(stranger))), stranger, payee, 10_000, 1)
	got := must.Get(n.payer().Received(t.Context(), e))(t)
	require.Equal(t, []any{x402.Settled, hash}, []any{got.State, got.Transaction})
}

func newPermitNode(t testing.TB) *permitNode {
	return &permitNode{t: t, head: 2100, final: 2050, owner: stranger, usedAt: map[string]uint64{},
		transfers: map[common.Hash]map[string]any{}, receipts: map[common.Hash]map[string]any{}}
}

func (n *permitNode) payer() *Payer {
	server := httptest.NewServer(n)
	n.t.(*testing.T).Cleanup(server.Close)
	return NewPayer(evm.New(evm.Options{RPC: map[string]string{sepolia: server.URL},
		Now: func() time.Time { return time.Unix(2100, 0) }}), nil)
}

// An unused permit is dead when a final block is past its deadline, not at it: Permit2 takes it then.
func TestAPermitThatCannotComeAnyMore(t *testing.T) {
	for final, want := range map[uint64]x402.StatusState{1999: x402.Open, 2000: x402.Open,
		2001: x402.Expired} {
		n := newPermitNode(t)
		n.final = final
		e := paid(0)
		e.Way, e.Payer, e.ValidBefore = x402.Permit2, stranger, 2000
		got := must.Get(n.payer().Received(t.Context(), e))(t)
		require.Equal(t, want, got.State, final)
		require.Equal(t, want == x402.Open, got.Unused)
		// the bit beside it is another nonce's
		n.usedAt[strings.TrimSuffix(e.Nonce, "20")+"21"] = 1
		require.Equal(t, got.State, must.Get(n.payer().Received(t.Context(), e))(t).State)
		n.usedAt[e.Nonce] = 1
		used := must.Get(n.payer().Received(t.Context(), e))(t)
		require.Equal(t, x402.Open, used.State,
			"its owner may have cancelled it, or its transfer is elsewhere")
		require.False(t, used.Unused)
	}
}

// The places of the arguments are those of the proxies' own types.
func TestPermitCalls(t *testing.T) {
	for i, signature := range []string{exactSettle, exactPermit, uptoSettle, uptoPermit} {
		require.Equal(t, signature, settleCalls[i].signature)
	}
}

// Whatever a transaction's input is, one that is taken for the payment's names its owner and its nonce.
func FuzzPermitCall(f *testing.F) {
	proxy := common.HexToAddress(message.ExactProxy)
	e := paid(0)
	e.Way, e.Payer = x402.Permit2, stranger
	a, err := evm.ReadEvidence(e, x402.Permit2)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(settleInput(exactSettle, message.WordOfUint(0), message.WordOfUint(10000), a.Nonce[:],
		message.WordOfUint(0), message.Word(a.Payer)))
	f.Add(settleInput(exactPermit))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, input []byte) {
		if call, isOne := readSettle(&proxy, input); isOne && call.isOf(permit{a}) {
			require.Contains(t, string(input), string(a.Nonce[:]))
			require.Contains(t, string(input), string(a.Payer[:]))
		}
	})
}
