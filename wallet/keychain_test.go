package wallet

import (
	"context"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/zalando/go-keyring"
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
	for chain, secret := range map[string]string{ChainEVM: goldenEVMSecret, ChainSolana: goldenSolanaSeed} {
		file := filepath.Join(dir, chain)
		require.NoError(t, os.WriteFile(file, []byte(secret+"\n"), 0o600))
		key, err := Import(t.Context(), "key-file:"+chain, file, nil)
		require.NoError(t, err)
		k := KeychainKey{Chain: chain, Account: "agent-" + chain}
		_, err = k.Address(t.Context())
		require.Contains(t, requireCode(t, err, codeSetup).Hint(), "--key-file")
		other := KeychainKey{Chain: map[string]string{ChainEVM: ChainSolana, ChainSolana: ChainEVM}[chain],
			Account: "x"}
		requireCode(t, other.Keep(t.Context(), key), codeSetup)
		require.NoError(t, k.Keep(t.Context(), key))
		requireCode(t, k.Keep(t.Context(), key), codeSetup) // nothing is overwritten
		address, err := k.Address(t.Context())
		require.NoError(t, err)
		require.Equal(t, key.Address, address)
		require.NoError(t, TestSigner(t.Context(), keychainSigner{k, address}, chain, kindsNow))
		_, err = k.Sign(t.Context(), Order{Chain: other.Chain})
		require.ErrorIs(t, err, errUnsupported)
	}
	pair := KeychainKey{Chain: ChainSolana, Account: "pair"} // as other wallets export it
	seed, err := hex.DecodeString(goldenSolanaSeed)
	require.NoError(t, err)
	require.NoError(t, keyring.Set(keychainService, "pair", base58(append(seed, unbase58(goldenSolana,
		32)...))))
	address, err := pair.Address(t.Context())
	require.NoError(t, err)
	require.Equal(t, goldenSolana, address)
	for _, text := range []string{"", "0x", "zz", goldenEVMSecret[:62], goldenEVMSecret + "00", "not a key"} {
		require.NoError(t, keyring.Set(keychainService, "bad", text))
		_, err := KeychainKey{Chain: ChainEVM, Account: "bad"}.Address(t.Context())
		e := requireCode(t, err, codeSetup)
		require.NotContains(t, e.Error(), goldenEVMSecret[:8])
	}
	keyring.MockInitWithError(errors.New("org.freedesktop.secrets was not provided"))
	t.Cleanup(keyring.MockInit)
	_, err = pair.Address(t.Context())
	require.Contains(t, requireCode(t, err, codeSetup).Error(), "was not provided")
}
