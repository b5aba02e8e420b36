package app

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"x402-wallet/cli"
	"x402-wallet/history"
	"x402-wallet/internal/config"
	"x402-wallet/wallet"
	"x402-wallet/x402"
)

// CreateWallet makes everything a wallet consists of, in a home that exists. The keystore comes
// last, because having one is what makes a wallet: after a crash in between, the same call simply
// runs again. The rules are sealed before the keystore gets its name, so that there is never a
// wallet whose rules anybody could have written.
func (a *app) CreateWallet(ctx context.Context, n cli.NewWallet) (*wallet.Wallet, error) {
	if err := a.createLedger(ctx); err != nil {
		return nil, err
	}
	if !n.RulesInPlace {
		if err := config.WriteFile(filepath.Join(a.home, config.FileName), n.Rules.Raw); err != nil {
			return nil, x402.Errorf(x402.SetupFailed, "%w", err)
		}
	}
	return wallet.Create(ctx, a.home, typed(n.Passphrase), wallet.Options{
		Import: n.Imports,
		Before: func(key func(string, []byte) []byte) error { return a.sealFirst(ctx, n.Rules, key) },
	})
}

// newKey is the key of a wallet that is being made.
type newKey func(purpose string, data []byte) []byte

// Seal implements seal.Key.
func (k newKey) Seal(_ context.Context, purpose string, data []byte) ([]byte, error) {
	return k(purpose, data), nil
}

// Locked implements seal.Key.
func (newKey) Locked() bool { return false }

func (a *app) sealFirst(ctx context.Context, rules *config.Config, key newKey) error {
	store, err := a.OpenLedger(ctx)
	if err != nil {
		return err
	}
	defer store.Close()
	return a.Guard(store, rules, key).Seal(ctx)
}

// createLedger gives the ledger its name only when it is whole: what an init that was killed leaves
// behind would be taken for a damaged ledger by the next one.
func (a *app) createLedger(ctx context.Context) error {
	path := filepath.Join(a.home, history.FileName)
	if _, err := os.Lstat(path); err == nil {
		return a.checkUnused(ctx)
	}
	temp, err := os.MkdirTemp(a.home, ".init-")
	if err != nil {
		return x402.Errorf(x402.SetupFailed, "make the ledger: %w", err)
	}
	defer func() { _ = os.RemoveAll(temp) }()
	if err := history.Create(ctx, temp, history.Options{}); err != nil {
		return err
	}
	err = os.Link(filepath.Join(temp, history.FileName), path)
	if errors.Is(err, fs.ErrExist) { // another init at the same time made it
		return a.checkUnused(ctx)
	}
	if err != nil {
		return x402.Errorf(x402.SetupFailed, "make the ledger: %w", err)
	}
	return nil
}

// checkUnused refuses a ledger without a keystore that has payments in it.
func (a *app) checkUnused(ctx context.Context) error {
	store, err := a.OpenLedger(ctx)
	if err != nil {
		return err
	}
	defer store.Close()
	list, _, _, err := store.List(ctx, history.Filter{Limit: 1})
	if err == nil && len(list) > 0 {
		err = x402.Errorf(x402.SetupFailed, "%s has a ledger with payments but no keystore", a.home).
			WithHint("restore keystore.json from a backup, or choose another home with X402_WALLET_HOME")
	}
	return err
}
