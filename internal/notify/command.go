package notify

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"x402-wallet/internal/child"
	"x402-wallet/x402"
)

const (
	// commandTime is how long a command may take: it hands a line on.
	commandTime = 10 * time.Second
	// leftoverTime is for what a command left behind with its standard error.
	leftoverTime = time.Second
	// maxComplaint is how much is kept of what a command says of its failure, in bytes.
	maxComplaint = 400
)

// Command is a program of the owner's. It gets the notice as a line of JSON on stdin, and no argument of a
// stranger's making; what it prints is dropped.
type Command struct {
	Program child.Program
	limit   time.Duration // 0: commandTime
}

// Name implements Way.
func (c Command) Name() (way, to string) { return "command", c.Program.Argv[0] }

// Tell implements Way. A command that takes too long is ended with all of its process group.
func (c Command) Tell(ctx context.Context, n Notice) error {
	line, err := n.line()
	if err != nil {
		return err
	}
	cmd, err := c.Program.Command()
	if err != nil {
		return err
	}
	if runtime.GOOS != "windows" {
		cmd.Dir = "/" // and not where the agent's host was started
	}
	said := &complaint{}
	cmd.Stdin, cmd.Stderr, cmd.WaitDelay = bytes.NewReader(line), said, leftoverTime
	return run(ctx, cmd, cmp.Or(c.limit, commandTime), said)
}

// run starts a command, which has so long.
func run(ctx context.Context, cmd *exec.Cmd, limit time.Duration, said *complaint) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := child.RunInGroup(ctx, cmd)
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay): // it has done its part
		return nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("it had not ended after %s, and was killed%s", limit, said)
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return fmt.Errorf("%w%s", err, said)
}

// complaint keeps the beginning of what a command writes to its standard error.
type complaint struct{ text []byte }

func (c *complaint) Write(p []byte) (int, error) {
	c.text = append(c.text, p[:min(len(p), maxComplaint-len(c.text))]...)
	return len(p), nil
}

func (c *complaint) String() string {
	said := strings.TrimSpace(string(c.text))
	if said == "" {
		return ""
	}
	return "; it said: " + x402.BriefTo(said, maxComplaint)
}
