package wallet

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/guarded"
)

// The golden file was written by testdata/golden.py from the documentation
// alone.
func TestGoldenFile(t *testing.T) {
	data, _ := golden(t)
	w, err := Open(putKeystore(t, data))
	require.NoError(t, err)
	require.True(t, w.Locked())
	requireAddresses(t, w, goldenSolana, goldenEVM)
	require.Equal(t, goldenSolana, w.header.solana)
	require.Equal(t, goldenEVM, w.header.evm)
	require.Len(t, w.Warnings, 1)
	require.Contains(t, w.Warnings[0], "16384")

	for name, passphrase := range map[string]string{
		"as in passphrase.txt, NFD": "une cle\u0301 pour la tirelire",
		"NFC":                       "une cl\u00e9 pour la tirelire",
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, w.Unlock(t.Context(), value(passphrase)))
			require.Equal(t, unhex(t, goldenSolanaSeed), []byte(w.keys.solana[:32]))
			require.Equal(t, unhex(t, goldenEVMSecret), w.keys.evm.Secret[:])
			for i, b := range w.keys.seal {
				require.EqualValues(t, i, b)
			}
			w.Lock()
		})
	}
	requireCode(t, w.Unlock(t.Context(), value("une cle pour la tirelire")), coded.InvalidPassphrase)
}

func TestCreateThenOpen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "there yet")
	now := time.Date(2026, 11, 21, 12, 0, 0, 987654321, time.FixedZone("", 3600))
	w, err := Create(t.Context(), dir, value(testPassphrase), Options{N: minN, Now: func() time.Time {
		return now
	}})
	require.NoError(t, err)
	require.False(t, w.Locked(), "a new wallet is unlocked")
	before, err := w.signMessage(t.Context(), []byte("hello"))
	require.NoError(t, err)
	require.NoError(t, w.Close())

	data, err := os.ReadFile(filepath.Join(dir, keystoreName))
	require.NoError(t, err)
	require.Contains(t, string(data), `"created": "2026-11-21T11:00:00Z"`)
	require.Contains(t, string(data), `"n": 16384`)

	again, err := Open(dir)
	require.NoError(t, err)
	requireAddresses(t, again, w.header.solana, w.header.evm)
	again.Sources = []Passphrase{value(testPassphrase)}
	after, err := again.signMessage(t.Context(), []byte("hello"))
	require.NoError(t, err)
	require.Equal(t, before, after)
	require.NoError(t, again.Close())
}

// The default has no warning. BenchmarkUnlockDefault is what it costs.
func TestDefaultCost(t *testing.T) {
	f := &fakeKDF{}
	w, err := Create(t.Context(), home(t), value(testPassphrase), Options{derive: f.derive})
	require.NoError(t, err)
	require.EqualValues(t, 262144, w.header.n)
	require.Empty(t, w.Warnings)
}

func TestEveryWriteIsFresh(t *testing.T) {
	f := &fakeKDF{}
	k, err := generate(rand.Reader, nil, nil)
	require.NoError(t, err)
	a, err := encrypt(k, nil, []byte(testPassphrase), minN, time.Now(), f.derive, rand.Reader)
	require.NoError(t, err)
	b, err := encrypt(k, nil, []byte(testPassphrase), minN, time.Now(), f.derive, rand.Reader)
	require.NoError(t, err)
	require.NotEqual(t, a.salt, b.salt)
	require.NotEqual(t, a.nonce, b.nonce)
	require.NotEqual(t, a.ciphertext, b.ciphertext)
	require.Equal(t, a.solana, b.solana)
}

// forge writes what only the owner of the passphrase can: any header around any
// plaintext, sealed and committed properly.
func forge(t *testing.T, f *fakeKDF, h header, plain []byte) *keystore {
	ks := &keystore{header: h}
	derived, err := f.derive([]byte(testPassphrase), ks.salt, ks.n, ks.r, ks.p)
	require.NoError(t, err)
	aead, err := newGCM(derived)
	require.NoError(t, err)
	ks.ciphertext = aead.Seal(nil, ks.nonce, plain, ks.canonical())
	ks.commitment = ks.commit(derived)
	return ks
}

