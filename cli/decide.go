package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"x402-wallet/history"
	"x402-wallet/history/report"
	"x402-wallet/wallet/agent/client"
	"x402-wallet/x402"
)

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
	Agent     string `json:"agent,omitempty"` // who asks, of those that share the wallet
	// those of a list, which is decided on as a whole; price is their sum then
	Payments []approvalOut `json:"payments,omitempty"`
}

func shown(a history.Approval) approvalOut {
	return approvalOut{ID: a.ID, State: string(a.State), Asked: a.Created.Format(time.RFC3339),
		ExpiresAt: a.Expires.Format(time.RFC3339), Price: a.Price.Price(), Amount: a.Amount.String(),
		Symbol: a.Symbol, Asset: a.Asset, Network: a.Network, PayTo: a.PayTo, Host: a.Host, Method: a.Method,
		URL: a.URL, Why: a.Why, Agent: a.Agent, Payments: each(a.Together, shown)}
}

func (p *Program) approvalsCommand(ui *ui) *cobra.Command {
	return &cobra.Command{
		Use: "approvals", Short: "Payments that wait for a person", Args: wants(),
		RunE: p.onLedger(func(ctx context.Context, store *history.Store, _ []string) error {
			list, err := report.Questions(ctx, store)
			if err != nil {
				return err
			}
			return ui.answer(struct {
				Count     int           `json:"count"`
				Approvals []approvalOut `json:"approvals"`
			}{len(list), each(list, shown)}, func() {
				if len(list) == 0 {
					ui.note("nothing is waiting for a person")
					return
				}
				for _, a := range list {
					ui.say("%s  %s until %s UTC", paint(ui.colorOut, bold, a.ID), a.State,
						a.Expires.UTC().Format(time.DateTime))
					for _, row := range termsOf(a) {
						ui.say("  %-13s %s", row[0], safe(row[1]))
					}
				}
				ui.note("x402-wallet approve ID approves one, x402-wallet deny ID denies it")
			})
		}),
	}
}

// approveCommand lets a payment pass that the owner's rules stop, so it takes the passphrase, typed
// by a person at this moment.
func (p *Program) approveCommand(ui *ui) *cobra.Command {
	return ui.loosens(&cobra.Command{
		Use: "approve ID", Short: "Approve one payment, or a list (asks for the passphrase)",
		Args: wants("ID"),
		RunE: p.onLedger(func(ctx context.Context, store *history.Store, args []string) error {
			a, err := store.Asked(ctx, args[0])
			if err == nil && (a.State == history.Used || !time.Now().Before(a.Expires)) {
				err = history.ErrDecided
			}
			if err != nil {
				return decisionError(args[0], err)
			}
			a, err = p.approveShown(ctx, ui, store, a,
				loosening{prompt: "Passphrase, to approve this payment: ", title: "Approve this payment"})
			if err != nil {
				return decisionError(args[0], err)
			}
			if len(a.Together) > 0 {
				return ui.decided(a, "approved: the agent can make each of these payments once, until %s UTC")
			}
			if a.IsSignIn() {
				return ui.decided(a, "approved: the agent can sign in, until %s UTC, and at this host again")
			}
			return ui.decided(a, "approved: the agent can make this payment once, until %s UTC")
		}),
	})
}

// approveShown shows a payment's terms, takes the passphrase and approves exactly these.
func (p *Program) approveShown(ctx context.Context, ui *ui, store *history.Store, a history.Approval,
	l loosening) (history.Approval, error) {
	ui.terms(a)
	for _, row := range termsOf(a) {
		l.lines = append(l.lines, row[0]+": "+safe(row[1]))
	}
	guard, done, err := p.ownerOf(ctx, ui, store, l)
	if err != nil {
		return a, err
	}
	defer done()
	if _, err := guard.Approve(ctx, a, "owner"); err != nil {
		return a, err
	}
	return store.Asked(ctx, a.ID)
}

func (p *Program) denyCommand(ui *ui) *cobra.Command {
	return &cobra.Command{
		Use: "deny ID", Short: "Deny a waiting payment, or withdraw an approval", Args: wants("ID"),
		RunE: p.onLedger(func(ctx context.Context, store *history.Store, args []string) error {
			_, err := store.Deny(ctx, args[0], "owner")
			if err != nil {
				return decisionError(args[0], err)
			}
			a, err := store.Asked(ctx, args[0])
			if err != nil {
				return err
			}
			ui.terms(a)
			return ui.decided(a, "denied; nobody is asked about it again until %s UTC")
		}),
	}
}

func (u *ui) terms(a history.Approval) {
	if u.json && !u.errTerminal {
		return
	}
	for _, row := range termsOf(a) {
		u.note("  %-13s %s", row[0], safe(row[1]))
	}
}

