package permit2

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
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

// permitChain is a node of a chain with Permit2: a block a second, of which the last before noon is 1000.
type permitChain struct {
	t             testing.TB
	head, final   uint64
	usedAt        uint64 // block of the nonce's bit; 0: never
	isPruned      bool   // it knows no state of old
	logs          []evm.LogEntry
	txs, receipts map[string]map[string]any
}

func (c *permitChain) at(n uint64) int64 { return noon.Unix() - 1000 + int64(n) }

func (c *permitChain) RoundTrip(r *http.Request) (*http.Response, error) {
	var q struct {
		ID     json.RawMessage
		Method string
		Params []json.RawMessage
	}
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		return nil, err
	}
	result, refused := c.answer(q.Method, q.Params)
	body := map[string]any{"jsonrpc": "2.0", "id": q.ID, "result": result}
	if refused != "" {
		body = map[string]any{"jsonrpc": "2.0", "id": q.ID, "error": map[string]any{"code": -32000,
			"message": refused}}
	}
	text, err := json.Marshal(body)
	return &http.Response{StatusCode: 200, Header: http.Header{}, Request: r,
		Body: io.NopCloser(strings.NewReader(string(text)))}, err
}

func (c *permitChain) block(raw json.RawMessage) uint64 {
	tag := must.JSON[string](raw)(c.t)
	switch tag {
	case evm.Latest:
		return c.head
	case evm.Finalized:
		return c.final
	}
	return must.Get(hexutil.DecodeUint64(tag))(c.t)
}

func (c *permitChain) answer(method string, params []json.RawMessage) (any, string) {
	var hash string
	switch method {
	case "eth_chainId":
		return "0x14a34", ""
	case "eth_getBlockByNumber":
		n := c.block(params[0])
		return map[string]any{"number": hexutil.Uint64(n), "timestamp": hexutil.Uint64(uint64(c.at(n)))}, ""
	case "eth_call":
		call := must.JSON[struct{ To, Data string }](params[0])(c.t)
		require.Equal(c.t, message.Permit2Address, call.To)
		nonce := permitEvidence(x402.Upto).Nonce
		require.Equal(c.t, "0x4fe02b44"+hexOf(topic(us).Bytes())[2:]+"00"+nonce[2:64], call.Data)
		n := c.block(params[1])
		if c.isPruned && n < c.final {
			return nil, "missing trie node"
		}
		word := make([]byte, 32)
		if c.usedAt > 0 && n >= c.usedAt {
			word[31-0x20/8] = 1 // bit 0x20, the nonce's last byte
		}
		return hexutil.Bytes(word), ""
	case "eth_getLogs":
		q := must.JSON[struct{ FromBlock, ToBlock hexutil.Uint64 }](params[0])(c.t)
		return slices.DeleteFunc(slices.Clone(c.logs), func(l evm.LogEntry) bool {
			return l.BlockNumber < q.FromBlock || l.BlockNumber > q.ToBlock
		}), ""
	case "eth_getTransactionByHash":
		require.NoError(c.t, json.Unmarshal(params[0], &hash))
		return c.txs[hash], ""
	case "eth_getTransactionReceipt":
		require.NoError(c.t, json.Unmarshal(params[0], &hash))
		return c.receipts[hash], ""
	}
	c.t.Errorf("the node was asked %s", method)
	return nil, "method not found"
}

func permitEvidence(way string) x402.Evidence {
	end := noon.Add(time.Minute)
	return x402.Evidence{Network: sepolia, Asset: usdc.Address, Payer: us, PayTo: payee,
		Amount: money.NewAmount(10_000), ValidBefore: end.Unix(), ExpiresAt: end, Way: way,
		Nonce: "0x0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20"}
}

func (c *permitChain) transfer(block, amount uint64, to string, input []byte) (hash string) {
	h := crypto.Keccak256Hash([]byte(fmt.Sprint(block, amount, to, len(c.logs))))
	value := money.NewAmount(amount).Bytes32()
	l := evm.LogEntry{Address: common.HexToAddress(usdc.Address), Data: value[:],
		BlockNumber: hexutil.Uint64(block),
		Topics:      []common.Hash{evm.TopicTransfer, topic(us), topic(payee)}, TransactionHash: h}
	c.logs = append(c.logs, l)
	c.txs[h.Hex()] = map[string]any{"hash": h, "to": to, "input": hexutil.Bytes(input)}
	c.receipts[h.Hex()] = map[string]any{"transactionHash": h, "status": "0x1", "logs": []evm.LogEntry{l}}
	return h.Hex()
}

