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
	return each(list, func(f history.Freeze) freezeOut {
		return freezeOut{Network: f.Network, Account: f.Account, Since: f.At.Format(time.RFC3339), By: f.By,
			Why: f.Why}
	})
}

func (p *Program) freezeCommand(ui *ui) *cobra.Command {
	return &cobra.Command{
		Use: "freeze", Short: "Stop every payment of every process, at once", Args: wants(),
		RunE: p.onLedger(func(ctx context.Context, store *history.Store, _ []string) error {
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
			return ui.answerLine(map[string]any{"frozen": freezesOut(list)},
				"frozen: nothing is paid until you run x402-wallet unfreeze")
		}),
	}
}

// unfreezeCommand lets payments are allowed again, so it takes the passphrase, typed by a person at
// this moment.
func (p *Program) unfreezeCommand(ui *ui) *cobra.Command {
	return ui.loosens(&cobra.Command{
		Use: "unfreeze", Short: "Allow payments again (asks for the passphrase)", Args: wants(),
		RunE: p.onLedger(func(ctx context.Context, store *history.Store, _ []string) error {
			list, err := store.Freezes(ctx)
			if err != nil {
				return err
			}
			if len(list) == 0 {
				ui.note("nothing is frozen")
			} else if list, err = p.unfreeze(ctx, ui, store, list); err != nil {
				return err
			}
			return ui.answerLine(map[string]any{"lifted": freezesOut(list)}, "payments are allowed again")
		}),
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
