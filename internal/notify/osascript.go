package notify

import (
	"context"
	"os/exec"

	"x402-wallet/internal/child"
)

// Script shows the notice on a Mac's desktop.
type Script struct {
	Program string   // osascript
	Env     []string // all of its environment
}

func (Script) Name() (way, to string) { return "desktop", "osascript" }

// Tell implements Way. The text is an argument of the script and never part of it.
func (s Script) Tell(ctx context.Context, n Notice) error {
	//nolint:noctx // Run has a bound of its own, which ends all of it
	cmd := exec.Command(s.Program, "-e", "on run argv",
		"-e", "display notification (item 1 of argv) with title (item 2 of argv)",
		"-e", "end run", n.Text, title) // it begins with a word of ours
	cmd.Env = append([]string{}, s.Env...)
	return complained(child.Run(ctx, cmd, desktopTime))
}
