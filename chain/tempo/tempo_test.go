package tempo

import (
	"encoding/json"
	"fmt"
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
	"x402-wallet/x402"
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

// testKey is public: anvil's first.
const testKey = "ac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80"

func TestVectors(t *testing.T) {
	key := must.Get(crypto.HexToECDSA(testKey))(t)
	number := func(b []byte) uint64 { return common.BytesToHash(b).Big().Uint64() }
	paid := 0
	for _, v := range vectors(t) {
		c, err := ReadCharge([]byte(v.Request), v.Expires)
		if v.Preimage == nil {
			require.ErrorContains(t, err, "an amount is zero", v.Name)
			continue
		}
		require.NoError(t, err, v.Name)
		memo := Memo(v.Realm, v.ClientID, v.ID)
		require.Equal(t, v.Memo, memo.Hex(), v.Name)
		f := v.Fields
		tx := Transaction{ChainID: c.ChainID, Gas: number(f.Gas), Tip: number(f.MaxPriorityFeePerGas),
			MaxFee: number(f.MaxFeePerGas), Token: c.Currency, Transfers: c.Transfers(memo),
			ValidBefore: number(f.ValidBefore), ValidAfter: number(f.ValidAfter),
			SellerPaysFee: c.SellerPaysFee, FeeToken: common.BytesToAddress(f.FeeToken)}
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

const recipient, currency = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C",
	"0x20C000000000000000000000b9537d11c60E8b50"

func TestChargesThatAreRefused(t *testing.T) {
	good := `{"amount":"10","currency":"` + currency + `","recipient":"` + recipient + `",` +
		`"methodDetails":{"chainId":4217,"splits":[{"amount":"9","recipient":"` + recipient + `"}]}}`
	noon := time.Unix(1795900000, 0)
	must.Get(ReadCharge([]byte(good), noon))(t)
	for _, c := range []struct{ from, to, says string }{
		{`"chainId":4217,`, ``, "names no chainId"}, {`4217`, `0`, "names no chainId"},
		{`4217`, `null`, "names no chainId"}, {`4217`, `8453`, "the chain 8453"},
		{`4217`, `"4217"`, "cannot be read"}, {`4217`, `4217.5`, "cannot be read"},
		{`4217`, `-1`, "cannot be read"}, {`"chainId"`, `"chainID"`, "cannot be read"},
		{`"chainId":4217`, `"chainId":4217,"chainId":42431`, "cannot be read"},
		{`"amount":"10"`, `"amount":"0.01"`, "not a decimal"}, {`"amount":"10"`, `"amount":10`, "read"},
		{`"amount":"10"`, `"amount":"-1"`, "not a decimal"}, {`"amount":"10",`, ``, "not a decimal"},
		{`"amount":"10"`, `"amount":"010"`, "not a decimal"}, {`"amount":"10"`, `"amount":"0"`, "zero"},
		{`"amount":"10"`, `"amount":"0x10"`, "not a decimal"},
		{`"amount":"10"`, `"amount":"` + strings.Repeat("9", 79) + `"`, "not a decimal"},
		{currency, `USDC`, "the currency"}, {currency, recipient, "the currency"},
		{currency, `0x20c0`, "the currency"}, {currency, strings.ToLower(currency[:41]) + "1", ""},
		{currency, currency[:41] + "1", "the currency"}, // its capitals belong to another
		{`"recipient":"` + recipient + `","methodDetails"`, `"methodDetails"`, "a recipient"},
		{`[{`, `[{"memo":"0x00"},{`, "not a decimal"}, {`"9",`, `"10",`, "leave the recipient nothing"},
		{`[{`, `[{"amount":"1","recipient":"` + recipient + `"},{`, "leave the recipient nothing"},
		{`"9",`, `"9","memo":"0x00",`, "a memo"}, {`"9",`, `"9","memo":"hello",`, "a memo"},
		{`"9",`, `"9","memo":"0x` + strings.Repeat("0", 66) + `",`, "a memo"},
		{`"chainId"`, `"memo":"0x01","chainId"`, "a memo"},
		{`"chainId"`, `"supportedModes":[],"chainId"`, "neither pull"},
		{`"chainId"`, `"supportedModes":["post"],"chainId"`, "neither pull"},
		{`"chainId"`, `"feePayer":"yes","chainId"`, "cannot be read"},
		{`"amount":"9","recipient":"` + recipient, `"amount":"9","recipient":"0x0`, "a recipient"},
		{`"amount":"9","recipient":"` + recipient,
			`"amount":"9","recipient":"` + (common.Address{}).Hex(), "a recipient"},
		{`{"amount":"10"`, `{"description":"` + strings.Repeat("x", 16<<10) + `","amount":"10"`, "16384"},
	} {
		text := strings.Replace(good, c.from, c.to, 1)
		require.NotEqual(t, good, text, c)
		_, err := ReadCharge([]byte(text), noon)
		if c.says == "" {
			require.NoError(t, err, c)
			continue
		}
		require.ErrorContains(t, err, c.says, "%s → %s", c.from, c.to)
		require.True(t, x402.HasCode(err, x402.InvalidRequirement), c)
	}
	_, err := ReadCharge([]byte(good), time.Time{})
	require.ErrorContains(t, err, "when it expires")

	splits := func(count int) error {
		list := make([]split, count)
		for i := range list {
			list[i] = split{Amount: "1", Recipient: recipient}
		}
		text := must.Get(json.Marshal(list))(t)
		return must.Err(ReadCharge(fmt.Appendf(nil, `{"amount":"100","currency":%q,"recipient":%q,`+
			`"methodDetails":{"chainId":4217,"splits":%s}}`, currency, recipient, text), noon))
	}
	require.NoError(t, splits(10))
	require.ErrorContains(t, splits(11), "more than 10 splits")
}

func TestModes(t *testing.T) {
	for modes, want := range map[string][2]bool{
		``: {true, true}, `,"supportedModes":null`: {true, true}, `,"supportedModes":["pull"]`: {true, false},
		`,"supportedModes":["push","new"]`: {false, true}, `,"supportedModes":["push","pull"]`: {true, true},
	} {
		c := must.Get(ReadCharge([]byte(`{"amount":"10","currency":"`+currency+`","recipient":"`+recipient+
			`","methodDetails":{"chainId":42431`+modes+`}}`), time.Unix(1, 0)))(t)
		require.Equal(t, want, [2]bool{c.Pull, c.Push}, modes)
	}
}

func TestTransactionsThatAreNotBuilt(t *testing.T) {
	memo := Memo("a", "", "b")
	good := func() Transaction {
		return Transaction{ChainID: Mainnet, Transfers: []Transfer{{Memo: &memo}}, ValidBefore: 1}
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

// Whatever a seller writes: no panic, and what is read is paid to the unit.
func FuzzReadCharge(f *testing.F) {
	for _, v := range vectors(f) {
		f.Add([]byte(v.Request))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := ReadCharge(text, time.Unix(1795900000, 0))
		if err != nil {
			return
		}
		tx := Transaction{ChainID: c.ChainID, Token: c.Currency, Transfers: c.Transfers(common.Hash{}),
			ValidBefore: 1, SellerPaysFee: c.SellerPaysFee}
		p := must.Get(decode.Rules{}.Message(must.Get(tx.Unsigned())(t)))(t)
		require.Equal(t, c.Amount, p.Total)
		require.Len(t, p.Transfers, 1+len(c.Splits))
		require.Equal(t, strings.ToLower(c.Recipient.Hex()), p.Transfers[0].To)
		require.False(t, p.Transfers[0].Amount.IsZero())
	})
}
