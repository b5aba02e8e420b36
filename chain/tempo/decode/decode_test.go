package decode

import (
	"bytes"
	"encoding/hex"
	"math/big"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/rlp"
	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/x402/money"
)

type vector struct {
	Name, Preimage, Signed, SignHash, Signer, Hash, Memo string
	OtherForms                                           []string
}

func vectors(t testing.TB) (paid []vector) {
	all := must.JSON[[]vector](must.Get(os.ReadFile("../testdata/vectors.json"))(t))(t)
	paid = slices.DeleteFunc(all, func(v vector) bool { return v.Preimage == "" }) // a proof
	require.Len(t, paid, 5)
	return paid
}

func bytesOf(t testing.TB, text string) []byte {
	return must.Get(hex.DecodeString(strings.TrimPrefix(text, "0x")))(t)
}

const (
	pathUSD   = "0x20c0000000000000000000000000000000000000"
	usdc      = "0x20c000000000000000000000b9537d11c60e8b50"
	recipient = "0x209693bc6afc0c5328ba36faf03c514ef312287c"
)

func TestVectors(t *testing.T) {
	const before, after = 1795900025, 886704856 // now + 25 s, and viem's random past
	units := money.NewAmount
	gas := []uint64{1_205_000, 1_205_000, 1_205_000, 1_200_000, 1_200_000}
	for i, v := range vectors(t) {
		want := Payment{ChainID: 4217, Tip: 1_000_000_000, MaxFee: 28_800_000_000, Gas: gas[i], Token: usdc,
			NonceKey: expiring, ValidBefore: before, ValidAfter: after,
			SignHash: [32]byte(bytesOf(t, v.SignHash))}
		amount := units(10_000)
		switch i {
		case 0:
			want.ChainID, want.Token, want.SellerPaysFee = 42431, pathUSD, true
		case 1:
			amount = units(1_500_000)
		case 2:
			want.SellerPaysFee, amount = true, units(7_000)
			want.Transfers = []Transfer{
				{To: "0x857b06519e91e3a54538791bdbb0e22373e36b66", Amount: units(2_000)},
				{To: "0x70997970c51812dc3a010c7d01b50e0d17dc79c8", Amount: units(1_000),
					Memo: "0x00000000000000000000000000000000000000000000000000000000deadbeef"}}
		case 4:
			want.MaxFee, want.ValidAfter, want.FeeToken, amount = 24_000_000_000, 0, usdc, units(1_500_000)
		}
		first := Transfer{To: recipient, Amount: amount, Memo: v.Memo}
		want.Transfers = append([]Transfer{first}, want.Transfers...)
		want.Total = amount
		if i == 2 {
			want.Total = units(10_000)
		}
		require.Equal(t, want, must.Get(Rules{}.Message(bytesOf(t, v.Preimage)))(t), v.Name)
		want.Sender, want.Hash = strings.ToLower(v.Signer), v.Hash
		require.Equal(t, want, must.Get(Rules{}.Transaction(bytesOf(t, v.Signed)))(t), v.Name)

		require.ErrorIs(t, must.Err(Rules{}.Message(bytesOf(t, v.Signed))), ErrLayout, "signed already")
		require.ErrorIs(t, must.Err(Rules{}.Transaction(bytesOf(t, v.Preimage))), ErrLayout, "not signed")
		for _, form := range v.OtherForms { // of mppx, and what the seller signs and sends
			require.ErrorIs(t, must.Err(Rules{AnyNonceKey: true}.Transaction(bytesOf(t, form))), ErrLayout)
			require.ErrorIs(t, must.Err(Rules{AnyNonceKey: true}.Message(bytesOf(t, form))), ErrLayout)
		}
	}
}

// draft are the items of a transaction, good as they come; tests change one each. It is written by
// go-ethereum, which is not what reads it.
type draft []any

const signature = fields

func newDraft(t testing.TB) draft {
	v := vectors(t)[4]
	var d draft
	require.NoError(t, rlp.DecodeBytes(bytesOf(t, v.Signed)[1:], &d))
	return d
}

func (d draft) wire(t testing.TB) []byte {
	return append([]byte{transactionType}, must.Get(rlp.EncodeToBytes([]any(d)))(t)...)
}

func (d draft) call(i int) []any { return d[4].([]any)[i].([]any) }

