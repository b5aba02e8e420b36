package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"x402-wallet/budget"
	"x402-wallet/tools"
	"x402-wallet/x402"
)

type sessionOut struct {
	ID      string      `json:"id"` // empty: the next payment begins one
	Started string      `json:"started,omitempty"`
	Label   string      `json:"label,omitempty"`
	Budget  budget.Line `json:"budget"`
}

func (p *Program) sessionCommand(ui *ui) *cobra.Command {
	cmd := &cobra.Command{
		Use: "session", Short: "The budget session: show it, or start a new one", Args: wants(),
		Long: "The budget session: show it, or start a new one. It begins with the first payment or with " +
			"session new, and ends after 8\n" +
			"hours without a payment. Every process on the wallet shares it; restarting a program does " +
			"not begin a new one.",
		RunE: func(cmd *cobra.Command, _ []string) error { return p.with(cmd, ui, ui.session) },
	}
	cmd.AddCommand(&cobra.Command{
		Use: "show", Short: "Show the session", Args: wants(),
		RunE: func(cmd *cobra.Command, _ []string) error { return p.with(cmd, ui, ui.session) },
	})
	cmd.AddCommand(p.sessionNewCommand(ui), p.sessionLabelCommand(ui))
	return cmd
}

func (u *ui) session(ctx context.Context, w *tools.Wallet) error {
	report, session, err := budgetReport(ctx, w)
	if err != nil {
		return err
	}
	out := sessionOut{ID: session.ID, Budget: report.Session}
	if session.ID != "" {
		out.Started = session.Started.UTC().Format(time.RFC3339)
		labels, err := w.Store.Labels(ctx)
		if err != nil {
			return err
		}
		out.Label = labels[session.ID]
	}
	if u.json {
		return u.printJSON(out)
	}
	if session.ID == "" {
		u.say("no session is open; the next payment starts one")
		return nil
	}
	left := "no cap"
	if out.Budget.Remaining != nil {
		left = out.Budget.Remaining.Price() + " left of " + out.Budget.Limit.Price()
	}
	name := session.ID
	if out.Label != "" {
		name += " (" + safe(out.Label) + ")"
	}
	u.say("%s since %s UTC: %s spent, %s held, %s", name, moment(out.Started), out.Budget.Spent.Price(),
		out.Budget.Held.Price(), left)
	return nil
}

// sessionNewCommand gives the agent a fresh session budget, so it takes the passphrase, typed by a
// person at this moment: an agent with a shell must not be able to do it (SPEC §4).
func (p *Program) sessionNewCommand(ui *ui) *cobra.Command {
	var label string
	cmd := ui.loosens(&cobra.Command{
		Use: "new", Short: "Start a new session (asks for the passphrase)", Args: wants(),
		Long: "End the session and start a new one, with its whole budget. That gives the agent more to " +
			"spend, so the passphrase has to\n" +
			"be typed, on the terminal or with --page in the browser; nothing else answers for it.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(label) > maxLabel {
				return usageError{text: fmt.Sprintf("a label has %d bytes at most", maxLabel)}
			}
			return p.with(cmd, ui, func(ctx context.Context, w *tools.Wallet) error {
				limit, err := w.Engine.SessionCap(ctx)
				if err != nil {
					return err
				}
				report, _, err := budgetReport(ctx, w)
				if err != nil {
					return err
				}
				guard, done, err := p.ownerOf(ctx, ui, w.Store,
					loosening{prompt: "Passphrase, to start a new session: ",
						title: "Start a new budget session",
						lines: []string{"The agent gets the whole session budget again.",
							"Of the session that ends it spent " + report.Session.Spent.Price() +
								", and holds " + report.Session.Held.Price() + "."}})
				if err != nil {
					return err
				}
				defer done()
				fresh, err := guard.NewSession(ctx, limit)
				if err != nil {
					return err
				}
				if label != "" {
					if err := w.Store.Label(ctx, fresh.ID, label); err != nil {
						return err
					}
				}
				return ui.session(ctx, w)
			})
		},
	})
	cmd.Flags().StringVar(&label, "label", "", "its `NAME` in your books: the project, say")
	return cmd
}

// sessionLabelCommand names the session that is open. That gives nobody anything, so it takes no
// passphrase.
func (p *Program) sessionLabelCommand(ui *ui) *cobra.Command {
	return &cobra.Command{
		Use: "label NAME", Short: "Name the session, for your books",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 { // also an empty one
				return nil
			}
			return wants("NAME")(cmd, args)
		},
		Long: "Name the session that is open: the project it is for, say. x402-wallet export --by " +
			"project sums payments up by these names. An\nempty NAME takes it away.",
		Example: "  x402-wallet session label weather-bot",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args[0]) > maxLabel {
				return usageError{text: fmt.Sprintf("a label has %d bytes at most", maxLabel)}
			}
			return p.with(cmd, ui, func(ctx context.Context, w *tools.Wallet) error {
				_, session, err := budgetReport(ctx, w)
				if err != nil {
					return err
				}
				if session.ID == "" {
					return x402.Errorf(x402.InvalidArgument, "no session is open").
						WithHint("the next payment begins one, or x402-wallet session new --label NAME")
				}
				if err := w.Store.Label(ctx, session.ID, args[0]); err != nil {
					return err
				}
				return ui.session(ctx, w)
			})
		},
	}
}

// maxLabel bounds a label, which stands in every line of an export.
const maxLabel = 100
