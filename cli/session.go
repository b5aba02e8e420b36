package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"x402-wallet/budget/standing"
	"x402-wallet/history/report"
	"x402-wallet/internal/config"
	"x402-wallet/tools"
	"x402-wallet/x402"
)

type sessionOut struct {
	ID      string        `json:"id"` // empty: the next payment begins one
	Started string        `json:"started,omitempty"`
	Label   string        `json:"label,omitempty"`
	Budget  standing.Line `json:"budget"`
}

func (p *Program) sessionCommand(ui *ui) *cobra.Command {
	show := p.onWallet(ui, func(ctx context.Context, w *tools.Wallet, _ []string) error {
		return ui.session(ctx, w)
	})
	cmd := &cobra.Command{Use: "session", Short: "The budget session: show it, or start a new one",
		Args: wants(), RunE: show}
	cmd.AddCommand(&cobra.Command{Use: "show", Short: "Show the session", Args: wants(), RunE: show},
		p.sessionNewCommand(ui), p.sessionLabelCommand(ui))
	return cmd
}

func (u *ui) session(ctx context.Context, w *tools.Wallet) error {
	used, session, err := budgetReport(ctx, w)
	if err != nil {
		return err
	}
	out := sessionOut{ID: session.ID, Budget: used.Session}
	if session.ID != "" {
		out.Started = session.Started.UTC().Format(time.RFC3339)
		labels, err := report.Labels(ctx, w.Store)
		if err != nil {
			return err
		}
		out.Label = labels[session.ID]
	}
	if session.ID == "" {
		return u.answerLine(out, "no session is open; the next payment starts one")
	}
	left := "no cap"
	if out.Budget.Remaining != nil {
		left = out.Budget.Remaining.Price() + " left of " + out.Budget.Limit.Price()
	}
	name := session.ID
	if out.Label != "" {
		name += " (" + safe(out.Label) + ")"
	}
	return u.answerLine(out, "%s since %s UTC: %s spent, %s held, %s", name, moment(out.Started),
		out.Budget.Spent.Price(), out.Budget.Held.Price(), left)
}

// sessionNewCommand gives the agent a fresh session budget, so it takes the passphrase, typed by a
// person at this moment: an agent with a shell must not be able to do it.
func (p *Program) sessionNewCommand(ui *ui) *cobra.Command {
	var label string
	cmd := ui.loosens(&cobra.Command{
		Use: "new", Short: "Start a new session (asks for the passphrase)", Args: wants(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkLabel(label); err != nil {
				return err
			}
			return p.with(cmd, ui, nil, func(ctx context.Context, w *tools.Wallet) error {
				limit, err := w.Engine.SessionCap(ctx)
				if err != nil {
					return err
				}
				used, _, err := budgetReport(ctx, w)
				if err != nil {
					return err
				}
				guard, done, err := p.ownerOf(ctx, ui, w.Store,
					loosening{prompt: "Passphrase, to start a new session: ",
						title: "Start a new budget session",
						lines: []string{"The agent gets the whole session budget again.",
							"Of the session that ends it spent " + used.Session.Spent.Price() +
								", and holds " +
								used.Session.Held.Price() + "."}})
				if err != nil {
					return err
				}
				defer done()
				fresh, err := guard.NewSession(ctx, limit)
				if err != nil {
					return err
				}
				if label != "" {
					if err := report.Label(ctx, w.Store, fresh.ID, label); err != nil {
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
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkLabel(args[0]); err != nil {
				return err
			}
			return p.with(cmd, ui, nil, func(ctx context.Context, w *tools.Wallet) error {
				_, session, err := budgetReport(ctx, w)
				if err != nil {
					return err
				}
				if session.ID == "" {
					return x402.Errorf(x402.InvalidArgument, "no session is open").
						WithHint("the next payment begins one, or x402-wallet session new --label NAME")
				}
				if err := report.Label(ctx, w.Store, session.ID, args[0]); err != nil {
					return err
				}
				return ui.session(ctx, w)
			})
		},
	}
}

func checkLabel(label string) error {
	if len(label) > config.MaxLabel {
		return usagef("a label has %d bytes at most", config.MaxLabel)
	}
	return nil
}
