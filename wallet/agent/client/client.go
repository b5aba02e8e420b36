// Package client is for a process that pays. It asks the unlock agent where it is its turn, and else signs
// with the wallet in this process.
package client

import (
	"context"
	"errors"
	"time"

	"x402-wallet/chain/evm/message"
	"x402-wallet/chain/svm/decode"
	"x402-wallet/wallet"
	"x402-wallet/wallet/agent"
	"x402-wallet/x402"
)

// Client asks the unlock agent of a home.
type Client struct {
	Home string
	// Before reports whether it is the agent's turn among the sources: the wallet is locked,
	// and no source before the agent is set up. Signers and Guard ask it.
	Before func() bool
	// SigningTime is how much longer a signature may take by whoever keeps the key itself; see Server.
	SigningTime time.Duration
}

func (c *Client) call(ctx context.Context, q agent.Request) ([]byte, error) {
	return Ask(ctx, c.Home, c.SigningTime, q)
}

// Status is nil while an agent holds the keys, else ErrNone or why it cannot be asked.
func (c *Client) Status(ctx context.Context) error {
	_, err := c.call(ctx, agent.Request{Op: "status"})
	return err
}

// Lock ends the agent: the keys are wiped when it returns. It reports whether there was one. An agent that
// ends by itself at that moment cuts off who asks, so it is asked once more.
func (c *Client) Lock(ctx context.Context) (was bool, err error) {
	_, err = c.call(ctx, agent.Request{Op: "lock"})
	if errors.Is(err, ErrNone) {
		return false, nil
	}
	if err != nil {
		_, err = c.call(ctx, agent.Request{Op: "lock"})
	}
	if errors.Is(err, ErrNone) {
		err = nil
	}
	return err == nil, err
}

// Checkpoint asks for seal.Guard's Checkpoint.
func (c *Client) Checkpoint(ctx context.Context) error {
	_, err := c.call(ctx, agent.Request{Op: "mark"})
	return err
}

// Verify asks for agent.Server's Verify, or calls local.
func (c *Client) Verify(ctx context.Context, local func(ctx context.Context) error) error {
	return c.callOrLocal(ctx, agent.Request{Op: "verify"}, local)
}

func (c *Client) first() bool { return c != nil && c.Before() }

// callOrLocal asks the agent where it is its turn; where it is not, or where there is no agent,
// it runs locally.
func (c *Client) callOrLocal(ctx context.Context, q agent.Request,
	local func(ctx context.Context) error) error {
	if c.first() {
		if _, err := c.call(ctx, q); !errors.Is(err, ErrNone) {
			return err
		}
	}
	return local(ctx)
}

// SignTransfer has the agent sign, as do those below: what is signed for a payment it reads in the ledger.
func (c *Client) SignTransfer(ctx context.Context, t message.Transfer) (signature [65]byte, err error) {
	authorization, err := message.EncodeAuthorization(t.Authorization)
	if err != nil {
		return signature, err
	}
	q := agent.Request{Op: "evm", Payment: t.Payment, Authorization: authorization}
	err = c.sign(ctx, q, signature[:])
	return signature, err
}

// SignPull is as SignTransfer.
func (c *Client) SignPull(ctx context.Context, payment string, p x402.Pull) (signature [65]byte, err error) {
	err = c.sign(ctx, agent.Request{Op: "pull", Payment: payment, Pull: &p}, signature[:])
	return signature, err
}

// SignPermit2 is as SignTransfer.
func (c *Client) SignPermit2(ctx context.Context, d message.PermitDraft) (permit, approval [65]byte,
	err error) {
	authorization, err := message.EncodePermit2(d.Authorization)
	if err != nil {
		return permit, approval, err
	}
	q := agent.Request{Op: "permit2", Payment: d.Payment, Authorization: authorization}
	if d.Approval != nil {
		q.Approval = d.Approval.Nonce.String()
	}
	q.ApprovalGas = d.Transaction
	signatures := make([]byte, len(permit))
	if d.Approval != nil || d.Transaction != nil {
		signatures = make([]byte, len(permit)+len(approval))
	}
	err = c.sign(ctx, q, signatures)
	copy(approval[:], signatures[copy(permit[:], signatures):])
	return permit, approval, err
}

