package tempo

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"x402-wallet/chain/tempo/decode"
	"x402-wallet/internal/must"
	"x402-wallet/x402/money"
)

// vector is one that mppx 0.11, viem 2.57 and ox 0.14 made; sponsored ones in the form of the specification.
type vector struct {
	Name, Realm, ID, ClientID, Request, Memo string
	Expires                                  time.Time
	Fields                                   struct {
		MaxPriorityFeePerGas, MaxFeePerGas, Gas, ValidBefore, ValidAfter hexutil.Bytes
		FeeToken                                                         hexutil.Bytes
	}
	Preimage, Signed, Signature hexutil.Bytes
	SignHash, Signer, Hash      string
}

func vectors(t testing.TB) []vector {
	return must.JSON[[]vector](must.Get(os.ReadFile("testdata/vectors.json"))(t))(t)
}

// request is that of a vector's challenge.
type request struct {
	Amount              money.Amount
	Currency, Recipient common.Address
	MethodDetails       struct {
		ChainID  uint64
		FeePayer bool
		Splits   []struct {
			Amount    money.Amount
			Recipient common.Address
			Memo      *common.Hash
		}
	}
}

// transfers pay the recipient, and each split.
func (r request) transfers(memo common.Hash) []Transfer {
	list := []Transfer{{To: r.Recipient, Amount: r.Amount, Memo: &memo}}
	for _, s := range r.MethodDetails.Splits {
		list[0].Amount = list[0].Amount.SubFloor(s.Amount)
		list = append(list, Transfer{To: s.Recipient, Amount: s.Amount, Memo: s.Memo})
	}
	return list
}

// testKey is public: anvil's first.
const testKey = "ac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80"

func TestVectors(t *testing.T) {
	key := must.Get(crypto.HexToECDSA(testKey))(t)
	number := func(b []byte) uint64 { return common.BytesToHash(b).Big().Uint64() }
	paid := 0
	for _, v := range vectors(t) {
		if v.Preimage == nil {
			continue // a proof
		}
		c := must.JSON[request]([]byte(v.Request))(t)
		memo := Memo(v.Realm, v.ClientID, v.ID)
		require.Equal(t, v.Memo, memo.Hex(), v.Name)
		f := v.Fields
		tx := Transaction{ChainID: c.MethodDetails.ChainID, Gas: number(f.Gas),
			Tip: number(f.MaxPriorityFeePerGas), MaxFee: number(f.MaxFeePerGas), Token: c.Currency,
			Transfers: c.transfers(memo), ValidBefore: number(f.ValidBefore),
			ValidAfter: number(f.ValidAfter), SellerPaysFee: c.MethodDetails.FeePayer,
			FeeToken: common.BytesToAddress(f.FeeToken)}
		require.Equal(t, v.Preimage.String(), hexutil.Encode(must.Get(tx.Unsigned())(t)), v.Name)
		digest := must.Get(tx.SignHash())(t)
		require.Equal(t, v.SignHash, digest.Hex(), v.Name)
		signature := [65]byte(must.Get(crypto.Sign(digest[:], key))(t))
		signature[64] += 27
		require.Equal(t, v.Signature.String(), hexutil.Encode(signature[:]), v.Name)
		signed, hash, err := tx.Signed(signature, v.Signer)
		require.NoError(t, err, v.Name)
		require.Equal(t, v.Signed.String(), hexutil.Encode(signed), v.Name)
		require.Equal(t, v.Hash, hash, v.Name)
		_, _, err = tx.Signed(signature, c.Recipient.Hex())
		require.Error(t, err, "of another")
		paid++
	}
	require.Equal(t, 5, paid)
}

func TestTransactionsThatAreNotBuilt(t *testing.T) {
	memo := Memo("a", "", "b")
	good := func() Transaction {
		return Transaction{ChainID: 4217, Transfers: []Transfer{{Memo: &memo}}, ValidBefore: 1}
	}
	must.Get(good().Unsigned())(t)
	for name, spoil := range map[string]func(tx *Transaction){
		"no transfer": func(tx *Transaction) { tx.Transfers = nil },
		"no memo":     func(tx *Transaction) { tx.Transfers[0].Memo = nil },
		"no end":      func(tx *Transaction) { tx.ValidBefore = 0 },
		"two fees":    func(tx *Transaction) { tx.SellerPaysFee, tx.FeeToken[0] = true, 0x20 },
	} {
		tx := good()
		spoil(&tx)
		require.Error(t, must.Err(tx.Unsigned()), name)
		require.Error(t, must.Err(tx.SignHash()), name)
	}
}

// Whatever is built, package decode reads as what was to be built.
func TestWhatIsBuiltIsRead(t *testing.T) {
	token := rapid.Custom(func(t *rapid.T) (a common.Address) {
		copy(a[:], common.FromHex("20c0"))
		copy(a[12:], rapid.SliceOfN(rapid.Byte(), 8, 8).Draw(t, "token"))
		return a
	})
	hash := rapid.Custom(func(t *rapid.T) common.Hash {
		return common.Hash(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "hash"))
	})
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.Uint64()
		tx := Transaction{ChainID: number.Draw(t, "chain"), Gas: number.Draw(t, "gas"),
			Tip: number.Draw(t, "tip"), MaxFee: number.Draw(t, "fee"), Token: token.Draw(t, "token"),
			ValidBefore: rapid.Uint64Min(1).Draw(t, "before"), SellerPaysFee: rapid.Bool().Draw(t, "seller")}
		tx.ValidAfter = rapid.Uint64Max(tx.ValidBefore-1).Draw(t, "after")
		if !tx.SellerPaysFee && rapid.Bool().Draw(t, "named") {
			tx.FeeToken = token.Draw(t, "fee token")
		}
		want := decode.Payment{ChainID: tx.ChainID, Gas: tx.Gas, Tip: tx.Tip, MaxFee: tx.MaxFee,
			Token: strings.ToLower(tx.Token.Hex()), ValidBefore: tx.ValidBefore, ValidAfter: tx.ValidAfter,
			SellerPaysFee: tx.SellerPaysFee, NonceKey: [32]byte(nonceKey)}
		if tx.FeeToken != (common.Address{}) {
			want.FeeToken = strings.ToLower(tx.FeeToken.Hex())
		}
		for i := range rapid.IntRange(1, 11).Draw(t, "transfers") {
			to, word := hash.Draw(t, "to"), hash.Draw(t, "amount")
			word[0] = 0 // eleven of them are less than 2^256
			transfer := Transfer{To: common.Address(to[:20])}
			transfer.Amount, _ = money.AmountFromBytes(word[:])
			read := decode.Transfer{To: strings.ToLower(transfer.To.Hex()), Amount: transfer.Amount}
			if i == 0 || rapid.Bool().Draw(t, "with memo") {
				memo := hash.Draw(t, "memo")
				transfer.Memo, read.Memo = &memo, memo.Hex()
			}
			tx.Transfers, want.Transfers = append(tx.Transfers, transfer), append(want.Transfers, read)
			want.Total, _ = want.Total.Add(transfer.Amount)
		}
		want.SignHash = must.Get(tx.SignHash())(t)
		require.Equal(t, want, must.Get(decode.Rules{}.Message(must.Get(tx.Unsigned())(t)))(t))
	})
}
