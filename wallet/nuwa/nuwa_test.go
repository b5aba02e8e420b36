package nuwa

import (
	"crypto/ed25519"
	"crypto/sha3"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/wallet"
	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/curve"
	"x402-wallet/wallet/internal/guarded"
	"x402-wallet/wallet/internal/keystore/keytest"
	"x402-wallet/wallet/internal/wallettest"
	"x402-wallet/wallet/owner"
)

// The keys and messages of the vectors that @nuwa-ai/payment-kit 0.7.0 made
// (channel/testdata/vectors.json).
const (
	nuwaSeed   = "4ad6738fc049c0bae37e1d64f86c056345a8e8c1f09fc658dd6e20aec9347482"
	nuwaSecp   = "532335cecb63ae53ce8dc0786379c504cba55cda4197a9203170f28c77943b0f"
	nuwaSubRAV = "" +
		"010400000000000000013de415ab69a4c3231de7ec72a47c796ca446f2eed5ad" +
		"69fc6f76e1e562ca18090000000000000000056b65792d318096980000000000" +
		"0000000000000000000000000000000000000000000000000100000000000000"
	nuwaTx = "" +
		"98a709f1299d474fee017399dd930ecd76b044bbd86e339c603ebc9c6f844859" +
		"0000000000000000040000000000000000e1f505000000000100000000000000" +
		"000000000000000000000000000000000000000000000000030f7061796d656e" +
		"745f6368616e6e656c236f70656e5f6368616e6e656c5f776974685f7375625f" +
		"6368616e6e656c5f656e74727901070000000000000000000000000000000000" +
		"000000000000000000000000000003086761735f636f696e0452476173000220" +
		"98eead5839ffe7a570a53b4b558debd7c8532ed09a9b8b9f66577eb5a68fd483" +
		"06056b65792d31"
	nuwaAuth = `DIDAuthV1:{"nonce":"00000000-0000-4000-8000-000000000001","operation":"mcp_tool_call","params":{},"timestamp":1763632800}`
)

func nuwaWallet(t testing.TB) Keys {
	seed, secret := keytest.Unhex(t, nuwaSeed), keytest.Unhex(t, nuwaSecp)
	public := must.Get(curve.PublicKey((*[guarded.Size]byte)(secret)))(t)
	w := wallettest.Wallet(t, owner.Options{Import: []guarded.PrivateKey{
		guarded.NewPrivateKey(wallet.ChainSolana, curve.SolanaAddressOf(ed25519.NewKeyFromSeed(seed)), seed),
		guarded.NewPrivateKey(wallet.ChainEVM, curve.EVMAddressOf(public), secret)}})
	require.NoError(t, w.Unlock(t.Context(), wallet.FromValue(keytest.Passphrase)))
	return Keys{Account: &w.Account, Now: func() time.Time { return time.Unix(1763632800, 0) }}
}

func nuwaMeant(t *testing.T) SubRAV {
	m := SubRAV{ChainID: 4, Fragment: "key-1", Nonce: 1}
	copy(m.Channel[:], keytest.Unhex(t,
		"3de415ab69a4c3231de7ec72a47c796ca446f2eed5ad69fc6f76e1e562ca1809"))
	binary.BigEndian.PutUint64(m.Amount[24:], 10_000_000)
	return m
}

func nuwaCall(t *testing.T) RoochCall {
	c := RoochCall{ChainID: 4, MaxGas: maxRoochGas, Function: "open_channel_with_sub_channel_entry",
		Args: [][]byte{keytest.Unhex(t,
			"98eead5839ffe7a570a53b4b558debd7c8532ed09a9b8b9f66577eb5a68fd483"),
			[]byte("\x05key-1")}}
	copy(c.Sender[:], keytest.Unhex(t, "98a709f1299d474fee017399dd930ecd76b044bbd86e339c603ebc9c6f844859"))
	return c
}

