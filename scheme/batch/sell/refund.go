package sell

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"strconv"

	"x402-wallet/facilitator"
	"x402-wallet/paywall/book"
	"x402-wallet/scheme/selling"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// A buyer asks back what is not charged: by the newest voucher, which promises nothing new. In one
// transaction what was charged is claimed and the rest goes to the channel's payer, whoever asked.

// Refund implements selling.Tab: it gives back what is left in the channel, or as much of it as was asked
// for.
func (t *tab) Refund(ctx context.Context, as func() facilitator.Submission) (back selling.Counted,
	err error) {
	amount := t.channel.Balance.SubFloor(t.channel.Charged)
	if amount.IsZero() {
		return back, refuse(noRest, selling.ErrRejected)
	}
	if t.payment.Amount != nil {
		asked, err := money.ParseAmount(*t.payment.Amount)
		if err != nil || asked.IsZero() {
			return back, refuse(badRefund, selling.ErrRejected)
		}
		amount = asked
	}
	holder := "refund_" + rand.Text()
	if err := t.HoldChannel(ctx, *t.channel, holder, t.until); err != nil {
		return back, t.whyNotHeld(err)
	}
	ctx = context.WithoutCancel(ctx)
	asked := as()
	asked.Payload = t.refundPayload(amount)
	back.Result = t.Facilitators.Settle(ctx, asked)
	if back.Outcome != facilitator.Settled {
		t.Release(ctx, holder)
		return back, nil
	}
	t.noteRefund(ctx, holder, back.Result)
	back.Extra = selling.JSON(map[string]any{"channelState": channelState(*t.channel)})
	back.Answer = map[string]any{"message": "Refund acknowledged", "channelId": t.payment.id}
	return back, nil
}

// refundPayload is the buyer's request with what a facilitator needs to settle it; it signs for the receiver.
func (t *tab) refundPayload(amount money.Amount) json.RawMessage {
	claims := []channelClaim{}
	if !t.channel.Owed().IsZero() {
		owed := *t.channel
		owed.Voucher = t.payment.voucher()
		claims = append(claims, claimOf(owed))
	}
	return withPayload(t.shown, func(payload map[string]json.RawMessage) {
		payload["amount"] = selling.JSON(amount)
		payload["refundNonce"] = selling.JSON(strconv.FormatInt(t.channel.Refunds, 10))
		payload["claims"] = selling.JSON(claims)
	})
}

// noteRefund writes down what is left of the channel. What was claimed with it is paid out with the next
// claims.
func (t *tab) noteRefund(ctx context.Context, holder string, said facilitator.Result) {
	owed := t.channel.Owed()
	after := *t.channel
	if settledState(&after, said.Settlement) != nil {
		back, _ := money.ParseAmount(said.Settlement.Amount)
		after.Balance, after.Claimed = after.Balance.SubFloor(back), after.Charged
		after.Refunds, after.WithdrawsAt = after.Refunds+1, 0
	}
	t.channel = &after
	err := t.UpdateSoldChannel(ctx, after.Network, after.ID, holder, func(c *book.SoldChannel) {
		c.Balance, c.Claimed, c.Refunds, c.WithdrawsAt = after.Balance, after.Claimed, after.Refunds,
			after.WithdrawsAt
		if c.OwedSince.IsZero() && !owed.IsZero() {
			c.OwedSince, c.Voucher = t.Now(), t.payment.voucher()
		}
	})
	if err != nil {
		t.Log.Error("write down a refund: the channel is held until its payment would be too old", "channel",
			after.ID, "transaction", said.Settlement.Transaction, "err", err)
	}
}

// channelClaim is a voucher as a facilitator claims by it.
type channelClaim struct {
	Voucher struct {
		Channel x402.ChannelConfig `json:"channel"`
		Ceiling money.Amount       `json:"maxClaimableAmount"`
	} `json:"voucher"`
	Signature string       `json:"signature"`
	Total     money.Amount `json:"totalClaimed"`
}

// claimOf claims all that was charged in a channel, and no more.
func claimOf(c book.SoldChannel) (claim channelClaim) {
	claim.Voucher.Channel, claim.Voucher.Ceiling = c.Config, c.Voucher.Ceiling
	claim.Signature, claim.Total = c.Voucher.Signature, c.Charged
	return claim
}
