package cli

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"x402-wallet/internal/config"
	"x402-wallet/internal/doctor"
	"x402-wallet/internal/install"
)

func (p *Program) doctorCommand(ui *ui) *cobra.Command {
	var full bool
	cmd := &cobra.Command{
		Use: "doctor", Short: "Look for what is wrong, and say what to do", Args: wants(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			system, err := p.system()
			if err != nil {
				return err
			}
			own, err := ownPath()
			if err != nil {
				return err
			}
			entry := install.Entry{Command: own, Args: []string{"mcp"}}
			if whole, err := p.entry(cmd.Context(), "", nil); err == nil {
				// else the passphrase file is at fault, which is looked at too
				entry = whole
			}
			dir, _ := os.Getwd() // "" when it is gone: then there is no project here
			done := ui.waiting("asking nodes and facilitators")
			report := doctor.Examine(cmd.Context(), doctor.Options{
				Home: p.Home, System: system, Entry: entry, Dir: dir, Keypair: p.Env.AgentKeypair,
				OtherProxy: p.Env.OtherProxy, PassphraseFile: p.Env.PassphraseFile, Sources: p.sourceNames,
				Opener: p, Full: full,
			})
			done()
			return ui.answerChecked(report, report.OK, func() { ui.report(report) })
		},
	}
	cmd.Flags().BoolVar(&full, "full", false, "check all of a long ledger, and not a sample of it")
	return cmd
}

// sourceNames are the ways to unlock that need no person, in their order.
func (p *Program) sourceNames(rules *config.Config) (names []string) {
	for _, source := range []struct {
		there bool
		name  string
	}{
		{p.Env.PassphraseFile != "" || rules.Keystore.PassphraseFile != "", "a passphrase file"},
		{len(rules.Keystore.PassphraseCommand) > 0, "keystore.passphrase_command"},
		{rules.Keystore.Keyring, "the system's keyring"},
		{p.Env.Passphrase != "", "X402_WALLET_PASSPHRASE"},
	} {
		if source.there {
			names = append(names, source.name)
		}
	}
	return names
}

func (u *ui) report(r doctor.Report) {
	colors := map[string]string{"ok": green, "warn": yellow, "fail": red}
	counts := map[string]int{}
	for _, f := range r.Checks {
		counts[f.Status]++
		u.say("%s  %s: %s", paint(u.colorOut, colors[f.Status], fmt.Sprintf("%-4s", f.Status)), f.Check,
			indent(f.Message))
		if f.Remedy != "" && f.Status != "ok" {
			u.say("      → %s", indent(f.Remedy))
		}
	}
	u.note("ok: %d, warnings: %d, failed: %d", counts["ok"], counts["warn"], counts["fail"])
}
