package evm

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"x402-wallet/internal/must"
	"x402-wallet/x402"
)

// Whatever a node says of a payment: no panic, nothing but open with an error, and expired only if
// it said so: unused at a finalized block whose time is past the end, or cancelled by an event of
// this nonce.
func FuzzStatus(f *testing.F) {
	e := paid(time.Hour)
	block := func(n int, at int64) string { return fmt.Sprintf(`{"number":"%#x","timestamp":"%#x"}`, n, at) }
	zero, one := `"`+common.Hash{}.Hex()+`"`, `"`+common.BytesToHash([]byte{1}).Hex()+`"`
	event := func(topic common.Hash) string {
		text, _ := json.Marshal([]LogEntry{{Address: common.HexToAddress(e.Asset), BlockNumber: 5,
			TransactionHash: common.Hash{7},
			Topics: []common.Hash{topic, common.BytesToHash(common.HexToAddress(e.Payer).Bytes()),
				common.HexToHash(e.Nonce)}}})
		return string(text)
	}
	isZero := func(result string) bool { // in whatever JSON and hexadecimal it is written
		var word hexutil.Bytes
		return json.Unmarshal([]byte(result), &word) == nil && len(word) == common.HashLength &&
			common.Hash(word) == common.Hash{}
	}
	nonce := common.HexToHash(e.Nonce)
	receipt := fmt.Sprintf(`{"transactionHash":%q,"status":"0x1","logs":%s}`, common.Hash{7}.Hex(),
		event(topicUsed))
	f.Add(zero, zero, block(9, noon.Unix()), block(8, noon.Unix()), `[]`, `null`)
	f.Add(zero, zero, block(9, noon.Unix()), block(8, e.ValidBefore), `[]`, `null`)
	f.Add(one, one, block(9, noon.Unix()), block(8, noon.Unix()), event(topicCanceled), `null`)
	f.Add(one, one, block(9, noon.Unix()), block(8, noon.Unix()), event(topicUsed), receipt)
	f.Add(one, one, block(9, noon.Unix()), block(8, noon.Unix()), event(topicUsed), `null`)
	f.Add(strings.Replace(zero, "x", "X", 1), zero, block(9, noon.Unix()), block(8, e.ValidBefore+1),
		`[]`, `null`)
	f.Add(zero, one, `null`, `{}`, `[{}]`, `{"logs":[{"topics":[]}]}`)
	f.Fuzz(func(t *testing.T, now, final, tip, finalBlock, logs, receipt string) {
		for _, result := range []string{now, final, tip, finalBlock, logs, receipt} {
			if !json.Valid([]byte(result)) {
				return // package rpc's
			}
		}
		node := saying(func(method, tag string) string {
			switch {
			case method == "eth_chainId":
				return `"0x14a34"`
			case method == "eth_call" && tag == Latest:
				return now
			case method == "eth_call":
				return final
			case method == "eth_getBlockByNumber" && tag == Finalized:
				return finalBlock
			case method == "eth_getBlockByNumber":
				return tip
			case method == "eth_getLogs":
				return logs
			}
			return receipt
		})
		status, err := answeredBy(node).Status(t.Context(), e)
		if err != nil {
			require.Equal(t, x402.Open, status.State)
			return
		}
		if status.State != x402.Expired {
			return
		}
		said := must.JSON[struct{ Timestamp hexutil.Uint64 }]([]byte(finalBlock))(t)
		var events []struct{ Topics []common.Hash }
		cancelled := json.Unmarshal([]byte(logs), &events) == nil &&
			slices.ContainsFunc(events, func(e struct{ Topics []common.Hash }) bool {
				return slices.Contains(e.Topics, topicCanceled) && slices.Contains(e.Topics, nonce)
			})
		require.True(t, cancelled || (isZero(now) && isZero(final) && int64(said.Timestamp) > e.ValidBefore),
			"expired by %s %s %s %s", now, final, finalBlock, logs)
	})
}

// A connection whose question was given up while it was dialled may stay idle for a while.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"))
}
