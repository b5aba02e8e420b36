package cli

import (
	"cmp"
	_ "embed" // help.txt
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"x402-wallet/x402"
	"x402-wallet/x402/explain"
)

// afterHelp is what a script wants to know of every command.
const afterHelp = `x402-wallet help COMMAND explains a command, x402-wallet help CODE an error.

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 refused by a rule, 4 needs a person (locked, approval, funds),
5 the outcome of a payment is unknown: its money is held, and the same command cannot pay twice.

The wallet lives in X402_WALLET_HOME, by default x402-wallet in the user's configuration directory.
`

// helpTexts are the texts and examples of the commands, as they are printed.
//
//go:embed help.txt
var helpTexts string

// describe gives a command what help.txt has for it. Hosts wait for our start, so it is looked for when it is
// shown.
func describe(cmd *cobra.Command) {
	if _, text, found := strings.Cut(helpTexts, "# "+cmd.CommandPath()+"\n\n"); found {
		text, _, _ = strings.Cut(text, "\n\n# ")
		cmd.Long, cmd.Example, _ = strings.Cut(strings.TrimSuffix(text, "\n"), "\n\nExamples:\n")
	}
}

// setHelp replaces cobra's help by one that shows first what is needed first, in so many columns
// (0: as it is written).
func setHelp(root *cobra.Command, columns int) {
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		fmt.Fprint(cmd.OutOrStdout(), helpText(cmd, columns))
	})
	root.SetUsageFunc(func(cmd *cobra.Command) error {
		_, err := fmt.Fprint(cmd.OutOrStderr(), helpText(cmd, columns))
		return err
	})
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		text, _, _ := strings.Cut(err.Error(), ": strconv.") // what Go's own parsers say of it helps nobody
		text, _, _ = strings.Cut(text, ": time: ")
		if i := strings.LastIndex(text, `for "--`); i >= 0 && strings.Contains(text[i:], "phrase") {
			text = "invalid argument " + text[i:] // what stood there may be one
		}
		return usageError{text: text}
	})
}

func helpText(cmd *cobra.Command, columns int) string {
	describe(cmd)
	var b strings.Builder
	fmt.Fprintln(&b, reflow(cmp.Or(cmd.Long, cmd.Short), columns))
	fmt.Fprintln(&b, "\nUsage:")
	if cmd.Runnable() {
		line := cmd.UseLine() // "x402-wallet pay URL [flags]"
		if !cmd.HasParent() || !cmd.HasAvailableLocalFlags() {
			line = strings.TrimSuffix(line, " [flags]")
		}
		fmt.Fprintln(&b, " ", line)
	}
	if cmd.HasParent() && cmd.HasAvailableSubCommands() {
		fmt.Fprintln(&b, " ", cmd.CommandPath(), "COMMAND")
	}
	if cmd.Example != "" {
		fmt.Fprintf(&b, "\nExamples:\n%s\n", cmd.Example)
	}
	listCommands(&b, cmd)
	cmd.InitDefaultHelpFlag()
	cmd.InitDefaultVersionFlag()
	cmd.InheritedFlags() // puts them among Flags
	if cmd.HasAvailableFlags() {
		fmt.Fprintf(&b, "\nFlags:\n%s", cmd.Flags().FlagUsagesWrapped(columns))
	}
	if !cmd.HasParent() {
		fmt.Fprintf(&b, "\n%s\n", reflow(afterHelp, columns))
	}
	return b.String()
}

// reflow breaks the paragraphs of a help text again, for a terminal that is narrower than
// they were written.
func reflow(text string, columns int) string {
	text = strings.TrimSuffix(text, "\n")
	if columns == 0 || !slices.ContainsFunc(strings.Split(text, "\n"), func(line string) bool {
		return utf8.RuneCountInString(line) > columns
	}) {
		return text
	}
	paragraphs := strings.Split(text, "\n\n")
	for i, p := range paragraphs {
		paragraphs[i] = strings.Join(wrap(strings.ReplaceAll(p, "\n", " "), columns), "\n")
	}
	return strings.Join(paragraphs, "\n\n")
}

