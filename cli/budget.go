package cli

import (
	"context"

	"github.com/spf13/cobra"

	"x402-wallet/budget"
	"x402-wallet/tools"
)

func (p *Program) budgetCommand(ui *ui) *cobra.Command {
	cmd := &cobra.Command{
		Use: "budget", Short: "What is left of each budget", Args: wants(),
		Long: "What is left of each budget: of one call, the session, the day and the month. The owner " +
			"sets them in config.toml; what is\n" +
			"held counts as spent until its outcome is known.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.with(cmd, ui, func(ctx context.Context, w *tools.Wallet) error {
				report, _, err := budgetReport(ctx, w)
				if err != nil {
					return err
				}
				if ui.json {
					return ui.printJSON(report)
				}
				ui.budgets(report)
				return nil
			})
		},
	}
	cmd.AddCommand(p.budgetSetCommand(ui))
	return cmd
}

func budgetReport(ctx context.Context, w *tools.Wallet) (budget.Report, budget.Session, error) {
	facts, err := w.Engine.BudgetFacts(ctx)
	return w.Engine.Rules.Report(facts), facts.Session, err
}
