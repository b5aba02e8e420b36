package cli

import (
	"context"

	"github.com/spf13/cobra"

	"x402-wallet/history"
)

func (p *Program) ledgerCommand(ui *ui) *cobra.Command {
	cmd := &cobra.Command{
		Use: "ledger", Short: "Where payments are written down", Args: wants(),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(p.backupCommand(ui), p.verifyCommand(ui, "check"), p.pruneCommand(ui))
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
		Args: wants("FILE"),
		RunE: p.onLedger(func(ctx context.Context, store *history.Store, args []string) error {
			made, err := waitFor(ui, "copying the ledger, and checking the copy",
				func() (history.Backup, error) { return store.Backup(ctx, args[0]) })
			if err != nil {
				return err
			}
			out := backedUp{File: args[0], Payments: made.Payments, Events: made.Events, Bytes: made.Bytes}
			return ui.answerLine(out, "%s is a whole, checked copy of the ledger: %d payments, %d bytes",
				safe(out.File), out.Payments, out.Bytes)
		}),
	}
}