func TestChannelVectors(t *testing.T) {
	w := nuwaWallet(t)
	solana, _ := w.Addresses()
	require.Equal(t, "zARnzdzDe9kAE2E6xqYN8PMLx9VvekNeoEFWzYAP9GpRP", ChannelKey(solana))
	require.True(t, w.OwnsChannelKey(ed25519Key, ChannelKey(solana)))
	require.True(t, w.OwnsChannelKey(secp256k1Key, "zfpAVapXFHuM4yxxsR47ZN8XcDpfU9c7FRh5oPcYJjjVB"))
	for _, c := range []struct{ keyType, key string }{
		{ed25519Key, "zCnSC6nQEJNEhk6F8n1YnpLK1dP5oANtxcXFnnNeUJEnk"},
		{secp256k1Key, "zfpAVapXFHuM4yxxsR47ZN8XcDpfU9c7FRh5oPcYJjjVC"},
		{secp256k1Key, ChannelKey(solana)}, {secp256k1Key, ""}, {"EcdsaSecp256r1VerificationKey2019",
			ChannelKey(solana)},
	} {
		t.Run(c.keyType, func(t *testing.T) {
			require.False(t, w.OwnsChannelKey(c.keyType, c.key), c)
		})
	}

	sig := must.Get(w.SignSubRAV(t.Context(), ed25519Key, keytest.Unhex(t, nuwaSubRAV), nuwaMeant(t)))(t)
	require.Equal(t,
		"088861b318d788cb7ee2840cc77c623a16282e4e46eb54d6cfcdb65c87c5fc7f"+
			"7abfff60cdc1bbca69c712c0c54adde854c4ee994d0357757ddb11cde87f3a03", hex.EncodeToString(sig[:]))
	m := nuwaMeant(t)
	m.Fragment = "key-secp"
	message := slices.Replace(keytest.Unhex(t, nuwaSubRAV), 50, 56, []byte("\x08key-secp")...)
	sig = must.Get(w.SignSubRAV(t.Context(), secp256k1Key, message, m))(t)
	require.Equal(t,
		"31db64f3ffae60e49f7f2af3402c0e660edda9ce771b0606bd17e2411bec9bed"+
			"4388cfb1f868a55f1b9509c2084fdfe5c764349b4fd01fe7875ec385a3a4ec3e", hex.EncodeToString(sig[:]))

	sig = must.Get(w.SignDIDAuth(t.Context(), ed25519Key, []byte(nuwaAuth)))(t)
	require.Equal(t,
		"d94dec188afca24030804c7c0adb830f584fc754a5e0cfee354975429cf7726a"+
			"77975442a2e4cb314c1226f4b39a4abfc1402b21e22610d20d8155394297ed0c", hex.EncodeToString(sig[:]))
	sig = must.Get(w.SignDIDAuth(t.Context(), secp256k1Key, []byte(nuwaAuth)))(t)
	require.Equal(t,
		"03fc083ce60b143629f333e20c99ec7687516d5ef7f17cfb211eee64be45bca6"+
			"488d9f9706e77e7bbdad53c61826898db0b89eb3b5c4e0878e2a6416aef873c0", hex.EncodeToString(sig[:]))

	data := keytest.Unhex(t, nuwaTx)
	hash := sha3.Sum256(data)
	require.Equal(t, "116173fe6e06e11bdb55947f4eed17b72d7ecdbb0748637f6249a22756b35a07",
		hex.EncodeToString(hash[:]))
	sig = must.Get(w.SignRooch(t.Context(), ed25519Key, data, nuwaCall(t)))(t)
	require.Equal(t,
		"774a03667c987835211848e8d515f8ad7662f1b6e7bab7b1e52c8da8861b29c9"+
			"8d3dd54986a7183cd6d3be8d54cc502845bb7f5d354a602231dd7848e2617102", hex.EncodeToString(sig[:]))
}

