package cli

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"x402-wallet/history"
	"x402-wallet/history/subscriptions"
	"x402-wallet/internal/config"
	"x402-wallet/internal/config/edit"
	"x402-wallet/tools"
	"x402-wallet/x402"
)

type subscriptionsOut struct {
	Subscriptions []tools.SubscriptionOut  `json:"subscriptions"`
	Proposals     []subscriptions.Proposal `json:"proposals"`
}

func (p *Program) subscriptionsCommand(ui *ui) *cobra.Command {
	list := p.onWallet(ui, func(ctx context.Context, w *tools.Wallet, _ []string) error {
		list, err := w.ListSubscriptions(ctx)
		if err != nil {
			return err
		}
		proposals, err := subscriptions.Proposals(ctx, w.Store)
		if err != nil {
			return err
		}
		return ui.answer(subscriptionsOut{list, append([]subscriptions.Proposal{}, proposals...)}, func() {
			ui.subscriptions(list)
			for _, proposal := range proposals {
				ui.proposal(proposal)
				ui.note("  x402-wallet subscriptions accept %s makes it, decline %s does not",
					safe(proposal.ID), safe(proposal.ID))
			}
		})
	})
	cmd := &cobra.Command{Use: "subscriptions", Short: "What is bought again and again: your standing orders",
		Args: wants(), RunE: list}
	cmd.AddCommand(&cobra.Command{Use: "list", Short: "List the subscriptions, and what agents propose",
		Args: wants(), RunE: list},
		p.subscriptionShowCommand(ui),
		p.subscriptionEdit(ui, "pause NAME", "Buy nothing by a subscription until it is resumed", "paused",
			func(text []byte, name string) ([]byte, error) {
				return edit.Set(text, "true", "subscriptions", name, "paused")
			}),
		p.subscriptionEdit(ui, "resume NAME", "Go on with a paused subscription (asks for the passphrase)",
			"resumed", func(text []byte, name string) ([]byte, error) {
				return edit.Remove(text, "subscriptions", name, "paused")
			}),
		p.subscriptionEdit(ui, "cancel NAME", "End a subscription for good", "cancelled",
			func(text []byte, name string) ([]byte, error) {
				return edit.Remove(text, "subscriptions", name)
			}),
		p.acceptCommand(ui), p.declineCommand(ui), p.dueCommand(ui))
	return cmd
}

func (p *Program) subscriptionEdit(ui *ui, use, short, done string,
	edit func(text []byte, name string) ([]byte, error)) *cobra.Command {
	return ui.loosens(&cobra.Command{
		Use: use, Short: short, Args: wants("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			change := func(text []byte, rules *config.Config) ([]byte, error) {
				if _, known := rules.Subscriptions[args[0]]; !known {
					return nil, x402.Errorf(x402.InvalidArgument, "there is no subscription %s",
						x402.Quote(args[0])).WithHint("x402-wallet subscriptions lists those there are")
				}
				return edit(text, args[0])
			}
			return p.changeRulesThen(cmd.Context(), ui, change, func(guardedRules, string) error {
				return ui.answerLine(map[string]string{"subscription": args[0], "state": done}, "%s: %s",
					args[0], done)
			})
		},
	})
}

func (p *Program) subscriptionShowCommand(ui *ui) *cobra.Command {
	return &cobra.Command{
		Use: "show NAME", Short: "Show a subscription, and its newest payments", Args: wants("NAME"),
		RunE: p.onWallet(ui, func(ctx context.Context, w *tools.Wallet, args []string) error {
			s, err := w.OneSubscription(ctx, args[0])
			if err != nil {
				return err
			}
			return ui.answer(s, func() { ui.subscription(s) })
		}),
	}
}

