package child

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"time"
)

// RunInGroup runs a command to its end, in a process group of its own. When ctx ends before, it is killed with
// all of its group; the error is then ctx's own business.
func RunInGroup(ctx context.Context, cmd *exec.Cmd) error {
	ownGroup(cmd)
	if err := cmd.Start(); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { killGroup(cmd) })
	err := cmd.Wait()
	stop()
	return err
}

// Answer is what a program wrote to its outputs.
type Answer struct {
	Stdout []byte
	Stderr []byte // its beginning
}

// MaxStderr is how much of what a program says of its failure is kept, in bytes.
const MaxStderr = 400

// leftoverTime is how long is waited for what a program left behind with its standard output.
const leftoverTime = time.Second

// ErrTooMuch is why a program was killed that writes more than it may.
var ErrTooMuch = errors.New("it writes too much")

// Ask starts the program, gives it input on stdin, and reads its answer of at most so many bytes. When ctx ends,
// or with too much of an answer, it is killed with its group. It runs in the root directory, and not where the
// agent's host was started.
func (p Program) Ask(ctx context.Context, input []byte, most int) (a Answer, err error) {
	cmd, err := p.Command()
	if err != nil {
		return a, err
	}
	if runtime.GOOS != "windows" {
		cmd.Dir = "/"
	}
	limited, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	said := &beginning{most: MaxStderr}
	answer := &beginning{most: most, over: func() { cancel(ErrTooMuch) }}
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = bytes.NewReader(input), answer, said, leftoverTime
	err = RunInGroup(limited, cmd)
	a = Answer{Stdout: answer.data, Stderr: said.data}
	switch {
	case ctx.Err() != nil:
		return a, ctx.Err()
	case errors.Is(context.Cause(limited), ErrTooMuch):
		return a, fmt.Errorf("%w: more than %d bytes", ErrTooMuch, most)
	case errors.Is(err, exec.ErrWaitDelay): // it has done its part
		return a, nil
	}
	return a, err
}

// beginning keeps the beginning of what is written to it.
type beginning struct {
	data []byte
	most int
	over func() // called when there is more; nil: nobody minds
}

func (b *beginning) Write(p []byte) (int, error) {
	n := min(len(p), b.most-len(b.data))
	b.data = append(b.data, p[:n]...)
	if n < len(p) && b.over != nil {
		b.over()
	}
	return len(p), nil
}
