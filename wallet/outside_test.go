package wallet_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/wallet"
	"x402-wallet/wallet/imported"
	"x402-wallet/wallet/internal/guarded"
	"x402-wallet/wallet/nuwa"
	"x402-wallet/wallet/owner"
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
		seeds := must.Get(p.Seeds())(t)
		t.Cleanup(seeds.Wipe)
		return seeds
	}
	wallet.Outside.Create = func(ctx context.Context, dir string, passphrase wallet.Passphrase,
		o wallet.Creation) (*wallet.Wallet, error) {
		return owner.Create(ctx, dir, passphrase,
			owner.Options{KDF: o.KDF, Import: o.Import, Phrase: o.Phrase})
	}
	wallet.Outside.AddAccount = func(ctx context.Context, w *wallet.Wallet, typed wallet.Passphrase,
		name string, index uint32) (wallet.AccountInfo, error) {
		return owner.AddAccount(ctx, w, typed,
			owner.NewAccount{Name: name, Index: index, Derive: recovery.Derive})
	}
	wallet.Outside.ChangePassphrase = func(ctx context.Context, w *wallet.Wallet,
		old, fresh wallet.Passphrase) error {
		return owner.ChangePassphrase(ctx, w, old, fresh, owner.Options{})
	}
	wallet.Outside.CheckPassphrase, wallet.Outside.HasPhrase = owner.CheckPassphrase, owner.HasPhrase
	wallet.Outside.LockAll = owner.LockAll
	wallet.Outside.Import = func(t testing.TB, format, path string) error {
		return must.Err(imported.Read(t.Context(), format, path, nil))
	}
	wallet.Outside.FromFile = unlock.File
	wallet.Outside.Owns = func(a *wallet.Account, keyType, multibase string) bool {
		return nuwa.Keys{Account: a}.OwnsChannelKey(keyType, multibase)
	}
}
