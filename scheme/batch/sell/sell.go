// Package sell is how a seller is paid by batch-settlement: a buyer deposits once into a channel, and pays
// each call by a voucher for all that was charged in it and the price. Here is what such an offer says and
// what a buyer shows for it; tab.go counts, claim.go gets the money, refund.go gives the rest back. Claims
// and refunds are signed by the facilitator (receiverAuthorizer), so that no key is needed here.
//
// What must stay true: a voucher, and that it was charged for, are on the disk before the answer leaves, in
// the transaction that settles the sale. A channel is counted by one request at a time. What was charged is
// claimed before its buyer can have the money back.
package sell

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	evm "x402-wallet/chain/evm/message"
	"x402-wallet/facilitator"
	"x402-wallet/scheme/selling"
	"x402-wallet/x402"
	"x402-wallet/x402/channelterms"
	"x402-wallet/x402/money"
)

// The payload's types that buyers send.
const (
	deposit = "deposit"
	voucher = "voucher"
	refund  = "refund"
)

const (
	// defaultWithdrawDelay is how long a buyer's money stays after they asked it back, where the owner says
	// nothing: time to claim for a paywall that was down, and no longer than careful wallets allow.
	defaultWithdrawDelay = 24 * time.Hour
	// defaultDeposit is the least deposit in prices, as the reference server has it.
	defaultDeposit = 10
)

// The reference's words for what is wrong with a payment (x402 2.27), which clients act upon.
const (
	mismatch    = "invalid_batch_settlement_evm_cumulative_amount_mismatch"
	busy        = "invalid_batch_settlement_evm_channel_busy"
	short       = "invalid_batch_settlement_evm_cumulative_exceeds_balance"
	withdrawn   = "invalid_batch_settlement_evm_withdrawal_pending" // ours: the reference has none
	noRest      = "invalid_batch_settlement_evm_refund_no_balance"
	badRefund   = "invalid_batch_settlement_evm_refund_amount_invalid"
	noneToPay   = "invalid_batch_settlement_evm_nothing_to_settle"
	zeroAddress = "0x0000000000000000000000000000000000000000"
)

func rejected(why string) error {
	return fmt.Errorf("%w: invalid_batch_settlement_evm_%s", selling.ErrRejected, why)
}

// Way is a selling.Way, and a selling.Claimer.
type Way struct{ selling.Plain }

func (Way) Traits() selling.Traits {
	return selling.Traits{Name: x402.BatchSettlement, Scheme: x402.BatchSettlement, IsNewer: true}
}

// authorizerKey is in an offer's extra.
const authorizerKey = "receiverAuthorizer"

func (Way) SettlerIn(string) string { return authorizerKey }

// Complete implements selling.Way. A tool may not run longer than its buyer's money is sure to stay.
func (Way) Complete(o *selling.Option, said selling.Said, s selling.Shop) error {
	o.WithdrawDelay = cmp.Or(said.WithdrawDelay, defaultWithdrawDelay)
	switch {
	case said.ByPermit2:
		return fmt.Errorf("deposits for batch-settlement come by EIP-3009, not by Permit2 (%s)",
			o.Asset.Symbol)
	case s.VerifyOnly:
		return errors.New("batch-settlement counts what it charges: it cannot be verified only")
	case s.SharedPayTo: // another book would count the same channels
		return errors.New("batch-settlement counts its channels in one book: nobody may sell for the " +
			"address with another one")
	case o.WithdrawDelay < channelterms.MinWithdrawDelay || o.WithdrawDelay > channelterms.MaxWithdrawDelay ||
		o.WithdrawDelay%time.Second != 0:
		return fmt.Errorf("a withdraw delay is whole seconds from %s to %s", channelterms.MinWithdrawDelay,
			channelterms.MaxWithdrawDelay)
	case said.IsUpfront:
		return errors.New("batch-settlement is not paid upfront")
	case said.MaxTimeout > o.WithdrawDelay/3:
		return fmt.Errorf("a call may run for %s: its withdraw delay has to be three times that at least",
			said.MaxTimeout)
	}
	o.MinDeposit = o.Amount.Times(defaultDeposit)
	if said.MinDeposit == "" {
		return nil
	}
	dollars, err := money.ParseDollars(strings.TrimPrefix(said.MinDeposit, "$"))
	if err != nil {
		return fmt.Errorf("the least deposit: %w", err)
	}
	o.MinDeposit = o.Asset.Units(dollars)
	if o.MinDeposit.Cmp(o.Amount) < 0 {
		return fmt.Errorf("the least deposit %s does not cover the price %s", dollars.Price(),
			o.Price.Price())
	}
	return nil
}

func (Way) Extra(o selling.Option, k facilitator.Kind, extra map[string]json.RawMessage) error {
	authorizer, err := evm.Address(k.Settler())
	if err != nil || authorizer == zeroAddress {
		return errors.New("the facilitator's receiverAuthorizer is no address")
	}
	o.Domain(extra)
	extra[authorizerKey] = selling.JSON(authorizer)
	extra["withdrawDelay"] = json.RawMessage(strconv.FormatInt(int64(o.WithdrawDelay/time.Second), 10))
	extra["minDeposit"] = selling.JSON(o.MinDeposit)
	return nil
}

