package cli

import (
	"cmp"
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
	dirty := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				b.Commit = s.Value
			case s.Key == "vcs.modified" && s.Value == "true":
				dirty = "-dirty"
			}
		}
	}
	if b.Commit != "" {
		b.Commit += dirty
	}
	return b
}

func (b build) String() string {
	return "x402-wallet " + b.Version + " (commit " + cmp.Or(b.Commit, "unknown") + ", " + b.Go + ", " +
		b.Platform + ")"
}

func (p *Program) versionCommand(ui *ui) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Show the version", Args: wants(),
		RunE: func(*cobra.Command, []string) error {
			return ui.answerLine(p.build(), "%s", p.build())
		},
	}
}
