package cli

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"x402-wallet/paywall/book"
	"x402-wallet/x402"
)

func (p *Program) mcpCommand(ui *ui) *cobra.Command {
	cmd := &cobra.Command{
		Use: "mcp", Short: "Serve an agent over MCP; its host starts this", Args: wants(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if isTerminal(p.Stdin) {
				ui.note("waiting for JSON-RPC from an agent's host; Ctrl-C stops it, x402-wallet help " +
					"lists the commands for people")
			}
			account, _ := cmd.Flags().GetString(accountFlag) // whoever serves says whether there is one
			return p.ServeMCP(cmd.Context(), account)
		},
	}
	addAccountFlag(cmd.Flags())
	return cmd
}

func (p *Program) paywallCommand(ui *ui) *cobra.Command {
	var file, metrics string
	cmd := &cobra.Command{
		Use: "paywall", Short: "Charge for the tools of an MCP server", Args: wants(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" {
				return usagef("--config FILE is needed: which server it is, and what its tools " + "cost")
			}
			return p.ServePaywall(cmd.Context(), file, metrics)
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "the paywall's `FILE`")
	addMetrics(cmd, &metrics)
	cmd.AddCommand(p.earningsCommand(ui), p.claimCommand(ui))
	return cmd
}

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
	var filter book.SaleFilter
	var state, after string
	cmd := &cobra.Command{
		Use: "earnings", Short: "What was sold, newest first", Args: wants(),
		PreRunE: func(*cobra.Command, []string) error {
			filter.State = book.SaleState(state)
			return checkEarnings(&filter, after)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			out, err := p.earnings(cmd.Context(), filter)
			if err != nil {
				return err
			}
			return ui.answer(out, func() { ui.earnings(out) })
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

func checkEarnings(f *book.SaleFilter, after string) (err error) {
	if f.Limit < 1 || f.Limit > 100 {
		return usagef("--limit is %d; it must be from 1 to 100", f.Limit)
	}
	states := []book.SaleState{"", book.SaleSettled, book.SaleUnknown, book.SaleFailed,
		book.SaleVerified, book.SaleRunning, book.SaleSettling}
	if !slices.Contains(states, f.State) {
		return usagef("--status %q is none of settled, unknown, failed, verified, running, settling", f.State)
	}
	f.After, err = dateOf("after", after)
	return err
}

func (p *Program) earnings(ctx context.Context, f book.SaleFilter) (out earningsOut, err error) {
	out = earningsOut{Sales: []saleOut{}, Totals: map[string]string{}}
	sold, err := p.OpenBook(ctx)
	if errors.Is(err, book.ErrNone) {
		return out, p.haveWallet()
	}
	if err != nil {
		return out, err
	}
	defer func() { _ = sold.Close() }()
	list, more, earned, err := sold.Sales(ctx, f)
	if errors.Is(err, book.ErrNotFound) {
		return out, x402.Errorf(x402.InvalidArgument, "there is no sale with this id").
			WithHint("--before takes a saleId of an earlier answer")
	}
	out.Count = len(list)
	out.Sales = each(list, func(s book.Sale) saleOut {
		return saleOut{SaleID: s.ID, Timestamp: s.Created.UTC().Format(time.RFC3339), Status: string(s.State),
			Resource: s.Resource, Amount: s.Amount.String(), Price: s.Price.Price(), Asset: s.Asset,
			Symbol: s.Symbol, Network: s.Network, PayTo: s.PayTo, Payer: payerOf(s),
			TransactionSignature: s.Transaction, Facilitator: s.Facilitator, Note: s.Note}
	})
	if more {
		out.Next = list[len(list)-1].ID
	}
	for symbol, sum := range earned {
		out.Totals[symbol] = sum.String()
	}
	return out, err
}

// payerOf is who paid: as the payment says, or where it could not be read, as the facilitator said.
func payerOf(s book.Sale) string {
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
	rows := each(out.Sales, func(s saleOut) []string {
		return []string{moment(s.Timestamp), s.SaleID, s.Price, s.Symbol,
			x402.NetworkName(s.Network), s.Status, s.Resource, s.Payer}
	})
	u.table([]string{"TIME (UTC)", "SALE", "PRICE", "ASSET", "NETWORK", "STATUS", "FOR", "PAID BY"}, rows)
	u.totals("total earned", out.Totals, "paywall earnings", out.Next)
}

// Claimed is what was claimed and paid out at once, for one payee.
type Claimed struct {
	Network      string   `json:"network"`
	PayTo        string   `json:"payTo"`
	Asset        string   `json:"asset"`
	Symbol       string   `json:"symbol"`
	Channels     int      `json:"channels"`
	Amount       string   `json:"amount"`
	Price        string   `json:"price"`
	Transactions []string `json:"transactions"`
}

type claimedOut struct {
	Count  int       `json:"count"`
	Claims []Claimed `json:"claims"`
}

func (p *Program) claimCommand(ui *ui) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use: "claim", Short: "Claim what was charged by batch-settlement", Args: wants(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" {
				return usagef("--config FILE is needed: by which facilitators")
			}
			done, err := p.ClaimPaywall(cmd.Context(), file)
			if err != nil && len(done) == 0 {
				return err
			}
			out := claimedOut{Count: len(done), Claims: append([]Claimed{}, done...)}
			return errors.Join(ui.answer(out, func() { ui.claimed(out) }), err)
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "the paywall's `FILE`")
	return cmd
}

func (u *ui) claimed(out claimedOut) {
	if out.Count == 0 {
		u.note("nothing was charged that is not claimed")
		return
	}
	rows := each(out.Claims, func(c Claimed) []string {
		return []string{c.Price, c.Symbol, x402.NetworkName(c.Network), c.PayTo,
			c.Transactions[len(c.Transactions)-1]}
	})
	u.table([]string{"CLAIMED", "ASSET", "NETWORK", "PAID TO", "TRANSACTION"}, rows)
}