// payment is a payload of the scheme's.
type payment struct {
	Type    string             `json:"type"`
	Config  x402.ChannelConfig `json:"channelConfig"`
	Voucher struct {
		ID        string       `json:"channelId"`
		Ceiling   money.Amount `json:"maxClaimableAmount"`
		Signature string       `json:"signature"`
	} `json:"voucher"`
	Deposit *struct {
		Amount        money.Amount `json:"amount"`
		Authorization struct {
			By3009 *struct {
				ValidBefore string `json:"validBefore"`
			} `json:"erc3009Authorization"`
		} `json:"authorization"`
	} `json:"deposit"`
	Amount *string `json:"amount"` // what a refund asks back; nil: all that is left

	id string // the channel's, hashed here
}

func (c *payment) voucher() x402.ChannelVoucher {
	return x402.ChannelVoucher{Ceiling: c.Voucher.Ceiling, Signature: c.Voucher.Signature}
}

// deposited is what comes into the channel with the voucher.
func (c *payment) deposited() money.Amount {
	if c.Deposit == nil {
		return money.Amount{}
	}
	return c.Deposit.Amount
}

// Read implements selling.Way. It reads a voucher, with a deposit or without: the channel has to be as it was
// asked for, and the voucher signed by who signs for it. What the chain says of the channel, and whether the
// deposit's signature is valid, is for the facilitator to say.
func (Way) Read(p selling.Shown, shop selling.Shop) (s selling.Signed, err error) {
	c, o := &payment{}, p.Option
	if err := p.ReadPayload(c); err != nil {
		return s, err
	}
	if (c.Type == deposit) != (c.Deposit != nil) ||
		(c.Type != deposit && c.Type != voucher && c.Type != refund) {
		return s, rejected("payload_type")
	}
	id, err := evm.ChannelID(o.Network, c.Config)
	if err != nil {
		return s, fmt.Errorf("%w: its channelConfig: %w", selling.ErrInvalid, err)
	}
	c.id = id.Hex()
	asked, err := channelterms.Of(p.Asked)
	if err != nil {
		return s, err // ours: cannot happen
	}
	switch {
	case !strings.EqualFold(c.Voucher.ID, c.id):
		return s, rejected("channel_id_mismatch")
	case !strings.EqualFold(c.Config.Receiver, o.PayTo):
		return s, rejected("receiver_mismatch")
	case !strings.EqualFold(c.Config.ReceiverAuthorizer, asked.ReceiverAuthorizer):
		return s, rejected("receiver_authorizer_mismatch")
	case !strings.EqualFold(c.Config.Token, o.Asset.Address):
		return s, rejected("token_mismatch")
	case c.Config.WithdrawDelay != int64(asked.WithdrawDelay/time.Second):
		return s, rejected("withdraw_delay_mismatch")
	case !evm.IsOwnVoucher(o.Network, id, c.voucher(), c.Config.PayerAuthorizer):
		return s, rejected("voucher_signature")
	}
	now := shop.Now()
	s.Payer, s.Expires = c.Config.Payer, now.Add(p.Asked.MaxTimeout)
	s.UniqueKey = strings.Join([]string{o.Network, x402.BatchSettlement, c.id,
		c.Voucher.Ceiling.String()}, " ")
	if c.Deposit != nil {
		s.Expires, err = c.readDeposit(p, shop, s.Expires)
	}
	s.Tab = &tab{Shop: shop, shown: p, payment: c, until: s.Expires.Add(holdMargin)}
	return s, err
}

// readDeposit reads until when a payment with a deposit is valid.
func (c *payment) readDeposit(p selling.Shown, shop selling.Shop, latest time.Time) (time.Time, error) {
	by := c.Deposit.Authorization.By3009
	if by == nil {
		return latest, rejected("erc3009_authorization_required")
	}
	before, err := strconv.ParseInt(by.ValidBefore, 10, 64)
	switch {
	case err != nil || before < 0:
		return latest, fmt.Errorf("%w: its validBefore is not a time", selling.ErrInvalid)
	case c.Deposit.Amount.Cmp(p.Option.MinDeposit) < 0:
		return latest, rejected("deposit_below_min_deposit")
	case time.Unix(before, 0).Sub(shop.Now()) <= shop.Margin:
		return latest, selling.ErrExpired
	}
	return selling.Earlier(latest, time.Unix(before, 0)), nil
}

// withPayload is a PaymentPayload with another payload.
func withPayload(p selling.Shown, change func(payload map[string]json.RawMessage)) json.RawMessage {
	var all, payload map[string]json.RawMessage
	if json.Unmarshal(p.Raw, &all) != nil || json.Unmarshal(p.Payload, &payload) != nil {
		return p.Raw // it was read before: cannot happen
	}
	change(payload)
	all["payload"] = selling.JSON(payload)
	return selling.JSON(all)
}
