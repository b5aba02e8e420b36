package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"x402-wallet/x402"
)

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
