package app

import (
	"context"

	"x402-wallet/history"
	"x402-wallet/internal/config"
	"x402-wallet/wallet"
	"x402-wallet/wallet/seal"
)

// OpenLedger opens the ledger alone.
func (a *app) OpenLedger(ctx context.Context) (*history.Store, error) {
	return history.Open(ctx, a.home, history.Options{})
}

// OpenKeys opens the keystore, still locked. What unlocks it is what needs no person: the sources
// of SPEC §3 that rules name.
func (a *app) OpenKeys(rules *config.Config) (*wallet.Wallet, error) {
	keys, err := wallet.Open(a.home)
	if err != nil {
		return nil, err
	}
	keys.Sources = a.sources(rules, keys)
	return keys, nil
}

// Guard makes what stands between the ledger and whoever else can write to it. rules may be nil
// where only rows are sealed or checked; key may be nil where no seal is made or checked.
func (a *app) Guard(store *history.Store, rules *config.Config, key seal.Key) *seal.Guard {
	return &seal.Guard{Home: a.home, Rules: rules, Store: store, Key: key, Checkpoints: a.checkpoints}
}

// ApproveTyped approves a payment exactly as it was shown, with the passphrase that its owner
// typed, which stays the caller's to wipe. A wrong one is INVALID_PASSPHRASE.
func (a *app) ApproveTyped(ctx context.Context, store *history.Store, shown history.Approval,
	passphrase []byte) error {
	keys, err := wallet.Open(a.home)
	if err != nil {
		return err
	}
	defer func() { _ = keys.Close() }()
	if err := keys.Unlock(ctx, typed(passphrase)); err != nil {
		return err
	}
	_, err = a.Guard(store, nil, keys).Approve(ctx, shown, "owner")
	return err
}
