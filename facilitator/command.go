package facilitator

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"x402-wallet/internal/child"
	"x402-wallet/x402"
)

// Command is a facilitator that is a program. It is started for each request with one more argument,
// "verify", "settle" or "supported"; has on its standard input what a facilitator over HTTP has as the body
// of that request (nothing of supported); prints the very JSON that would be the answer; and exits with 0.
// There is no shell, and it ends with its process group when its time is over.
//
// Whether a program that gave no whole answer has settled nobody knows, and it may hold keys of its own:
// Settle asks nobody else after that, nor the program again.
type Command struct {
	Argv    []string // a full path, and arguments
	Env     []string // all of its environment, as "NAME=value"
	Sandbox child.Sandbox
	// MayRun says why it is not started now; nil: it always may
	MayRun func(context.Context) error `json:"-"`
}

const (
	// settleTime is how long a program may take to settle: longer than transactions take to be confirmed.
	settleTime = time.Minute
	// programTime is how long it may take for everything else: it has to start first.
	programTime = 15 * time.Second
)

// short is how long a facilitator may take to verify, and to say what it supports.
func (f *remote) short() time.Duration {
	if f.Command != nil {
		return programTime
	}
	return shortCall
}

func (c *Command) name() string {
	if len(c.Argv) == 0 {
		return ""
	}
	return filepath.Base(c.Argv[0])
}

func (c *Client) run(ctx context.Context, f *remote, request string, body []byte) reply {
	if strings.HasPrefix(request, "discovery") {
		return reply{status: http.StatusNotFound}
	}
	if f.Command.MayRun != nil {
		if err := f.Command.MayRun(ctx); err != nil {
			return reply{err: err, unusable: true}
		}
	}
	limits := child.Limits{Time: programTime, Answer: maxReply}
	if request == "settle" {
		limits.Time = settleTime
	}
	program := child.Program{Argv: append(slices.Clone(f.Command.Argv), request), Env: f.Command.Env,
		Sandbox: f.Command.Sandbox}
	answer, started, err := program.Ask(ctx, body, limits)
	if err != nil {
		r := reply{err: failedProgram(err, started), connected: started, unusable: true}
		c.tellFailure(f, request, err)
		return r
	}
	answer = bytes.TrimSpace(answer)
	if len(answer) == 0 {
		return reply{err: errors.New("it ended without an answer"), connected: true, unusable: true}
	}
	return reply{status: http.StatusOK, body: answer, connected: true}
}

// failedProgram says what went wrong without the program's own words, which the agent would read.
func failedProgram(err error, started bool) error {
	if !started {
		return errors.New("its program could not be started")
	}
	if complaint, ok := errors.AsType[*child.Complaint](err); ok {
		return complaint.Why
	}
	return err
}

// tellFailure says the owner what went wrong, with the program's words.
func (c *Client) tellFailure(f *remote, request string, err error) {
	said := ""
	if complaint, ok := errors.AsType[*child.Complaint](err); ok {
		said = x402.BriefTo(strings.TrimSpace(complaint.Said), maxSaid)
	}
	c.log.Warn("the program of a facilitator failed", "facilitator", f.Name, "request", request, "err", err,
		"said", said)
}

const maxSaid = 400
