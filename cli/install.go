package cli

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"x402-wallet/internal/config/environ"
	"x402-wallet/internal/install"
	"x402-wallet/wallet/unlock"
	"x402-wallet/x402"
)

type installOut struct {
	Client  string   `json:"client"`
	File    string   `json:"file"`
	Change  string   `json:"change"` // nothing, add, change, remove
	Before  string   `json:"before,omitempty"`
	After   string   `json:"after,omitempty"`
	Backup  string   `json:"backup,omitempty"`
	Written bool     `json:"written"`
	Notes   []string `json:"notes,omitempty"`
}

type clientOut struct {
	Client string `json:"client"`
	Title  string `json:"title"`
	File   string `json:"file"`
	Status string `json:"status"`
	Error  string `json:"error,omitempty"`
}

type installFlags struct {
	show, dry, remove bool
	passphraseFile    string
	variables         []string
	account           string
}

func (p *Program) installCommand(ui *ui) *cobra.Command {
	var f installFlags
	cmd := &cobra.Command{
		Use: "install [CLIENT]", Short: "Write the wallet into an MCP client's settings",
		Args: func(cmd *cobra.Command, args []string) error {
			alone := !f.show && !f.dry && !f.remove
			if len(args) == 0 && alone {
				return nil
			}
			return wants("CLIENT")(cmd, args)
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string,
			begun string) (names []string, _ cobra.ShellCompDirective) {
			for _, c := range install.Clients(install.System{}) {
				if len(args) == 0 && strings.HasPrefix(c.Name, begun) {
					names = append(names, cobra.CompletionWithDesc(c.Name, c.Title))
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.show && !cmd.Flags().Changed("json") { // it is there to be pasted, or sent into a file
				ui.json = false
			}
			return p.install(cmd.Context(), ui, f, args)
		},
	}
	cmd.Flags().BoolVar(&f.show, "print", false, "only print what to write by hand; on stderr, the client's "+
		"own command or link")
	cmd.Flags().BoolVar(&f.dry, "dry-run", false, "only show what would change")
	cmd.Flags().BoolVar(&f.remove, "remove", false, "take the wallet out of the client's settings")
	cmd.Flags().StringVar(&f.passphraseFile, "passphrase-file", "",
		"let the client's wallet unlock itself with this `FILE` (X402_WALLET_PASSPHRASE_FILE)")
	cmd.Flags().StringVar(&f.account, accountFlag, "", "let the client's agent pay from this account, by "+
		"its `NAME`")
	cmd.Flags().StringArrayVarP(&f.variables, "env", "e", nil,
		"another `NAME=VALUE` for the wallet's process; never a secret")
	cmd.MarkFlagsMutuallyExclusive("print", "dry-run")
	cmd.MarkFlagsMutuallyExclusive("print", "remove")
	return cmd
}

// install changes, shows or, without a client's name, lists the settings of clients.
func (p *Program) install(ctx context.Context, ui *ui, f installFlags, args []string) error {
	system, err := p.system()
	if err != nil {
		return err
	}
	var client install.Client
	if len(args) > 0 {
		client, err = clientNamed(system, args[0])
		if err != nil {
			return err
		}
	}
	if f.remove {
		plan, err := client.Plan(nil)
		return ui.install(client, plan, err, f.dry)
	}
	entry, err := p.entry(ctx, f.passphraseFile, f.variables)
	if f.account != "" {
		entry.Args = append(entry.Args, "--"+accountFlag, f.account)
	}
	switch {
	case err != nil:
		return err
	case len(args) == 0:
		return ui.clients(system, entry)
	case f.show:
		return ui.snippet(client, entry)
	}
	plan, err := client.Plan(&entry)
	return ui.install(client, plan, err, f.dry)
}

// system is where this person's settings lie.
func (p *Program) system() (install.System, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return install.System{}, err
	}
	dir, err := os.UserConfigDir()
	system := install.System{OS: runtime.GOOS, Home: home, Config: dir, Claude: p.Env.ClaudeConfig,
		Codex: p.Env.CodexHome}
	if local, other := os.UserCacheDir(); runtime.GOOS == "windows" && other == nil { // %LocalAppData%
		system.Packages = filepath.Join(local, "Packages")
	}
	return system, err
}

// entry is how a client starts this very program on this very home.
func (p *Program) entry(ctx context.Context, passphraseFile string,
	variables []string) (install.Entry, error) {
	e := install.Entry{Args: []string{"mcp"}, Env: map[string]string{}}
	for _, v := range variables {
		name, value, ok := strings.Cut(v, "=")
		if !ok || name == "" {
			return e, usagef("--env takes NAME=VALUE") // what it was given may be a secret
		}
		e.Env[name] = value
		if name == "X402_WALLET_HOME" || name == "X402_WALLET_PASSPHRASE_FILE" {
			full, err := environ.Expand(value)
			if err != nil {
				return e, usagef("--env %s: %v", name, err)
			}
			e.Env[name] = full
		}
	}
	if p.Env.Home != "" { // elsewhere than where it is looked for
		e.Env["X402_WALLET_HOME"] = cmp.Or(e.Env["X402_WALLET_HOME"], p.Home)
	}
	if file := cmp.Or(passphraseFile, p.Env.PassphraseFile); file != "" {
		path, err := environ.Expand(file)
		if err == nil {
			path, err = filepath.Abs(path)
		}
		if err != nil {
			return e, usagef("the passphrase file %s: %v", file, err)
		}
		passphrase, err := unlock.File(path)(ctx)
		clear(passphrase)
		if x402.HasCode(err, x402.WalletLocked) { // it is not there
			return e, usageError{text: x402.AsError(err).Message,
				hint: "write the passphrase into it, for nobody but you to read (mode 0600)"}
		}
		if err != nil {
			return e, err
		}
		e.Env["X402_WALLET_PASSPHRASE_FILE"] = path
	}
	if err := e.Check(); err != nil {
		return e, usageError{text: err.Error(), hint: "see: x402-wallet help install"}
	}
	var err error
	e.Command, err = ownPath()
	return e, err
}

// ownPath is this program as a client should start it: by the name that is in the PATH, which
// survives an upgrade, if that is this program.
func ownPath() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	// by the name on the PATH, or as it was started: both may be links, which a package manager moves to the
	// next version
	for _, name := range []string{filepath.Base(os.Args[0]), filepath.Base(self), os.Args[0]} {
		named, err := exec.LookPath(name)
		if err == nil {
			named, err = filepath.Abs(named)
		}
		if err == nil && same(named, self) {
			return named, nil
		}
	}
	return self, nil
}

