// Package client is for a process that pays. It asks the unlock agent where it is its turn, and else signs
// with the wallet in this process.
package client

import (
	"context"
	"errors"
	"time"

	"x402-wallet/wallet/agent"
	"x402-wallet/x402/onchain"
)

// Client asks the unlock agent of a home.
type Client struct {
	Home string
	// Before reports whether it is the agent's turn among the sources: the wallet is locked,
	// and no source before the agent is set up. Signer and Guard ask it.
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

// Sign has the agent sign a message for the payment of an id, which the agent reads in the ledger. The
// message is in the form that the check of its scheme reads.
func (c *Client) Sign(ctx context.Context, payment string, message []byte) ([]byte, error) {
	return c.call(ctx, agent.Request{Op: "sign", Payment: payment, Message: message})
}

// Signer signs for the account that pays: by the unlock agent where it is its turn, and else in this process.
// It is an onchain.Signer.
type Signer struct {
	Local  *agent.Recorder
	Remote *Client // nil: none
	// Account is the address on the chain that the signer is for.
	Account string
}

// Address is the account's, as its chain writes it.
func (s Signer) Address() string { return s.Account }

// Sign signs a draft. Errors: the check's refusal, or those of the wallet's account.
func (s Signer) Sign(ctx context.Context, d onchain.Draft) (signatures []byte, err error) {
	err = ErrNone
	if s.Remote.first() {
		signatures, err = s.Remote.Sign(ctx, d.Payment, d.Message)
	}
	if errors.Is(err, ErrNone) {
		signatures, err = s.Local.Sign(ctx, d.Payment, d.Message)
	}
	if err == nil && len(signatures) != d.Length {
		return nil, garbled()
	}
	return signatures, err
}
