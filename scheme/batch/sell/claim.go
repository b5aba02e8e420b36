package sell

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"x402-wallet/facilitator"
	"x402-wallet/paywall/book"
	"x402-wallet/scheme/selling"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// Getting the money: what was charged is claimed by the newest vouchers, many channels in one transaction,
// and then paid out to who is paid, by the facilitator that signs for it. Both may be done twice: a claim of
// what is claimed does nothing.
//
// A buyer gets their money back without us at the earliest withdrawDelay after they asked; and who asked buys
// nothing here. So what is claimed sooner than that after it was charged cannot be taken back.

const (
	maxClaims    = 100 // in one transaction, as the reference server has it
	claimTimeout = 2 * time.Minute
)

func (Way) Claim(ctx context.Context, s selling.Shop) ([]selling.Claim, error) {
	owed, err := s.OwedChannels(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", selling.ErrBook, err)
	}
	var done []selling.Claim
	var failures []error
	for len(owed) > 0 {
		p := payeeOf(owed[0])
		isHis := func(c book.SoldChannel) bool { return payeeOf(c) == p }
		own := slices.Clone(owed)
		own = slices.DeleteFunc(own, func(c book.SoldChannel) bool { return !isHis(c) })
		owed = slices.DeleteFunc(owed, isHis)
		r := &claiming{Shop: s, payee: p,
			Claim: selling.Claim{Network: p.network, PayTo: p.receiver, Asset: p.token}}
		if err := r.claimFrom(ctx, own); err != nil {
			failures = append(failures, err)
		}
		if len(r.Transactions) > 0 {
			done = append(done, r.Claim)
		}
	}
	return done, errors.Join(failures...)
}

// payee is whose channels can be claimed in one transaction.
type payee struct{ network, receiver, authorizer, token string }

func payeeOf(c book.SoldChannel) payee {
	return payee{c.Network, c.Config.Receiver, c.Config.ReceiverAuthorizer, c.Config.Token}
}

// claiming is what is done for one payee.
type claiming struct {
	selling.Shop
	selling.Claim
	payee payee
}

// claimFrom claims out of the payee's channels, and has it paid out.
func (r *claiming) claimFrom(ctx context.Context, owed []book.SoldChannel) error {
	left := slices.Clone(owed)
	left = slices.DeleteFunc(left, func(c book.SoldChannel) bool { return c.Owed().IsZero() })
	var failures []error
	for batch := range slices.Chunk(left, maxClaims) {
		failures = append(failures, r.claimBatch(ctx, batch))
	}
	if len(r.Transactions) == 0 && len(left) == len(owed) { // nothing to pay out
		return errors.Join(failures...)
	}
	said := r.settle(ctx, map[string]any{"type": "settle", "receiver": r.payee.receiver,
		"token": r.payee.token})
	isPaid := said.Settlement != nil && said.Settlement.ErrorReason == noneToPay // somebody else did it
	if said.Outcome != facilitator.Settled && !isPaid {
		failures = append(failures, fmt.Errorf("pay out to %s: %w", r.payee.receiver, said.Err))
		return errors.Join(failures...)
	}
	if !isPaid {
		r.Transactions = append(r.Transactions, said.Settlement.Transaction)
	}
	for _, c := range owed {
		failures = append(failures, r.note(ctx, c, func(now *book.SoldChannel) {
			if now.Owed().IsZero() { // or it was charged meanwhile
				now.OwedSince = time.Time{}
			}
		}))
	}
	return errors.Join(failures...)
}

// claimBatch claims in one transaction. Where that is refused it tries halves, so that a channel out of which
// nothing can be claimed keeps nobody else's money.
func (r *claiming) claimBatch(ctx context.Context, batch []book.SoldChannel) error {
	var claims []channelClaim
	for _, c := range batch {
		claims = append(claims, claimOf(c))
	}
	said := r.settle(ctx, map[string]any{"type": "claim", "claims": claims})
	switch {
	case said.Outcome == facilitator.Refused && len(batch) > 1:
		half := len(batch) / 2
		return errors.Join(r.claimBatch(ctx, batch[:half]), r.claimBatch(ctx, batch[half:]))
	case said.Outcome != facilitator.Settled:
		return fmt.Errorf("claim for %s out of %d channels, the first of them %s: %w", r.payee.receiver,
			len(batch), batch[0].ID, said.Err)
	}
	r.Transactions = append(r.Transactions, said.Settlement.Transaction)
	r.Claim.Channels += len(batch)
	for _, c := range batch {
		r.Amount, _ = r.Amount.Add(c.Owed())
		err := r.note(ctx, c, func(now *book.SoldChannel) {
			if c.Charged.Cmp(now.Claimed) > 0 {
				now.Claimed = c.Charged
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *claiming) note(ctx context.Context, c book.SoldChannel, change func(*book.SoldChannel)) error {
	err := r.UpdateSoldChannel(context.WithoutCancel(ctx), c.Network, c.ID, "", change)
	if err != nil {
		return fmt.Errorf("%w: %w", selling.ErrBook, err)
	}
	return nil
}

// settle has the facilitator settle something of the seller's own, in the reference server's form.
func (r *claiming) settle(ctx context.Context, payload map[string]any) facilitator.Result {
	terms := selling.JSON(map[string]any{"scheme": x402.BatchSettlement, "network": r.payee.network,
		"asset": r.payee.token, "amount": "0", "payTo": r.payee.receiver, "maxTimeoutSeconds": 0,
		"extra": map[string]any{}})
	said := r.Settle(ctx, facilitator.Submission{Network: r.payee.network, Version: 2,
		Requirements: terms, Validity: claimTimeout, Sticky: true, FeePayer: r.payee.authorizer,
		Payload: selling.JSON(map[string]any{"x402Version": 2, "accepted": terms, "payload": payload})})
	if said.Err == nil && said.Outcome != facilitator.Settled {
		said.Err = selling.ErrNotSettled
	}
	return said
}

// IsClaimDue implements selling.Claimer: a claim cannot wait when a buyer began to take their money back.
func (Way) IsClaimDue(ctx context.Context, s selling.Shop, age time.Duration, above money.Dollars) bool {
	owed, err := s.OwedChannels(ctx)
	if err != nil {
		s.Log.Error("read what is owed", "err", err)
		return false
	}
	isUrgent, total := false, money.Dollars(0)
	for _, c := range owed {
		isUrgent = isUrgent || s.Now().Sub(c.OwedSince) >= age || c.WithdrawsAt != 0
		if asset, known := s.Assets.Asset(c.Network, c.Config.Token); known {
			total += asset.Dollars(c.Owed())
		}
	}
	return len(owed) > 0 && (isUrgent || (above > 0 && total >= above))
}
