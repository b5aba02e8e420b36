package svm

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/gagliardetto/solana-go"
	"github.com/stretchr/testify/require"

	"x402-wallet/chain/svm/decode"
	"x402-wallet/x402"
)

// saying is a node that answers each method with one result, whatever is asked.
type saying map[string]string

func (s saying) RoundTrip(r *http.Request) (*http.Response, error) {
	var q struct {
		ID     json.RawMessage
		Method string
	}
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		return nil, err
	}
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, q.ID, s[q.Method])
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)),
		Request: r}, nil
}

func (s saying) exact() *Exact {
	return New(Options{Signer: &signer{private: person(1)}, RPC: map[string]string{devnet: "http://node"},
		HTTP: &http.Client{Transport: s}})
}

// Whatever a node says of a payment: no panic, nothing but open with an error, and expired only if
// it said so: the height is past and the blockhash invalid, or a transaction with our signature
// failed.
func FuzzStatus(f *testing.F) {
	const lastValid = 1000
	message := sampleMessage()
	ours := solana.Signature(ed25519.Sign(person(1), message))
	wire := append(append(append([]byte{2}, ed25519.Sign(payer, message)...), ours[:]...), message...)
	shownWire, id := base64.StdEncoding.EncodeToString(wire), solana.Signature(wire[1:65]).String()
	e := x402.Evidence{Network: devnet, Asset: mint.String(), Payer: keyOf(person(1)).String(),
		Source: keyOf(owner).String(), Memo: "memo",
		Blockhash: nodesHash, LastValidBlockHeight: lastValid, Signature: ours.String()}

	tip := func(height int) string {
		return fmt.Sprintf(`{"context":{"slot":%d},"value":{"blockhash":%q,"lastValidBlockHeight":%d}}`,
			height+50, nodesHash, height+decode.BlockhashLife)
	}
	rows := fmt.Sprintf(`[{"signature":%q,"slot":900,"memo":null}]`, id)
	transaction := func(err string) string {
		return fmt.Sprintf(`{"slot":900,"blockTime":1,"transaction":[%q,"base64"],"meta":{"err":%s}}`,
			shownWire, err)
	}
	f.Add(tip(500), "500", `{"value":true}`, `[]`, `null`, "0")
	f.Add(tip(1500), "1500", `{"value":false}`, `[]`, `null`, "0")
	f.Add(tip(1500), "1500", `{"value":true}`, `[]`, `null`, "0")
	f.Add(tip(1500), "999", `{"value":false}`, `[]`, `null`, "0")
	f.Add(tip(1500), "1500", `{"value":false}`, rows, transaction("null"), "0")
	f.Add(tip(1500), "1500", `{"value":false}`, rows, transaction(`{"InstructionError":[2,"Custom"]}`), "0")
	f.Add(tip(1500000), "1500000", `{"value":false}`, rows, `null`, "1400000")
	f.Add(`null`, `-1`, `{}`, `[{}]`, `{"meta":{}}`, `""`)
	f.Fuzz(func(t *testing.T, tip, height, valid, rows, transaction, first string) {
		results := map[string]string{"getGenesisHash": `"` + genesis + `"`, "getLatestBlockhash": tip,
			"getBlockHeight": height, "isBlockhashValid": valid,
			"getSignaturesForAddress": rows, "getTransaction": transaction, "getFirstAvailableBlock": first}
		for _, result := range results {
			if !json.Valid([]byte(result)) {
				return // FuzzAnswer's
			}
		}
		status, err := saying(results).exact().Status(t.Context(), e)
		if err != nil {
			require.Equal(t, x402.Open, status.State)
			return
		}
		if status.State == x402.Settled {
			require.Contains(t, transaction, shownWire, "settled without our transaction")
		}
		if status.State != x402.Expired {
			return
		}
		at, notPast := strconv.ParseUint(strings.TrimSpace(height), 10, 64)
		past := notPast == nil && at > lastValid && strings.Contains(valid, "false")
		require.True(t, past || strings.Contains(transaction, shownWire), "expired by %v", results)
	})
}

// Whatever an account holds: no panic, and what may be spent is at most what is there and, of
// another's account, what was delegated.
func FuzzTokenAccount(f *testing.F) {
	address, key := keyOf(owner), keyOf(person(1))
	c := &chain{accounts: map[solana.PublicKey]map[string]any{}}
	for _, a := range []token{{mint: mint, owner: key, amount: 5}, {mint: mint, owner: keyOf(owner),
		delegate: key, amount: 9, delegated: 5},
		{mint: mint, owner: keyOf(owner), delegate: key, amount: 3, delegated: 5, is2022: true},
		{mint: mint, owner: key, amount: 5, frozen: true}} {
		c.put(address, a)
		data := c.accounts[address]["data"].([]string)[0]
		wire, err := base64.StdEncoding.DecodeString(data)
		require.NoError(f, err)
		f.Add(wire, a.is2022)
	}
	f.Fuzz(func(t *testing.T, data []byte, is2022 bool) {
		account, ok := readTokenAccount(address, &account{program: programOf(is2022), data: data})
		if !ok {
			return
		}
		free := account.spendable(key)
		require.LessOrEqual(t, free, account.amount)
		if account.owner != key {
			require.True(t, free == 0 || account.delegatesTo(key))
			require.LessOrEqual(t, free, account.delegated)
		}
	})
}
