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
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// outsider is an address that has no part in the vectors.
const outsider = "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC"

// permit2Vector is a payment that the reference client made and the reference facilitator judged.
type permit2Vector struct {
	PaymentRequired struct {
		Accepts    []json.RawMessage
		Extensions map[string]json.RawMessage
	}
	Payload struct {
		Payload    json.RawMessage
		Extensions map[string]json.RawMessage
	}
	TypedData []struct{ By, Digest, Signature string }
	Bad       struct{ Change string }
	Refused   string
}

func permit2Vectors(t *testing.T) map[string]permit2Vector {
	t.Helper()
	read := must.Get(os.ReadFile("../testdata/permit2-vectors.json"))(t)
	all := must.JSON[struct{ Vectors map[string]permit2Vector }](read)(t)
	require.Len(t, all.Vectors, 16)
	return all.Vectors
}

func (v permit2Vector) requirement(t *testing.T) (x402.Requirement, x402.AssetInfo) {
	t.Helper()
	r := must.Get(x402.DecodeRequirement(v.PaymentRequired.Accepts[0], 2))(t)
	asset, known := x402.NewRegistry(nil).Asset(r.Network, r.Asset)
	require.True(t, known)
	return r, asset
}

// The reference client's payments are read, hashed and recovered as it made them; written again, they are
// the same bytes.
func TestPermit2Vectors(t *testing.T) {
	for name, v := range permit2Vectors(t) {
		if v.Refused != "" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			r, asset := v.requirement(t)
			from, a, err := RecoverPermit2(r.Network, v.Payload.Payload)
			require.NoError(t, err)
			require.True(t, message.SameAddress(v.TypedData[0].By, from))
			require.Equal(t, r.Amount, a.Amount)
			require.True(t, message.SameAddress(r.PayTo, a.To) && message.SameAddress(r.Asset, a.Token))
			require.Equal(t, r.Scheme == x402.Upto, a.IsUpto())
			digest := must.Get(Permit2Digest(r.Network, a))(t)
			require.Equal(t, v.TypedData[0].Digest, message.Hex(digest[:]))

			object := must.Get(EncodePermit2Authorization(a))(t)
			again := must.Get(EncodePermit2(object, [65]byte(common.FromHex(v.TypedData[0].Signature))))(t)
			require.Equal(t, compacted(t, v.Payload.Payload), string(again))

			if extension := v.Payload.Extensions[x402.EIP2612Sponsoring]; len(v.TypedData) > 1 {
				p := must.Get(RecoverPermit(asset, extension))(t)
				require.Equal(t, a.Amount, p.Value)
				digest := must.Get(PermitDigest(asset, p))(t)
				require.Equal(t, v.TypedData[1].Digest, message.Hex(digest[:]))
			}
		})
	}
}

func compacted(t *testing.T, raw json.RawMessage) string {
	t.Helper()
	text := string(raw)
	for _, space := range []string{"\n", " "} {
		text = strings.ReplaceAll(text, space, "")
	}
	return text
}

// What is not exactly a payment by Permit2, or is signed by somebody else, is none.
func TestRecoverPermit2Refuses(t *testing.T) {
	vectors := permit2Vectors(t)
	exact, upto := vectors["exact_permit2_lowercase_addresses"], vectors["upto_partial"]
	for name, change := range map[string]struct {
		of       permit2Vector
		old, new string
	}{
		"another amount":              {exact, `"10000"`, `"10001"`},
		"another payee":               {exact, "0x209693Bc6afc0C5328bA36FaF03C514EF312287C", outsider},
		"another token":               {exact, "0x036CbD53842c5426634e7929541eC2318f3dCF7e", outsider},
		"another deadline":            {exact, `"1740672149"`, `"1740672150"`},
		"another nonce":               {exact, `"45586`, `"45587`},
		"validAfter":                  {exact, `"validAfter": "0"`, `"validAfter": "1"`},
		"somebody else's":             {exact, "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266", payee},
		"another spender":             {exact, message.ExactProxy, payee},
		"upto's spender":              {exact, message.ExactProxy, message.UptoProxy},
		"exact's spender":             {upto, message.UptoProxy, message.ExactProxy},
		"another facilitator":         {upto, "0x857b06519E91e3A54538791bDbb0E22373e36b66", payee},
		"a facilitator in exact":      {exact, `"witness": {`, `"witness": {"facilitator": "` + payee + `", `},
		"a number that is no string":  {exact, `"validAfter": "0"`, `"validAfter": 0`},
		"a number that is not so":     {exact, `"validAfter": "0"`, `"validAfter": "00"`},
		"an unknown key":              {exact, `"witness":`, `"more": "", "witness":`},
		"a signature that is shorter": {exact, `"signature": "0xd9`, `"signature": "0x`},
		"the bad copy of the vector":  {exact, `"signature": "0xd9ee`, `"signature": "0xd9ef`},
	} {
		t.Run(name, func(t *testing.T) {
			text := string(change.of.Payload.Payload)
			require.Contains(t, text, change.old)
			_, _, err := RecoverPermit2(sepolia, []byte(strings.ReplaceAll(text, change.old, change.new)))
			require.Error(t, err)
		})
	}
	_, _, err := RecoverPermit2("eip155:1", exact.Payload.Payload)
	require.ErrorIs(t, err, message.ErrSignature, "for another chain")
	require.True(t, IsPermit2(exact.Payload.Payload))
	require.False(t, IsPermit2([]byte(`{"authorization":{}}`)))
}

