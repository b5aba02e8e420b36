package keystore

import (
	"errors"
	"fmt"

	"x402-wallet/internal/pattern"
)

// MaxAccounts is how many accounts a wallet may have besides its own.
const MaxAccounts = 64

// MaxAccount is the highest account that recovery.StandardPaths has.
const MaxAccount = 1<<31 - 1

// AccountInfo is what everybody may know of an account.
type AccountInfo struct {
	Name string
	// Index is which account of the wallet's recovery phrase it is, at recovery.StandardPaths; 0: its keys
	// come from no phrase, and keystore.json is all that there is of them.
	Index       uint32
	Solana, EVM string // addresses, as of wallet.Account.Addresses
}

// ErrOwnKeys refuses an account at the place of the wallet's own.
var ErrOwnKeys = errors.New("its keys are the wallet's own")

var accountName = pattern.Lazy(`^[a-z][a-z0-9_-]{0,39}$`)

// CheckName refuses the name or the place of one more account.
func (h *Header) CheckName(a AccountInfo) error {
	if !accountName().MatchString(a.Name) {
		return fmt.Errorf("%.60q is no account's name: 1 to 40 of a-z, 0-9, - and _, and first a letter",
			a.Name)
	}
	if len(h.Accounts) >= MaxAccounts {
		return fmt.Errorf("a wallet has at most %d accounts besides its own", MaxAccounts)
	}
	if a.Index > MaxAccount {
		return fmt.Errorf("a phrase has no account %d: the last is %d", a.Index, MaxAccount)
	}
	for _, other := range h.Accounts {
		if other.Name == a.Name {
			return fmt.Errorf("there is an account %s already", a.Name)
		}
	}
	return nil
}

// CheckNew refuses one more account whose name or key another one has.
func (h *Header) CheckNew(a AccountInfo) error {
	if err := h.CheckName(a); err != nil {
		return err
	}
	if a.Solana == h.Solana || a.EVM == h.EVM {
		return ErrOwnKeys
	}
	for _, other := range h.Accounts {
		if other.Solana == a.Solana || other.EVM == a.EVM {
			return fmt.Errorf("its keys are those of the account %s", other.Name)
		}
	}
	return nil
}
