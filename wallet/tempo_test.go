package wallet

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/rlp"
	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/keystore/keytest"
)

func goodTempo(now time.Time) TempoTransaction {
	return TempoTransaction{ChainID: 4217, Gas: 800_000, Tip: 1_000_000_000, MaxFee: 25_000_000_000,
		Token: "0x20C000000000000000000000b9537d11c60E8b50", To: testVault, Amount: [32]byte{30: 0x27},
		Memo: [32]byte{0: 0xef}, ValidBefore: uint64(now.Unix()) + 25, SellerPaysFee: true}
}

// The vector that was made by hand with ox has our very form: the buyer pays the fee, in the token, and there
// is no validAfter.
func TestTempoVector(t *testing.T) {
	var all []struct {
		Name, Request, Memo string
		Preimage, Signature hexutil.Bytes
		SignHash, Hash      string
		Fields              struct{ Gas, MaxPriorityFeePerGas, MaxFeePerGas, ValidBefore hexutil.Bytes }
	}
	require.NoError(t, json.Unmarshal(must.Get(os.ReadFile("../chain/tempo/testdata/vectors.json"))(t), &all))
	v := all[len(all)-1]
	require.True(t, strings.HasPrefix(v.Name, "by hand"))
	var asked struct{ Amount, Currency, Recipient string }
	require.NoError(t, json.Unmarshal([]byte(v.Request), &asked))
	number := func(b []byte) uint64 { return common.BytesToHash(b).Big().Uint64() }
	amount, _ := new(hexutil.Big).ToInt().SetString(asked.Amount, 10)
	f := v.Fields
	tx := TempoTransaction{ChainID: 4217, Gas: number(f.Gas), Tip: number(f.MaxPriorityFeePerGas),
		MaxFee: number(f.MaxFeePerGas), Token: asked.Currency, To: asked.Recipient,
		Amount: common.BigToHash(amount), Memo: common.HexToHash(v.Memo), ValidBefore: number(f.ValidBefore)}
	o := must.Get(tx.order(keytest.EVM, time.Unix(int64(tx.ValidBefore)-25, 0)))(t)
	require.Equal(t, v.Preimage.String(), hexutil.Encode(o.Payload))
	require.Equal(t, v.SignHash, hexutil.Encode(o.Digest[:]))
	require.Equal(t, v.Hash, tx.Hash([65]byte(v.Signature)))
}

// Where the seller pays the fee it is to choose the token, and adds a signature: go-ethereum's encoder writes
// the same, and the signature is the wallet's.
func TestTempoTransactionThatTheSellerPaysFor(t *testing.T) {
	w := goldenWallet(t)
	tx := goodTempo(w.now())
	data := common.FromHex("95777d59")
	for _, word := range [][]byte{common.FromHex(tx.To), tx.Amount[:], tx.Memo[:]} {
		data = append(data, common.LeftPadBytes(word, 32)...)
	}
	none := []any{}
	expires := common.FromHex(strings.Repeat("ff", 32))
	encoded := must.Get(rlp.EncodeToBytes([]any{tx.ChainID, tx.Tip, tx.MaxFee, tx.Gas,
		[]any{[]any{common.FromHex(tx.Token), uint64(0), data}}, none, expires, uint64(0), tx.ValidBefore,
		uint64(0), []byte{}, []byte{0}, none}))(t)
	signature := must.Get(w.SignTempo(t.Context(), tx))(t)
	signature[64] -= 27
	key := must.Get(crypto.SigToPub(crypto.Keccak256([]byte{0x76}, encoded), signature[:]))(t)
	require.Equal(t, keytest.EVM, crypto.PubkeyToAddress(*key).Hex())
}

// Nothing but a transfer of a TIP-20 token to somebody else, for the gas of one, that is over in a minute.
func TestTempoRefused(t *testing.T) {
	w := goldenWallet(t)
	now := w.now()
	zero := "0x" + strings.Repeat("0", 40)
	for name, spoil := range map[string]func(tx *TempoTransaction){
		"to this wallet":      func(tx *TempoTransaction) { tx.To = strings.ToLower(keytest.EVM) },
		"to nobody":           func(tx *TempoTransaction) { tx.To = zero },
		"to no address":       func(tx *TempoTransaction) { tx.To = "0x12" },
		"to the token":        func(tx *TempoTransaction) { tx.To = strings.ToLower(tx.Token) },
		"of no token":         func(tx *TempoTransaction) { tx.Token = testVault },
		"of no token address": func(tx *TempoTransaction) { tx.Token = "" },
		"nothing":             func(tx *TempoTransaction) { tx.Amount = [32]byte{} },
		"without a memo":      func(tx *TempoTransaction) { tx.Memo = [32]byte{} },
		"no chain":            func(tx *TempoTransaction) { tx.ChainID = 0 },
		"more gas":            func(tx *TempoTransaction) { tx.Gas = maxTempoGas + 1 },
		"a tip above the fee": func(tx *TempoTransaction) { tx.Tip = tx.MaxFee + 1 },
		"a fee of two dollars": func(tx *TempoTransaction) {
			tx.SellerPaysFee, tx.MaxFee = false, 2*maxTempoFee/tx.Gas
		},
		"a fee past all numbers": func(tx *TempoTransaction) { tx.MaxFee = 1 << 63 },
		"without an end":         func(tx *TempoTransaction) { tx.ValidBefore = 0 },
		"over already":           func(tx *TempoTransaction) { tx.ValidBefore = uint64(now.Unix()) },
		"for two minutes":        func(tx *TempoTransaction) { tx.ValidBefore += 120 },
	} {
		t.Run(name, func(t *testing.T) {
			tx := goodTempo(now)
			must.Get(tx.order(keytest.EVM, now))(t)
			spoil(&tx)
			require.ErrorIs(t, must.Err(tx.order(keytest.EVM, now)), coded.ErrUnsupported)
		})
	}
	require.ErrorIs(t, must.Err(w.SignTempo(t.Context(), TempoTransaction{})), coded.ErrUnsupported)
	require.True(t, w.Locked(), "it is not even unlocked for that")
}
