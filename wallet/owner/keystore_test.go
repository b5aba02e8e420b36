package owner_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/wallet"
	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/guarded"
	"x402-wallet/wallet/internal/keystore"
	"x402-wallet/wallet/internal/keystore/keytest"

	. "x402-wallet/wallet/owner"
)

func TestCreateThenOpen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "there yet")
	now := time.Date(2026, 11, 21, 12, 0, 0, 987654321, time.FixedZone("", 3600))
	w := must.Get(Create(t.Context(), dir, value(keytest.Passphrase), Options{N: keystore.MinN,
		Now: func() time.Time { return now }}))(t)
	require.False(t, w.Locked(), "a new wallet is unlocked")
	hello := wallet.Order{Chain: wallet.ChainSolana, Kind: wallet.Channel, Payload: []byte("hello")}
	before := must.Get(w.SignChannel(t.Context(), guarded.GiveLeave(), hello))(t)
	require.NoError(t, w.Close())

	data := must.Get(os.ReadFile(filepath.Join(dir, keystore.Name)))(t)
	require.Contains(t, string(data), `"created": "2026-11-21T11:00:00Z"`)
	require.Contains(t, string(data), `"n": 16384`)

	again := must.Get(wallet.Open(dir))(t)
	solana, evm := w.Addresses()
	requireAddresses(t, again, solana, evm)
	again.Sources = []wallet.Passphrase{value(keytest.Passphrase)}
	require.Equal(t, before, must.Get(again.SignChannel(t.Context(), guarded.GiveLeave(), hello))(t))
	require.NoError(t, again.Close())
}

// The default has no warning. BenchmarkUnlockDefault is what it costs.
func TestDefaultCost(t *testing.T) {
	f := &keytest.KDF{}
	w := must.Get(Create(t.Context(), keytest.Home(t), value(keytest.Passphrase), Options{KDF: f.Derive}))(t)
	require.EqualValues(t, 262144, header(t, w.Dir()).N)
	require.Empty(t, w.Warnings)
}

func TestEveryWriteIsFresh(t *testing.T) {
	f := &keytest.KDF{}
	k := must.Get(Generate(rand.Reader, nil, nil))(t)
	a, err := Encrypt(k, nil, []byte(keytest.Passphrase), keystore.MinN, time.Now(), f.Derive, rand.Reader)
	require.NoError(t, err)
	b, err := Encrypt(k, nil, []byte(keytest.Passphrase), keystore.MinN, time.Now(), f.Derive, rand.Reader)
	require.NoError(t, err)
	require.NotEqual(t, a.Salt, b.Salt)
	require.NotEqual(t, a.Nonce, b.Nonce)
	require.NotEqual(t, a.Ciphertext, b.Ciphertext)
	require.Equal(t, a.Solana, b.Solana)
}