func TestTransactionsThatAreRefused(t *testing.T) {
	must.Get(Rules{}.Transaction(newDraft(t).wire(t)))(t)
	data := newDraft(t).call(0)[2].([]byte)
	call := func(to string, data []byte) []any { return []any{bytesOf(t, to), []byte{}, data} }
	transfer := slices.Concat([]byte(selectTransfer), data[4:68])
	huge := slices.Concat(data[:36], bytes.Repeat([]byte{0xff}, 32), data[68:])
	addressList := []any{[]any{bytesOf(t, usdc), []any{}}}
	set := func(i int, value any) func(d draft) { return func(d draft) { d[i] = value } }
	inCall := func(i int, value any) func(d draft) { return func(d draft) { d.call(0)[i] = value } }
	calls := func(calls ...any) func(d draft) { return set(4, calls) }
	high := func(d draft) { // the malleable twin: s, v → n-s, the other v
		sig := d[signature].([]byte)
		order, s := new(big.Int), new(big.Int).SetBytes(sig[32:64])
		order.SetBytes(bytesOf(t, "fffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141"))
		order.Sub(order, s).FillBytes(sig[32:64])
		sig[64] = 27 + 28 - sig[64]
	}
	for name, c := range map[string]struct {
		change func(d draft)
		says   string
	}{
		"no number":        {set(0, []byte{0, 1}), "leading zeros"},
		"zero as a byte":   {set(7, []byte{0}), "leading zeros"},
		"a large fee":      {set(2, bytes.Repeat([]byte{1}, 9)), "too large"},
		"a list as number": {set(3, []any{}), "a list is where a number"},
		"no calls":         {calls(), "0 calls"},
		"calls are text":   {set(4, []byte("calls")), "a string is where a list"},
		"a call is text":   {calls([]byte("call")), "a string is where a list"},
		"twelve calls": {calls(slices.Repeat([]any{call(usdc, data)}, 12)...),
			"12 calls"},
		"a call of two":       {calls(call(usdc, data)[:2]), "a list of 2"},
		"a call of four":      {calls(append(call(usdc, data), []byte{})), "a list of 4"},
		"a contract is made":  {inCall(0, []byte{}), "not the address of a TIP-20"},
		"no token":            {inCall(0, bytesOf(t, recipient)), "not the address of a TIP-20"},
		"a long token":        {inCall(0, bytesOf(t, usdc+"00")), "not the address of a TIP-20"},
		"a value":             {inCall(1, []byte{1}), "a value"},
		"a list as value":     {inCall(1, []any{}), "a value"},
		"no data":             {inCall(2, []byte{}), "no transfer"},
		"a list as data":      {inCall(2, []any{}), "no transfer"},
		"approve":             {inCall(2, append(bytesOf(t, "095ea7b3"), data[4:68]...)), "no transfer"},
		"data is longer":      {inCall(2, append(slices.Clone(data), 0)), "no transfer"},
		"data is shorter":     {inCall(2, data[:99]), "no transfer"},
		"a transfer longer":   {calls(call(usdc, data), call(usdc, append(transfer, 0))), "no transfer"},
		"no memo":             {inCall(2, transfer), "not transferWithMemo"},
		"dirty address":       {inCall(2, slices.Concat(data[:4], []byte{1}, data[5:])), "no address"},
		"two tokens":          {calls(call(usdc, data), call(pathUSD, data)), "two tokens"},
		"more than there is":  {calls(call(usdc, huge), call(usdc, data)), "256 bits"},
		"an access list":      {set(5, addressList), "an access list"},
		"text as access list": {set(5, []byte{}), "an access list"},
		"another nonce key":   {set(6, []byte{7}), "not that of transactions that expire"},
		"nonce key 0":         {set(6, []byte{}), "not that of transactions that expire"},
		"nonce key's zeros":   {set(6, slices.Concat([]byte{0}, expiring[1:])), "is no number"},
		"a long nonce key":    {set(6, append(expiring[:], 0xff)), "is no number"},
		"a list as nonce key": {set(6, []any{}), "is no number"},
		"a nonce":             {set(7, []byte{1}), "not that of transactions that expire"},
		"no end":              {set(8, []byte{}), "no end"},
		"ends as it begins":   {set(9, newDraft(t)[8]), "before it begins"},
		"fee in no token":     {set(10, bytesOf(t, recipient)), "not the address of a TIP-20"},
		"a list as fee token": {set(10, []any{}), "not the address of a TIP-20"},
		"fee of both":         {set(11, []byte{0}), "that it does not pay"},
		"the sender's fee":    {set(11, bytesOf(t, recipient)), "a fee payer's"},
		"a sponsor's fee":     {set(11, []any{[]byte{1}, []byte{1}, []byte{1}}), "a fee payer's"},
		"no fee payer list":   {set(11, []any{}), "a fee payer's"},
		"authorizations":      {set(12, addressList), "authorizations"},
		"a text of those":     {set(12, []byte{}), "authorizations"},
		"a key for signature": {set(signature, []any{}), "not a signature"},
		"another signature":   {set(signature, make([]byte, 64)), "not a signature"},
		"with its type":       {set(signature, make([]byte, 66)), "not a signature"},
		"r and s are zero":    {set(signature, append(make([]byte, 64), 27)), "is none"},
		"v is 0":              {func(d draft) { d[signature].([]byte)[64] = 0 }, "v of its"},
		"v is 29":             {func(d draft) { d[signature].([]byte)[64] = 29 }, "v of its"},
		"high s":              {high, "is none"},
	} {
		d := newDraft(t)
		c.change(d)
		_, err := Rules{}.Transaction(d.wire(t))
		require.ErrorIs(t, err, ErrLayout, name)
		require.ErrorContains(t, err, c.says, name)
	}
	signed := newDraft(t)
	for name, items := range map[string]draft{
		"a key authorization": slices.Insert(slices.Clone(signed), signature, any([]any{[]byte{1}})),
		"an empty one":        slices.Insert(slices.Clone(signed), signature, any([]any{})),
		"one item less":       signed[1:], "not signed": signed[:signature],
		"one item more": append(slices.Clone(signed), []byte{}), "nothing": {},
	} {
		require.ErrorContains(t, must.Err(Rules{}.Transaction(items.wire(t))), "a list of", name)
	}
	empty := append(draft(slices.Repeat([]any{[]byte{}}, fields)), signed[signature])
	require.ErrorIs(t, must.Err(Rules{}.Transaction(empty.wire(t))), ErrLayout)
	// key authorization in what is not signed yet
	message := append(slices.Clone(signed[:signature]), any([]any{}))
	require.ErrorContains(t, must.Err(Rules{}.Message(message.wire(t))), "a list of 14")
}