func (u *ui) subscriptions(list []tools.SubscriptionOut) {
	if len(list) == 0 {
		u.note("there is no subscription (x402-wallet subscribe URL --every 1d --max 0.05 --until … " +
			"--total …)")
		return
	}
	var rows [][]string
	for _, s := range list {
		last := "–"
		if s.Last != nil {
			last = s.Last.State
		}
		next := moment(s.Next)
		if next == "" {
			next = s.State
		}
		rows = append(rows, []string{s.Name, s.Every, s.Max.Price(), s.Spent.Price(), s.Left.Price(), last,
			next,
			s.Agent, s.URL})
	}
	u.table([]string{"NAME", "EVERY", "MAX", "SPENT", "LEFT", "LAST", "NEXT (UTC)", "AGENT", "URL"}, rows)
}

func (u *ui) subscription(s tools.SubscriptionOut) {
	rows := [][]string{{"state", s.State}, {"request", s.Method + " " + s.URL},
		{"headers", strings.Join(s.Headers, ", ")}, {"network", s.Network}, {"asset", s.Asset},
		{"agent", s.Agent}, {"every", s.Every + ", since " + moment(s.Since) + " UTC"},
		{"until", moment(s.Until) + " UTC"}, {"max", s.Max.Price() + " each time, without asking"},
		{"spent", s.Spent.Price() + " of " + s.Total.Price() + ", " + s.Left.Price() + " left"}}
	if s.Held > 0 {
		rows = append(rows, []string{"held", s.Held.Price() + ": what became of it is not known yet"})
	}
	if s.Next != "" {
		rows = append(rows, []string{"next", moment(s.Next) + " UTC"})
	}
	if s.Last != nil {
		rows = append(rows, []string{"last", u.runLine(*s.Last)})
	}
	for _, row := range rows {
		if row[1] != "" {
			u.say("%-8s %s", row[0], safe(row[1]))
		}
	}
	for _, p := range s.Payments() {
		u.say("  %s  %s UTC  %s  %s", p.ID, p.Created.UTC().Format(time.DateTime), p.Price.Price(), p.State)
	}
	if list := s.Payments(); len(list) > 0 {
		u.note("x402-wallet show %s --content prints what was bought", list[0].ID)
	}
}

func (u *ui) runLine(r tools.SubscriptionRunOut) string {
	parts := []string{r.State + " (slot of " + moment(r.Slot) + " UTC)"}
	if r.Free {
		parts = append(parts, "no payment was requested")
	}
	if r.Price != nil {
		parts = append(parts, r.Price.Price())
	}
	for _, part := range []struct{ name, text string }{{"payment ", r.PaymentID}, {"", string(r.Code)},
		{"", r.Why}, {"approve by: x402-wallet approve ", r.ApprovalID},
		{"tried again at ", moment(r.TriesAgain)}} {
		if part.text != "" {
			parts = append(parts, part.name+part.text)
		}
	}
	return strings.Join(parts, ", ")
}

// proposal shows what an agent would like: its words in quotes, whatever is in them.
func (u *ui) proposal(p subscriptions.Proposal) {
	from := "an agent"
	if p.Agent != "" {
		from = "the agent " + safe(p.Agent)
	}
	u.note("%s proposes (%s, %s UTC): %s every %s until %s, at most %s each time", from, safe(p.ID),
		p.At.UTC().Format(time.DateTime), x402.Quote(p.URL), safe(p.Every), p.Until.Format(time.DateOnly),
		p.Max.Price())
	u.note("  it says why: %s", x402.Quote(p.Reason))
}

func (p *Program) declineCommand(ui *ui) *cobra.Command {
	return &cobra.Command{
		Use: "decline ID", Short: "Decline the subscription that an agent proposed", Args: wants("ID"),
		RunE: p.onLedger(func(ctx context.Context, store *history.Store, args []string) error {
			err := subscriptions.EndProposal(ctx, store, args[0])
			if errors.Is(err, history.ErrNotFound) {
				return noProposal(args[0])
			}
			if err != nil {
				return err
			}
			return ui.answerLine(map[string]string{"proposal": args[0], "state": "declined"}, "declined")
		}),
	}
}
