package x402

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
)

// The seeds of these targets lie in testdata/fuzz; `go test` runs them every time.

// What Strict accepts, encoding/json reads too, and reads in one way only: a struct gets what
// stands under the exact key.
func FuzzStrict(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		strict := DecodeStrict(data, MaxBody, nil)
		if strict == nil {
			require.True(t, json.Valid(data))
		}
		type probe struct {
			Amount json.RawMessage `json:"amount"`
			Deep   *struct {
				PayTo json.RawMessage `json:"payTo"`
			} `json:"deep"`
		}
		var p probe
		if DecodeStrict(data, MaxBody, &p) != nil {
			return
		}
		require.NoError(t, strict)
		var m map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(data, &m))
		require.Equal(t, string(m["amount"]), string(p.Amount))
		if p.Deep != nil {
			require.NoError(t, json.Unmarshal(m["deep"], &m))
			require.Equal(t, string(m["payTo"]), string(p.Deep.PayTo))
		}
		decoder := json.NewDecoder(bytes.NewReader(data))
		decoder.UseNumber()
		var first, second any
		require.NoError(t, decoder.Decode(&first))
		again, err := json.Marshal(first)
		require.NoError(t, err)
		decoder = json.NewDecoder(bytes.NewReader(again))
		decoder.UseNumber()
		require.NoError(t, decoder.Decode(&second))
		require.True(t, reflect.DeepEqual(first, second))
	})
}

// An amount that is accepted is the canonical decimal that was sent, more than 0, and fits Solana's
// 64 bits there.
func FuzzAmount(f *testing.F) {
	f.Fuzz(func(t *testing.T, text string, solana bool) {
		network := "eip155:8453"
		if solana {
			network = SolanaDevnet
		}
		a, err := Object{"amount": json.RawMessage(text)}.amount("amount", network)
		if err != nil {
			return
		}
		var said string
		require.NoError(t, json.Unmarshal([]byte(text), &said))
		require.Equal(t, said, a.String())
		require.False(t, a.IsZero())
		_, fits := a.Uint64()
		require.True(t, fits || !solana)
	})
}
