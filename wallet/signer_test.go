package wallet

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"math/big"
	"testing"

	"github.com/ethereum/go-ethereum/crypto"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"x402-wallet/internal/must"
	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/curve"
	"x402-wallet/wallet/internal/keystore"
	"x402-wallet/wallet/internal/keystore/keytest"
)

func goldenWallet(t *testing.T) *Wallet {
	data, passphrase := keytest.Golden(t)
	w := must.Get(Open(keytest.Put(t, data)))(t)
	f := &keytest.KDF{}
	ks := must.Get(keystore.Parse(data))(t)
	f.Remember(t, ks, passphrase)
	w.derive = f.Derive
	w.Sources = []Passphrase{value(string(passphrase))}
	t.Cleanup(func() { _ = w.Close() })
	return w
}

// The judge is go-ethereum: same key, same digest, same 65 bytes, and the sender
// that it recovers.
func TestSignDigest(t *testing.T) {
	w := goldenWallet(t)
	key := must.Get(crypto.HexToECDSA(keytest.EVMSecret))(t)
	halfOrder := new(big.Int).Rsh(crypto.S256().Params().N, 1)
	seen := map[byte]bool{}
	rapid.Check(t, func(rt *rapid.T) {
		digest := [32]byte(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(rt, "digest"))
		sig := must.Get(w.signDigest(t.Context(), digest))(rt)
		want := must.Get(crypto.Sign(digest[:], key))(rt)
		want[64] += 27
		require.Equal(rt, want, sig[:])
		require.LessOrEqual(rt, new(big.Int).SetBytes(sig[32:64]).Cmp(halfOrder), 0)
		seen[sig[64]] = true

		sig[64] -= 27
		public := must.Get(crypto.SigToPub(digest[:], sig[:]))(rt)
		require.Equal(rt, w.header.EVM, crypto.PubkeyToAddress(*public).Hex())
	})
	require.Equal(t, map[byte]bool{27: true, 28: true}, seen)
}

func TestSignMessage(t *testing.T) {
	w := goldenWallet(t)
	// RFC 8032 §7.1, test 1: the empty message.
	sig := must.Get(w.signMessage(t.Context(), nil))(t)
	require.Equal(t, keytest.Unhex(t, "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155"+
		"5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"), sig[:])

	public := ed25519.PublicKey(
		keytest.Unhex(t, "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"))
	require.Equal(t, curve.Base58(public), w.header.Solana)
	msg := []byte("a transaction's message")
	sig = must.Get(w.signMessage(t.Context(), msg))(t)
	require.True(t, ed25519.Verify(public, msg, sig[:]))
}

func TestSeal(t *testing.T) {
	w := goldenWallet(t)
	key := make([]byte, 32)
	for i := range key {
		key[i] = byte(i)
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte("\x00\x00\x00\x00\x00\x00\x00\x06config" + "per_call"))
	seal := must.Get(w.Seal(t.Context(), "config", []byte("per_call")))(t)
	require.Equal(t, mac.Sum(nil), seal)

	require.Equal(t, seal, must.Get(w.Seal(t.Context(), "config", []byte("per_call")))(t))
	for i, other := range [][2]string{{"mark", "per_call"}, {"configper", "_call"}, {"", "configper_call"},
		{"config", "per_calL"}} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			require.NotEqual(t, seal, must.Get(w.Seal(t.Context(), other[0], []byte(other[1])))(t))
		})
	}
	w.Lock()
	w.Sources = []Passphrase{}
	seal, err := w.Seal(t.Context(), "config", nil)
	keytest.RequireCode(t, err, coded.WalletLocked)
	require.Nil(t, seal)
}

func BenchmarkSignDigest(b *testing.B) {
	w := must.Get(Outside.Create(b.Context(), b.TempDir()+"/home", FromValue(keytest.Passphrase),
		Creation{KDF: new(keytest.KDF).Derive}))(b)
	for b.Loop() {
		if _, err := w.signDigest(b.Context(), [32]byte{1}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSignMessage(b *testing.B) {
	w := must.Get(Outside.Create(b.Context(), b.TempDir()+"/home", FromValue(keytest.Passphrase),
		Creation{KDF: new(keytest.KDF).Derive}))(b)
	msg := make([]byte, 400)
	for b.Loop() {
		if _, err := w.signMessage(b.Context(), msg); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkUnlockDefault(b *testing.B) {
	for b.Loop() {
		if _, err := keystore.Scrypt([]byte(keytest.Passphrase), make([]byte, keystore.SaltSize), 1<<18,
			keystore.ScryptR, 1); err != nil {
			b.Fatal(err)
		}
	}
}