func (c *permitChain) invalidate(block uint64) {
	nonce := common.HexToHash(permitEvidence("").Nonce)
	data := make([]byte, 64)
	copy(data[1:], nonce[:31])
	data[63-int(nonce[31])/8] = 1 << (nonce[31] % 8)
	c.logs = append(c.logs, evm.LogEntry{Address: common.HexToAddress(message.Permit2Address), Data: data,
		BlockNumber: hexutil.Uint64(block), Topics: []common.Hash{topicInvalidated, topic(us)},
		TransactionHash: common.Hash{9}})
}

func settle(call int, nonce string) []byte {
	of := settleCalls[call]
	input := append(of.selector(), make([]byte, 32*12)...)
	put := func(at int, word []byte) { copy(input[4+32*at:], word) }
	amount := permitEvidence("").Amount.Bytes32()
	put(of.owner, topic(us).Bytes())
	put(of.nonce, common.FromHex(nonce))
	put(of.amount, amount[:])
	return input
}

func TestStatusOfPermits(t *testing.T) {
	const elsewhere = "0x00000000000000000000000000000000000000aa"
	ours, another := permitEvidence("").Nonce, "0x"+strings.Repeat("77", 32)
	hidden := append([]byte("something else"), common.FromHex(ours)...)
	unrelated := []byte("nothing that says so")
	type step = func(c *permitChain)
	type steps = []step
	used := func(block uint64) step { return func(c *permitChain) { c.usedAt = block } }
	until := func(head, final uint64) step { return func(c *permitChain) { c.head, c.final = head, final } }
	final := until(1000, 999)
	pruned := func(c *permitChain) { c.isPruned = true }
	invalidated := func(block uint64) step { return func(c *permitChain) { c.invalidate(block) } }
	moved := func(block, amount uint64, to string, input []byte) step {
		return func(c *permitChain) { c.transfer(block, amount, to, input) }
	}
	paid := func(call int, block, amount uint64, nonce string) step {
		proxy := []string{message.ExactProxy, message.ExactProxy, message.UptoProxy, message.UptoProxy}[call]
		return moved(block, amount, proxy, settle(call, nonce))
	}
	receipt := func(member string, value any) step {
		return func(c *permitChain) {
			c.receipts[c.transfer(995, 700, message.UptoProxy, settle(2, ours))][member] = value
		}
	}
	for name, test := range map[string]struct {
		way         string
		steps       steps
		want        x402.StatusState
		moved, note string
	}{
		"unused":                  {x402.Permit2, nil, x402.Open, "", "nonce unused"},
		"unused, and over":        {x402.Permit2, steps{until(1200, 1061)}, x402.Expired, "", ""},
		"unused at its end":       {x402.Permit2, steps{until(1200, 1060)}, x402.Open, "", ""},
		"unused, over, not final": {x402.Permit2, steps{until(1200, 900)}, x402.Open, "", ""},
		"exact, settled": {x402.Permit2, steps{used(995), paid(0, 995, 10_000, ours)},
			x402.Settled, "", ""},
		"exact, settled with an approval": {x402.Permit2, steps{used(995), paid(1, 995, 10_000, ours)},
			x402.Settled, "", ""},
		"exact, through another contract": {x402.Permit2,
			steps{used(995), moved(995, 10_000, elsewhere, hidden)}, x402.Settled, "", ""},
		"exact, used, its event out of reach, not final": {x402.Permit2, steps{used(995)},
			x402.Open, "", "not final yet"},
		"exact, used, its event out of reach": {x402.Permit2, steps{used(995), final},
			x402.Settled, "", "its use was not found"},
		"exact, another's transfer": {x402.Permit2, steps{used(995), paid(0, 995, 10_000, another)},
			x402.Open, "", "not final yet"},
		"exact, invalidated": {x402.Permit2, steps{used(995), final, invalidated(995)},
			x402.Expired, "", "invalidated"},
		"exact, invalidated, not final": {x402.Permit2, steps{used(995), invalidated(995)},
			x402.Open, "", "not final yet"},
		"exact, used before, then invalidated, not final": {x402.Permit2, steps{used(850), invalidated(995)},
			x402.Open, "", "not final yet"},
		"exact, settled, then invalidated": {x402.Permit2,
			steps{used(990), final, paid(0, 990, 10_000, ours), invalidated(995)}, x402.Settled, "", ""},
		"exact, maybe settled in the block of its invalidation": {x402.Permit2,
			steps{used(995), final, moved(995, 10_000, elsewhere, unrelated), invalidated(995)},
			x402.Open, "", "cannot be seen"},
		"exact, invalidated after another's transfer": {x402.Permit2,
			steps{used(995), final, moved(980, 10_000, elsewhere, unrelated), invalidated(995)},
			x402.Expired, "", "invalidated"},
		"exact, the same where nobody knows the state before": {x402.Permit2,
			steps{used(995), final, pruned, moved(980, 10_000, elsewhere, unrelated), invalidated(995)},
			x402.Open, "", "cannot be seen"},
		"upto, settled": {x402.Upto, steps{used(995), final, paid(2, 995, 700, ours)},
			x402.Settled, "700", ""},
		"upto, settled with an approval": {x402.Upto, steps{used(995), final, paid(3, 995, 10_000, ours)},
			x402.Settled, "10000", ""},
		"upto, not final": {x402.Upto, steps{used(995), paid(2, 995, 700, ours)},
			x402.Open, "", "700 moved, not final yet"},
		"upto, more than was signed for": {x402.Upto, steps{used(995), final, paid(2, 995, 10_001, ours)},
			x402.Settled, "", "its use was not found"},
		"upto, a decoy with the nonce in it": {x402.Upto, steps{used(995), final,
			moved(996, 1, elsewhere, hidden), moved(995, 9_000, elsewhere, unrelated)},
			x402.Settled, "", "its use was not found"},
		"upto, a decoy beside it": {x402.Upto, steps{used(995), final, paid(2, 995, 9_000, ours),
			paid(2, 996, 1, another), paid(0, 997, 2, ours)}, x402.Settled, "9000", ""},
		"upto, its transaction failed": {x402.Upto, steps{used(995), final, receipt("status", "0x0")},
			x402.Open, "", "failed transaction"},
		"upto, its transaction moved nothing": {x402.Upto,
			steps{used(995), final, receipt("logs", []evm.LogEntry{})}, x402.Open, "", "contradicts itself"},
	} {
		t.Run(name, func(t *testing.T) {
			c := &permitChain{t: t, head: 1000, final: 900, txs: map[string]map[string]any{},
				receipts: map[string]map[string]any{}}
			for _, step := range test.steps {
				step(c)
			}
			e := NewPayer(evm.New(evm.Options{RPC: map[string]string{sepolia: "http://node"},
				HTTP: &http.Client{Transport: c}}), nil)
			got := must.Get(e.Status(t.Context(), permitEvidence(test.way)))(t)
			require.Equal(t, test.want, got.State, got.Note)
			require.Contains(t, got.Note, test.note)
			require.Equal(t, test.moved != "", got.Amount != nil)
			if got.Amount != nil {
				require.Equal(t, test.moved, got.Amount.String())
			}
			// of somebody else's key only a call of the proxy with this nonce says that all of it was paid
			foreign := must.Get(e.Received(t.Context(), permitEvidence(test.way)))(t)
			isAll := test.moved == "" || test.moved == "10000"
			isSeen := test.want == x402.Settled && test.note == "" && isAll &&
				!strings.Contains(name, "through another")
			require.Equal(t, isSeen, foreign.State == x402.Settled, foreign.Note)
			if c.usedAt > 0 {
				require.NotEqual(t, x402.Expired, foreign.State, "it may have been paid where nobody looked")
			}
		})
	}
	evidence := permitEvidence("another")
	nobody := NewPayer(evm.New(evm.Options{}), nil)
	requireCode(t, x402.Internal, must.Err(nobody.Status(t.Context(), evidence)))
}
