package cli

import "github.com/spf13/cobra"

func (p *Program) serveCommand(ui *ui) *cobra.Command {
	var socket string
	cmd := &cobra.Command{
		Use: "serve", Short: "Serve many agents over MCP at once", Args: wants(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := p.haveWallet(); err != nil {
				return err
			}
			return p.Serve(cmd.Context(), socket, func(path string) {
				ui.note("agents are served at %s; their hosts start: x402-wallet mcp", path)
			})
		},
	}
	cmd.Flags().StringVar(&socket, "socket", "", "the `PATH` of its socket; without it service.sock in the home")
	return cmd
}
