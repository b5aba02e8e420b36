package wallet_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/wallet"
	"x402-wallet/wallet/imported"
	"x402-wallet/wallet/internal/guarded"
	"x402-wallet/wallet/nuwa"
	"x402-wallet/wallet/recovery"
	"x402-wallet/wallet/unlock"
)

func init() {
	wallet.Outside.Seeds = func(t testing.TB, phrase, passphrase string, account uint32) *guarded.Seeds {
		t.Helper()
		var extra wallet.Passphrase
		if passphrase != "" {
			extra = wallet.FromValue(passphrase)
		}
		p, err := recovery.Read(t.Context(), wallet.FromValue(phrase), extra, recovery.StandardPaths(account))
		require.NoError(t, err)
		defer p.Wipe()
		seeds, err := p.Seeds()
		require.NoError(t, err)
		t.Cleanup(seeds.Wipe)
		return seeds
	}
	wallet.Outside.Derive = recovery.Derive
	wallet.Outside.Import = func(t testing.TB, format, path string) error {
		_, err := imported.Read(t.Context(), format, path, nil)
		return err
	}
	wallet.Outside.FromFile = unlock.File
	wallet.Outside.Owns = func(a *wallet.Account, keyType, multibase string) bool {
		return nuwa.Keys{Account: a}.OwnsChannelKey(keyType, multibase)
	}
}
