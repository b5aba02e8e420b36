package sell

import (
	"encoding/json"
	"errors"
	"strconv"

	"x402-wallet/paywall/book"
	"x402-wallet/scheme/selling"
	"x402-wallet/x402/money"
	"x402-wallet/x402/wire"
)

// What is said of a channel: by the facilitator, and to buyers.

var errNoState = errors.New("the facilitator says nothing of the channel that can be read")

// takeState takes into c what a facilitator says of a channel: {balance, totalClaimed, withdrawRequestedAt,
// refundNonce}, the numbers as texts or not.
func takeState(c *book.SoldChannel, said map[string]json.RawMessage) error {
	balance, errBalance := money.ParseAmount(plainNumber(said["balance"]))
	claimed, errClaimed := money.ParseAmount(plainNumber(said["totalClaimed"]))
	began, errBegan := strconv.ParseInt(plainNumber(said["withdrawRequestedAt"]), 10, 64)
	refunds, errRefunds := strconv.ParseInt(plainNumber(said["refundNonce"]), 10, 64)
	if errors.Join(errBalance, errClaimed, errBegan, errRefunds) != nil {
		return errNoState
	}
	c.Balance, c.Claimed, c.WithdrawsAt, c.Refunds = balance, claimed, began, refunds
	return nil
}

func plainNumber(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	return string(raw)
}

// settledState takes what a settlement says of the channel.
func settledState(c *book.SoldChannel, s *wire.Settlement) error {
	var said struct {
		Extra struct {
			State map[string]json.RawMessage `json:"channelState"`
		} `json:"extra"`
	}
	if s == nil || json.Unmarshal(s.Raw, &said) != nil {
		return errNoState
	}
	return takeState(c, said.Extra.State)
}

// channelState is a channel as buyers are told of it, in the reference's form.
func channelState(c book.SoldChannel) map[string]any {
	return map[string]any{"channelId": c.ID, "balance": c.Balance, "totalClaimed": c.Claimed,
		"withdrawRequestedAt": c.WithdrawsAt, "refundNonce": strconv.FormatInt(c.Refunds, 10),
		"chargedCumulativeAmount": c.Charged}
}

// Corrected implements selling.Tab: it says our count, and the voucher that proves it.
func (t *tab) Corrected(o selling.Option, terms json.RawMessage) json.RawMessage {
	c := t.correction
	if _, isOurs := o.Way.(Way); c == nil || !isOurs || o.Network != c.Network {
		return terms
	}
	return selling.WithExtra(terms, func(extra map[string]json.RawMessage) {
		extra["channelState"] = selling.JSON(channelState(*c))
		if c.Voucher.Signature != "" {
			extra["voucherState"] = selling.JSON(map[string]any{"signedMaxClaimable": c.Voucher.Ceiling,
				"signature": c.Voucher.Signature})
		}
	})
}