func TestOtherNonceKeysAreReadWhereAskedFor(t *testing.T) {
	d := newDraft(t)
	d[6], d[7] = []byte{7}, []byte{3}
	p := must.Get(Rules{AnyNonceKey: true}.Transaction(d.wire(t)))(t)
	require.Equal(t, [32]byte{31: 7}, p.NonceKey)
	require.Equal(t, uint64(3), p.Nonce)
	d[6] = []byte{}
	require.Empty(t, must.Get(Rules{AnyNonceKey: true}.Transaction(d.wire(t)))(t).NonceKey)
	d[6] = expiring[:]
	require.Error(t, must.Err(Rules{AnyNonceKey: true}.Transaction(d.wire(t))), "with a nonce")
	d[6], d[8] = []byte{7}, []byte{}
	require.ErrorContains(t, must.Err(Rules{AnyNonceKey: true}.Transaction(d.wire(t))), "no end")
}

// The same items in another spelling.
func TestOtherSpellingsAreRefused(t *testing.T) {
	wire := newDraft(t).wire(t)
	list := wire[4:] // behind the type, f9 and two bytes of its length
	require.Equal(t, byte(0xf9), wire[1])
	tip := bytesOf(t, "843b9aca00")
	behind := bytes.Index(list, tip)
	withTip := func(text string) []byte {
		return slices.Concat(list[:behind], bytesOf(t, text), list[behind+len(tip):])
	}
	of := func(head string, list []byte) []byte { return slices.Concat(bytesOf(t, head), list) }
	long := func(list []byte) []byte {
		return slices.Concat([]byte{transactionType, 0xf9, byte(len(list) >> 8), byte(len(list))}, list)
	}
	require.Equal(t, wire, long(list))
	for name, data := range map[string][]byte{
		"nothing": nil, "the type alone": {0x76}, "type 2": of("02", wire[1:]),
		"type 0x78": of("78", wire[1:]),
		"no type":   wire[1:], "text": []byte("hello"), "a byte behind": append(slices.Clone(wire), 0),
		"cut off":             wire[:len(wire)-1],
		"cut in its length":   wire[:3],
		"three bytes' length": slices.Concat(bytesOf(t, "76fa00"), wire[2:]),
		"eight bytes' length": of("76ffffffffffffffffff", list),
		"a string":            slices.Concat([]byte{0x76, 0xb9}, wire[2:]),
		"a text's long form":  long(withTip("b8043b9aca00")),
		"a byte's long form":  long(withTip("8101")),
		"leading zeros":       long(withTip("8400000001")),
		"zero is a byte":      long(withTip("00")),
		"two bytes for one":   long(withTip("b900040b9aca00")),
		"a list's long form":  long(slices.Concat(list[:behind], []byte{0xf8, 0})),
		"past its list":       long(withTip("bf7fffffffffffffff")),
		"too long":            of("76", bytes.Repeat([]byte{1}, maxTransaction)),
	} {
		require.ErrorIs(t, must.Err(Rules{}.Transaction(data)), ErrLayout, name)
		require.ErrorIs(t, must.Err(Rules{}.Message(data)), ErrLayout, name)
	}
	message := newDraft(t)[:signature].wire(t)
	must.Get(Rules{}.Message(message))(t)
	require.ErrorContains(t, must.Err(Rules{}.Message(append(message, 0))), "behind its end")
	require.ErrorContains(t, must.Err(Rules{}.Message(message[:len(message)-1])), "cut off")
	// an empty access list in the long form, a length that would need one byte in two
	for _, spelling := range []string{"f800", "f90000", "b800"} {
		at := bytes.Index(list, append([]byte{0xc0, 0xa0}, expiring[:]...))
		other := slices.Concat(list[:at], bytesOf(t, spelling), list[at+1:])
		require.ErrorContains(t, must.Err(Rules{}.Transaction(long(other))), "shortest form", spelling)
	}
}

