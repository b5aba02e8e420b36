// Package hooks asks a program of the owner's before each payment, and tells one what came of it.
//
// What must stay true: a program before a payment can refuse it and nothing else; one that hangs, fails or
// says what cannot be read refuses it. A program after a payment changes nothing: it runs beside the payment,
// when the ledger has what came of it, and is told until it has taken it. Neither is started under rules that
// the owner did not seal, and neither is told a secret.
//
// The files: hooks.go (before), after.go (after), outbox.go (whom it is still to be told of), event.go (what
// they are told).
package hooks

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os/exec"
	"strings"
	"sync"
	"time"

	"x402-wallet/history"
	"x402-wallet/history/turns"
	"x402-wallet/internal/child"
	"x402-wallet/x402"
)

// Hooks are the owner's programs. Set the fields before its first use; where After is set, Begin and Close
// it.
type Hooks struct {
	Before child.Program // no Argv: nobody is asked
	After  child.Program // no Argv: nobody is told
	Limit  time.Duration // of each call
	Dir    string        // where is kept whom After is still to be told of
	// Sealed says why the rules that name the programs are not the owner's
	Sealed func(ctx context.Context) error
	Store  Ledger
	Log    *slog.Logger
	// Ending counts what is still told after Close
	Ending *sync.WaitGroup

	teller teller
}

// Ledger is what is asked of the ledger: history.Store.
type Ledger interface {
	Payment(ctx context.Context, id string) (history.Payment, error)
	turns.Ledger
}

// maxAnswer bounds what a program before a payment may answer, in bytes.
const maxAnswer = 16 << 10

// MayPay asks the owner's program about a payment of which nothing is signed yet, and notes that the
// program after it is to be told what came of it. Its error is POLICY_DENIED where the owner's program
// refuses or does not answer as it should. Sign-ins and floats pay nobody, and are not asked about.
func (h *Hooks) MayPay(ctx context.Context, p history.Payment) error {
	if h == nil || p.IsSignIn() || p.IsPull() {
		return nil
	}
	if len(h.Before.Argv) > 0 {
		if err := h.ask(ctx, p); err != nil {
			return err
		}
	}
	if len(h.After.Argv) > 0 {
		if err := h.note(p.ID); err != nil {
			return x402.Errorf(x402.LedgerUnavailable, "the program of hooks.after could not be told of the "+
				"payment, which could not be noted: %w", err).
				WithHint("make room on the disk of the wallet's home, or make it writable; nothing was " +
					"signed")
		}
	}
	return nil
}

func (h *Hooks) ask(ctx context.Context, p history.Payment) error {
	if err := h.Sealed(ctx); err != nil {
		return err
	}
	limits := child.Limits{Time: h.Limit, Answer: maxAnswer}
	answer, _, err := h.Before.Ask(ctx, event(before, p).line(), limits)
	if err != nil && ctx.Err() != nil { // the call's own time is over: that says nothing about the program
		return ctx.Err()
	}
	reason, isJSON := reasonIn(answer)
	_, hasExited := errors.AsType[*exec.ExitError](err)
	switch {
	case hasExited || (err == nil && reason != ""):
		h.complain("before", p.ID, err)
		return refused(reason)
	case err != nil:
		h.complain("before", p.ID, err)
		return x402.Errorf(x402.PolicyDenied, "the owner's program that is asked before each payment "+
			"(hooks.before) gave no answer, which refuses it: %w", withoutWords(err)).WithHint(hint)
	case !isJSON:
		return x402.Errorf(x402.PolicyDenied, "the owner's program that is asked before each payment "+
			"(hooks.before) printed what is no JSON object, which refuses it").WithHint(hint)
	}
	return nil
}

const hint = "nothing was signed, and nothing is held; the person looks at that program, or at the log"

// refused is the error of a payment that the owner's program did not let pass.
func refused(reason string) error {
	message := "the owner's program that is asked before each payment (hooks.before) refused it"
	if reason != "" {
		message += ": " + x402.Quote(reason)
	}
	return x402.Errorf(x402.PolicyDenied, "%s", message).WithHint("nothing was signed, and nothing is " +
		"held; only the person can change what that program lets pass")
}

// reasonIn is what a program's answer says why it refuses; isJSON: it is empty, or a JSON object.
func reasonIn(answer []byte) (reason string, isJSON bool) {
	answer = bytes.TrimSpace(answer)
	if len(answer) == 0 {
		return "", true
	}
	var said struct {
		Reason string `json:"reason"`
	}
	if answer[0] != '{' || x402.DecodeStrict(answer, maxAnswer, &said) != nil {
		return "", false
	}
	return strings.TrimSpace(said.Reason), true
}

// withoutWords is why a program failed, without what it printed, which may be a secret.
func withoutWords(err error) error {
	if complaint, ok := errors.AsType[*child.Complaint](err); ok {
		return complaint.Why
	}
	return err
}

// complain writes into the log what a program said on its standard error.
func (h *Hooks) complain(which, payment string, err error) {
	said := ""
	if complaint, ok := errors.AsType[*child.Complaint](err); ok {
		said = x402.BriefTo(strings.TrimSpace(complaint.Said), maxSaid)
	}
	h.Log.Warn("a program of the owner's refused or failed", "hook", which, "payment", payment, "err", err,
		"said", said)
}

const maxSaid = 400
