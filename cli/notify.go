package cli

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"x402-wallet/internal/notify"
	"x402-wallet/x402"
)

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
