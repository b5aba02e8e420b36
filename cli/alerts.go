package cli

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"x402-wallet/history"
	"x402-wallet/history/alerts"
	"x402-wallet/internal/notify"
	"x402-wallet/x402"
)

type alertOut struct {
	ID       string        `json:"id"`
	Kind     string        `json:"kind"` // alerts.Kind
	Subject  string        `json:"subject"`
	Window   string        `json:"window,omitempty"`
	At       string        `json:"at"`
	State    string        `json:"state"` // waiting | told | over | failed
	ToldAt   string        `json:"toldAt,omitempty"`
	Attempts int           `json:"attempts,omitempty"` // that failed
	Text     string        `json:"text"`
	Detail   alerts.Detail `json:"detail"`
}

func alertShown(a alerts.Alert) alertOut {
	out := alertOut{ID: a.ID, Kind: string(a.Kind), Subject: a.Subject, Window: a.Window,
		At: a.At.Format(time.RFC3339), State: string(a.State), Attempts: a.Attempts, Text: notify.Text(a),
		Detail: a.Detail}
	if !a.Told.IsZero() {
		out.ToldAt = a.Told.Format(time.RFC3339)
	}
	return out
}

var alertStates = map[alerts.State]string{alerts.Waiting: "not told yet",
	alerts.Told: "told", alerts.Over: "over before it was told",
	alerts.Failed: "could not be told"}

const presetAlerts = 20

func (p *Program) alertsCommand(ui *ui) *cobra.Command {
	limit := presetAlerts
	cmd := &cobra.Command{
		Use: "alerts", Short: "What you were told of, or should have been", Args: wants(),
		RunE: p.onLedger(func(ctx context.Context, store *history.Store, _ []string) error {
			if limit < 1 {
				return usagef("--limit must be at least 1")
			}
			list, err := alerts.List(ctx, store, limit)
			if err != nil {
				return err
			}
			return ui.answer(struct {
				Count  int        `json:"count"`
				Alerts []alertOut `json:"alerts"`
			}{len(list), each(list, alertShown)}, func() {
				if len(list) == 0 {
					ui.note("there was nothing to tell you of")
					return
				}
				for _, a := range list {
					ui.say("%s UTC  %s  (%s)", a.At.Format(time.DateTime),
						paint(ui.colorOut, bold, safe(string(a.Kind))), alertStates[a.State])
					ui.say("  %s", safe(notify.Text(a)))
				}
			})
		}),
	}
	cmd.Flags().IntVar(&limit, "limit", presetAlerts, "the newest `N`")
	return cmd
}

// toldOut is one way to tell the owner, as --json prints what came of its test.
type toldOut struct {
	Way     string `json:"way"` // command | webhook | desktop
	To      string `json:"to"`
	OK      bool   `json:"ok"`
	Problem string `json:"problem,omitempty"`
}

func told(o notify.Outcome) toldOut {
	out := toldOut{Way: o.Way, To: o.To, OK: o.Err == nil}
	if o.Err != nil {
		out.Problem = x402.BriefTo(o.Err.Error(), maxProblem)
	}
	return out
}

// maxProblem is how much of a problem is shown, in characters: the command and what it said of it.
const maxProblem = 600

func (p *Program) notifyCommand(ui *ui) *cobra.Command {
	cmd := &cobra.Command{Use: "notify", Short: "How you are told of what waits for you", Args: wants(),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(&cobra.Command{
		Use: "test", Short: "Tell yourself something, by every way under [notify]", Args: wants(),
		RunE: func(cmd *cobra.Command, _ []string) error { return p.testNotify(cmd.Context(), ui) },
	})
	return cmd
}

func (p *Program) testNotify(ctx context.Context, ui *ui) error {
	outcomes, err := waitFor(ui, "telling you", func() ([]notify.Outcome, error) { return p.TestNotify(ctx) })
	if err != nil {
		return err
	}
	list := each(outcomes, told)
	isTold := !slices.ContainsFunc(list, func(o toldOut) bool { return !o.OK })
	return ui.answerChecked(map[string]any{"told": list}, isTold, func() {
		for _, o := range list {
			if o.OK {
				ui.say("told: %s %s", o.Way, safe(o.To))
			} else {
				ui.say("not told: %s %s: %s", o.Way, safe(o.To), safe(o.Problem))
			}
		}
	})
}
