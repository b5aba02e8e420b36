package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"x402-wallet/internal/ownuser"
	"x402-wallet/x402"
)

func (p *Program) serviceCommand(ui *ui) *cobra.Command {
	cmd := &cobra.Command{
		Use: "service", Short: "The wallet as a service of a user of its own", Args: wants(),
		RunE: func(cmd *cobra.Command, _ []string) error { return p.serviceStatus(cmd.Context(), ui, "") },
	}
	cmd.AddCommand(p.serviceInstallCommand(ui), p.serviceStatusCommand(ui), p.serviceUninstallCommand(ui))
	return cmd
}

// systemChange is what install and uninstall have in common: a plan that is shown, asked about and carried
// out.
type systemChange struct {
	yes, show bool
	root      string
}

func (c *systemChange) add(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&c.yes, "yes", "y", false, "do not ask")
	cmd.Flags().BoolVar(&c.show, "print", false, "only print the files and the commands")
	cmd.Flags().StringVar(&c.root, "root", "",
		"write the files below this `DIRECTORY`, and run nothing: for a package or an image")
}

// wholeRoot is the root by its full path; "" is the system itself.
func wholeRoot(root string) (string, error) {
	if root == "" {
		return "", nil
	}
	return filepath.Abs(root)
}

// carryOut shows the plan, asks, and carries it out. done is false where it was only printed.
func (p *Program) carryOut(cmd *cobra.Command, ui *ui, c systemChange,
	plan ownuser.Plan) (done bool, err error) {
	if c.show {
		if !cmd.Flags().Changed("json") { // it is there to be read, or sent into a file
			ui.json = false
		}
		return false, ui.answer(map[string]any{"plan": each(plan, planned)}, func() { ui.plan(plan) })
	}
	root, err := wholeRoot(c.root)
	if err != nil {
		return false, err
	}
	if root == "" {
		if err := mayChangeSystem(cmd); err != nil {
			return false, err
		}
	}
	if err := p.agreed(cmd.Context(), ui, c, root, plan); err != nil {
		return false, err
	}
	err = plan.Apply(cmd.Context(), root, func(a ownuser.Action) { ui.note("%s", safe(actionLine(root, a))) })
	if err != nil {
		return false, x402.Errorf(x402.SetupFailed, "%w", err).
			WithHint("what was said above is done; the same command goes on from there")
	}
	return true, nil
}

// mayChangeSystem refuses where nothing can be installed: SETUP_FAILED.
func mayChangeSystem(cmd *cobra.Command) error {
	if os.Geteuid() == 0 {
		err := ownuser.RunsServices()
		if err == nil {
			return nil
		}
		show := cmd.CommandPath() + " --print"
		hint := "see what is needed with " + show + ", and give it to what starts services here"
		return x402.Errorf(x402.SetupFailed, "%w", err).WithCommand(show, hint).WithHint("%s", hint)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	words := append([]string{self}, strings.Fields(cmd.CommandPath())[1:]...)
	cmd.Flags().Visit(func(f *pflag.Flag) { words = append(words, "--"+f.Name+"="+f.Value.String()) })
	line := "sudo " + commandText(words)
	return x402.Errorf(x402.SetupFailed, "only root can change what the system runs").
		WithCommand(line, "run: "+line).WithHint("run: %s", line)
}

// agreed shows what will be done, and asks whether it shall.
func (p *Program) agreed(ctx context.Context, ui *ui, c systemChange, root string, plan ownuser.Plan) error {
	if c.yes {
		return nil
	}
	if ui.json || !isTerminal(p.Stdin) || !ui.errTerminal {
		return usagef("nobody can be asked here: give --yes, or --print to see what would be done")
	}
	ui.note("This will be done:")
	for _, a := range plan {
		if root == "" || a.Run == nil {
			ui.note("  %s", safe(actionLine(root, a)))
		}
	}
	talk := &dialogue{ui: ui, in: p.Stdin, lines: make(chan answer, 1)}
	yes, err := talk.yes(ctx, "Do it?", false)
	if err == nil && !yes {
		ui.note("nothing was changed")
		err = exitError(exitFailed)
	}
	return err
}

func actionLine(root string, a ownuser.Action) string {
	switch {
	case a.Run != nil:
		return "run " + commandText(a.Run)
	case a.Remove != "":
		return "remove " + filepath.Join(root, a.Remove)
	}
	line := "write " + filepath.Join(root, a.Write.Path)
	if a.Write.From != "" {
		line += ", a copy of " + a.Write.From
	}
	return line
}

func commandText(argv []string) string { return strings.Join(each(argv, shellWord), " ") }

// plannedOut is an action as --print --json shows it.
type plannedOut struct {
	Write  string   `json:"write,omitempty"`
	Mode   string   `json:"mode,omitempty"`
	Text   string   `json:"text,omitempty"`
	CopyOf string   `json:"copyOf,omitempty"`
	Remove string   `json:"remove,omitempty"`
	Run    []string `json:"run,omitempty"`
}

func planned(a ownuser.Action) plannedOut {
	out := plannedOut{Remove: a.Remove, Run: a.Run}
	if f := a.Write; f != nil {
		out.Write, out.Mode, out.Text, out.CopyOf = f.Path, fmt.Sprintf("%04o", f.Mode), f.Text, f.From
	}
	return out
}

// plan prints all of a plan, files with their text.
func (u *ui) plan(plan ownuser.Plan) {
	for _, a := range plan {
		switch {
		case a.Run != nil:
			u.say("%s", safe(commandText(a.Run)))
		case a.Remove != "":
			u.say("rm -f %s", safe(shellWord(a.Remove)))
		case a.Write.From != "":
			u.say("install -D -m %04o %s %s", a.Write.Mode, safe(shellWord(a.Write.From)),
				safe(shellWord(a.Write.Path)))
		default:
			u.say("# the file %s, mode %04o:\n%s# its end", safe(a.Write.Path), a.Write.Mode,
				safeText(a.Write.Text))
		}
	}
}

// serviceSupported is SETUP_FAILED where the wallet cannot be installed as a service.
func serviceSupported() error {
	err := ownuser.Supported(runtime.GOOS)
	if err == nil {
		return nil
	}
	return x402.Errorf(x402.SetupFailed, "%w", err).WithHint("on this system have its own manager of " +
		"services run x402-wallet serve, or let x402-wallet mcp open the wallet in the agent's own process")
}
