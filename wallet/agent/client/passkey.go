package client

import (
	"context"
	"errors"

	"x402-wallet/history"
	"x402-wallet/wallet/agent"
)

// ByPasskey is an Approver whose key may be the unlock agent's.
type ByPasskey struct {
	Local  *agent.Approver
	Remote *Client // nil: none
}

// Challenge is Approver's.
func (b ByPasskey) Challenge(ctx context.Context, shown history.Approval, browser string) ([]byte, error) {
	q := agent.QuestionOf(shown, browser)
	if b.Remote.first() {
		challenge, err := b.Remote.call(ctx, agent.Request{Op: "passkey",
			Passkey: &agent.PasskeyRequest{Question: q}})
		if !errors.Is(err, ErrNone) {
			return challenge, err
		}
	}
	return b.Local.Challenge(ctx, q)
}

// Approve is Approver's.
func (b ByPasskey) Approve(ctx context.Context, shown history.Approval, browser string, answer []byte) error {
	q := agent.QuestionOf(shown, browser)
	asked := agent.Request{Op: "passkey", Passkey: &agent.PasskeyRequest{Question: q, Answer: answer}}
	return b.Remote.callOrLocal(ctx, asked, func(ctx context.Context) error {
		return b.Local.Approve(ctx, q, answer)
	})
}