func same(a, b string) bool {
	first, err := os.Stat(a)
	second, other := os.Stat(b)
	return err == nil && other == nil && os.SameFile(first, second)
}

func clientNamed(system install.System, name string) (install.Client, error) {
	var names []string
	for _, c := range install.Clients(system) {
		if c.Name == name {
			return c, nil
		}
		names = append(names, c.Name)
	}
	return install.Client{}, usageError{text: fmt.Sprintf("no client is called %q", name),
		hint: "it is one of " + strings.Join(names, ", ")}
}

func (u *ui) clients(system install.System, entry install.Entry) error {
	list := []clientOut{}
	for _, c := range install.Clients(system) {
		status, _, err := c.Detect(entry)
		out := clientOut{Client: c.Name, Title: c.Title, File: c.File, Status: status}
		if err != nil {
			out.Error = err.Error()
		}
		list = append(list, out)
	}
	return u.answer(map[string]any{"clients": list}, func() {
		rows := each(list, func(c clientOut) []string { return []string{c.Client, c.Status, c.File} })
		u.table([]string{"CLIENT", "STATUS", "SETTINGS"}, rows)
		for _, c := range list {
			if c.Error != "" {
				u.note("%s %s", paint(u.colorErr, yellow, c.Client+":"), safe(c.Error))
			}
		}
		if slices.ContainsFunc(list, func(c clientOut) bool {
			return c.Status != "installed"
		}) {
			u.note("x402-wallet install CLIENT writes it, --dry-run shows what would change")
		}
	})
}

func (u *ui) snippet(c install.Client, entry install.Entry) error {
	text, line, err := c.Snippet(entry)
	if err != nil {
		return err
	}

	return u.answer(map[string]any{"client": c.Name, "file": c.File, "snippet": text, "line": line}, func() {
		u.note("%s: in %s; where that file has other servers, beside them", c.Title, safe(c.File))
		u.say("%s", strings.TrimSuffix(safeText(text), "\n"))
		if line != "" {
			u.note("or: %s", safe(line))
		}
	})
}

// install shows the difference and, unless it is dry, makes it.
func (u *ui) install(c install.Client, plan *install.Plan, planned error, dry bool) error {
	if planned != nil {
		return unsettled(c, planned)
	}
	out := installOut{Client: c.Name, File: plan.File, Change: plan.Change, Before: plan.Before,
		After: plan.After, Notes: plan.Notes}
	if plan.Change == "nothing" {
		out.Before, out.After = "", ""
	}
	var err error
	if !dry && plan.Change != "nothing" {
		out.Backup, err = plan.Apply(time.Now())
		if err != nil {
			return unsettled(c, fmt.Errorf("write %s: %w", c.Title+"'s settings", err))
		}
		out.Written = true
	}
	if u.json {
		return u.printJSON(out)
	}
	u.difference(out)
	switch {
	case plan.Change == "nothing":
		u.say("%s: nothing to do", c.Title)
	case dry:
		u.say("%s: nothing was written (--dry-run)", c.Title)
	default:
		u.say("%s: done. Now %s", c.Title, c.Restart)
	}
	if out.Backup != "" {
		u.note("backup of the previous settings: %s", safe(out.Backup))
	}
	u.warn(out.Notes)
	return nil
}

// unsettled is what keeps a client's settings from being written: a file of its person's, that they
// can mend.
func unsettled(c install.Client, err error) error {
	return x402.Errorf(x402.SetupFailed, "%w", err).
		WithHint("nothing was written; fix the file, or add by hand what x402-wallet install %s "+
			"--print shows", c.Name)
}

func (u *ui) difference(out installOut) {
	if out.Change == "nothing" {
		return
	}
	u.say("%s", safe(out.File))
	before, after := slices.Collect(strings.Lines(out.Before)), slices.Collect(strings.Lines(out.After))
	begin, end := 0, 0 // how many lines are the same there
	for begin < min(len(before), len(after)) && before[begin] == after[begin] {
		begin++
	}
	for end < min(len(before), len(after))-begin && before[len(before)-1-end] == after[len(after)-1-end] {
		end++
	}
	u.marked(" ", "", after[:begin])
	u.marked("-", red, before[begin:len(before)-end])
	u.marked("+", green, after[begin:len(after)-end])
	u.marked(" ", "", after[len(after)-end:])
}

// marked prints lines with a sign before each.
func (u *ui) marked(sign, color string, lines []string) {
	for _, line := range lines {
		line = sign + " " + safe(strings.TrimSuffix(line, "\n"))
		u.say("%s", paint(u.colorOut && color != "", color, line))
	}
}
