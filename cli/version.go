package cli

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// build is what this program was made from. Without git at its making the commit is not known.
type build struct {
	Version  string `json:"version"`
	Commit   string `json:"commit"` // "" when unknown; ends in "-dirty" when the tree had changes of its own
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func (p *Program) build() build {
	b := build{Version: p.Version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	dirty := ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			b.Commit = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	if b.Commit != "" {
		b.Commit += dirty
	}
	return b
}

func (b build) String() string {
	commit := b.Commit
	if commit == "" {
		commit = "unknown"
	}
	return "x402-wallet " + b.Version + " (commit " + commit + ", " + b.Go + ", " + b.Platform + ")"
}

func (p *Program) versionCommand(ui *ui) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Show the version", Args: wants(),
		RunE: func(*cobra.Command, []string) error {
			if ui.json {
				return ui.printJSON(p.build())
			}
			ui.say("%s", p.build())
			return nil
		},
	}
}
