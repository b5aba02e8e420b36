package cli

import (
	"context"

	"github.com/spf13/cobra"

	"x402-wallet/budget"
	"x402-wallet/tools"
	"x402-wallet/x402"
)

func (p *Program) balanceCommand(ui *ui) *cobra.Command {
	var network, asset string
	cmd := &cobra.Command{
		Use: "balance", Short: "What can be spent: on the chains, and of each budget", Args: wants(),
		Long: "What can be spent: per network what the wallet has or was delegated, what unfinished " +
			"payments hold of it, and what is\n" +
			"left of each budget. A payment must fit into all of them. A node that does not answer is an " +
			"error in its row, and the exit code\n" +
			"is 1 when none does.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.with(cmd, ui, func(ctx context.Context, w *tools.Wallet) error {
				done := ui.waiting("waiting for the nodes")
				out, err := w.Balance(ctx, network, asset)
				done()
				if err != nil {
					return err
				}
				if ui.json {
					err = ui.printJSON(out)
				} else {
					ui.balances(out)
					ui.say("")
					ui.budgets(out.Budget)
				}
				failed := 0
				for _, row := range out.Networks {
					if row.Error != "" {
						failed++
					}
				}
				if err == nil && failed > 0 && failed == len(out.Networks) {
					return exitError(exitFailed)
				}
				return err
			})
		},
	}
	cmd.Flags().StringVar(&network, "network", "", "only this `NETWORK`, like base or eip155:8453")
	cmd.Flags().StringVar(&asset, "asset", "", "only this `ASSET`, a symbol or an address")
	return cmd
}

func (u *ui) balances(out tools.BalanceOut) {
	list := out.Networks
	var rows [][]string
	for _, row := range list {
		if row.Error != "" {
			rows = append(rows, []string{x402.Title(row.Network), row.Symbol, "?", "?", "?", "?"})
			continue
		}
		delegated := "-"
		if row.Delegated != nil {
			delegated = row.Delegated.Units(row.Decimals)
		}
		rows = append(rows, []string{x402.Title(row.Network), row.Symbol, row.Balance.Units(row.Decimals),
			delegated,
			row.Held.Units(row.Decimals), row.Available.Units(row.Decimals)})
	}
	empty := true
	u.painted([]string{"NETWORK", "ASSET", "BALANCE", "DELEGATED", "HELD", "AVAILABLE"}, rows,
		func(row, column int) string {
			switch available := list[row].Available; {
			case available == nil:
				return yellow
			case column == 5 && !available.IsZero():
				return green
			}
			return ""
		})
	for _, row := range list {
		if row.Error != "" {
			u.note("%s %s: %s (%s)", paint(u.colorErr, yellow, "?"), x402.Title(row.Network), safe(row.Error),
				row.ErrorCode)
		}
		empty = empty && row.Available != nil && row.Available.IsZero()
	}
	if empty && len(list) > 0 { // known to be, everywhere
		u.note("there is nothing to spend yet: x402-wallet address --qr shows where to send USDC")
	}
}

func (u *ui) budgets(b budget.Report) {
	rows := [][]string{{"one call", b.PerCall.Price()}}
	used := []float64{0}
	for _, line := range []struct {
		name string
		budget.Line
	}{{"session", b.Session}, {"day", b.Day}, {"month", b.Month}} {
		limit, left, bar, part := "none", "", "", 0.0
		if line.Limit != nil {
			limit, left = line.Limit.Price(), line.Remaining.Price()
			bar, part = gauge(int64(line.Spent), int64(line.Held), int64(*line.Limit))
		}
		used = append(used, part)
		rows = append(rows, []string{line.name, limit, line.Spent.Price(), line.Held.Price(), left, bar,
			moment(line.ResetsAt)})
	}
	u.painted([]string{"BUDGET", "LIMIT", "SPENT", "HELD", "LEFT", "USED", "RESETS (UTC)"}, rows,
		func(row, column int) string {
			switch {
			case column != 4 && column != 5:
				return ""
			case used[row] >= 1:
				return red
			case used[row] >= nearlyUsed:
				return yellow
			}
			return green
		})
}