func listCommands(b *strings.Builder, cmd *cobra.Command) {
	groups := cmd.Groups()
	if len(groups) == 0 && cmd.HasAvailableSubCommands() {
		groups = []*cobra.Group{{Title: "Commands"}}
	}
	for _, group := range groups {
		fmt.Fprintf(b, "\n%s:\n", group.Title)
		for _, sub := range cmd.Commands() {
			if sub.GroupID == group.ID && sub.IsAvailableCommand() {
				fmt.Fprintf(b, "  %-*s  %s\n", sub.NamePadding(), sub.Name(), sub.Short)
			}
		}
	}
}

func helpCommand(root *cobra.Command) *cobra.Command {
	help := &cobra.Command{
		Use: "help [COMMAND | CODE]", Short: "Explain a command, or an error code",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				code := x402.Code(strings.ToUpper(args[0]))
				if former, is := formerCodes[code]; is {
					fmt.Fprintln(cmd.OutOrStdout(), former.explain(code))
					code = former.now
				}
				if means, do, ok := explain.Code(code); ok {
					fmt.Fprintf(cmd.OutOrStdout(), "%s: %s.\nWhat to do: %s.\n", code, means, do)
					return nil
				}
			}
			cmd, rest, err := root.Find(args)
			switch {
			case err != nil:
				return unknownCommand(root, args[0])
			case len(rest) > 0:
				return unknownCommand(cmd, rest[0])
			}
			return cmd.Help()
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string,
			begun string) (names []string, _ cobra.ShellCompDirective) {
			if cmd, _, err := root.Find(args); err == nil {
				for _, sub := range cmd.Commands() {
					if sub.IsAvailableCommand() && strings.HasPrefix(sub.Name(), begun) {
						names = append(names, cobra.CompletionWithDesc(sub.Name(), sub.Short))
					}
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
	}
	root.SetHelpCommand(help)
	return help
}

// completionCommand is cobra's, which takes what it does not know for a wish for help.
func completionCommand(root *cobra.Command) *cobra.Command {
	root.InitDefaultCompletionCmd()
	cmd, _, _ := root.Find([]string{"completion"})
	cmd.Short = "Make your shell complete commands"
	cmd.Long = "Print a script that makes your shell complete x402-wallet's commands and flags; the help " +
		"of each says how to load it."
	cmd.Args = wants()
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	return cmd
}

// usageError is the person's mistake in calling us.
type usageError struct {
	text string
	hint string // "": the command's help
}

func (e usageError) Error() string { return e.text }

func (e usageError) remedy(cmd *cobra.Command) string {
	if e.hint != "" {
		return e.hint
	}
	name, below, _ := strings.Cut(cmd.CommandPath(), " ")
	return strings.TrimSpace("see: " + name + " help " + below)
}

func usagef(format string, args ...any) usageError {
	return usageError{text: fmt.Sprintf(format, args...)}
}

// asUsage finds the mistake in err. cobra's own complaints have no type; those about flags and
// arguments are ours already.
func asUsage(cmd *cobra.Command, err error) (wrong usageError, ok bool) {
	if errors.As(err, &wrong) {
		return wrong, true
	}
	var name string
	if _, other := fmt.Sscanf(err.Error(), "unknown command %q", &name); other == nil {
		return unknownCommand(cmd, name), true
	}
	if group, ok := strings.CutPrefix(err.Error(), "if any flags in the group ["); ok {
		group, _, _ = strings.Cut(group, "]")
		return usageError{text: "--" + strings.ReplaceAll(group, " ", " and --") +
			" cannot be used together"}, true
	}
	return usageError{text: err.Error()}, false
}

// wantsJSON finds --json in arguments that were not parsed to their end.
func wantsJSON(args []string, otherwise bool) bool {
	for _, arg := range args {
		switch arg {
		case "--json", "--json=true":
			otherwise = true
		case "--json=false":
			otherwise = false
		}
	}
	return otherwise
}

// wants checks that a command gets exactly its arguments.
func wants(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch empty := slices.Index(args, ""); { // as of a shell's variable that is not set
		case len(args) == len(names) && empty >= 0:
			return usagef("%s needs an argument: %s is empty", cmd.CommandPath(), names[empty])
		case len(args) == len(names):
			return nil
		case cmd.HasAvailableSubCommands():
			return unknownCommand(cmd, args[0])
		case len(names) == 0:
			// what it was given may be a passphrase
			return usageError{text: cmd.CommandPath() + " takes no argument"}
		case len(args) > len(names):
			return usageError{text: fmt.Sprintf("%s takes %s only; %d arguments were given",
				cmd.CommandPath(), strings.Join(names, " "), len(args)),
				hint: "put quotes around an argument that holds spaces or &"}
		}
		return usagef("%s needs an argument: %s", cmd.CommandPath(), names[len(args)])
	}
}

