package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"x402-wallet/tools"
	"x402-wallet/x402"
)

func (p *Program) discoverCommand(ui *ui) *cobra.Command {
	var in tools.DiscoverIn
	var limit int
	cmd := &cobra.Command{
		Use: "discover [QUERY...]", Short: "Search paid APIs and MCP tools, without paying",
		Long: "Search paid APIs and MCP tools in the lists of the configured facilitators, or ask one " +
			"seller (--url) what it sells. Nothing is\n" +
			"paid. What a list says is a stranger's claim: the price that counts is the one the seller " +
			"asks, and your rules hold for it.",
		Example: "  x402-wallet discover weather forecast\n" +
			"  x402-wallet discover --max-price 0.05 --network base\n" +
			"  x402-wallet discover --url https://mcp.example.com/mcp",
		RunE: func(cmd *cobra.Command, args []string) error {
			in.Query = strings.Join(args, " ")
			if cmd.Flags().Changed("limit") {
				in.Limit = &limit
			}
			return p.with(cmd, ui, func(ctx context.Context, w *tools.Wallet) error {
				done := ui.waiting("waiting for the facilitators, the seller and the nodes")
				out, err := w.Discover(ctx, in)
				done()
				if err != nil {
					return err
				}
				return ui.services(out)
			})
		},
	}
	cmd.Flags().StringVar(&in.URL, "url", "", "ask this `URL` or MCP server, instead of searching")
	cmd.Flags().StringVar(&in.Network, "network", "",
		"only what is paid on this `NETWORK`, like base or eip155:8453")
	cmd.Flags().StringVar(&in.MaxPrice, "max-price", "",
		"only what costs at most this much, in `DOLLARS` like 0.05")
	cmd.Flags().IntVar(&limit, "limit", 10, "show at most `N` services, 25 at most")
	return cmd
}

// aboutWidth bounds what a service says of itself in a table; with --json it is whole.
const aboutWidth = 60

// services prints what was found; why something cannot be paid stands below, as in estimate.
func (u *ui) services(out tools.DiscoverOut) error {
	if u.json {
		return u.printJSON(out)
	}
	var rows [][]string
	var reasons []string
	for _, s := range out.Services {
		mark, network := "yes", ""
		about, _, _ := strings.Cut(strings.TrimSpace(s.Description), "\n")
		if r := []rune(about); len(r) > aboutWidth {
			about = string(r[:aboutWidth-1]) + "…"
		}
		if s.Network != "" {
			network = x402.Title(s.Network)
		}
		if !s.Payable {
			mark = "no"
			reasons = append(reasons, s.URL+": "+s.Why)
		}
		rows = append(rows, []string{s.Price, network, mark, s.URL, about})
	}
	if len(rows) == 0 {
		u.say("nothing was found")
	} else {
		u.table([]string{"PRICE", "NETWORK", "CAN BE PAID", "URL", "WHAT IT SAYS IT IS"}, rows)
	}
	for _, why := range reasons {
		u.note("no: %s", safe(why))
	}
	u.note("source: %s, %s", safe(out.Source), moment(out.AsOf))
	return nil
}
