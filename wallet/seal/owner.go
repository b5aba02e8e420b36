package seal

import (
	"bytes"
	"context"
	"crypto/hmac"
	"slices"

	"x402-wallet/budget"
	"x402-wallet/history"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// What only the owner may do is a row of the ledger, which whoever runs as the same user can write:
// so each of these rows is sealed by the passphrase that was typed for it. What tightens (deny,
// freeze) needs no seal; that it is not taken back the checkpoint sees. An approval that was given
// at a client has no seal either: the process that received it remembers it, and is the only one
// that believes it.

// Approve is the owner's approval of one quote, as it was shown to them, or of each that is on a list
// (history.Store.Asked): of no other one, whatever is on the list by now.
func (g *Guard) Approve(ctx context.Context, shown history.Approval, by string) (history.Approval, error) {
	seal, err := g.sealer(ctx)
	if err != nil {
		return history.Approval{}, err
	}
	list := shown.Together
	if len(list) == 0 {
		list = []history.Approval{shown}
	}
	return g.Store.Approve(ctx, shown.ID, by, func(a history.Approval) ([]byte, error) {
		i := slices.IndexFunc(list, func(one history.Approval) bool { return one.ID == a.ID })
		if i < 0 {
			return nil, x402.Errorf(x402.LedgerCorrupt,
				"the approval %s came onto the list after it was shown", a.ID)
		}
		shown, then := list[i], a
		then.Expires, then.Since = shown.Expires, shown.Since
		if !bytes.Equal(approvalData(then), approvalData(shown)) {
			return nil, x402.Errorf(x402.LedgerCorrupt,
				"the approval %s changed in the ledger after it was shown", a.ID)
		}
		return seal(purposeApproval, approvalData(a))
	})
}

// approvalData is everything that an approval is for, and how long and from where on it is good.
func approvalData(a history.Approval) []byte {
	return numbers(texts(a.ID, string(a.Quote[:]), a.Host, a.Method, a.URL, a.Network, a.Asset,
		a.Amount.String(), a.Price.String(), a.PayTo, a.Agent), a.Expires.UnixMicro(), a.Since)
}

// Approved refuses a payment whose approval the owner did not give, or gave for a payment that was
// made already: the audit chain since then, up to the ledger's checkpoint, has to tell of this
// payment's use of it and of no other. It does not judge an approval that was given at a client,
// which has no seal: only the process whose client gave it can.
func (g *Guard) Approved(ctx context.Context, p history.Payment, a history.Approval) error {
	own, err := g.GaveApproval(ctx, a)
	if err != nil {
		return err
	}
	if !own || !a.Covers(p) {
		return x402.Errorf(x402.ApprovalRequired,
			"the approval %s was not given by the owner, for this payment", a.ID).
			WithHint("the person gives it, if they mean to: x402-wallet approve %s", a.ID).
			WithCommand(x402.Command("approve", a.ID), "Please approve this payment yourself, if you mean "+
				"to: its approval in the ledger is not yours.")
	}
	m, err := g.latest(ctx)
	if err != nil {
		return err
	}
	used, err := g.Store.UsedBy(ctx, a.Quote, a.Since, m.head())
	if err != nil {
		return err
	}
	if !slices.Equal(used, []string{p.ID}) {
		return x402.Errorf(x402.ApprovalRequired, "the approval %s was used up by another payment", a.ID).
			WithHint("make the call again: the person is asked again").
			WithNext(x402.Next{Do: x402.Repeat, Why: "the person is asked again"})
	}
	return nil
}

// Unfreeze lifts every freeze, and checkpoints that.
func (g *Guard) Unfreeze(ctx context.Context) ([]history.Freeze, error) {
	sealed, err := g.Store.Rules(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := g.checkLedger(ctx, sealed); err != nil {
		return nil, err
	}
	seal, err := g.sealer(ctx)
	if err != nil {
		return nil, err
	}
	lifted, err := g.Store.Unfreeze(ctx, func(l history.Lift) ([]byte, error) {
		return seal(purposeLift, liftData(l))
	})
	if err != nil {
		return nil, err
	}
	return lifted, g.Checkpoint(ctx)
}

func liftData(l history.Lift) []byte { return numbers(nil, l.UpTo, l.At.UnixMicro()) }

// ownLift reports whether a lift, if there is one, is the owner's.
func (g *Guard) ownLift(ctx context.Context, l history.Lift) (bool, error) {
	if l.UpTo == 0 && l.At.IsZero() {
		return true, nil
	}
	return g.isOwnSeal(ctx, purposeLift, liftData(l), l.Seal)
}

// NewSession begins a session with its whole budget. limit is the delegation's worth, where the
// owner set no cap.
func (g *Guard) NewSession(ctx context.Context, limit *money.Dollars) (budget.Session, error) {
	seal, err := g.sealer(ctx)
	if err != nil {
		return budget.Session{}, err
	}
	return g.Store.NewSession(ctx, limit, func(s budget.Session) ([]byte, error) {
		return seal(purposeSession, sessionData(s))
	})
}

func sessionData(s budget.Session) []byte { return numbers(texts(s.ID), s.Started.UnixMicro()) }

// OwnSession reports whether the owner began a session.
func (g *Guard) OwnSession(ctx context.Context, s budget.Session, seal []byte) (bool, error) {
	if len(seal) == 0 {
		return false, nil
	}
	return g.isOwnSeal(ctx, purposeSession, sessionData(s), seal)
}

// SealChannel is the owner's word that they fund a channel with its host, by which the agent signs vouchers.
// It holds for this ledger, wherever it lies.
func (g *Guard) SealChannel(ctx context.Context, c history.Channel) ([]byte, error) {
	ledger, err := g.Store.LedgerID(ctx)
	if err != nil {
		return nil, err
	}
	return g.Key.Seal(ctx, purposeChannel, slices.Concat(texts(ledger), channelData(c)))
}

// OwnChannel reports whether the owner sealed that they fund a channel.
func (g *Guard) OwnChannel(ctx context.Context, c history.Channel, seal []byte) (bool, error) {
	own, err := g.SealChannel(ctx, c)
	return err == nil && hmac.Equal(own, seal), err
}

// channelData is what the owner seals of a channel, whose id is over who funds it and who is paid.
func channelData(c history.Channel) []byte { return texts(c.Network, c.ID, c.Server, c.Key) }

// GaveApproval reports whether the owner gave an approval.
func (g *Guard) GaveApproval(ctx context.Context, a history.Approval) (bool, error) {
	return g.isOwnSeal(ctx, purposeApproval, approvalData(a), a.Seal)
}
