package paywall

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"x402-wallet/facilitator"
	"x402-wallet/paywall/book"
	"x402-wallet/x402"
	"x402-wallet/x402/channelterms"
	"x402-wallet/x402/money"
)

// Getting the money: what was charged is claimed by the newest vouchers, many channels in one transaction,
// and then paid out to who is paid, by the facilitator that signs for it. Both may be done twice: a claim of
// what is claimed does nothing.
//
// A buyer gets their money back without us at the earliest withdrawDelay after they asked; and who asked buys
// nothing here. So what is claimed sooner than that after it was charged cannot be taken back.

const (
	maxClaims     = 100 // in one transaction, as the reference server has it
	claimTimeout  = 2 * time.Minute
	defaultClaims = time.Hour        // the age of a charge at which it is claimed
	claimEvery    = 30 * time.Second // how often is looked for what is due
)

// CheckChannels refuses to sell by batch-settlement where no facilitator would sign for the receiver. One
// that does not answer may do so.
func (w *Paywall) CheckChannels(ctx context.Context) error {
	for _, t := range w.options.Tools {
		for _, o := range w.tools[t.Name].options {
			if o.way != x402.BatchSettlement {
				continue
			}
			kinds, err := w.options.Facilitators.Supported(ctx, o.Network)
			signs := slices.ContainsFunc(kinds, func(k facilitator.Kind) bool {
				return k.Version == 2 && k.Scheme == x402.BatchSettlement && k.Takes(o.routing()) &&
					o.channelExtra(k, map[string]json.RawMessage{}) == nil
			})
			if !signs && err == nil {
				return fmt.Errorf("the tool %q: no facilitator names a receiverAuthorizer for "+
					"batch-settlement on %s in its /supported, so nobody could claim: sell it otherwise, "+
					"or by another facilitator", t.Name, x402.Title(o.Network))
			}
		}
	}
	return nil
}

// sellsByBatch reports whether anything is sold by batch-settlement, as far as prices are fixed.
func (w *Paywall) sellsByBatch() bool {
	for _, t := range w.tools {
		if slices.ContainsFunc(t.options, func(o option) bool { return o.way == x402.BatchSettlement }) {
			return true
		}
	}
	return false
}

// Claim is what was claimed and paid out at once, for one payee.
type Claim struct {
	Network, PayTo, Asset string
	Channels              int
	Amount                money.Amount // claimed now, in atomic units
	Transactions          []string     // the claims', then of the payment
}

// Claim claims all that was charged by batch-settlement and not claimed yet, and has it paid out. What is not
// done with an error is tried again by the next call.
func (w *Paywall) Claim(ctx context.Context) ([]Claim, error) {
	w.claims.Lock() // one at a time
	defer w.claims.Unlock()
	owed, err := w.options.Store.OwedChannels(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errBook, err)
	}
	var done []Claim
	var failures []error
	for len(owed) > 0 {
		payee := payeeOf(owed[0])
		isHis := func(c book.SoldChannel) bool { return payeeOf(c) == payee }
		own := slices.Clone(owed)
		own = slices.DeleteFunc(own, func(c book.SoldChannel) bool { return !isHis(c) })
		owed = slices.DeleteFunc(owed, isHis)
		made, err := w.claimFor(ctx, payee, own)
		if err != nil {
			failures = append(failures, err)
		}
		if len(made.Transactions) > 0 {
			done = append(done, made)
		}
	}
	return done, errors.Join(failures...)
}

// channelPayee is whose channels can be claimed in one transaction.
type channelPayee struct{ network, receiver, authorizer, token string }

func payeeOf(c book.SoldChannel) channelPayee {
	return channelPayee{c.Network, c.Config.Receiver, c.Config.ReceiverAuthorizer, c.Config.Token}
}

// claimFor claims out of the channels of one payee, and has it paid out.
func (w *Paywall) claimFor(ctx context.Context, payee channelPayee, owed []book.SoldChannel) (made Claim,
	err error) {
	made = Claim{Network: payee.network, PayTo: payee.receiver, Asset: payee.token}
	left := slices.Clone(owed)
	left = slices.DeleteFunc(left, func(c book.SoldChannel) bool { return c.Owed().IsZero() })
	var failures []error
	for batch := range slices.Chunk(left, maxClaims) {
		failures = append(failures, w.claimBatch(ctx, payee, batch, &made))
	}
	if len(made.Transactions) == 0 && len(left) == len(owed) { // nothing to pay out
		return made, errors.Join(failures...)
	}
	said := w.settleFor(ctx, payee, map[string]any{"type": "settle", "receiver": payee.receiver,
		"token": payee.token})
	isPaid := said.Settlement != nil && said.Settlement.ErrorReason == batchNoneToPay // somebody else did it
	if said.Outcome != facilitator.Settled && !isPaid {
		failures = append(failures, fmt.Errorf("pay out to %s: %w", payee.receiver, said.Err))
		return made, errors.Join(failures...)
	}
	if !isPaid {
		made.Transactions = append(made.Transactions, said.Settlement.Transaction)
	}
	for _, c := range owed {
		failures = append(failures, w.noteClaimed(ctx, c, func(now *book.SoldChannel) {
			if now.Owed().IsZero() { // or it was charged meanwhile
				now.OwedSince = time.Time{}
			}
		}))
	}
	return made, errors.Join(failures...)
}

