// Package agent signs: the wallet in this process, or the unlock agent, a process that holds
// the unlocked keys and is asked over a Unix socket in the home.
//
// What must stay true: like ssh-agent it never hands a key out, and it signs nothing on somebody's
// word. It is given the message and the payment's id, never a digest, reads the message itself, and
// signs it only if it is the payment that it found reserved in the ledger, under the owner's rules,
// once. So a process of the same user can get out of it what the owner allowed, and nothing else:
// no key, no other payee, no sum past a limit. What it signed it also adds up by itself, because
// that process can write to the ledger's file.
//
// The files: client.go (the client, and the wallet's own signers), server.go (the socket), check.go and
// signin.go (what is signed, and what was), passkey.go (what the owner approves without a passphrase).
package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"time"

	"x402-wallet/chain/evm/message"
	"x402-wallet/chain/svm/decode"
	"x402-wallet/history"
	"x402-wallet/internal/socket"
	"x402-wallet/wallet"
	"x402-wallet/x402"
)

// socketName is the socket's name in the home.
const socketName = "agent.sock"

const (
	maxRequest = 16 << 10 // the longest honest one, what a passkey answers, in base64, has under 12 KiB
	maxReply   = 8 << 10
	maxCalls   = 16 // at a time; more wait in the kernel's queue
	// callTime bounds one call; signing takes milliseconds, and a ledger that is locked by another
	// process five seconds.
	callTime = 10 * time.Second
	// pollInterval is how often the agent checks whether the wallet has locked itself.
	pollInterval = time.Second
)

// Server is the unlock agent. All fields are set before Run; it needs all of them, but where it says
// otherwise.
type Server struct {
	// Account has the keys of an account, by its name; "": of the wallet's own.
	Account func(name string) (Keys, error)
	Locked  func() bool // the wallet has locked itself: idle, or open for too long
	Lock    func()      // wipes the keys
	Store   *history.Store
	Started time.Time
	// SigningTime is how much longer a call may take because of signers that keep their keys themselves.
	SigningTime time.Duration
	Now         func() time.Time
	Log         *slog.Logger

	// Rules are the owner's, if they are sealed and match their seal, and the ledger is not behind its
	// checkpoint; else its error says so and nothing is signed. They are asked before every signature.
	Rules func(ctx context.Context) (Rules, error)
	// Guard checks and makes the seals of the ledger.
	Guard sealer
	// Verify compares the whole ledger with its audit chain and its seals.
	Verify func(ctx context.Context) error
	// Recorder records what this agent signs.
	Recorder *Recorder
	// Approver approves by the owner's passkeys; nil: nothing is.
	Approver *Approver

	witnessed int64 // the newest freeze that is marked
}

// EVMSigner signs on EVM chains with the keys of an account. Every signature is r ‖ s ‖ v with v 27 or 28.
type EVMSigner interface {
	Address() string // EIP-55
	SignTransfer(ctx context.Context, t message.Transfer) ([65]byte, error)
	SignPermit2(ctx context.Context, d message.PermitDraft) (permit, approval [65]byte, err error)
	SignPull(ctx context.Context, payment string, p x402.Pull) ([65]byte, error)
	SignChannel(ctx context.Context, m message.Channel) (message.Signatures, error)
}

// SolanaSigner signs on Solana with the key of an account.
type SolanaSigner interface {
	Address() string // base58
	SignTransfer(ctx context.Context, d decode.Draft) ([64]byte, error)
}

// Keys are those of an account, as what they sign asks for them.
type Keys struct {
	EVM    EVMSigner
	Solana SolanaSigner
	SignIn func(ctx context.Context, text string) ([]byte, error) // as wallet.Account has it
}

// KeysOf are those of an account of a wallet in this process.
func KeysOf(a *wallet.Account) Keys {
	onEVM, onSolana := Signers(a, nil)
	return Keys{EVM: onEVM, Solana: onSolana, SignIn: a.SignIn}
}

// request is one line of JSON; the answer is another. One call a connection.
type request struct {
	// status | lock | check | mark | verify | expire | charge, and what is signed: evm | permit2 | pull |
	// solana | channel | sign-in; passkey
	Op            string          `json:"op"`
	Payment       string          `json:"payment,omitempty"`
	Authorization json.RawMessage `json:"authorization,omitempty"` // evm, permit2: the message as it is sent
	// permit2: the token's nonce of the approval that is wanted with it; "": none
	Approval string `json:"approval,omitempty"`
	// permit2: the approval is to be a transaction, with these; nil: it is not
	ApprovalGas *message.ApprovalGas `json:"approvalGas,omitempty"`

	Pull     *x402.Pull      `json:"pull,omitempty"`
	Message  []byte          `json:"message,omitempty"` // solana
	Evidence x402.Evidence   `json:"evidence,omitzero"` // solana: without the signature
	Text     string          `json:"text,omitempty"`    // sign-in
	Channel  *channelRequest `json:"channel,omitempty"` // channel: what is signed of it
	Passkey  *passkeyRequest `json:"passkey,omitempty"`
}

