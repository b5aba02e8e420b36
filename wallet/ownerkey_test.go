package wallet

import (
	"context"
	"crypto/ed25519"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/curve"
	"x402-wallet/wallet/internal/guarded"
)

// goldenOwner is testdata/keystore-owner.json, opened, and its passphrase.
func goldenOwner(t *testing.T) (*Wallet, Passphrase) {
	data, err := os.ReadFile("testdata/keystore-owner.json")
	require.NoError(t, err)
	_, passphrase := golden(t)
	w, err := Open(putKeystore(t, data))
	require.NoError(t, err)
	ks, err := parse(data)
	require.NoError(t, err)
	f := &fakeKDF{}
	f.remember(t, ks, passphrase)
	w.derive = f.derive
	t.Cleanup(func() { _ = w.Close() })
	return w, value(string(passphrase))
}

// The bytes that the owner signs, as another program made them (testdata/golden.py).
func TestOwnerSignatures(t *testing.T) {
	data, err := os.ReadFile("testdata/owner-signatures.json")
	require.NoError(t, err)
	var want struct {
		Public string
		Signed []struct{ Purpose, Statement, Message, Signature string }
	}
	require.NoError(t, json.Unmarshal(data, &want))
	require.Len(t, want.Signed, 5)
	w, typed := goldenOwner(t)
	key, err := w.OwnerKey(t.Context(), typed)
	require.NoError(t, err)
	defer key.Close()
	require.Equal(t, want.Public, hex.EncodeToString(key.Public()))
	for _, s := range want.Signed {
		require.Equal(t, s.Message, hex.EncodeToString(Purpose(s.Purpose).Message([]byte(s.Statement))))
		sig, err := key.Sign(Purpose(s.Purpose), []byte(s.Statement))
		require.NoError(t, err)
		require.Equal(t, s.Signature, hex.EncodeToString(sig), s.Purpose)
	}
}

func TestOwnerSignsNothingElse(t *testing.T) {
	w, typed := goldenOwner(t)
	key, err := w.OwnerKey(t.Context(), typed)
	require.NoError(t, err)
	for _, purpose := range []Purpose{"", "Bundle", "payment", "bundle v1\n{}"} {
		_, err := key.Sign(purpose, []byte("{}"))
		require.ErrorIs(t, err, coded.ErrUnsupported, "%q", purpose)
	}
	for _, size := range []int{0, MaxStatement + 1} {
		_, err := key.Sign(FleetBundle, make([]byte, size))
		require.ErrorIs(t, err, coded.ErrUnsupported, "%d bytes", size)
	}
	sig, err := key.Sign(FleetBundle, make([]byte, MaxStatement))
	require.NoError(t, err)
	require.False(t, ed25519.Verify(key.Public(), FleetLift.Message(make([]byte, MaxStatement)), sig))

	private := key.private
	key.Close()
	key.Close()
	require.Equal(t, make([]byte, ed25519.PrivateKeySize), []byte(private), "it is wiped")
	_, err = key.Sign(FleetBundle, []byte("{}"))
	requireCode(t, err, coded.WalletLocked)
}

// An unlocked wallet does not hold the owner's key, so that what unlocks it without a person signs nothing
// of a fleet.
func TestAnUnlockedWalletHasNoOwnerKey(t *testing.T) {
	w, typed := goldenOwner(t)
	w.Sources = []Passphrase{typed}
	require.NoError(t, w.Unlock(t.Context()))
	require.Equal(t, [guarded.Size]byte{}, *w.keys.owner)
	require.Equal(t, goldenSolana, curve.SolanaAddressOf(w.keys.solana))
	nobody := func(context.Context) ([]byte, error) { return nil, ErrNoPassphrase }
	_, err := w.OwnerKey(t.Context(), nobody)
	requireCode(t, err, coded.WalletLocked)
	_, err = w.OwnerKey(t.Context(), value("another passphrase"))
	requireCode(t, err, coded.InvalidPassphrase)
	_, _, err = w.MakeOwnerKey(t.Context(), value("another passphrase"))
	requireCode(t, err, coded.InvalidPassphrase)
}

