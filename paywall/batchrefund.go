package paywall

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"strconv"

	"x402-wallet/facilitator"
	"x402-wallet/paywall/book"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// A buyer asks back what is not charged: by the newest voucher, which promises nothing new. In one
// transaction what was charged is claimed and the rest goes to the channel's payer, whoever asked.

// refund gives back what is left in the channel, or as much of it as was asked for.
func (s *saleRun) refund(ctx context.Context) {
	c := s.signed.channel
	amount := s.channel.Balance.SubFloor(s.channel.Charged)
	refuse := func(why string) {
		s.verification = invalid
		s.explain(ErrPaymentRejected, why)
	}
	if amount.IsZero() {
		refuse(batchNoRest)
		return
	}
	if c.Amount != nil {
		asked, err := money.ParseAmount(*c.Amount)
		if err != nil || asked.IsZero() {
			refuse(batchBadRefund)
			return
		}
		amount = asked
	}
	holder := "refund_" + rand.Text()
	err := s.options.Store.HoldChannel(ctx, *s.channel, holder, s.signed.expires.Add(holdMargin))
	switch {
	case err != nil && s.explainHold(err):
		return
	case err != nil:
		s.bookFailed(err, "the book of sales cannot be written; nothing was given back")
		return
	}
	ctx = context.WithoutCancel(ctx)
	submission := s.submission()
	submission.Payload = s.refundPayload(amount)
	said := s.options.Facilitators.Settle(ctx, submission)
	s.settlement = settleOutcomeOf(said)
	s.out.settlement = s.buyerSettlement(said.Settlement)
	s.sale.Settlement = s.out.settlement
	if s.settlement != settled {
		s.releaseChannel(ctx, holder)
		s.explainSettlement(said.Err)
		return
	}
	s.run = succeeded
	s.noteRefund(ctx, holder, said)
	s.out.extra = jsonOf(map[string]any{"channelState": channelState(*s.channel)})
	s.out.toolResult = s.acknowledge(map[string]any{"message": "Refund acknowledged", "channelId": c.id})
}

// refundPayload is the buyer's request with what a facilitator needs to settle it; it signs for the receiver.
func (s *saleRun) refundPayload(amount money.Amount) json.RawMessage {
	claims := []channelClaim{}
	if !s.channel.Owed().IsZero() {
		owed := *s.channel
		owed.Voucher = s.signed.channel.voucher()
		claims = append(claims, claimOf(owed))
	}
	return s.payment.withPayload(func(payload map[string]json.RawMessage) {
		payload["amount"] = jsonOf(amount)
		payload["refundNonce"] = jsonOf(strconv.FormatInt(s.channel.Refunds, 10))
		payload["claims"] = jsonOf(claims)
	})
}

// noteRefund writes down what is left of the channel. What was claimed with it is paid out with the next
// claims.
func (s *saleRun) noteRefund(ctx context.Context, holder string, said facilitator.Result) {
	owed := s.channel.Owed()
	after := *s.channel
	if settledState(&after, said.Settlement) != nil {
		back, _ := money.ParseAmount(said.Settlement.Amount)
		after.Balance, after.Claimed = after.Balance.SubFloor(back), after.Charged
		after.Refunds, after.WithdrawsAt = after.Refunds+1, 0
	}
	s.channel = &after
	err := s.options.Store.UpdateSoldChannel(ctx, after.Network, after.ID, holder, func(c *book.SoldChannel) {
		c.Balance, c.Claimed, c.Refunds, c.WithdrawsAt = after.Balance, after.Claimed, after.Refunds,
			after.WithdrawsAt
		if c.OwedSince.IsZero() && !owed.IsZero() {
			c.OwedSince, c.Voucher = s.now(), s.signed.channel.voucher()
		}
	})
	if err != nil {
		s.log.Error("write down a refund: the channel is held until its payment would be too old", "channel",
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
