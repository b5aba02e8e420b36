package cli

import (
	"cmp"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"x402-wallet/internal/attest"
	"x402-wallet/x402"
)

// build is what this program was made from. Without git at its making the commit is not known.
type build struct {
	Version    string `json:"version"`
	Commit     string `json:"commit"` // "" when unknown; ends in "-dirty" when the tree had changes of its own
	Go         string `json:"go"`
	Platform   string `json:"platform"`
	ReleaseKey string `json:"releaseKey,omitempty"` // its fingerprint; "" when none is compiled in
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
	if key, err := attest.ParseKey(p.ReleaseKey); err == nil {
		b.ReleaseKey = key.Fingerprint()
	}
	return b
}

func (b build) String() string {
	text := "x402-wallet " + b.Version + " (commit " + cmp.Or(b.Commit, "unknown") + ", " + b.Go + ", " +
		b.Platform + ")"
	if b.ReleaseKey != "" {
		text += "\nrelease key " + b.ReleaseKey
	}
	return text
}

func (p *Program) versionCommand(ui *ui) *cobra.Command {
	var release, keyFile string
	cmd := &cobra.Command{
		Use: "version", Short: "Show the version, or check it against a signed release", Args: wants(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case cmd.Flags().Changed("verify"):
				return p.verifyItself(ui, release, keyFile)
			case keyFile != "":
				return usageError{text: "--key goes with --verify"}
			}
			return ui.answerLine(p.build(), "%s", p.build())
		},
	}
	cmd.Flags().StringVar(&release, "verify", "", "say whether this program is in the release in `DIR`")
	cmd.Flags().StringVar(&keyFile, "key", "", "the release's public key, a .pub `FILE` of OpenSSH")
	return cmd
}

// verifiedVersion is a verdict, and what no verdict of a program on itself can show.
type verifiedVersion struct {
	attest.Verdict
	KeyFrom string `json:"keyFrom"` // "this program", or the file
	Limit   string `json:"limit"`
}

const verifyLimit = "a program that says this of itself proves nothing: a forged one says it, too. To " +
	"check a download, use ssh-keygen and sha256sum as docs/operating.md shows, before you run it"

// verifyItself compares this program with a release. Like a receipt's, a verdict that is not good is
// no error and ends with the code of a failure.
func (p *Program) verifyItself(ui *ui, release, keyFile string) error {
	text, from := p.ReleaseKey, "this program"
	if keyFile != "" {
		read, err := readWhole(keyFile, attest.MaxSize)
		if err != nil {
			return err
		}
		text, from = string(read), keyFile
	}
	if text == "" {
		return x402.Errorf(x402.InvalidArgument, "this program was built without a release's key").
			WithHint("give the public key with --key FILE")
	}
	key, err := attest.ParseKey(text)
	if err != nil {
		return x402.Errorf(x402.InvalidArgument, "the key of %s: %w", from, err)
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	verdict, err := attest.Verify(release, key, attest.Program{Path: program, Commit: p.build().Commit})
	if err != nil {
		return x402.Errorf(x402.InvalidArgument, "%w", err).
			WithHint("name the directory with SHA256SUMS, SHA256SUMS.sig and provenance.json of the release")
	}
	v := verifiedVersion{Verdict: verdict, KeyFrom: from, Limit: verifyLimit}
	err = ui.answer(v, func() { ui.verifiedVersion(v) })
	if err == nil && !v.OK {
		return exitError(exitFailed)
	}
	return err
}

func (u *ui) verifiedVersion(v verifiedVersion) {
	u.say("%s  %s", v.Outcome, safe(v.Message))
	if v.Name != "" {
		u.say("program  %s", safe(v.Name))
	}
	u.say("sha256   %s", v.SHA256)
	u.say("key      %s (from %s)", v.Key, safe(v.KeyFrom))
	if v.Commit != "" {
		u.say("commit   %s", safe(v.Commit))
	}
	u.say("%s", v.Limit)
}
