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
	"x402-wallet/scheme/selling"
	"x402-wallet/x402"
	"x402-wallet/x402/channelterms"
	"x402-wallet/x402/money"
)

// Getting the money of ways that count what they sell (selling.Claimer): when it is claimed.

const (
	defaultClaims = time.Hour        // the age of a charge at which it is claimed
	claimEvery    = 30 * time.Second // how often is looked for what is due
)

// isClaimed reports whether an option's money is claimed later.
func (o option) isClaimed() bool {
	_, is := o.Way.(selling.Claimer)
	return is
}

// CheckChannels refuses to sell by batch-settlement where no facilitator would sign for the receiver. One
// that does not answer may do so.
func (w *Paywall) CheckChannels(ctx context.Context) error {
	for _, t := range w.options.Tools {
		for _, o := range w.tools[t.label()].options {
			if !o.isClaimed() {
				continue
			}
			kinds, err := w.options.Facilitators.Supported(ctx, o.Network)
			signs := slices.ContainsFunc(kinds, func(k facilitator.Kind) bool {
				return k.Version == 2 && k.Scheme == o.scheme() && k.Takes(o.routing()) &&
					o.Way.Extra(o.Option, k, map[string]json.RawMessage{}) == nil
			})
			if !signs && err == nil {
				return fmt.Errorf("the tool %q: no facilitator names a %s for %s on %s in its /supported, "+
					"so nobody could claim: sell it otherwise, or by another facilitator", t.Name,
					o.Way.SettlerIn(o.Network), o.scheme(), x402.Title(o.Network))
			}
		}
	}
	return nil
}

// Claim is what was claimed and paid out at once, for one payee.
type Claim = selling.Claim

// Claim claims all that was charged by batch-settlement and not claimed yet, and has it paid out. What is not
// done with an error is tried again by the next call.
func (w *Paywall) Claim(ctx context.Context) (done []Claim, err error) {
	w.claims.Lock() // one at a time
	defer w.claims.Unlock()
	for _, way := range w.ways {
		if claimer, is := way.(selling.Claimer); is {
			made, failure := claimer.Claim(ctx, w.shop())
			done, err = append(done, made...), errors.Join(err, failure)
		}
	}
	return done, err
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

// claimLast claims what a paywall is owed that sells no more, as far as prices are fixed.
func (w *Paywall) claimLast(ctx context.Context) error {
	for _, t := range w.tools {
		if slices.ContainsFunc(t.options, option.isClaimed) {
			_, err := w.Claim(ctx)
			return err
		}
	}
	return nil
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
	return slices.ContainsFunc(w.ways, func(way selling.Way) bool {
		claimer, is := way.(selling.Claimer)
		return is && claimer.IsClaimDue(ctx, w.shop(), w.claimAfter(), w.claimAbove)
	})
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
			if o.isClaimed() {
				shortest = min(shortest, o.WithdrawDelay)
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