// encode writes a payment by go-ethereum, with its signature if it has one.
func (p Payment) encode(t testing.TB, signature ...any) []byte {
	word := func(b [32]byte) []byte { return b[:] }
	var calls []any
	for _, transfer := range p.Transfers {
		data := slices.Concat([]byte(selectTransfer), make([]byte, 12), bytesOf(t, transfer.To),
			word(transfer.Amount.Bytes32()))
		if transfer.Memo != "" {
			data = slices.Concat([]byte(selectTransferWithMemo), data[4:], bytesOf(t, transfer.Memo))
		}
		calls = append(calls, []any{bytesOf(t, p.Token), []byte{}, data})
	}
	feePayer := []byte{}
	if p.SellerPaysFee {
		feePayer = []byte{0}
	}
	return append(draft{p.ChainID, p.Tip, p.MaxFee, p.Gas, calls, []any{},
		new(big.Int).SetBytes(p.NonceKey[:]), p.Nonce, p.ValidBefore, p.ValidAfter, bytesOf(t, p.FeeToken),
		feePayer, []any{}}, signature...).wire(t)
}

// Whatever bytes come: no panic, and what is read has one spelling.
func FuzzTransaction(f *testing.F) {
	for _, v := range vectors(f) {
		f.Add(bytesOf(f, v.Preimage))
		f.Add(bytesOf(f, v.Signed))
	}
	d := newDraft(f)
	d[6], d[7] = []byte{7}, []byte{3}
	f.Add(d.wire(f))
	f.Add(d[:signature].wire(f))
	f.Fuzz(func(t *testing.T, data []byte) {
		given := slices.Clone(data)
		rules := Rules{AnyNonceKey: true}
		if p, err := rules.Message(data); err == nil {
			require.Equal(t, data, p.encode(t))
			require.Empty(t, p.Sender+p.Hash)
		}
		if p, err := rules.Transaction(data); err == nil {
			require.Equal(t, data, p.encode(t, data[len(data)-signatureSize:]))
			require.NotEmpty(t, p.Sender)
			require.Equal(t, p.SellerPaysFee, p.Hash == "")
			unsigned := must.Get(rules.Message(p.encode(t)))(t)
			require.Equal(t, p.SignHash, unsigned.SignHash)
		}
		if p, err := (Rules{}).Message(data); err == nil {
			require.Equal(t, expiring, p.NonceKey)
			require.Zero(t, p.Nonce)
		}
		require.Equal(t, given, data, "its bytes are the caller's")
	})
}