func TestDecryptRefuses(t *testing.T) {
	f := &keytest.KDF{}
	make := func() (*keystore.File, *keystore.Keys) {
		k := must.Get(Generate(rand.Reader, nil, nil))(t)
		ks := must.Get(Encrypt(k, nil, []byte(keytest.Passphrase), keystore.MinN, time.Now(), f.Derive,
			rand.Reader))(t)
		return ks, k
	}
	ks, k := make()
	other, _ := make()
	plain := []byte(keytest.Plaintext(k))

	swapped := *ks
	swapped.Ciphertext = other.Ciphertext
	swappedBoth := swapped
	swappedBoth.Commitment = other.Commitment
	address := *ks
	address.EVM = other.EVM
	created := *ks
	created.Created = created.Created.Add(time.Second)

	forge := func(h keystore.Header, plain []byte) *keystore.File { return keytest.Forge(t, f, h, plain) }
	ofOther := ks.Header
	ofOther.Solana = other.Solana
	sealedElsewhere := forge(ks.Header, plain)
	sealedElsewhere.Ciphertext[0] ^= 1
	derived := must.Get(f.Derive([]byte(keytest.Passphrase), ks.Salt, ks.N, ks.R, ks.P))(t)
	sealedElsewhere.Commitment = sealedElsewhere.Commit(derived)
	noScalar := bytes.Clone(plain)
	at := bytes.Index(noScalar, []byte(`"evm":"`)) + len(`"evm":"`)
	copy(noScalar[at:], "//////////////////////////////////////////8=")

	for name, tc := range map[string]struct {
		ks   *keystore.File
		code coded.Code
	}{
		"ciphertext of another file":                {&swapped, coded.InvalidPassphrase},
		"ciphertext and commitment of another file": {&swappedBoth, coded.InvalidPassphrase},
		"address of another key":                    {&address, coded.InvalidPassphrase},
		"another date":                              {&created, coded.InvalidPassphrase},
		"committed, but another key's address":      {forge(ofOther, plain), coded.KeystoreCorrupt},
		"committed, but not authentic":              {sealedElsewhere, coded.KeystoreCorrupt},
		"committed, but another plaintext version": {forge(ks.Header,
			bytes.Replace(plain, []byte("1"), []byte("2"), 1)), coded.KeystoreCorrupt},
		"committed, but an empty plaintext": {forge(ks.Header, nil), coded.KeystoreCorrupt},
		"committed, but a short plaintext": {forge(ks.Header, plain[:len(plain)-1]),
			coded.KeystoreCorrupt},
		"committed, but a key above the order": {forge(ks.Header, noScalar), coded.KeystoreCorrupt},
	} {
		t.Run(name, func(t *testing.T) {
			k, err := tc.ks.Decrypt([]byte(keytest.Passphrase), f.Derive)
			require.Nil(t, k)
			keytest.RequireCode(t, err, tc.code)
		})
	}
	again, err := forge(ks.Header, plain).Decrypt([]byte(keytest.Passphrase), f.Derive)
	require.NoError(t, err, "the forger itself is right")
	require.Equal(t, k.Solana, again.Solana)
}

// What is read back before the rename has to open; here the derivation does not
// repeat itself, as with broken memory.
func TestVerifyAfterWrite(t *testing.T) {
	dir := keytest.Home(t)
	f, first := &keytest.KDF{}, true
	unsteady := func(passphrase, salt []byte, n, r, p uint64) ([]byte, error) {
		out, err := f.Derive(passphrase, salt, n, r, p)
		if first {
			out[40] ^= 1
		}
		first = false
		return out, err
	}
	_, err := Create(t.Context(), dir, value(keytest.Passphrase), Options{KDF: unsteady})
	keytest.RequireCode(t, err, coded.SetupFailed)
	require.Equal(t, 2, f.Calls)
	requireEmpty(t, dir)
}

func TestCreateFailsWhole(t *testing.T) {
	f := &keytest.KDF{}
	enough := bytes.Repeat([]byte{7}, 3*guarded.Size)
	twin := keytest.PrivateKey(t, wallet.ChainEVM, enough[:32])
	for name, opt := range map[string]Options{
		"no randomness":             {Rand: bytes.NewReader(nil)},
		"randomness ends in a key":  {Rand: bytes.NewReader(enough[:70])},
		"randomness ends at salt":   {Rand: bytes.NewReader(append(slices.Clone(enough), 1, 2, 3))},
		"no scalar":                 {Rand: bytes.NewReader(bytes.Repeat([]byte{0xff}, 200))},
		"n too small":               {N: 1 << 13},
		"n too large":               {N: 1 << 21},
		"n no power of two":         {N: 1<<18 + 1},
		"n negative":                {N: -1 << 18},
		"two keys for a chain":      {Import: []guarded.PrivateKey{twin, twin}},
		"an import that is nothing": {Import: []guarded.PrivateKey{{}}},
		"derivation fails": {KDF: func([]byte, []byte, uint64, uint64, uint64) ([]byte, error) {
			return nil, errors.New("no")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := keytest.Home(t)
			if opt.KDF == nil {
				opt.KDF = f.Derive
			}
			w, err := Create(t.Context(), dir, value(keytest.Passphrase), opt)
			require.Nil(t, w)
			keytest.RequireCode(t, err, coded.SetupFailed)
			requireEmpty(t, dir)
		})
	}
}
