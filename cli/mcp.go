package cli

import (
	"context"

	"github.com/spf13/cobra"

	"x402-wallet/tools"
)

func (p *Program) mcpCommand(ui *ui) *cobra.Command {
	return &cobra.Command{
		Use: "mcp", Short: "Serve an agent over MCP; its host starts this", Args: wants(),
		Long: "Serve MCP over stdio. Stdout carries JSON-RPC only; what else there is to say goes to " +
			"stderr (LOG_LEVEL: debug, info,\n" +
			"warn, error). The agent's host starts it; the agent pays with the passphrase file or command " +
			"that the owner set up.",
		Example: "  claude mcp add x402-wallet -- x402-wallet mcp",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if isTerminal(p.Stdin) {
				ui.note("waiting for JSON-RPC from an agent's host; Ctrl-C stops it, x402-wallet help " +
					"lists the commands for people")
			}
			return p.ServeMCP(cmd.Context())
		},
	}
}

func (p *Program) reconcileCommand(ui *ui) *cobra.Command {
	return &cobra.Command{
		Use: "reconcile", Short: "Check unfinished payments on their chains", Args: wants(),
		Long: "Check on the chains every payment that is unfinished or rests on a seller's word. What is " +
			"proven to have\n" +
			"happened is settled; what is proven never to happen is released; everything else stays held.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.with(cmd, ui, func(ctx context.Context, w *tools.Wallet) error {
				done := ui.waiting("waiting for the nodes")
				report, err := w.Engine.Reconcile(ctx)
				done()
				if err != nil {
					return err
				}
				if ui.json {
					return ui.printJSON(report)
				}
				if report.Checked == 0 {
					ui.say("nothing is unfinished")
					return nil
				}
				ui.say("checked %d: %d settled, %d released (never settled), %d still open",
					report.Checked, report.Settled, report.Failed, report.Open)
				return nil
			})
		},
	}
}
