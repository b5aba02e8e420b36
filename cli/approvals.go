package cli

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"x402-wallet/history"
	"x402-wallet/x402"
)

// approvalOut is an approval as --json prints it.
type approvalOut struct {
	ID        string `json:"id"`
	State     string `json:"state"` // pending | approved | denied
	Asked     string `json:"asked"`
	ExpiresAt string `json:"expiresAt"`
	Price     string `json:"price"`
	Amount    string `json:"amount"`
	Symbol    string `json:"symbol"`
	Asset     string `json:"asset"`
	Network   string `json:"network"`
	PayTo     string `json:"payTo"`
	Host      string `json:"host"`
	Method    string `json:"method"`
	URL       string `json:"url"`
	Why       string `json:"why"`
}

func shown(a history.Approval) approvalOut {
	return approvalOut{ID: a.ID, State: string(a.State), Asked: a.Created.Format(time.RFC3339),
		ExpiresAt: a.Expires.Format(time.RFC3339),
		Price:     a.Price.Price(), Amount: a.Amount.String(), Symbol: a.Symbol, Asset: a.Asset,
		Network: a.Network, PayTo: a.PayTo, Host: a.Host,
		Method: a.Method, URL: a.URL, Why: a.Why}
}

func (p *Program) approvalsCommand(ui *ui) *cobra.Command {
	return &cobra.Command{
		Use: "approvals", Short: "Payments that wait for a person", Args: wants(),
		Long: "Payments that wait for a person, and what was decided on them. Each is for one exact " +
			"quote: another price, payee or\n" +
			"request is another question. A request is open for a day, and an approval waits one hour for " +
			"the agent to make its call again.",
		Example: "  x402-wallet approve apr_0123456789abcdef0123456789abcdef\n" +
			"  x402-wallet deny apr_0123456789abcdef0123456789abcdef",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.ledger(cmd, func(ctx context.Context, store *history.Store) error {
				list, err := store.Approvals(ctx)
				if err != nil {
					return err
				}
				out := []approvalOut{}
				for _, a := range list {
					out = append(out, shown(a))
				}
				if ui.json {
					return ui.printJSON(struct {
						Count     int           `json:"count"`
						Approvals []approvalOut `json:"approvals"`
					}{len(out), out})
				}
				if len(out) == 0 {
					ui.note("nothing is waiting for a person")
					return nil
				}
				for _, a := range list {
					ui.say("%s  %s until %s UTC", paint(ui.colorOut, bold, a.ID), a.State,
						a.Expires.UTC().Format(time.DateTime))
					for _, row := range termsOf(a) {
						ui.say("  %-13s %s", row[0], safe(row[1]))
					}
				}
				ui.note("x402-wallet approve ID approves one, x402-wallet deny ID denies it")
				return nil
			})
		},
	}
}

// approveCommand lets a payment pass that the owner's rules stop, so it takes the passphrase, typed
// by a person at this moment.
func (p *Program) approveCommand(ui *ui) *cobra.Command {
	return ui.loosens(&cobra.Command{
		Use: "approve ID", Short: "Approve one payment (asks for the passphrase)", Args: wants("ID"),
		Long: "Approve one payment that waits for a person, once and only on exactly the terms shown. " +
			"The agent then makes the same call\n" +
			"again, within an hour. The passphrase has to be typed, on the terminal or with --page in the " +
			"browser; nothing else answers for\n" +
			"it.",
		Example: "  x402-wallet approve apr_0123456789abcdef0123456789abcdef",
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.ledger(cmd, func(ctx context.Context, store *history.Store) error {
				a, err := store.Approval(ctx, args[0])
				if err != nil {
					return decisionError(args[0], err)
				}
				if a.State == history.Used || !time.Now().Before(a.Expires) {
					return decisionError(args[0], history.ErrDecided)
				}
				ui.terms(a)
				l := loosening{prompt: "Passphrase, to approve this payment: ", title: "Approve this payment"}
				for _, row := range termsOf(a) {
					l.lines = append(l.lines, row[0]+": "+safe(row[1]))
				}
				guard, done, err := p.ownerOf(ctx, ui, store, l)
				if err != nil {
					return err
				}
				defer done()
				a, err = guard.Approve(ctx, a, "owner")
				return ui.decided(a, err, "approved: the agent can make this payment once, until %s UTC")
			})
		},
	})
}

func (p *Program) denyCommand(ui *ui) *cobra.Command {
	return &cobra.Command{
		Use: "deny ID", Short: "Deny a waiting payment, or withdraw an approval", Args: wants("ID"),
		Long: "Deny a payment that waits for a person, or withdraw an approval that was not used yet. " +
			"The agent is told so, and nobody is\n" +
			"asked about the same quote again until it ends. It takes no passphrase.",
		Example: "  x402-wallet deny apr_0123456789abcdef0123456789abcdef",
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.ledger(cmd, func(ctx context.Context, store *history.Store) error {
				a, err := store.Deny(ctx, args[0], "owner")
				if err == nil {
					ui.terms(a)
				}
				return ui.decided(a, decisionError(args[0], err),
					"denied; nobody is asked about it again until %s UTC")
			})
		},
	}
}

// terms shows a person what they decide on.
func (u *ui) terms(a history.Approval) {
	if u.json && !u.errTerminal {
		return
	}
	for _, row := range termsOf(a) {
		u.note("  %-13s %s", row[0], safe(row[1]))
	}
}

func termsOf(a history.Approval) [][2]string {
	return [][2]string{
		{"price", a.Price.Price() + " (" + a.Amount.String() + " atomic units of " + a.Symbol + ")"},
		{"to", a.PayTo}, {"on", x402.Title(a.Network) + " (" + a.Network + ")"},
		{"host", a.Host}, {"for", a.Method + " " + a.URL}, {"asked because", a.Why},
	}
}

func (u *ui) decided(a history.Approval, err error, format string) error {
	if err != nil {
		return decisionError(a.ID, err)
	}
	if u.json {
		return u.printJSON(shown(a))
	}
	u.say(format, a.Expires.UTC().Format(time.DateTime))
	return nil
}

// decisionError says what is wrong with an id.
func decisionError(id string, err error) error {
	switch {
	case errors.Is(err, history.ErrNotFound):
		return x402.Errorf(x402.InvalidArgument, "there is no approval %q",
			id).WithHint("x402-wallet approvals lists those that wait")
	case errors.Is(err, history.ErrDecided):
		return x402.Errorf(x402.InvalidArgument, "the approval %s was already used for a payment, or has "+
			"expired", id).
			WithHint("when the agent makes its call again, you are asked again")
	}
	return err
}

// ledger opens the ledger alone: what a person decides, and what stops payments, needs neither
// rules nor keys.
func (p *Program) ledger(cmd *cobra.Command, f func(context.Context, *history.Store) error) error {
	store, err := p.OpenLedger(cmd.Context())
	if err != nil {
		if missing := p.haveWallet(); missing != nil {
			return missing // that there is no wallet says more than that there is no ledger
		}
		return err
	}
	err = f(cmd.Context(), store)
	if closing := store.Close(); err == nil {
		err = closing
	}
	return err
}