// It is made once, stays through a new passphrase, and is the only thing that changes.
func TestMakeOwnerKey(t *testing.T) {
	w, _ := newTestWallet(t)
	before := readFile(t, w.dir)
	typed := value(testPassphrase)
	_, err := w.OwnerKey(t.Context(), typed)
	e := requireCode(t, err, coded.SetupFailed)
	require.Equal(t, "x402-wallet policy seal --fleet", e.Command())
	require.Equal(t, before, readFile(t, w.dir))

	key, made, err := w.MakeOwnerKey(t.Context(), typed)
	require.NoError(t, err)
	require.True(t, made)
	require.NotEqual(t, before, readFile(t, w.dir))
	entries, err := os.ReadDir(w.dir)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	has, err := w.HasOwnerKey()
	require.NoError(t, err)
	require.True(t, has)
	require.True(t, w.Locked(), "it is not unlocked by this")

	same, made, err := w.MakeOwnerKey(t.Context(), typed)
	require.NoError(t, err)
	require.False(t, made)
	require.Equal(t, key.Public(), same.Public())

	require.NoError(t, w.ChangePassphrase(t.Context(), typed, value(newPassphrase), Options{}))
	again, err := Open(w.dir)
	require.NoError(t, err)
	again.derive = w.derive
	requireAddresses(t, again, w.header.solana, w.header.evm)
	kept, err := again.OwnerKey(t.Context(), value(newPassphrase))
	require.NoError(t, err)
	require.Equal(t, key.Public(), kept.Public())
	sig, err := kept.Sign(FleetLift, []byte("{}"))
	require.NoError(t, err)
	require.True(t, ed25519.Verify(key.Public(), FleetLift.Message([]byte("{}")), sig))

	other, _ := newTestWallet(t)
	otherKey, _, err := other.MakeOwnerKey(t.Context(), typed)
	require.NoError(t, err)
	require.NotEqual(t, key.Public(), otherKey.Public(), "it is random")
}

func readFile(t *testing.T, dir string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, keystoreName))
	require.NoError(t, err)
	return string(data)
}

// A keystore that another program made (testdata/golden.py).
func TestGoldenKeystoreWithTheOwnersKey(t *testing.T) {
	ks, k, _ := goldenKeystore(t, "owner")
	require.Equal(t, contents{owner: true}, ks.holds)
	plain := string(k.plaintext().Bytes)
	owner := plainOwner + "TM0Imyj/ltqdtsNG7BFOD1uKMZ81q6Yk2oz27U+4pvs="
	require.Contains(t, plain, owner)
	for name, forged := range map[string]string{
		"no owner":           strings.Replace(plain, owner, "", 1),
		"a zero for a key":   strings.Replace(plain, owner, plainOwner+strings.Repeat("A", 43)+"=", 1),
		"version 2 inside":   strings.Replace(plain, `"version":1`, `"version":2`, 1),
		"something besides":  strings.Replace(plain, plainEnd, `","more":"`+plainEnd, 1),
		"cut":                plain[:len(plain)-1],
		"not base64 at last": strings.Replace(plain, "pvs=", "pvt=", 1),
	} {
		t.Run(name, func(t *testing.T) {
			require.NotEqual(t, plain, forged)
			_, err := readPlaintext([]byte(forged), ks.holds, 0)
			require.ErrorIs(t, err, errPlaintext)
		})
	}
	again, err := readPlaintext([]byte(plain), ks.holds, 0)
	require.NoError(t, err)
	require.Equal(t, *k.owner, *again.owner)
	_, err = readPlaintext([]byte(plain), contents{}, 0)
	require.ErrorIs(t, err, errPlaintext)
}

// What is written is read back before it takes the old one's name: with another owner's key in it, it
// does not.
func TestTheOwnerKeyIsProvenBeforeTheRename(t *testing.T) {
	w, f := newTestWallet(t)
	before := readFile(t, w.dir)
	ks, err := parse([]byte(before))
	require.NoError(t, err)
	k, err := ks.decrypt([]byte(testPassphrase), f.derive)
	require.NoError(t, err)
	k.owner[0] = 1
	verify := opensWith([]byte(testPassphrase), f.derive, k)
	require.ErrorContains(t, verify([]byte(before)), "owner's key is another")
	k.dropOwner()
	require.NoError(t, verify([]byte(before)))
}
