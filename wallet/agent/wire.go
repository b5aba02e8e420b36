package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"time"

	"x402-wallet/chain/evm/message"
	"x402-wallet/internal/socket"
	"x402-wallet/x402"
)

// socketName is the socket's name in the home.
const socketName = "agent.sock"

const (
	maxRequest = 16 << 10 // the longest honest one, what a passkey answers, in base64, has under 12 KiB
	maxReply   = 8 << 10
	// callTime bounds one call; signing takes milliseconds, and a ledger that is locked by another
	// process five seconds.
	callTime = 10 * time.Second
)

// Request is one line of JSON; the answer is another. One call a connection.
type Request struct {
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
	Channel  *ChannelRequest `json:"channel,omitempty"` // channel: what is signed of it
	Passkey  *PasskeyRequest `json:"passkey,omitempty"`
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

// ErrNone says that no unlock agent holds the keys.
var ErrNone = errors.New("there is no unlock agent")

// Ask asks the unlock agent of a home one thing. A socket that nobody listens on is ErrNone; who listens
// there must be this user. signing is how much longer a signature may take by whoever keeps the key itself.
func Ask(ctx context.Context, home string, signing time.Duration, q Request) ([]byte, error) {
	path := filepath.Join(home, socketName)
	ctx, cancel := context.WithTimeout(ctx, callTime+signing)
	defer cancel()
	conn, err := socket.Dial(ctx, path)
	switch {
	case errors.Is(err, socket.ErrNone):
		return nil, ErrNone
	case err != nil:
		return nil, unreachable(err)
	}
	defer func() { _ = conn.Close() }()
	if err := samePeer(conn); err != nil {
		return nil, unreachable(err)
	}
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	if err := json.NewEncoder(conn).Encode(q); err != nil {
		return nil, unreachable(err)
	}
	var out reply
	d := json.NewDecoder(io.LimitReader(conn, maxReply))
	d.DisallowUnknownFields()
	if err := d.Decode(&out); err != nil {
		if _, network := errors.AsType[net.Error](err); network || errors.Is(err, io.EOF) {
			return nil, unreachable(err)
		}
		return nil, Garbled()
	}
	if out.Error != nil {
		if _, _, known := x402.Explain(out.Error.Code); !known {
			return nil, Garbled()
		}
		return nil, x402.Errorf(out.Error.Code, "%s", out.Error.Message).WithHint("%s", out.Error.Hint)
	}
	return out.Signature, nil
}

func unreachable(err error) error {
	return x402.Errorf(x402.WalletLocked, "the unlock agent does not answer: %w", err).
		WithHint("the owner runs x402-wallet lock, then x402-wallet unlock")
}

// Garbled is an answer that no unlock agent of this version gives. What it was is not repeated:
// whatever listens there may have been told anything.
func Garbled() error {
	return x402.Errorf(x402.WalletLocked, "what listens at %s in the wallet's home answers, but not as the "+
		"unlock agent of this version does; nothing was signed", socketName).
		WithHint("the owner ends the program that listens there, removes %s from the wallet's home, and "+
			"runs x402-wallet unlock with this version", socketName)
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

func readRequest(c io.Reader) (q Request, err error) {
	d := json.NewDecoder(io.LimitReader(c, maxRequest))
	d.DisallowUnknownFields()
	if err := d.Decode(&q); err != nil {
		return q, x402.Errorf(x402.InvalidArgument,
			"the unlock agent was asked something that it cannot read")
	}
	return q, nil
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
	_, err := Ask(ctx, home, 0, Request{Op: "status"})
	switch {
	case err == nil:
		return x402.Errorf(x402.SetupFailed, "the wallet is unlocked already").
			WithHint("x402-wallet lock ends that")
	case !errors.Is(err, ErrNone):
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