// claimBatch claims in one transaction. Where that is refused it tries halves, so that a channel out of which
// nothing can be claimed keeps nobody else's money.
func (w *Paywall) claimBatch(ctx context.Context, payee channelPayee, batch []book.SoldChannel,
	made *Claim) error {
	said := w.settleFor(ctx, payee, map[string]any{"type": "claim", "claims": each(batch, claimOf)})
	switch {
	case said.Outcome == facilitator.Refused && len(batch) > 1:
		half := len(batch) / 2
		return errors.Join(w.claimBatch(ctx, payee, batch[:half], made),
			w.claimBatch(ctx, payee, batch[half:], made))
	case said.Outcome != facilitator.Settled:
		return fmt.Errorf("claim for %s out of %d channels, the first of them %s: %w", payee.receiver,
			len(batch), batch[0].ID, said.Err)
	}
	made.Transactions = append(made.Transactions, said.Settlement.Transaction)
	made.Channels += len(batch)
	for _, c := range batch {
		made.Amount, _ = made.Amount.Add(c.Owed())
		err := w.noteClaimed(ctx, c, func(now *book.SoldChannel) {
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

func each[A, B any](list []A, f func(A) B) (out []B) {
	for _, a := range list {
		out = append(out, f(a))
	}
	return out
}

func (w *Paywall) noteClaimed(ctx context.Context, c book.SoldChannel,
	change func(*book.SoldChannel)) error {
	err := w.options.Store.UpdateSoldChannel(context.WithoutCancel(ctx), c.Network, c.ID, "", change)
	if err != nil {
		return fmt.Errorf("%w: %w", errBook, err)
	}
	return nil
}

// settleFor has the facilitator settle something of the seller's own, in the reference server's form.
func (w *Paywall) settleFor(ctx context.Context, payee channelPayee,
	payload map[string]any) facilitator.Result {
	terms := jsonOf(map[string]any{"scheme": x402.BatchSettlement, "network": payee.network,
		"asset": payee.token, "amount": "0", "payTo": payee.receiver, "maxTimeoutSeconds": 0,
		"extra": map[string]any{}})
	said := w.options.Facilitators.Settle(ctx, facilitator.Submission{Network: payee.network, Version: 2,
		Requirements: terms, Validity: claimTimeout, Sticky: true, FeePayer: payee.authorizer,
		Payload: jsonOf(map[string]any{"x402Version": 2, "accepted": terms, "payload": payload})})
	if said.Err == nil && said.Outcome != facilitator.Settled {
		said.Err = ErrSettlementFailed
	}
	return said
}

// KeepClaiming claims what is due until ctx ends: when a charge is as old as Options.ClaimAfter, when
// Options.ClaimAbove is owed in all, and at once when a buyer began to take their money back. Who sells by
// batch-settlement runs it, or calls Claim as often.
func (w *Paywall) KeepClaiming(ctx context.Context) {
	tick := time.NewTicker(claimEvery)
	defer tick.Stop()
	for {
		if w.isClaimDue(ctx) {
			w.claimNow(ctx)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-w.claimWanted:
		}
	}
}

// claimLast claims what a paywall is owed that sells no more.
func (w *Paywall) claimLast(ctx context.Context) error {
	if !w.sellsByBatch() {
		return nil
	}
	_, err := w.Claim(ctx)
	return err
}

func (w *Paywall) claimNow(ctx context.Context) {
	done, err := w.Claim(ctx)
	for _, c := range done {
		w.log.Info("claimed what was charged", "channels", c.Channels, "amount", c.Amount, "asset", c.Asset,
			"payTo", c.PayTo, "transactions", c.Transactions)
	}
	if err != nil && ctx.Err() == nil {
		w.log.Error("claim what was charged: it is tried again", "err", err)
	}
}

func (w *Paywall) isClaimDue(ctx context.Context) bool {
	owed, err := w.options.Store.OwedChannels(ctx)
	if err != nil {
		w.log.Error("read what is owed", "err", err)
		return false
	}
	isUrgent, total := false, money.Dollars(0)
	for _, c := range owed {
		isUrgent = isUrgent || w.now().Sub(c.OwedSince) >= w.claimAfter() || c.WithdrawsAt != 0
		if asset, known := w.options.Assets.Asset(c.Network, c.Config.Token); known {
			total += asset.Dollars(c.Owed())
		}
	}
	return len(owed) > 0 && (isUrgent || (w.claimAbove > 0 && total >= w.claimAbove))
}

// claimAfter is the age at which a charge is claimed.
func (w *Paywall) claimAfter() time.Duration {
	return cmp.Or(w.options.ClaimAfter, min(defaultClaims, w.shortestDelay()/2))
}

// shortestDelay is how long a buyer's money stays at least. Of prices that are computed it is not known.
func (w *Paywall) shortestDelay() time.Duration {
	shortest := channelterms.MaxWithdrawDelay
	for _, t := range w.tools {
		for _, o := range t.options {
			if o.way == x402.BatchSettlement {
				shortest = min(shortest, o.withdrawDelay)
			}
		}
		if t.Quote != nil {
			shortest = channelterms.MinWithdrawDelay
		}
	}
	return shortest
}

// checkClaims reads when to claim.
func (w *Paywall) checkClaims() (err error) {
	if latest := w.shortestDelay() / 2; w.options.ClaimAfter < 0 || w.options.ClaimAfter > latest {
		return fmt.Errorf("what was charged has to be claimed within %s, half of the withdraw delay", latest)
	}
	if w.options.ClaimAbove == "" {
		return nil
	}
	w.claimAbove, err = money.ParseDollars(strings.TrimPrefix(w.options.ClaimAbove, "$"))
	if err == nil && w.claimAbove <= 0 {
		err = errors.New("it is nothing")
	}
	if err != nil {
		return fmt.Errorf("the sum that is claimed at once: %w", err)
	}
	return nil
}

// wakeClaims has KeepClaiming look at once whether a claim is due.
func (w *Paywall) wakeClaims() {
	select {
	case w.claimWanted <- struct{}{}:
	default:
	}
}
