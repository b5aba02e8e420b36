package cli

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

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
	name := strings.ReplaceAll(cmd.CommandPath(), " ", "-")
	file := filepath.Join(dir, name+".1")
	page := []byte(manPage(cmd, version))
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

// manPage is a command's help as man(7) wants it. It has no date: the same program has the same
// pages.
func manPage(cmd *cobra.Command, version string) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	name := strings.ReplaceAll(cmd.CommandPath(), " ", "-")
	line(`.TH "%s" 1 "" "x402-wallet %s" "x402-wallet"`, strings.ToUpper(name), roff(version))
	line(".SH NAME\n%s \\- %s", roff(name), roff(cmd.Short))
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
	if cmd.HasParent() {
		also = append(also, strings.ReplaceAll(cmd.Parent().CommandPath(), " ", "-"))
	}
	for _, sub := range cmd.Commands() {
		if !sub.Hidden {
			also = append(also, name+"-"+sub.Name())
		}
	}
	for i := range also {
		also[i] = ".BR " + roff(also[i]) + " (1)"
	}
	if len(also) > 0 {
		line(".SH SEE ALSO\n%s", strings.Join(also, ",\n"))
	}
	return b.String()
}

// roff writes text so that man shows it as it is: no escapes, and no line that looks like a
// request.
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