// An EIP-2612 permit is for Permit2, of the asset, by its owner.
func TestRecoverPermitRefuses(t *testing.T) {
	v := permit2Vectors(t)["exact_permit2_eip2612"]
	_, asset := v.requirement(t)
	good := string(v.Payload.Extensions[x402.EIP2612Sponsoring])
	for _, change := range [][2]string{
		{`"amount": "10000"`, `"amount": "10001"`}, {`"nonce": "3"`, `"nonce": "4"`},
		{message.Permit2Address, payee},
		{`"deadline": "1740672149"`, `"deadline": "1740672150"`}, {asset.Address, payee},
		{"0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266", payee},
		{`"info"`, `"inf"`}, {`"0xfa9b`, `"0xfa9c`},
	} {
		require.Contains(t, good, change[0])
		_, err := RecoverPermit(asset, []byte(strings.ReplaceAll(good, change[0], change[1])))
		require.Error(t, err, change[1])
	}
	other := asset
	other.Name = "USD Coin"
	require.ErrorIs(t, must.Err(RecoverPermit(other, []byte(good))), message.ErrSignature)
}

// Whatever is read as an approval was signed by its owner, for Permit2.
func FuzzRecoverPermit(f *testing.F) {
	read := must.Get(os.ReadFile("../testdata/permit2-vectors.json"))(f)
	all := must.JSON[struct{ Vectors map[string]permit2Vector }](read)(f)
	for _, v := range all.Vectors {
		f.Add([]byte(v.Payload.Extensions[x402.EIP2612Sponsoring]))
	}
	f.Fuzz(func(t *testing.T, extension []byte) {
		p, err := RecoverPermit(usdc, extension)
		if err != nil {
			return
		}
		again := must.Get(EncodePermit(usdc, p, [65]byte{}))(t)
		_, err = RecoverPermit(usdc, again)
		require.ErrorIs(t, err, message.ErrSignature, "all of it but the signature can be written again")
	})
}

// Whatever is read as a payment by Permit2 was signed by its payer, and is written as it was read.
func FuzzRecoverPermit2(f *testing.F) {
	read := must.Get(os.ReadFile("../testdata/permit2-vectors.json"))(f)
	all := must.JSON[struct{ Vectors map[string]permit2Vector }](read)(f)
	for _, v := range all.Vectors {
		f.Add([]byte(v.Payload.Payload))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		from, a, err := RecoverPermit2(sepolia, payload)
		if err != nil {
			return
		}
		require.Equal(t, from, a.From)
		require.Equal(t, a.IsUpto(), a.Facilitator != "")
		object := must.Get(EncodePermit2Authorization(a))(t)
		require.Equal(t, a, must.Get(message.DecodePermit2(object))(t))
	})
}

// vectorTransaction is one that the reference client signed (x402 2.27, viem).
func vectorTransaction(t testing.TB) []byte {
	t.Helper()
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
		unsigned := must.Get(message.Transaction{ChainID: tx.ChainID, Nonce: tx.Nonce, Gas: tx.Gas,
			Tip: tx.Tip, MaxFee: tx.MaxFee, To: to, Data: tx.Data}.Encode())(t)
		signature := slices.Concat(common.LeftPadBytes(fields[10].([]byte), 32),
			common.LeftPadBytes(fields[11].([]byte), 32), common.LeftPadBytes(fields[9].([]byte), 1))
		key := must.Get(crypto.SigToPub(crypto.Keccak256(unsigned), signature))(t)
		require.Equal(t, tx.From, crypto.PubkeyToAddress(*key).Hex())
	})
}
