package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"x402-wallet/history"
	"x402-wallet/wallet/agent"
)

// freezeOut is a freeze as --json prints it.
type freezeOut struct {
	Network string `json:"network,omitempty"` // with an account; both empty: everything
	Account string `json:"account,omitempty"`
	Since   string `json:"since"`
	By      string `json:"by"`
	Why     string `json:"why"`
}

func freezesOut(list []history.Freeze) []freezeOut {
	out := []freezeOut{}
	for _, f := range list {
		out = append(out, freezeOut{Network: f.Network, Account: f.Account, Since: f.At.Format(time.RFC3339),
			By: f.By, Why: f.Why})
	}
	return out
}

func (p *Program) freezeCommand(ui *ui) *cobra.Command {
	return &cobra.Command{
		Use: "freeze", Short: "Stop every payment of every process, at once", Args: wants(),
		Long: "Stop every payment, in every process on this wallet, before its next signature leaves. " +
			"Payments already sent are followed\n" +
			"to their end. It takes no passphrase; x402-wallet unfreeze does.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.ledger(cmd, func(ctx context.Context, store *history.Store) error {
				if err := store.Freeze(ctx,
					history.Freeze{By: "owner", Why: "the owner stopped it"}); err != nil {
					return err
				}
				// so that nobody takes it back; it is frozen with or without
				_ = (&agent.Client{Home: p.Home}).Checkpoint(ctx)
				list, err := store.Freezes(ctx)
				if err != nil {
					return err
				}
				if ui.json {
					return ui.printJSON(map[string]any{"frozen": freezesOut(list)})
				}
				ui.say("frozen: nothing is paid until you run x402-wallet unfreeze")
				return nil
			})
		},
	}
}

// unfreezeCommand lets payments are allowed again, so it takes the passphrase, typed by a person at
// this moment.
func (p *Program) unfreezeCommand(ui *ui) *cobra.Command {
	return ui.loosens(&cobra.Command{
		Use: "unfreeze", Short: "Allow payments again (asks for the passphrase)", Args: wants(),
		Long: "Allow payments again: after x402-wallet freeze, after an account was frozen, and after " +
			"the circuit breaker stopped\n" +
			"everything because payment after payment came to nothing. It shows what was frozen and why. " +
			"The passphrase has to be typed,\n" +
			"on the terminal or with --page in the browser; nothing else answers for it.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.ledger(cmd, func(ctx context.Context, store *history.Store) error {
				list, err := store.Freezes(ctx)
				if err != nil {
					return err
				}
				if len(list) == 0 {
					ui.note("nothing is frozen")
				} else if list, err = p.unfreeze(ctx, ui, store, list); err != nil {
					return err
				}
				if ui.json {
					return ui.printJSON(map[string]any{"lifted": freezesOut(list)})
				}
				ui.say("payments are allowed again")
				return nil
			})
		},
	})
}

func (p *Program) unfreeze(ctx context.Context, ui *ui, store *history.Store,
	list []history.Freeze) ([]history.Freeze, error) {
	l := loosening{prompt: "Passphrase, to allow payments again: ", title: "Allow payments again"}
	for _, f := range list {
		line := fmt.Sprintf("%s since %s UTC, by %s: %s", safe(frozen(f)), f.At.UTC().Format(time.DateTime),
			safe(f.By), safe(f.Why))
		ui.note("  %s", line)
		l.lines = append(l.lines, line)
	}
	guard, done, err := p.ownerOf(ctx, ui, store, l)
	if err != nil {
		return nil, err
	}
	defer done()
	return guard.Unfreeze(ctx)
}

func frozen(f history.Freeze) string {
	if f.Account == "" {
		return "the whole wallet"
	}
	return "the account " + f.Account + on(f.Network)
}
