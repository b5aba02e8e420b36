package cli

import (
	"bytes"
	"context"
	"errors"

	"github.com/spf13/cobra"

	"x402-wallet/history"
	"x402-wallet/internal/ask"
	"x402-wallet/wallet"
	"x402-wallet/wallet/seal"
	"x402-wallet/x402"
)

// Whatever loosens takes the passphrase, typed by the owner at that moment: on the terminal, or
// with --page on a one-time page of the loopback interface (SPEC §4). No file, command, keyring,
// variable or unlock agent answers for it.

// loosening is what the owner is asked for.
type loosening struct {
	prompt string   // on the terminal, where lines have been shown before
	title  string   // on the page
	lines  []string // what exactly
}

// loosens gives a command the page.
func (u *ui) loosens(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().BoolVar(&u.page, "page", false, "ask for the passphrase on a one-time page in the browser "+
		"of this machine, not on the terminal")
	return cmd
}

// owner is the wallet, unlocked by what its owner types now. Close it.
func (p *Program) owner(ctx context.Context, ui *ui, l loosening) (*wallet.Wallet, error) {
	keys, err := wallet.Open(p.Home)
	if err != nil {
		return nil, err
	}
	if ui.page {
		err = ui.onPage(ctx, l, keys)
	} else {
		err = keys.Unlock(ctx, byPerson(ui.asking(wallet.FromTerminal(l.prompt)),
			"--page in a browser on this machine"))
	}
	if err != nil {
		_ = keys.Close()
		return nil, err
	}
	return keys, nil
}

// ownerOf is the guard of a ledger with the owner's key. done wipes it.
func (p *Program) ownerOf(ctx context.Context, ui *ui, store *history.Store, l loosening) (guard *seal.Guard,
	done func(), err error) {
	keys, err := p.owner(ctx, ui, l)
	if err != nil {
		return nil, nil, err
	}
	return p.Guard(store, nil, keys), func() { _ = keys.Close() }, nil
}

// onPage unlocks by a page, whose address whoever runs the command opens.
func (u *ui) onPage(ctx context.Context, l loosening, keys *wallet.Wallet) error {
	page, wait, err := ask.Ask(ctx, l.title, l.lines, func(passphrase []byte) (again bool, err error) {
		err = keys.Unlock(ctx, func(context.Context) ([]byte, error) { return bytes.Clone(passphrase), nil })
		return x402.HasCode(err, x402.InvalidPassphrase), err
	})
	if err != nil {
		return err
	}
	u.note("open this page on this machine, within %s, and type the passphrase there:\n  %s", ask.Expiry,
		page)
	err = wait()
	if errors.Is(err, ask.ErrDeclined) || errors.Is(err, ask.ErrExpired) {
		return x402.Errorf(x402.WalletLocked, "%s; nothing was changed",
			err.Error()).WithHint("run the command again, and answer on its page")
	}
	return err
}