// SignSolana is as SignTransfer.
func (c *Client) SignSolana(ctx context.Context, d decode.Draft) (signature [64]byte, err error) {
	q := agent.Request{Op: "solana", Payment: d.Payment, Message: d.Message, Evidence: d.Evidence}
	err = c.sign(ctx, q, signature[:])
	return signature, err
}

// SignChannel is as SignTransfer.
func (c *Client) SignChannel(ctx context.Context, m message.Channel) (s message.Signatures, err error) {
	q := agent.Request{Op: "channel", Payment: m.Payment, Channel: &agent.ChannelRequest{Config: m.Config,
		Ceiling: m.Ceiling, Shown: m.Shown}}
	signatures := s.Voucher[:]
	if m.Deposit != nil {
		q.Channel.Deposit = &agent.DepositRequest{ValidBefore: m.Deposit.ValidBefore, Salt: m.Deposit.Salt[:]}
		signatures = make([]byte, len(s.Voucher)+len(s.Deposit))
	}
	err = c.sign(ctx, q, signatures)
	copy(s.Voucher[:], signatures)
	copy(s.Deposit[:], signatures[len(s.Voucher):])
	return s, err
}

// sign asks for a signature of this length.
func (c *Client) sign(ctx context.Context, q agent.Request, signature []byte) error {
	answer, err := c.call(ctx, q)
	if err == nil && len(answer) != len(signature) {
		return garbled()
	}
	copy(signature, answer)
	return err
}

// Signers are the keys of an account of the wallet as the chains' signers. Their errors are those of its
// SignEVM and SignSolana, or the agent's refusal. A nil remote is none.
func Signers(keys *wallet.Account, remote *Client) (agent.EVMSigner, agent.SolanaSigner) {
	local := agent.KeysOf(keys)
	return evmSigner{local.EVM, remote}, solanaSigner{local.Solana, remote}
}

type evmSigner struct {
	agent.EVMSigner // of this process
	remote          *Client
}

func (s evmSigner) SignTransfer(ctx context.Context, t message.Transfer) ([65]byte, error) {
	if s.remote.first() {
		if signature, err := s.remote.SignTransfer(ctx, t); !errors.Is(err, ErrNone) {
			return signature, err
		}
	}
	return s.EVMSigner.SignTransfer(ctx, t)
}

func (s evmSigner) SignPull(ctx context.Context, payment string, p x402.Pull) ([65]byte, error) {
	if s.remote.first() {
		if signature, err := s.remote.SignPull(ctx, payment, p); !errors.Is(err, ErrNone) {
			return signature, err
		}
	}
	return s.EVMSigner.SignPull(ctx, payment, p)
}

func (s evmSigner) SignPermit2(ctx context.Context, d message.PermitDraft) (permit, approval [65]byte,
	err error) {
	if s.remote.first() {
		permit, approval, err := s.remote.SignPermit2(ctx, d)
		if !errors.Is(err, ErrNone) {
			return permit, approval, err
		}
	}
	return s.EVMSigner.SignPermit2(ctx, d)
}

func (s evmSigner) SignChannel(ctx context.Context, m message.Channel) (message.Signatures, error) {
	if s.remote.first() {
		if signatures, err := s.remote.SignChannel(ctx, m); !errors.Is(err, ErrNone) {
			return signatures, err
		}
	}
	return s.EVMSigner.SignChannel(ctx, m)
}

type solanaSigner struct {
	agent.SolanaSigner // of this process
	remote             *Client
}

func (s solanaSigner) SignTransfer(ctx context.Context, d decode.Draft) ([64]byte, error) {
	if s.remote.first() {
		if signature, err := s.remote.SignSolana(ctx, d); !errors.Is(err, ErrNone) {
			return signature, err
		}
	}
	return s.SolanaSigner.SignTransfer(ctx, d)
}
