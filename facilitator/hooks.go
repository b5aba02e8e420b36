package facilitator

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"

	"x402-wallet/x402"
)

// Hooks are for Go programs that want a say in what goes to facilitators, and to hear what came of it. Nil
// hooks are skipped; those of several payments run concurrently. What they are given are copies.
//
// The hooks before a request run in its goroutine and can only refuse: with an error nothing is sent, and its
// text is the reason. One that panics refuses. They have the time that ctx has. The hooks after a request run
// in goroutines of their own: one that hangs or panics keeps nobody from writing down what happened.
type Hooks struct {
	BeforeVerify func(ctx context.Context, s Submission) error
	AfterVerify  func(ctx context.Context, s Submission, v Verdict, err error)
	BeforeSettle func(ctx context.Context, s Submission) error
	AfterSettle  func(ctx context.Context, s Submission, r Result)
}

var errHookPanicked = errors.New("a hook panicked")

// before calls a hook that may refuse.
func (c *Client) before(ctx context.Context, hook func(context.Context, Submission) error,
	s Submission) (err error) {
	if hook == nil {
		return nil
	}
	defer func() {
		if p := recover(); p != nil {
			c.hookPanicked(p)
			err = errHookPanicked
		}
	}()
	return hook(ctx, s.copy())
}

// after lets a hook hear of something, beside the caller.
func (c *Client) after(ctx context.Context, s Submission, hook func(context.Context, Submission)) {
	ctx, s = context.WithoutCancel(ctx), s.copy()
	go func() {
		defer func() {
			if p := recover(); p != nil {
				c.hookPanicked(p)
			}
		}()
		hook(ctx, s)
	}()
}

func (c *Client) hookPanicked(p any) {
	c.log.Error("a hook panicked", "type", fmt.Sprintf("%T", p), "stack", string(debug.Stack()))
}

// copy shares no bytes with the submission that is sent.
func (s Submission) copy() Submission {
	s.Payload, s.Requirements = slices.Clone(s.Payload), slices.Clone(s.Requirements)
	return s
}

// refusedByHook is the result of a payment that a hook did not let go out.
func refusedByHook(err error) Result {
	return Result{Outcome: NotSent, Err: x402.Errorf(x402.PolicyDenied, "a hook refused to have the payment "+
		"settled: %w", err)}
}
