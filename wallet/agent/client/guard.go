package client

import (
	"context"
	"errors"

	"x402-wallet/history"
	"x402-wallet/wallet/agent"
	"x402-wallet/x402"
)

// Guard stands between a payment and its signature: seal.Guard and Recorder, whose key may be the
// agent's. It is a pay.Guard.
type Guard struct {
	Local    agent.Sealer
	Recorder *agent.Recorder
	Remote   *Client // nil: none
}

// CheckConfig implements pay.Guard. It needs no key.
func (g Guard) CheckConfig(ctx context.Context) error { return g.Local.CheckConfig(ctx) }

func (g Guard) VerifySeals(ctx context.Context) error {
	return g.Remote.callOrLocal(ctx, agent.Request{Op: "check"}, g.Local.VerifySeals)
}

// Submit implements pay.Guard. What the agent signed it has recorded already, with the owner's
// approval or not at all: this process's client it does not know.
func (g Guard) Submit(ctx context.Context, p history.Payment, signed history.Signed, here bool) error {
	return g.Recorder.Submit(ctx, p, signed, here)
}

func (g Guard) RecordVoucher(ctx context.Context, p history.Payment, signed history.Signed,
	c history.Channel, o history.Outcome, here bool) (history.Payment, error) {
	return g.Recorder.RecordVoucher(ctx, p, signed, c, o, here)
}

func (g Guard) Expire(ctx context.Context, p history.Payment, status x402.Status) (history.Payment, error) {
	return g.record(ctx, "expire", p, func() (history.Payment, error) {
		return g.Recorder.Expire(ctx, p, history.Expiry(p, status))
	})
}

func (g Guard) Charge(ctx context.Context, p history.Payment, status x402.Status) (history.Payment, error) {
	return g.record(ctx, "charge", p, func() (history.Payment, error) {
		return g.Recorder.Charge(ctx, g.Recorder.Rules, p, status)
	})
}

// record has the agent record the fate of a payment, or does it here if there is none. The agent does not
// believe this process what the chain said.
func (g Guard) record(ctx context.Context, op string, p history.Payment,
	here func() (history.Payment, error)) (history.Payment, error) {
	if g.Recorder.Locked() && g.Remote != nil {
		_, err := g.Remote.call(ctx, agent.Request{Op: op, Payment: p.ID})
		if err == nil {
			return g.Recorder.Store.Payment(ctx, p.ID)
		}
		if !errors.Is(err, ErrNone) {
			return p, err
		}
	}
	if err := g.Local.VerifySeals(ctx); err != nil { // whoever chooses the node chooses the evidence
		return p, err
	}
	return here()
}

// LocalApprovals reports whether an approval that a person gave at this process's client counts: the
// unlock agent, where it signs, believes the owner's seal and nothing else.
func (g Guard) LocalApprovals(ctx context.Context) bool {
	return !g.Remote.first() || errors.Is(g.Remote.Status(ctx), ErrNone)
}

func (g Guard) Checkpoint(ctx context.Context) error {
	return g.Remote.callOrLocal(ctx, agent.Request{Op: "mark"}, g.Local.Checkpoint)
}

func (g Guard) CheckpointIfUnlocked(ctx context.Context) error {
	return g.Remote.callOrLocal(ctx, agent.Request{Op: "mark"}, g.Local.CheckpointIfUnlocked)
}

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
