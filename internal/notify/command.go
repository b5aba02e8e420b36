package notify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"x402-wallet/internal/child"
	"x402-wallet/x402"
)

const (
	// commandTime is how long a command may take: it hands a line on.
	commandTime = 10 * time.Second
	// maxComplaint is how much is shown of what a command says of its failure, in characters.
	maxComplaint = 400
)

// Command is a program of the owner's. It gets the notice as a line of JSON on stdin, and no argument of a
// stranger's making; what it prints is dropped.
type Command struct {
	Program child.Program
	limit   time.Duration // 0: commandTime
}

func (c Command) Name() (way, to string) { return "command", c.Program.Argv[0] }

// Tell implements Way. A command that takes too long is ended with all of its process group.
func (c Command) Tell(ctx context.Context, n Notice) error {
	line, err := n.line()
	if err != nil {
		return err
	}
	_, _, err = c.Program.Ask(ctx, line, child.Limits{Time: cmp.Or(c.limit, commandTime)})
	return complained(err)
}

// complained is why a command failed, with what it said of it.
func complained(err error) error {
	complaint, ok := errors.AsType[*child.Complaint](err)
	if !ok || strings.TrimSpace(complaint.Said) == "" {
		return err
	}
	return fmt.Errorf("%w; it said: %s", err, x402.BriefTo(strings.TrimSpace(complaint.Said), maxComplaint))
}
