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

const (
	// leftoverTime is for what a program left behind with its output.
	leftoverTime = time.Second
	// maxComplaint is how much is kept of what a program says of its failure, in bytes.
	maxComplaint = 400
)

// Limits are what a program that is asked something has for it.
type Limits struct {
	Time   time.Duration // 0: as long as ctx
	Answer int           // the most that it may answer, in bytes; 0: what it prints is dropped
}

// ErrTooLong is why a program was ended that answers more than it may.
var ErrTooLong = errors.New("its answer is too long")

// Ask starts a program, writes a question to its standard input, and returns what it printed when it had
// ended with success, or, beside the error, until it failed. Its bounds are those of limits and ctx; a
// program that passes one is ended with all of its process group. Started reports whether it was: if not,
// it provably did nothing. What the program said on its standard error is in the error, as a *Complaint.
// What it left behind with the answer open is ended, too.
func (p Program) Ask(ctx context.Context, question []byte, limits Limits) (answer []byte, started bool,
	err error) {
	cmd, err := p.Command()
	if err == nil { // a program that is confined would be missed only by who confines it
		_, err = exec.LookPath(p.Argv[0])
	}
	if err != nil {
		return nil, false, err
	}
	if runtime.GOOS != "windows" {
		cmd.Dir = "/" // and not where the agent's host was started
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	out := &bounded{most: limits.Answer, passed: cancel}
	cmd.Stdin = bytes.NewReader(question)
	if limits.Answer > 0 {
		cmd.Stdout = out
	}
	isLeft, started, err := run(ctx, cmd, limits.Time)
	if isLeft && limits.Answer > 0 { // it could still write into the answer
		killGroup(cmd)
	}
	if out.over {
		return nil, started, fmt.Errorf("%w: more than %d bytes", ErrTooLong, limits.Answer)
	}
	return out.text, started, err
}

// Run runs a command to its end, which has so long. It leads a process group of its own, which is ended when
// the time or ctx is over. What it leaves behind goes on.
func Run(ctx context.Context, cmd *exec.Cmd, limit time.Duration) error {
	_, _, err := run(ctx, cmd, limit)
	return err
}

// run is Run; isLeft: it has ended, and something that it started still has its output open.
func run(ctx context.Context, cmd *exec.Cmd, limit time.Duration) (isLeft, started bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, false, err
	}
	limited := ctx
	if limit > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	said := &complaint{}
	cmd.Stderr, cmd.WaitDelay = said, leftoverTime
	ownGroup(cmd)
	if err := cmd.Start(); err != nil {
		return false, false, err
	}
	stop := context.AfterFunc(limited, func() { killGroup(cmd) })
	err = cmd.Wait()
	stop()
	switch {
	case err == nil:
		return false, true, nil
	case errors.Is(err, exec.ErrWaitDelay): // it has done its part
		return true, true, nil
	case ctx.Err() != nil:
		return false, true, ctx.Err()
	case limited.Err() != nil:
		err = fmt.Errorf("it had not ended after %s, and was killed", limit)
	}
	return false, true, &Complaint{err, string(said.text)}
}

// Complaint is why a program failed. What it said of that on its standard error is its own text, and not part
// of the error's.
type Complaint struct {
	Why  error
	Said string
}

// Error is the reason alone.
func (c *Complaint) Error() string { return c.Why.Error() }

func (c *Complaint) Unwrap() error { return c.Why }

// bounded keeps what is written to it, up to most bytes.
type bounded struct {
	text   []byte
	most   int
	over   bool
	passed func() // it became longer than that
}

func (b *bounded) Write(p []byte) (int, error) {
	if len(b.text)+len(p) > b.most {
		b.over = true
		b.passed()
		return 0, ErrTooLong
	}
	b.text = append(b.text, p...)
	return len(p), nil
}

// complaint keeps the beginning of what a command writes to its standard error.
type complaint struct{ text []byte }

func (c *complaint) Write(p []byte) (int, error) {
	c.text = append(c.text, p[:min(len(p), maxComplaint-len(c.text))]...)
	return len(p), nil
}