func TestChannelSignsNothingElse(t *testing.T) {
	w := nuwaWallet(t)
	good := keytest.Unhex(t, nuwaSubRAV)
	at := func(i int, b byte) []byte { c := slices.Clone(good); c[i] = b; return c }
	change := func(f func(*SubRAV)) SubRAV { m := nuwaMeant(t); f(&m); return m }
	same := func(*SubRAV) {}
	for name, c := range map[string]struct {
		message []byte
		meant   SubRAV
	}{
		"another version":      {at(0, 2), change(same)},
		"another chain":        {at(1, 1), change(same)},
		"no chain of Rooch's":  {at(1, 5), change(func(m *SubRAV) { m.ChainID = 5 })},
		"two channels":         {at(9, 2), change(same)},
		"another channel":      {at(10, 0), change(same)},
		"another epoch":        {at(42, 1), change(same)},
		"another key":          {at(55, '2'), change(same)},
		"a unit more":          {at(56, 0x81), change(same)},
		"another nonce":        {at(88, 2), change(same)},
		"nonce zero":           {at(88, 0), change(func(m *SubRAV) { m.Nonce = 0 })},
		"cut off":              {good[:95], change(same)},
		"something behind it":  {append(slices.Clone(good), 0), change(same)},
		"nothing":              {nil, change(same)},
		"a Solana transaction": {append([]byte{0x80, 1, 0, 1}, good[4:]...), change(same)},
		"DIDAuth":              {[]byte(nuwaAuth), change(same)},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := w.SignSubRAV(t.Context(), ed25519Key, c.message, c.meant)
			require.ErrorIs(t, err, coded.ErrUnsupported, name)
		})
	}
	_, err := w.SignSubRAV(t.Context(), "EcdsaSecp256r1VerificationKey2019", good, nuwaMeant(t))
	require.ErrorIs(t, err, coded.ErrUnsupported)

	for _, message := range []string{
		"", nuwaAuth + " ", " " + nuwaAuth, nuwaAuth[1:],
		`DIDAuthV1:{"nonce":"00000000-0000-4000-8000-000000000001","operation":"transfer","params":{},"timestamp":1763632800}`,
		`DIDAuthV1:{"nonce":"00000000-0000-4000-8000-000000000001","operation":"http_request","params":{"a":1},"timestamp":1763632800}`,
		`DIDAuthV1:{"nonce":"00000000-0000-4000-8000-00000000000\"","operation":"http_request","params":{},"timestamp":1763632800}`,
		`DIDAuthV1:{"nonce":"00000000-0000-4000-8000-000000000001","operation":"http_request","params":{},"timestamp":1763632499}`,
		`DIDAuthV1:{"nonce":"00000000-0000-4000-8000-000000000001","operation":"http_request","params":{},"timestamp":1763633101}`,
	} {
		t.Run(message, func(t *testing.T) {
			_, err := w.SignDIDAuth(t.Context(), ed25519Key, []byte(message))
			require.ErrorIs(t, err, coded.ErrUnsupported, message)
		})
	}

	tx := keytest.Unhex(t, nuwaTx)
	with := func(i int, b byte) []byte { c := slices.Clone(tx); c[i] = b; return c }
	call := func(f func(*RoochCall)) RoochCall { m := nuwaCall(t); f(&m); return m }
	keep := func(*RoochCall) {}
	for name, c := range map[string]struct {
		data  []byte
		meant RoochCall
	}{
		"another sender":   {with(0, 0), call(keep)},
		"another sequence": {with(32, 1), call(keep)},
		"another chain":    {with(40, 1), call(keep)},
		"more gas":         {with(48, 1), call(func(c *RoochCall) { c.MaxGas++ })},
		"a script":         {with(56, 0), call(keep)},
		"another package":  {with(88, 4), call(keep)},
		"another module":   {with(90, 'x'), call(keep)},
		"another function": {with(106, 'x'), call(func(c *RoochCall) {
			c.Function = "xpen_channel_with_sub_channel_entry"
		})},
		"another coin":        {with(len(tx)-44, 'x'), call(keep)},
		"another payee":       {with(len(tx)-10, 0), call(keep)},
		"another key":         {with(len(tx)-1, '2'), call(keep)},
		"other arguments":     {tx, call(func(c *RoochCall) { c.Args = c.Args[:1] })},
		"cut off":             {tx[:len(tx)-1], call(keep)},
		"something behind it": {append(slices.Clone(tx), 0), call(keep)},
		"its hash":            {tx[:32], call(keep)},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := w.SignRooch(t.Context(), ed25519Key, c.data, c.meant)
			require.ErrorIs(t, err, coded.ErrUnsupported, name)
		})
	}
}

func FuzzChannelMessages(f *testing.F) {
	for _, seed := range []string{nuwaSubRAV, nuwaTx} {
		data, _ := hex.DecodeString(seed)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) { // whatever it is, it does not panic and is not what was meant
		if err := checkRooch(data, RoochCall{}); err == nil {
			t.Fatal("a call that nobody means")
		}
		w := Keys{}
		if _, err := w.SignSubRAV(t.Context(), "none", data, SubRAV{}); err == nil {
			t.Fatal("a SubRAV that nobody means")
		}
	})
}
