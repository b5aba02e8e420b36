package agent

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"x402-wallet/chain/evm"
	"x402-wallet/x402"
)

// ErrNone says that no unlock agent holds the keys.
var ErrNone = errors.New("there is no unlock agent")

// Client asks the unlock agent of a home.
type Client struct {
	Home string
	// Before reports whether it is the agent's turn in the order of SPEC §3: the wallet is locked,
	// and no source before the agent is set up. Signers and Guard ask it.
	Before func() bool
}

// Status is nil while an agent holds the keys, else ErrNone or why it cannot be asked.
func (c *Client) Status(ctx context.Context) error {
	_, err := c.call(ctx, request{Op: "status"})
	return err
}

// Lock ends the agent: the keys are wiped when it returns. ErrNone: nothing was unlocked.
func (c *Client) Lock(ctx context.Context) error {
	_, err := c.call(ctx, request{Op: "lock"})
	return err
}

// Checkpoint asks for seal.Guard's Checkpoint.
func (c *Client) Checkpoint(ctx context.Context) error {
	_, err := c.call(ctx, request{Op: "mark"})
	return err
}

func (c *Client) first() bool { return c != nil && c.Before() }

// orHere asks the agent where it is its turn; where it is not, or there is no agent, it is done here.
func (c *Client) orHere(ctx context.Context, q request, here func(ctx context.Context) error) error {
	if c.first() {
		if _, err := c.call(ctx, q); !errors.Is(err, ErrNone) {
			return err
		}
	}
	return here(ctx)
}

func (c *Client) signEVM(ctx context.Context, t evm.Transfer) (signature [65]byte, err error) {
	authorization, err := evm.EncodeAuthorization(t.Authorization)
	if err != nil {
		return signature, err
	}
	out, err := c.call(ctx, request{Op: "evm", Payment: t.Payment, Authorization: authorization})
	return signature, fill(signature[:], out, err)
}

func (c *Client) signSolana(ctx context.Context, payment string, message []byte) (signature [64]byte,
	err error) {
	out, err := c.call(ctx, request{Op: "solana", Payment: payment, Message: message})
	return signature, fill(signature[:], out, err)
}

func fill(signature, answer []byte, err error) error {
	if err == nil && len(answer) != len(signature) {
		err = x402.Errorf(x402.Internal, "the unlock agent answered with no signature")
	}
	copy(signature, answer)
	return err
}

// call asks one thing. A socket that nobody listens on is ErrNone; who listens there must be this
// user.
func (c *Client) call(ctx context.Context, q request) ([]byte, error) {
	path := filepath.Join(c.Home, socketName)
	if !supported || len(path) > maxSocketPath {
		return nil, ErrNone
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	switch {
	case errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED):
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
	if err := json.NewDecoder(io.LimitReader(conn, maxReply)).Decode(&out); err != nil {
		return nil, unreachable(err)
	}
	if out.Error != nil {
		return nil, x402.Errorf(out.Error.Code, "%s", out.Error.Message).WithHint("%s", out.Error.Hint)
	}
	return out.Signature, nil
}

func unreachable(err error) error {
	return x402.Errorf(x402.WalletLocked, "the unlock agent does not answer: %w",
		err).WithHint("the owner runs x402-wallet lock, then x402-wallet unlock")
}
