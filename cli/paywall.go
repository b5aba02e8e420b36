package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"x402-wallet/history"
	"x402-wallet/tools"
	"x402-wallet/x402"
)

func (p *Program) paywallCommand(ui *ui) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use: "paywall", Short: "Charge for the tools of an MCP server", Args: wants(),
		Long: "Charge for the tools of an MCP server: this serves that server's tools, and those with a " +
			"price are run for who pays (x402).\n" +
			"FILE says which server, and what its tools cost:\n\n" +
			"  command = [\"npx\", \"plain-mcp-server\"]   # or url = \"https://…/mcp\"\n" +
			"  network = \"eip155:8453\"                 # paid to pay_to, by default to this wallet's " +
			"address there\n" +
			"  listen  = \"\"                            # empty: stdio; \"127.0.0.1:4040\": streamable " +
			"HTTP\n" +
			"  [tools.search]                          # tools without a table are free\n" +
			"  price = \"0.01\"                          # dollars\n\n" +
			"More keys: pay_to, version, dialect, verify_only, max_timeout_seconds, [[facilitators]]; for " +
			"a tool amount, asset, network,\n" +
			"pay_to, accepts, payment_flow = \"upfront\", max_timeout_seconds, description. It never " +
			"needs the passphrase: it cannot spend.",
		Example: "  x402-wallet paywall --config shop.toml\n" +
			"  x402-wallet paywall earnings",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" {
				return usageError{text: "--config FILE is needed: which server it is, and what its " +
					"tools cost"}
			}
			return p.ServePaywall(cmd.Context(), file)
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "the paywall's `FILE`")
	cmd.AddCommand(p.earningsCommand(ui))
	return cmd
}

// saleOut is a row of earnings.
type saleOut struct {
	SaleID               string `json:"saleId"`
	Timestamp            string `json:"timestamp"`
	Status               string `json:"status"`
	Resource             string `json:"resource"`
	Amount               string `json:"amount"`
	Price                string `json:"price"`
	Asset                string `json:"asset"`
	Symbol               string `json:"symbol"`
	Network              string `json:"network"`
	PayTo                string `json:"payTo"`
	Payer                string `json:"payer"`
	TransactionSignature string `json:"transactionSignature"`
	Facilitator          string `json:"facilitator"`
	Note                 string `json:"note,omitempty"`
}

type earningsOut struct {
	Count  int               `json:"count"`
	Sales  []saleOut         `json:"sales"`
	Next   string            `json:"next,omitempty"`
	Totals map[string]string `json:"totals"` // settled, dollars by symbol
}

func (p *Program) earningsCommand(ui *ui) *cobra.Command {
	var filter history.SaleFilter
	var state, after string
	cmd := &cobra.Command{
		Use: "earnings", Short: "What was sold, newest first", Args: wants(),
		Long: "What the paywall sold, newest first. A sale is settled (a facilitator says that it is " +
			"paid), unknown (perhaps; the chain\n" +
			"tells), failed (nothing was given and nothing taken), verified (verify_only), or running and " +
			"settling, which is now, or\n" +
			"what a crash left. Totals count what is settled.",
		Example: "  x402-wallet paywall earnings --after 2026-01-31 --tool search",
		RunE: func(cmd *cobra.Command, _ []string) error {
			filter.State = history.SaleState(state)
			if err := checkEarnings(filter, &filter.After, after); err != nil {
				return err
			}
			return p.with(cmd, ui, func(ctx context.Context, w *tools.Wallet) error {
				out, err := earnings(ctx, w.Store, filter)
				if err != nil {
					return err
				}
				if ui.json {
					return ui.printJSON(out)
				}
				ui.earnings(out)
				return nil
			})
		},
	}
	cmd.Flags().IntVar(&filter.Limit, "limit", 10, "at most `N` of them, 1 to 100")
	cmd.Flags().StringVar(&filter.Before, "before", "", "only those before this sale, by its `ID`")
	cmd.Flags().StringVar(&filter.Resource, "tool", "", "only of what contains this `TEXT`")
	cmd.Flags().StringVar(&after, "after", "",
		"only those since this `DATE`, like 2026-01-31 or 2026-01-31T12:00:00Z")
	cmd.Flags().StringVar(&state, "status", "", "only those in this `STATE`")
	return cmd
}

func checkEarnings(f history.SaleFilter, into *time.Time, after string) (err error) {
	if f.Limit < 1 || f.Limit > 100 {
		return usageError{text: fmt.Sprintf("--limit is %d; it must be from 1 to 100", f.Limit)}
	}
	states := []history.SaleState{"", history.SaleSettled, history.SaleUnknown, history.SaleFailed,
		history.SaleVerified,
		history.SaleRunning, history.SaleSettling}
	if !slices.Contains(states, f.State) {
		return usageError{text: fmt.Sprintf("--status %q is none of settled, unknown, failed, verified, "+
			"running, settling", f.State)}
	}
	if after == "" {
		return nil
	}
	*into, err = time.Parse(time.DateOnly, after)
	if err != nil {
		*into, err = time.Parse(time.RFC3339, after)
	}
	if err != nil {
		return usageError{text: fmt.Sprintf("--after %q is not a date like 2026-01-31 or "+
			"2026-01-31T12:00:00Z",
			after)}
	}
	return nil
}

func earnings(ctx context.Context, store *history.Store, f history.SaleFilter) (out earningsOut, err error) {
	list, more, earned, err := store.Sales(ctx, f)
	if errors.Is(err, history.ErrNotFound) {
		return out, x402.Errorf(x402.InvalidArgument, "there is no sale with this id").WithHint(
			"--before takes a saleId of an earlier answer")
	}
	out.Sales, out.Totals, out.Count = []saleOut{}, map[string]string{}, len(list)
	for _, s := range list {
		out.Sales = append(out.Sales, saleOut{SaleID: s.ID, Timestamp: s.Created.UTC().Format(time.RFC3339),
			Status: string(s.State), Resource: s.Resource,
			Amount: s.Amount.String(), Price: s.Price.Price(), Asset: s.Asset, Symbol: s.Symbol,
			Network: s.Network, PayTo: s.PayTo, Payer: payerOf(s),
			TransactionSignature: s.Transaction, Facilitator: s.Facilitator, Note: s.Note})
	}
	if more {
		out.Next = list[len(list)-1].ID
	}
	for symbol, sum := range earned {
		out.Totals[symbol] = sum.String()
	}
	return out, err
}

// payerOf is who paid: as the payment says, or where it could not be read, as the facilitator said.
func payerOf(s history.Sale) string {
	var said struct{ Payer string }
	if s.Payer == "" {
		_ = json.Unmarshal(s.Receipt, &said) // none is none
	}
	return s.Payer + said.Payer
}

func (u *ui) earnings(out earningsOut) {
	if out.Count == 0 {
		u.note("no sale found")
		return
	}
	var rows [][]string
	for _, s := range out.Sales {
		rows = append(rows, []string{moment(s.Timestamp), s.SaleID, s.Price, s.Symbol, x402.Title(s.Network),
			s.Status, s.Resource, s.Payer})
	}
	u.table([]string{"TIME (UTC)", "SALE", "PRICE", "ASSET", "NETWORK", "STATUS", "FOR", "PAID BY"}, rows)
	u.totals("total earned", out.Totals, "paywall earnings", out.Next)
}
