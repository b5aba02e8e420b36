// Package agent signs: in this process, or in the unlock agent, a process that holds the unlocked keys and is
// asked over a Unix socket in the home, by package client.
//
// What must stay true: like ssh-agent it never hands a key out, and it signs nothing on somebody's
// word. It is given the message and the payment's id, never a digest, reads the message itself, and
// signs it only if it is the payment that it found reserved in the ledger, under the owner's rules,
// once. So a process of the same user can get out of it what the owner allowed, and nothing else:
// no key, no other payee, no sum past a limit. What it signed it also adds up by itself, because
// that process can write to the ledger's file.
//
// The files: wire.go (questions and answers of the unlock agent), server.go (serving them), check.go (reading
// and signing a message by the check of its scheme), record.go (recording it), tally.go (adding it up),
// passkey.go (approvals by passkey).
package agent

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"x402-wallet/history"
	"x402-wallet/x402"
)

const (
	maxCalls = 16 // at a time; more wait in the kernel's queue
	// pollInterval is how often the agent checks whether the wallet has locked itself.
	pollInterval = time.Second
)

// Server is the unlock agent. All fields are set before Run; it needs all of them, but where it says
// otherwise.
type Server struct {
	Locked func() bool // the wallet has locked itself: idle, or open for too long
	Lock   func()      // wipes the keys
	Store  *history.Store
	// SigningTime is how much longer a call may take because of signers that keep their keys themselves.
	SigningTime time.Duration
	Now         func() time.Time
	Log         *slog.Logger

	// Rules are the owner's, if they are sealed and match their seal, and the ledger is not behind its
	// checkpoint; else its error says so and nothing is signed. They are asked before every signature.
	Rules func(ctx context.Context) (Rules, error)
	// Guard checks and makes the seals of the ledger.
	Guard Sealer
	// Verify compares the whole ledger with its audit chain and its seals.
	Verify func(ctx context.Context) error
	// Recorder records what this agent signs.
	Recorder *Recorder
	// Approver approves by the owner's passkeys; nil: nothing is.
	Approver *Approver

	witnessed int64 // the newest freeze that is marked
}

// Sealer is seal.Guard.
type Sealer interface {
	CheckConfig(ctx context.Context) error // needs no key
	VerifySeals(ctx context.Context) error
	Checkpoint(ctx context.Context) error           // before a signed payment leaves
	CheckpointIfUnlocked(ctx context.Context) error // of what was frozen
}

// Run serves until ctx ends, somebody asks for lock, or the wallet has locked itself; then the keys are wiped
// and the socket is gone. The listener is package client's: nothing can be read from others than this user's
// own programs.
func (s *Server) Run(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	end := func() { // a caller that learns that the wallet is locked finds no socket any more
		cancel()
		_ = l.Close()
	}
	defer end()
	defer s.Lock()
	context.AfterFunc(ctx, end)
	go s.watch(ctx, end)
	slots := make(chan struct{}, maxCalls)
	var calls sync.WaitGroup
	defer calls.Wait()
	for {
		c, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		case err != nil: // no descriptors, for a moment
			time.Sleep(pollInterval / 10)
			continue
		}
		slots <- struct{}{}
		calls.Go(func() {
			defer func() { <-slots }()
			defer func() { _ = c.Close() }()
			s.serve(ctx, c, end)
		})
	}
}

// watch ends the agent when it has nothing left to sign with.
func (s *Server) watch(ctx context.Context, end func()) {
	for tick := time.NewTicker(pollInterval); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return
		case <-tick.C:
			if s.Locked() {
				end()
			}
			s.witness(ctx)
		}
	}
}

// witness renews the checkpoint when something was frozen in the ledger, so that nobody takes that
// back without the passphrase.
func (s *Server) witness(ctx context.Context) {
	head, err := s.Store.Head(ctx)
	if err != nil || head.Frozen == s.witnessed {
		return
	}
	if err := s.Guard.CheckpointIfUnlocked(ctx); err != nil {
		s.Log.Warn("checkpoint the freeze", "err", err)
		return
	}
	s.witnessed = head.Frozen
}

func (s *Server) serve(ctx context.Context, c net.Conn, end func()) {
	limit := CallTime + s.SigningTime
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	defer func() {
		if p := recover(); p != nil { // the keys stay, the caller gets nothing
			s.Log.Error("the unlock agent panicked; nothing was signed")
		}
	}()
	_ = c.SetDeadline(time.Now().Add(CallTime)) // for the question
	// who connected and asks nothing keeps no agent that is ended, with its keys
	defer context.AfterFunc(ctx, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })()
	q, err := readRequest(c)
	if err != nil && ctx.Err() != nil { // it was cut off in its question, because this agent ends
		return
	}
	_ = c.SetDeadline(time.Now().Add(limit))
	var out Reply
	if err == nil {
		out.Signature, err = s.answer(ctx, q, end)
	}
	if err != nil {
		coded := x402.AsError(err)
		out = Reply{Error: &ReplyError{Code: coded.Code, Message: coded.Message, Hint: coded.Hint}}
		s.Log.Info("refused", "op", q.Op, "payment", q.Payment, "code", coded.Code, "why", coded.Message)
	}
	_ = json.NewEncoder(c).Encode(out)
}

func (s *Server) answer(ctx context.Context, q Request, end func()) ([]byte, error) {
	switch q.Op {
	case "status":
		return nil, nil
	case "lock":
		end()
		s.Lock()
		return nil, nil
	case "check":
		_, err := s.Rules(ctx)
		return nil, err
	case "mark":
		if _, err := s.Rules(ctx); err != nil {
			return nil, err
		}
		return nil, s.Guard.Checkpoint(ctx)
	case "verify":
		return nil, s.Verify(ctx)
	case "expire":
		return nil, s.expire(ctx, q.Payment)
	case "charge":
		return nil, s.charge(ctx, q.Payment)
	case "sign":
		return s.sign(ctx, q)
	case "passkey":
		return s.passkey(ctx, q.Passkey)
	}
	return nil, x402.Errorf(x402.InvalidArgument, "the unlock agent knows no such request")
}
