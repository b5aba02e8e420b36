package payload

import (
	"encoding/json"
	"math/big"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/rlp"
	"github.com/stretchr/testify/require"

	"x402-wallet/chain/evm/message"
	"x402-wallet/internal/must"
	"x402-wallet/x402/money"
)

// vectorTransaction is one that the reference client signed (x402 2.27, viem).
func vectorTransaction(t testing.TB) []byte {
	text := must.Get(os.ReadFile("../testdata/permit2-vectors.json"))(t)
	_, rest, found := strings.Cut(string(text), `"signedTransaction": `)
	require.True(t, found)
	var raw hexutil.Bytes
	require.NoError(t, json.NewDecoder(strings.NewReader(rest)).Decode(&raw))
	return raw
}

func TestRecoverTransaction(t *testing.T) {
	raw := vectorTransaction(t)
	tx := must.Get(RecoverTransaction(raw))(t)
	data := append([]byte{9, 94, 167, 179}, message.Word(common.HexToAddress(message.Permit2Address))...)
	require.Equal(t, SignedTransaction{ChainID: 84532, Nonce: 7, Gas: 70_000,
		Tip: money.NewAmount(100_000_000), MaxFee: money.NewAmount(2_000_000_000), From: us, To: usdc.Address,
		Data: slices.Concat(data, slices.Repeat([]byte{0xff}, 32)),
		Hash: crypto.Keccak256Hash(raw).Hex()}, tx)
}

// What is no such transaction, or could be written in another way, is not read; a changed one is another's.
func TestRecoverTransactionStrictly(t *testing.T) {
	raw := vectorTransaction(t)
	var fields []any
	require.NoError(t, rlp.DecodeBytes(raw[1:], &fields))
	with := func(place int, value any) []byte {
		changed := slices.Clone(fields)
		changed[place] = value
		return append([]byte{2}, must.Get(rlp.EncodeToBytes(changed))(t)...)
	}
	s := new(big.Int).SetBytes(fields[11].([]byte))
	for name, bad := range map[string][]byte{
		"nothing":           {},
		"another type":      append([]byte{1}, raw[1:]...),
		"a byte more":       append(slices.Clone(raw), 0),
		"a byte less":       raw[:len(raw)-1],
		"a leading zero":    with(1, []byte{0, 7}),
		"coins":             with(6, []byte{1}),
		"a short address":   with(5, []byte{1, 2, 3}),
		"an access list":    with(8, []any{[]any{common.HexToAddress(us), []any{}}}),
		"a fee of 33 bytes": with(3, slices.Repeat([]byte{1}, 33)),
		"v 27":              with(9, []byte{27}),
		"v 257":             with(9, []byte{1, 1}),
		"r 0":               with(10, []byte{}),
		"a malleable twin":  with(11, new(big.Int).Sub(crypto.S256().Params().N, s)),
		"too long":          with(7, make([]byte, maxTransaction)),
	} {
		t.Run(name, func(t *testing.T) {
			require.Error(t, must.Err(RecoverTransaction(bad)))
		})
	}
	tx := must.Get(RecoverTransaction(with(1, []byte{8})))(t)
	require.NotEqual(t, us, tx.From)
	tx = must.Get(RecoverTransaction(with(5, []byte{})))(t)
	require.Empty(t, tx.To)
}

// Whatever is brought as a signed transaction: no panic, and what is read is written in this one way.
func FuzzRecoverTransaction(f *testing.F) {
	f.Add([]byte{})
	f.Add(vectorTransaction(f))
	f.Fuzz(func(t *testing.T, raw []byte) {
		tx, err := RecoverTransaction(raw)
		if err != nil {
			return
		}
		var fields []any
		require.NoError(t, rlp.DecodeBytes(raw[1:], &fields))
		require.Equal(t, raw[1:], must.Get(rlp.EncodeToBytes(fields))(t))
		to := []byte{}
		if tx.To != "" {
			to = common.HexToAddress(tx.To).Bytes()
		}
		unsigned, err := message.Transaction{ChainID: tx.ChainID, Nonce: tx.Nonce, Gas: tx.Gas, Tip: tx.Tip,
			MaxFee: tx.MaxFee, To: to, Data: tx.Data}.Encode()
		require.NoError(t, err)
		signature := slices.Concat(common.LeftPadBytes(fields[10].([]byte), 32),
			common.LeftPadBytes(fields[11].([]byte), 32), common.LeftPadBytes(fields[9].([]byte), 1))
		key := must.Get(crypto.SigToPub(crypto.Keccak256(unsigned), signature))(t)
		require.Equal(t, tx.From, crypto.PubkeyToAddress(*key).Hex())
	})
}
