package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"x402-wallet/history"
	"x402-wallet/history/alerts"
	"x402-wallet/internal/notify"
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
