package cli

import (
	"github.com/spf13/cobra"

	"x402-wallet/x402"
)

// Doors are the ways by which agents come to the service.
type Doors struct {
	Socket           string   // the path of a Unix socket, or a pipe; "": the one of the home
	HTTP             string   // host:port; "": none
	Certificate, Key string   // the files of its TLS; "": none
	ClientCA         string   // the file of those whose client certificates agents show; "": none
	Owners           []string // users, by name or number, whose commands the service runs, besides root's
	// Metrics is where its metrics are read, by whoever reaches it: the path of a Unix socket, or host:port
	// of this machine; "": nowhere.
	Metrics string
}

func (p *Program) serveCommand(ui *ui) *cobra.Command {
	var doors Doors
	cmd := &cobra.Command{
		Use: "serve", Short: "Serve many agents over MCP at once", Args: wants(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := doors.check(); err != nil {
				return err
			}
			err := p.haveWallet()
			if err != nil && (len(doors.Owners) == 0 || !x402.HasCode(err, x402.WalletNotFound)) {
				return err // else an owner may come, and make it
			}
			return p.Serve(cmd.Context(), doors, func(open Doors) {
				ui.note("agents are served at %s; their hosts start: x402-wallet mcp", open.Socket)
				if open.HTTP != "" {
					ui.note("and at %s", open.url())
				}
				if open.Metrics != "" {
					ui.note("metrics are at %s", open.Metrics)
				}
			})
		},
	}
	cmd.Flags().StringVar(&doors.Socket, "socket", "",
		"the `PATH` of its socket, on Windows a pipe such as \\\\.\\pipe\\NAME; without it that of the home")
	doors.add(cmd)
	return cmd
}

// add adds the options that service install has, too.
func (d *Doors) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&d.HTTP, "http", "", "serve MCP over HTTP at this `ADDRESS`, host:port, too")
	cmd.Flags().StringVar(&d.Certificate, "tls-certificate", "", "its certificate and their chain, a PEM `FILE`")
	cmd.Flags().StringVar(&d.Key, "tls-key", "", "the certificate's key, a PEM `FILE`")
	cmd.Flags().StringVar(&d.ClientCA, "client-ca", "",
		"let agents in by certificates of the authorities in this PEM `FILE`, too")
	cmd.Flags().StringArrayVar(&d.Owners, "owner", nil, "run the owner's commands that this `USER` begins, a "+
		"name or a uid, who gives them the terminal; once for each. Root's are run in any case")
	addMetrics(cmd, &d.Metrics)
}

func addMetrics(cmd *cobra.Command, place *string) {
	cmd.Flags().StringVar(place, "metrics", "",
		"metrics for Prometheus at this `PLACE`: the path of a socket, or host:port of this machine")
}

func (d Doors) check() error {
	if (d.Certificate == "") != (d.Key == "") {
		return usagef("--tls-certificate and --tls-key belong together")
	}
	if d.ClientCA != "" && d.Certificate == "" {
		return usagef("--client-ca needs --tls-certificate and --tls-key")
	}
	return nil
}

func (d Doors) url() string {
	if d.Certificate != "" {
		return "https://" + d.HTTP + "/mcp"
	}
	return "http://" + d.HTTP + "/mcp"
}