func TestDecryptRefuses(t *testing.T) {
	f := &fakeKDF{}
	make := func() (*keystore, *keys) {
		k, err := generate(rand.Reader, nil, nil)
		require.NoError(t, err)
		ks, err := encrypt(k, nil, []byte(testPassphrase), minN, time.Now(), f.derive, rand.Reader)
		require.NoError(t, err)
		return ks, k
	}
	ks, k := make()
	other, _ := make()
	plain := k.plaintext().Bytes

	swapped := *ks
	swapped.ciphertext = other.ciphertext
	swappedBoth := swapped
	swappedBoth.commitment = other.commitment
	address := *ks
	address.evm = other.evm
	created := *ks
	created.created = created.created.Add(time.Second)

	ofOther := ks.header
	ofOther.solana = other.solana
	sealedElsewhere := forge(t, f, ks.header, plain)
	sealedElsewhere.ciphertext[0] ^= 1
	derived, err := f.derive([]byte(testPassphrase), ks.salt, ks.n, ks.r, ks.p)
	require.NoError(t, err)
	sealedElsewhere.commitment = sealedElsewhere.commit(derived)
	noScalar := bytes.Clone(plain)
	copy(noScalar[len(plainHead)-1+secretText+len(plainEVM):], "//////////////////////////////////////////8=")

	for name, tc := range map[string]struct {
		ks   *keystore
		code coded.Code
	}{
		"ciphertext of another file":                {&swapped, coded.InvalidPassphrase},
		"ciphertext and commitment of another file": {&swappedBoth, coded.InvalidPassphrase},
		"address of another key":                    {&address, coded.InvalidPassphrase},
		"another date":                              {&created, coded.InvalidPassphrase},
		"committed, but another key's address":      {forge(t, f, ofOther, plain), coded.KeystoreCorrupt},
		"committed, but not authentic":              {sealedElsewhere, coded.KeystoreCorrupt},
		"committed, but another plaintext version": {forge(t, f, ks.header, bytes.Replace(plain, []byte("1"),
			[]byte("2"), 1)), coded.KeystoreCorrupt},
		"committed, but an empty plaintext": {forge(t, f, ks.header, nil), coded.KeystoreCorrupt},
		"committed, but a short plaintext": {forge(t, f, ks.header, plain[:len(plain)-1]),
			coded.KeystoreCorrupt},
		"committed, but a key above the order": {forge(t, f, ks.header, noScalar), coded.KeystoreCorrupt},
	} {
		t.Run(name, func(t *testing.T) {
			k, err := tc.ks.decrypt([]byte(testPassphrase), f.derive)
			require.Nil(t, k)
			requireCode(t, err, tc.code)
		})
	}
	again, err := forge(t, f, ks.header, plain).decrypt([]byte(testPassphrase), f.derive)
	require.NoError(t, err, "the forger itself is right")
	require.Equal(t, k.solana, again.solana)
}

// Both wrong passphrase and changed file answer this very sentence.
func TestNoOracle(t *testing.T) {
	data, passphrase := golden(t)
	ks, err := parse(data)
	require.NoError(t, err)
	f := &fakeKDF{}
	f.remember(t, ks, passphrase)
	_, wrong := ks.decrypt([]byte("another passphrase"), f.derive)
	ks.ciphertext[7] ^= 0x20
	_, tampered := ks.decrypt(passphrase, f.derive)
	require.Equal(t, wrong, tampered)
	require.EqualError(t, wrong, "wrong passphrase, or the file was changed")
}

// What is read back before the rename has to open; here the derivation does not
// repeat itself, as with broken memory.
func TestVerifyAfterWrite(t *testing.T) {
	dir := home(t)
	f, first := &fakeKDF{}, true
	unsteady := func(passphrase, salt []byte, n, r, p uint64) ([]byte, error) {
		out, err := f.derive(passphrase, salt, n, r, p)
		if first {
			out[40] ^= 1
		}
		first = false
		return out, err
	}
	_, err := Create(t.Context(), dir, value(testPassphrase), Options{derive: unsteady})
	requireCode(t, err, coded.SetupFailed)
	require.Equal(t, 2, f.calls)
	requireEmpty(t, dir)
}

func TestCreateFailsWhole(t *testing.T) {
	f := &fakeKDF{}
	enough := bytes.Repeat([]byte{7}, 3*guarded.Size)
	twin := privateKey(t, ChainEVM, enough[:32])
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
		"derivation fails": {derive: func([]byte, []byte, uint64, uint64, uint64) ([]byte, error) {
			return nil, errors.New("no")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := home(t)
			if opt.derive == nil {
				opt.derive = f.derive
			}
			w, err := Create(t.Context(), dir, value(testPassphrase), opt)
			require.Nil(t, w)
			requireCode(t, err, coded.SetupFailed)
			requireEmpty(t, dir)
		})
	}
}

// The real derivation checks what it is given, whoever calls it.
func TestCommitmentKeyIsHalfOfItsOwn(t *testing.T) {
	data, passphrase := golden(t)
	ks, err := parse(data)
	require.NoError(t, err)
	derived, err := scryptKDF(passphrase, ks.salt, ks.n, ks.r, ks.p)
	require.NoError(t, err)
	require.Len(t, derived, 64)
	require.True(t, hmac.Equal(ks.commitment, ks.commit(derived)))
	for i, bad := range [][3]uint64{{1 << 30, 8, 1}, {3, 8, 1}, {minN, 1 << 20, 1}, {minN, 8, 1 << 30},
		{minN, 8, 0}} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			_, err := scryptKDF(passphrase, ks.salt, bad[0], bad[1], bad[2])
			require.Error(t, err)
		})
	}
}

func requireEmpty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
}
