package cli

import (
	"context"

	"github.com/spf13/cobra"

	"x402-wallet/history"
	"x402-wallet/history/backup"
)

func (p *Program) ledgerCommand(ui *ui) *cobra.Command {
	cmd := &cobra.Command{
		Use: "ledger", Short: "Where payments are written down", Args: wants(),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(p.backupCommand(ui), p.copyCommand(ui), p.verifyCommand(ui, "check"), p.pruneCommand(ui))
	return cmd
}

// backedUp is what ledger backup answers.
type backedUp struct {
	File     string `json:"file"`
	Payments int64  `json:"payments"`
	Events   int64  `json:"events"` // rows of the audit chain
	Bytes    int64  `json:"bytes"`
}

// backupCommand copies the ledger. It needs no passphrase: who can run it can read the home.
func (p *Program) backupCommand(ui *ui) *cobra.Command {
	return &cobra.Command{
		Use: "backup FILE", Short: "Copy the ledger into a new file, also while wallets pay",
		Long: `Copies the ledger into a new file while wallets pay, and compares the copy with its audit chain. What a
paywall sold is in a book of its own, sales.db in the home, and not in the copy.`,
		Args: wants("FILE"),
		RunE: p.onLedger(func(ctx context.Context, store *history.Store, args []string) error {
			made, err := waitFor(ui, "copying the ledger, and checking the copy",
				func() (backup.Copy, error) { return backup.ToFile(ctx, store, args[0]) })
			if err != nil {
				return err
			}
			out := backedUp{File: args[0], Payments: made.Payments, Events: made.Events, Bytes: made.Bytes}
			return ui.answerLine(out, "%s is a whole, checked copy of the ledger: %d payments, %d bytes",
				safe(out.File), out.Payments, out.Bytes)
		}),
	}
}

// copiedTo is what ledger copy answers.
type copiedTo struct {
	To       string `json:"to"`
	Payments int64  `json:"payments"`
	Events   int64  `json:"events"` // rows of the audit chain
}

// copyCommand copies the ledger to another database. It needs no passphrase: nothing is paid from the copy
// before its rules are sealed.
func (p *Program) copyCommand(ui *ui) *cobra.Command {
	return &cobra.Command{
		Use:   "copy TO",
		Short: "Copy the ledger into PostgreSQL (postgres://…), or back into ledger.db (home)",
		Long: `Copies every row of the ledger, in one transaction, into an empty database of PostgreSQL, or back into
ledger.db in the wallet's home, and compares the copy with its audit chain. The ledger that was copied is
frozen then, so that nothing is paid from both. It is refused while a payment is unfinished.

A paywall's book of sales, if there is one, is copied with it. Stop the paywall first: while a sale is under
way nothing is copied.

The password of the database comes from X402_WALLET_LEDGER_PASSWORD. Afterwards set url in [ledger] of
config.toml, or take it out, and seal the rules: x402-wallet policy seal.`,
		Args: wants("TO"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := p.haveWallet(); err != nil {
				return err
			}
			made, err := waitFor(ui, "copying the ledger, and checking the copy",
				func() (backup.Copy, error) { return p.CopyLedger(cmd.Context(), args[0]) })
			if err != nil {
				return err
			}
			out := copiedTo{To: args[0], Payments: made.Payments, Events: made.Events}
			ui.note("next: set url in [ledger] of config.toml, or take it out, and run x402-wallet policy " +
				"seal")
			return ui.answerLine(out, "the ledger is copied, and the copy is checked: %d payments, %d "+
				"events. The one that was copied is frozen.", out.Payments, out.Events)
		},
	}
}