type reply struct {
	Signature []byte     `json:"signature,omitempty"`
	Error     *errorJSON `json:"error,omitempty"`
}

// errorJSON is an x402.Error in a reply.
type errorJSON struct {
	Code    x402.Code `json:"code"`
	Message string    `json:"message"`
	Hint    string    `json:"hint,omitempty"`
}

// Run serves until ctx ends, somebody asks for lock, or the wallet has locked itself; then the keys
// are wiped and the socket is gone. The listener is Listen's.
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
	limit := callTime + s.SigningTime
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	defer func() {
		if p := recover(); p != nil { // the keys stay, the caller gets nothing
			s.Log.Error("the unlock agent panicked; nothing was signed")
		}
	}()
	_ = c.SetDeadline(time.Now().Add(callTime)) // for the question
	// who connected and asks nothing keeps no agent that is ended, with its keys
	defer context.AfterFunc(ctx, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })()
	refused := samePeer(c)
	var q request
	var err error
	if refused == nil || errors.Is(refused, socket.ErrNotYet) {
		q, err = readRequest(c)
		refused = samePeer(c) // now that something was read
	}
	if refused != nil {
		s.Log.Warn("refused a caller", "err", refused)
		return
	}
	if err != nil && ctx.Err() != nil { // it was cut off in its question, because this agent ends
		return
	}
	_ = c.SetDeadline(time.Now().Add(limit))
	var out reply
	if err == nil {
		out.Signature, err = s.answer(ctx, q, end)
	}
	if err != nil {
		coded := x402.AsError(err)
		out = reply{Error: &errorJSON{Code: coded.Code, Message: coded.Message, Hint: coded.Hint}}
		s.Log.Info("refused", "op", q.Op, "payment", q.Payment, "code", coded.Code, "why", coded.Message)
	}
	_ = json.NewEncoder(c).Encode(out)
}

// samePeer checks that the process at the other end runs as this one's user.
func samePeer(c net.Conn) error {
	user, err := socket.Peer(c)
	if err != nil {
		return err
	}
	return sameUser(user)
}

func sameUser(user socket.User) error {
	self, err := socket.Self()
	if err == nil && user != self {
		err = fmt.Errorf("the process at the other end runs as user %s", user)
	}
	return err
}

func readRequest(c io.Reader) (q request, err error) {
	d := json.NewDecoder(io.LimitReader(c, maxRequest))
	d.DisallowUnknownFields()
	if err := d.Decode(&q); err != nil {
		return q, x402.Errorf(x402.InvalidArgument,
			"the unlock agent was asked something that it cannot read")
	}
	return q, nil
}

func (s *Server) answer(ctx context.Context, q request, end func()) ([]byte, error) {
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
	case "evm":
		return s.signEVM(ctx, q)
	case "pull":
		return s.signPull(ctx, q)
	case "permit2":
		return s.signPermit2(ctx, q)
	case "solana":
		return s.signSolana(ctx, q)
	case opSignIn:
		return s.signIn(ctx, q)
	case "channel":
		return s.signChannel(ctx, q)
	case opPasskey:
		return s.passkey(ctx, q.Passkey)
	}
	return nil, x402.Errorf(x402.InvalidArgument, "the unlock agent knows no such request")
}

// Free says whether a home can have an unlock agent: there is none, and its socket can be made.
func Free(ctx context.Context, home string) error {
	switch err := socket.CheckPath(filepath.Join(home, socketName)); {
	case errors.Is(err, socket.ErrUnsupported):
		return x402.Errorf(x402.SetupFailed, "there is no unlock agent on this system: a socket cannot tell "+
			"who asks").
			WithHint("use keystore.passphrase_file, keystore.passphrase_command or the system's keyring")
	case err != nil:
		return x402.Errorf(x402.SetupFailed, "make the unlock agent's socket: %w", err).
			WithHint("use a home with a shorter path: X402_WALLET_HOME")
	}
	err := (&Client{Home: home}).Status(ctx)
	switch {
	case err == nil:
		return x402.Errorf(x402.SetupFailed, "the wallet is unlocked already").
			WithHint("x402-wallet lock ends that")
	case !errors.Is(err, errNone):
		return err
	}
	return nil
}

// Listen makes the socket in the home, for its owner alone. A socket that a killed agent left is replaced.
func Listen(ctx context.Context, home string) (net.Listener, error) {
	if err := Free(ctx, home); err != nil {
		return nil, err
	}
	l, err := socket.Listen(ctx, filepath.Join(home, socketName), 0o600)
	if err != nil {
		return nil, x402.Errorf(x402.SetupFailed, "make the unlock agent's socket: %w", err)
	}
	return l, nil
}
