package imported

import (
	"context"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/zalando/go-keyring"

	"x402-wallet/internal/must"
	"x402-wallet/wallet"
	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/curve"
	"x402-wallet/wallet/internal/keystore/keytest"
)

// keychainSigner is a key of the keychain as a signer, as package wallet/signer has it.
type keychainSigner struct {
	KeychainKey
	address string
}

func (s keychainSigner) Account() (name, address string) { return "desk", s.address }
func (s keychainSigner) Check(context.Context) error     { return nil }

// A key that is an item of the system's keychain signs, from its own address.
func TestAKeyOfTheKeychain(t *testing.T) {
	keyring.MockInit()
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o700))
	for chain, secret := range map[string]string{wallet.ChainEVM: keytest.EVMSecret,
		wallet.ChainSolana: keytest.SolanaSeed} {
		file := filepath.Join(dir, chain)
		require.NoError(t, os.WriteFile(file, []byte(secret+"\n"), 0o600))
		key := must.Get(Read(t.Context(), "key-file:"+chain, file, nil))(t)
		k := KeychainKey{Chain: chain, Account: "agent-" + chain}
		_, err := k.Address(t.Context())
		require.Contains(t, keytest.RequireCode(t, err, coded.SetupFailed).Hint(), "--key-file")
		other := KeychainKey{Chain: map[string]string{wallet.ChainEVM: wallet.ChainSolana,
			wallet.ChainSolana: wallet.ChainEVM}[chain],
			Account: "x"}
		keytest.RequireCode(t, other.Keep(t.Context(), key), coded.SetupFailed)
		require.NoError(t, k.Keep(t.Context(), key))
		keytest.RequireCode(t, k.Keep(t.Context(), key), coded.SetupFailed) // nothing is overwritten
		address := must.Get(k.Address(t.Context()))(t)
		require.Equal(t, key.Address, address)
		require.NoError(t, wallet.TestSigner(t.Context(), keychainSigner{k, address}, chain, time.Now()))
		_, err = k.Sign(t.Context(), wallet.Order{Chain: other.Chain})
		require.ErrorIs(t, err, coded.ErrUnsupported)
	}
	pair := KeychainKey{Chain: wallet.ChainSolana, Account: "pair"} // as other wallets export it
	seed := must.Get(hex.DecodeString(keytest.SolanaSeed))(t)
	require.NoError(t, keyring.Set(keychainService, "pair", curve.Base58(append(seed,
		curve.Unbase58(keytest.Solana,
			32)...))))
	require.Equal(t, keytest.Solana, must.Get(pair.Address(t.Context()))(t))
	for _, text := range []string{"", "0x", "zz", keytest.EVMSecret[:62], keytest.EVMSecret + "00",
		"not a key"} {
		require.NoError(t, keyring.Set(keychainService, "bad", text))
		_, err := KeychainKey{Chain: wallet.ChainEVM, Account: "bad"}.Address(t.Context())
		e := keytest.RequireCode(t, err, coded.SetupFailed)
		require.NotContains(t, e.Error(), keytest.EVMSecret[:8])
	}
	keyring.MockInitWithError(errors.New("org.freedesktop.secrets was not provided"))
	t.Cleanup(keyring.MockInit)
	_, err := pair.Address(t.Context())
	require.Contains(t, keytest.RequireCode(t, err, coded.SetupFailed).Error(), "was not provided")
}
