package cli

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"x402-wallet/tools"
)

// Running the subscriptions: once (subscriptions due, for a timer), or until it is stopped (run). Both may
// run as often at once as anybody likes: a slot is one purchase.

type dueOut struct {
	Ran []tools.SubscriptionRunOut `json:"ran"`
	// Waiting are the subscriptions that wait for a person's answer, asked for by an earlier pass.
	Waiting []tools.SubscriptionRunOut `json:"waiting,omitempty"`
	Next    string                     `json:"next,omitempty"` // when the next one is due; "": never
}

func (p *Program) dueCommand(ui *ui) *cobra.Command {
	var passphrase passphraseSource
	cmd := &cobra.Command{
		Use: "due", Short: "Buy what is due of the subscriptions now, once", Args: wants(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			w, err := p.OpenWallet(cmd.Context(), passphrase.or(nil), nil)
			if err != nil {
				return err
			}
			ui.warn(w.Warnings)
			out, err := passOver(cmd.Context(), w)
			if closing := w.Close(); err == nil {
				err = closing
			}
			if err != nil {
				return err
			}
			if err := ui.answer(out, func() { ui.ran(out) }); err != nil {
				return err
			}
			exit := worstRun(out.Ran)
			if exit == exitDone && len(out.Waiting) > 0 {
				exit = exitPerson
			}
			if exit != exitDone {
				return exitError(exit)
			}
			return nil
		},
	}
	passphrase.addFD(cmd, "", "the passphrase")
	return cmd
}

// passOver buys what is due, and says what waits for a person besides.
func passOver(ctx context.Context, w *tools.Wallet) (out dueOut, err error) {
	ran, next, err := w.RunSubscriptions(ctx)
	if err != nil {
		return out, err
	}
	out = dueOut{Ran: append([]tools.SubscriptionRunOut{}, ran...), Next: timeOrNone(next)}
	list, err := w.ListSubscriptions(ctx)
	for _, s := range list {
		isNew := slices.ContainsFunc(ran, func(r tools.SubscriptionRunOut) bool { return r.Name == s.Name })
		if s.Last != nil && s.Last.ApprovalID != "" && s.Next != "" && !isNew {
			out.Waiting = append(out.Waiting, *s.Last)
		}
	}
	return out, err
}

func timeOrNone(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

func (u *ui) ran(out dueOut) {
	for _, r := range slices.Concat(out.Ran, out.Waiting) {
		u.say("%s: %s", r.Name, safe(u.runLine(r)))
		if r.Problem != nil && r.Problem.NextStep().Command != "" {
			u.note("  what to do: %s", safe(r.Problem.NextStep().Command))
		}
	}
	switch {
	case len(out.Ran)+len(out.Waiting) > 0:
	case out.Next == "":
		u.note("nothing is due, and nothing will be")
	default:
		u.note("nothing is due before %s UTC", moment(out.Next))
	}
}

// worstRun is the exit code of several runs: what holds money before what a person is needed for, that before
// what a rule refused, that before what failed.
func worstRun(ran []tools.SubscriptionRunOut) int {
	exit := exitDone
	rank := map[int]int{exitDone: 0, exitUsage: 1, exitFailed: 1, exitRefused: 2, exitPerson: 3,
		exitUnknown: 4}
	for _, r := range ran {
		code := exitDone
		switch {
		case r.Problem != nil:
			code = exitCode(r.Problem)
		case r.Code != "": // it was answered, and not served
			code = exitFailed
		}
		if code == exitUsage { // of what the owner wrote down, and not of this command
			code = exitFailed
		}
		if rank[code] > rank[exit] {
			exit = code
		}
	}
	return exit
}

func (p *Program) runCommand(ui *ui) *cobra.Command {
	return &cobra.Command{
		Use: "run", Short: "Buy what is due of the subscriptions, until it is stopped", Args: wants(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			get, end := tools.Reopening(func(ctx context.Context) (*tools.Wallet, error) {
				w, err := p.OpenWallet(ctx, nil, nil) // nobody is asked: it runs unattended
				if err == nil {
					ui.warn(w.Warnings)
				}
				return w, err
			})
			err := tools.KeepRunning(ctx, get, func(ran []tools.SubscriptionRunOut, next time.Time) error {
				out := dueOut{Ran: ran, Next: timeOrNone(next)}
				if len(ran) == 0 && ui.json {
					return nil
				}
				return ui.answer(out, func() { ui.ran(out) })
			}, func(err error) {
				ui.note("%s %s", paint(ui.colorErr, yellow, "warning:"),
					safe(err.Error()))
			})
			if closing := end(); err == nil {
				err = closing
			}
			return err
		},
	}
}
