package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"path/filepath"
	"time"

	"x402-wallet/internal/socket"
	"x402-wallet/wallet/agent"
	"x402-wallet/x402"
)

// maxReply bounds the agent's answer.
const maxReply = 8 << 10

// ErrNone says that no unlock agent holds the keys.
var ErrNone = errors.New("there is no unlock agent")

// Ask asks the unlock agent of a home one thing. A socket that nobody listens on is ErrNone; who listens
// there must be this user. signing is how much longer a signature may take by whoever keeps the key itself.
func Ask(ctx context.Context, home string, signing time.Duration, q agent.Request) ([]byte, error) {
	path := filepath.Join(home, agent.SocketName)
	ctx, cancel := context.WithTimeout(ctx, agent.CallTime+signing)
	defer cancel()
	conn, err := socket.DialOwn(ctx, path, home)
	switch {
	case errors.Is(err, socket.ErrNone):
		return nil, ErrNone
	case err != nil:
		return nil, unreachable(err)
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	if err := json.NewEncoder(conn).Encode(q); err != nil {
		return nil, unreachable(err)
	}
	var out agent.Reply
	d := json.NewDecoder(io.LimitReader(conn, maxReply))
	d.DisallowUnknownFields()
	if err := d.Decode(&out); err != nil {
		if _, network := errors.AsType[net.Error](err); network || errors.Is(err, io.EOF) {
			return nil, unreachable(err)
		}
		return nil, garbled()
	}
	if out.Error != nil {
		if !out.Error.Code.IsKnown() {
			return nil, garbled()
		}
		return nil, x402.Errorf(out.Error.Code, "%s", out.Error.Message).WithHint("%s", out.Error.Hint)
	}
	return out.Signature, nil
}

func unreachable(err error) error {
	return x402.Errorf(x402.WalletLocked, "the unlock agent does not answer: %w", err).
		WithHint("the owner runs x402-wallet lock, then x402-wallet unlock")
}

// garbled is an answer that no unlock agent of this version gives. What it was is not repeated:
// whatever listens there may have been told anything.
func garbled() error {
	return x402.Errorf(x402.WalletLocked, "what listens at %s in the wallet's home answers, but not as the "+
		"unlock agent of this version does; nothing was signed", agent.SocketName).
		WithHint("the owner ends the program that listens there, removes %s from the wallet's home, and "+
			"runs x402-wallet unlock with this version", agent.SocketName)
}

// Free says whether a home can have an unlock agent: there is none, and its socket can be made.
func Free(ctx context.Context, home string) error {
	switch err := socket.CheckPath(filepath.Join(home, agent.SocketName)); {
	case errors.Is(err, socket.ErrUnsupported):
		return x402.Errorf(x402.SetupFailed, "there is no unlock agent on this system: a socket cannot tell "+
			"who asks").
			WithHint("use keystore.passphrase_file, keystore.passphrase_command or the system's keyring")
	case err != nil:
		return x402.Errorf(x402.SetupFailed, "make the unlock agent's socket: %w", err).
			WithHint("use a home with a shorter path: X402_WALLET_HOME")
	}
	_, err := Ask(ctx, home, 0, agent.Request{Op: "status"})
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
	l, err := socket.ListenOwn(ctx, filepath.Join(home, agent.SocketName), home)
	if err != nil {
		return nil, x402.Errorf(x402.SetupFailed, "make the unlock agent's socket: %w", err)
	}
	return l, nil
}