func termsOf(a history.Approval) (rows [][2]string) {
	if len(a.Together) > 0 {
		return termsOfList(a)
	}
	if a.IsSignIn() {
		rows = [][2]string{{"sign in",
			"with the wallet's key; it costs nothing, and is asked once for this host"}}
	} else {
		rows = [][2]string{
			{"price", a.Price.Price() + " (" + a.Amount.String() + " atomic units of " + a.Symbol + ")"},
			{"to", a.PayTo}}
	}
	rows = append(rows, [][2]string{{"on", x402.Title(a.Network)}, {"host", a.Host},
		{"for", a.Method + " " + a.URL}}...)
	if a.Agent != "" {
		rows = append(rows, [2]string{"asked by", a.Agent})
	}
	return append(rows, [2]string{"asked because", a.Why})
}

// termsOfList are the terms of a list: the sum, why it is asked about, and each payment.
func termsOfList(all history.Approval) (rows [][2]string) {
	rows = [][2]string{{"price", fmt.Sprintf("%s in all, for %d payments", all.Price.Price(),
		len(all.Together))}}
	if all.Agent != "" {
		rows = append(rows, [2]string{"asked by", all.Agent})
	}
	rows = append(rows, [2]string{"asked because", all.Why})
	for i, a := range all.Together {
		rows = append(rows, [2]string{fmt.Sprint(i + 1), fmt.Sprintf("%s to %s on %s, for %s %s",
			a.Price.Price(), a.PayTo, x402.Title(a.Network), a.Method, a.URL)})
	}
	return rows
}

func (u *ui) decided(a history.Approval, format string) error {
	return u.answerLine(shown(a), format, a.Expires.UTC().Format(time.DateTime))
}

func decisionError(id string, err error) error {
	switch {
	case errors.Is(err, history.ErrNotFound):
		return x402.Errorf(x402.InvalidArgument, "there is no approval %q", id).
			WithHint("x402-wallet approvals lists those that wait")
	case errors.Is(err, history.ErrDecided):
		return x402.Errorf(x402.InvalidArgument,
			"the approval %s was already used for a payment, or has expired", id).
			WithHint("when the agent makes its call again, you are asked again")
	}
	return err
}

type freezeOut struct {
	Network string `json:"network,omitempty"` // with an account; both empty: everything
	Account string `json:"account,omitempty"`
	Since   string `json:"since"`
	By      string `json:"by"`
	Why     string `json:"why"`
}

func freezesOut(list []history.Freeze) []freezeOut {
	return each(list, func(f history.Freeze) freezeOut {
		return freezeOut{Network: f.Network, Account: f.Account, Since: f.At.Format(time.RFC3339), By: f.By,
			Why: f.Why}
	})
}

func (p *Program) freezeCommand(ui *ui) *cobra.Command {
	return &cobra.Command{
		Use: "freeze", Short: "Stop every payment of every process, at once", Args: wants(),
		RunE: p.onLedger(func(ctx context.Context, store *history.Store, _ []string) error {
			if err := store.Freeze(ctx,
				history.Freeze{By: "owner", Why: "the owner stopped it"}); err != nil {
				return err
			}
			// so that nobody takes it back; it is frozen with or without
			_ = (&client.Client{Home: p.Home}).Checkpoint(ctx)
			list, err := store.Freezes(ctx)
			if err != nil {
				return err
			}
			return ui.answerLine(map[string]any{"frozen": freezesOut(list)},
				"frozen: nothing is paid until you run x402-wallet unfreeze")
		}),
	}
}

// unfreezeCommand lets payments are allowed again, so it takes the passphrase, typed by a person at
// this moment.
func (p *Program) unfreezeCommand(ui *ui) *cobra.Command {
	return ui.loosens(&cobra.Command{
		Use: "unfreeze", Short: "Allow payments again (asks for the passphrase)", Args: wants(),
		RunE: p.onLedger(func(ctx context.Context, store *history.Store, _ []string) error {
			list, err := store.Freezes(ctx)
			if err != nil {
				return err
			}
			if len(list) == 0 {
				ui.note("nothing is frozen")
			} else if list, err = p.unfreeze(ctx, ui, store, list); err != nil {
				return err
			}
			return ui.answerLine(map[string]any{"lifted": freezesOut(list)}, "payments are allowed again")
		}),
	})
}

func (p *Program) unfreeze(ctx context.Context, ui *ui, store *history.Store,
	list []history.Freeze) ([]history.Freeze, error) {
	l := loosening{prompt: "Passphrase, to allow payments again: ", title: "Allow payments again"}
	for _, f := range list {
		line := fmt.Sprintf("%s since %s UTC, by %s: %s", safe(f.What()), f.At.UTC().Format(time.DateTime),
			safe(f.By), safe(f.Why))
		ui.note("  %s", line)
		l.lines = append(l.lines, line)
	}
	guard, done, err := p.ownerOf(ctx, ui, store, l)
	if err != nil {
		return nil, err
	}
	defer done()
	return guard.Unfreeze(ctx)
}