func unknownCommand(cmd *cobra.Command, name string) usageError {
	e := usageError{text: fmt.Sprintf("%s has no command %q", cmd.CommandPath(), name),
		hint: usageError{}.remedy(cmd)}
	cmd.SuggestionsMinimumDistance = 2 // cobra's own default, which it sets too late for us
	if like := cmd.SuggestionsFor(name); len(like) > 0 {
		e.hint = "did you mean: " + cmd.CommandPath() + " " + strings.Join(like, ", ")
	}
	return e
}

// manCommand writes the manual pages: what help says, for man(1). The release calls it.
func (p *Program) manCommand() *cobra.Command {
	return &cobra.Command{
		Use: "man DIR", Short: "Write the manual pages into a directory", Args: wants("DIR"), Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil { //nolint:gosec // for everybody
				return err
			}
			return writePages(cmd.Root(), args[0], p.Version)
		},
	}
}

func writePages(cmd *cobra.Command, dir, version string) error {
	file, page := filepath.Join(dir, manName(cmd)+".1"), []byte(manPage(cmd, version))
	if err := os.WriteFile(file, page, 0o644); err != nil { //nolint:gosec // for everybody
		return err
	}
	for _, sub := range cmd.Commands() {
		if !sub.Hidden {
			if err := writePages(sub, dir, version); err != nil {
				return err
			}
		}
	}
	return nil
}

func manName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// manPage is a command's help as man(7) wants it. It has no date: the same program has the same pages.
func manPage(cmd *cobra.Command, version string) string {
	describe(cmd)
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line(`.TH "%s" 1 "" "x402-wallet %s" "x402-wallet"`, strings.ToUpper(manName(cmd)), roff(version))
	line(".SH NAME\n%s \\- %s", roff(manName(cmd)), roff(cmd.Short))
	line(".SH SYNOPSIS\n.B %s", roff(cmd.UseLine()))
	line(".SH DESCRIPTION\n%s", roff(cmp.Or(cmd.Long, cmd.Short)))
	cmd.InitDefaultHelpFlag()
	cmd.InheritedFlags() // puts them among Flags
	if flags := cmd.Flags().FlagUsagesWrapped(78); flags != "" {
		line(".SH OPTIONS\n.nf\n%s\n.fi", roff(flags))
	}
	if cmd.Example != "" {
		line(".SH EXAMPLES\n.nf\n%s\n.fi", roff(cmd.Example))
	}
	if !cmd.HasParent() {
		line(".SH NOTES\n.nf\n%s\n.fi", roff(afterHelp))
	}
	var also []string
	see := func(cmd *cobra.Command) { also = append(also, ".BR "+roff(manName(cmd))+" (1)") }
	if cmd.HasParent() {
		see(cmd.Parent())
	}
	for _, sub := range cmd.Commands() {
		if !sub.Hidden {
			see(sub)
		}
	}
	if len(also) > 0 {
		line(".SH SEE ALSO\n%s", strings.Join(also, ",\n"))
	}
	return b.String()
}

// roff writes text so that man shows it as it is: no escapes, and no line that looks like a request.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(strings.Trim(text, "\n"))
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, ".") || strings.HasPrefix(l, "'") {
			lines[i] = `\&` + l
		}
	}
	return strings.Join(lines, "\n")
}
