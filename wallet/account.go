package wallet

import (
	"fmt"
	"slices"

	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/keystore"
)

// A wallet may have other accounts besides its own: each with keys of its own, under the one passphrase. Who
// pays from which, and how much, is for the owner's rules to say.

// The chains a wallet has a key for.
const (
	ChainSolana = keystore.ChainSolana
	ChainEVM    = keystore.ChainEVM
)

// AccountInfo is what everybody may know of an account.
type AccountInfo = keystore.AccountInfo

// Account is one account of a wallet, and all that is ever signed with its keys. It lasts as long as the
// wallet.
type Account struct {
	wallet    *Wallet
	place     int // among keystore.Keys.Accounts; ownAccount
	addresses     // of the keystore's keys
}

type addresses struct{ solana, evm string }

// ownAccount is the place of the wallet's own account.
const ownAccount = -1

// Accounts are the others, as the keystore had them when it was opened.
func (w *Wallet) Accounts() []AccountInfo { return slices.Clone(w.header.Accounts) }

// AccountNamed is an account by its name; "" is the wallet's own. WALLET_NOT_FOUND: the keystore had none of
// that name when it was opened.
func (w *Wallet) AccountNamed(name string) (*Account, error) {
	if name == "" {
		return &w.Account, nil
	}
	for i, a := range w.header.Accounts {
		if a.Name == name {
			return &Account{wallet: w, place: i, addresses: addresses{a.Solana, a.EVM}}, nil
		}
	}
	return nil, &coded.Error{As: coded.NotFound, Msg: fmt.Sprintf("the keystore has no account %.60q", name),
		Advice: "x402-wallet account list shows those there are; x402-wallet account add makes one"}
}

// Addresses are the public addresses: base58 for Solana, 0x with the EIP-55 checksum for EVM chains. Those of
// the keystore's own keys are, while the wallet is locked, the ones in the file.
func (a *Account) Addresses() (solana, evm string) { return a.self().solana, a.self().evm }

// pair is the account's among unlocked keys.
func (a *Account) pair(k *keystore.Keys) *keystore.Pair {
	if a.place == ownAccount {
		return &k.Pair
	}
	return &k.Accounts[a.place]
}
