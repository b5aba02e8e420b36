package paywall

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
	"x402-wallet/x402"
	"x402-wallet/x402/channelterms"
	"x402-wallet/x402/money"
)

// Payments by batch-settlement: a buyer deposits once into a channel, and pays each call by a voucher for all
// that was charged in it and the price. Here is what such an offer says and what a buyer shows for it;
// batchsale.go counts, batchclaim.go gets the money, batchrefund.go gives the rest back. Claims and refunds
// are signed by the facilitator (receiverAuthorizer), so that no key is needed here.

// The payload's types that buyers send.
const (
	batchDeposit = "deposit"
	batchVoucher = "voucher"
	batchRefund  = "refund"
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
	batchMismatch  = "invalid_batch_settlement_evm_cumulative_amount_mismatch"
	batchBusy      = "invalid_batch_settlement_evm_channel_busy"
	batchShort     = "invalid_batch_settlement_evm_cumulative_exceeds_balance"
	batchWithdrawn = "invalid_batch_settlement_evm_withdrawal_pending" // ours: the reference has none
	batchNoRest    = "invalid_batch_settlement_evm_refund_no_balance"
	batchBadRefund = "invalid_batch_settlement_evm_refund_amount_invalid"
	batchNoneToPay = "invalid_batch_settlement_evm_nothing_to_settle"
	zeroAddress    = "0x0000000000000000000000000000000000000000"
)

func errBatch(why string) error {
	return fmt.Errorf("%w: invalid_batch_settlement_evm_%s", ErrPaymentRejected, why)
}

// canSellByBatch says what this paywall lacks to sell by batch-settlement.
func (w *Paywall) canSellByBatch() error {
	switch {
	case w.options.VerifyOnly:
		return errors.New("batch-settlement counts what it charges: it cannot be verified only")
	case w.options.SharedPayTo: // another book would count the same channels
		return errors.New("batch-settlement counts its channels in one book: nobody may sell for the " +
			"address with another one")
	}
	return nil
}

// readDeposit reads what an option asks of a channel.
func (o *option) readDeposit(said Option) error {
	if o.way != x402.BatchSettlement {
		if said.MinDeposit != "" || said.WithdrawDelay != 0 {
			return errors.New("a least deposit and a delay are for the scheme batch-settlement")
		}
		return nil
	}
	o.withdrawDelay = cmp.Or(said.WithdrawDelay, defaultWithdrawDelay)
	if o.withdrawDelay < channelterms.MinWithdrawDelay || o.withdrawDelay > channelterms.MaxWithdrawDelay ||
		o.withdrawDelay%time.Second != 0 {
		return fmt.Errorf("a withdraw delay is whole seconds from %s to %s", channelterms.MinWithdrawDelay,
			channelterms.MaxWithdrawDelay)
	}
	o.minDeposit = o.Amount.Times(defaultDeposit)
	if said.MinDeposit == "" {
		return nil
	}
	dollars, err := money.ParseDollars(strings.TrimPrefix(said.MinDeposit, "$"))
	if err != nil {
		return fmt.Errorf("the least deposit: %w", err)
	}
	o.minDeposit = o.Asset.Units(dollars)
	if o.minDeposit.Cmp(o.Amount) < 0 {
		return fmt.Errorf("the least deposit %s does not cover the price %s", dollars.Price(),
			o.Price.Price())
	}
	return nil
}

// checkWays refuses ways to pay that cannot be paid upfront, and a tool that could run longer than its
// buyer's money is sure to stay.
func (t *tool) checkWays(options []option) error {
	for _, o := range options {
		switch {
		case o.way == x402.Upto && t.Upfront:
			return errors.New("what upto costs is known when it has run: it is not paid upfront")
		case o.way != x402.BatchSettlement:
		case t.Upfront:
			return errors.New("batch-settlement is not paid upfront")
		case t.MaxTimeout > o.withdrawDelay/3:
			return fmt.Errorf("a call may run for %s: its withdraw delay has to be three times that at least",
				t.MaxTimeout)
		}
	}
	return nil
}

// channelExtra is what an offer says of the channel that it is paid out of.
func (o option) channelExtra(kind facilitator.Kind, extra map[string]json.RawMessage) error {
	authorizer, err := evm.Address(kind.Settler())
	if err != nil || authorizer == zeroAddress {
		return errors.New("the facilitator's receiverAuthorizer is no address")
	}
	extra["receiverAuthorizer"] = jsonOf(authorizer)
	extra["withdrawDelay"] = json.RawMessage(strconv.FormatInt(int64(o.withdrawDelay/time.Second), 10))
	extra["minDeposit"] = jsonOf(o.minDeposit)
	return nil
}

// channelPayment is a payload of the scheme's.
type channelPayment struct {
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

func (c *channelPayment) isRefund() bool { return c != nil && c.Type == batchRefund }

func (c *channelPayment) voucher() x402.ChannelVoucher {
	return x402.ChannelVoucher{Ceiling: c.Voucher.Ceiling, Signature: c.Voucher.Signature}
}

// deposited is what comes into the channel with the voucher.
func (c *channelPayment) deposited() money.Amount {
	if c.Deposit == nil {
		return money.Amount{}
	}
	return c.Deposit.Amount
}

// readChannel reads a voucher, with a deposit or without: the channel has to be as it was asked for, and the
// voucher signed by who signs for it. What the chain says of the channel, and whether the deposit's signature
// is valid, is for the facilitator to say.
func (w *Paywall) readChannel(p *payment, o offer) (s signed, err error) {
	c := &channelPayment{}
	if err := x402.DecodeStrict(p.Payload, maxPayment, c); err != nil {
		return s, fmt.Errorf("%w: its payload: %w", ErrInvalidRequest, err)
	}
	if (c.Type == batchDeposit) != (c.Deposit != nil) ||
		(c.Type != batchDeposit && c.Type != batchVoucher && c.Type != batchRefund) {
		return s, errBatch("payload_type")
	}
	id, err := evm.ChannelID(o.Network, c.Config)
	if err != nil {
		return s, fmt.Errorf("%w: its channelConfig: %w", ErrInvalidRequest, err)
	}
	c.id = id.Hex()
	asked, err := channelterms.Of(o.terms[2])
	if err != nil {
		return s, err // ours: cannot happen
	}
	switch {
	case !strings.EqualFold(c.Voucher.ID, c.id):
		return s, errBatch("channel_id_mismatch")
	case !strings.EqualFold(c.Config.Receiver, o.PayTo):
		return s, errBatch("receiver_mismatch")
	case !strings.EqualFold(c.Config.ReceiverAuthorizer, asked.ReceiverAuthorizer):
		return s, errBatch("receiver_authorizer_mismatch")
	case !strings.EqualFold(c.Config.Token, o.Asset.Address):
		return s, errBatch("token_mismatch")
	case c.Config.WithdrawDelay != int64(asked.WithdrawDelay/time.Second):
		return s, errBatch("withdraw_delay_mismatch")
	case !evm.IsOwnVoucher(o.Network, id, c.voucher(), c.Config.PayerAuthorizer):
		return s, errBatch("voucher_signature")
	}
	now := w.now()
	s.channel, s.payer, s.expires = c, c.Config.Payer, now.Add(o.terms[2].MaxTimeout)
	s.uniqueKey = strings.Join([]string{o.Network, x402.BatchSettlement, c.id,
		c.Voucher.Ceiling.String()}, " ")
	if c.Deposit == nil {
		return s, nil
	}
	by := c.Deposit.Authorization.By3009
	if by == nil {
		return s, errBatch("erc3009_authorization_required")
	}
	before, err := strconv.ParseInt(by.ValidBefore, 10, 64)
	switch {
	case err != nil || before < 0:
		return s, fmt.Errorf("%w: its validBefore is not a time", ErrInvalidRequest)
	case c.Deposit.Amount.Cmp(o.minDeposit) < 0:
		return s, errBatch("deposit_below_min_deposit")
	case time.Unix(before, 0).Sub(now) <= w.settleMargin:
		return s, errExpired
	}
	s.expires = earlier(s.expires, time.Unix(before, 0))
	return s, nil
}

// withoutDeposit is a payment's voucher alone, for a deposit that the channel has.
func (p *payment) withoutDeposit() json.RawMessage {
	return p.withPayload(func(payload map[string]json.RawMessage) {
		payload["type"] = jsonOf(batchVoucher)
		delete(payload, "deposit")
	})
}

func (p *payment) withPayload(change func(payload map[string]json.RawMessage)) json.RawMessage {
	var all, payload map[string]json.RawMessage
	if json.Unmarshal(p.raw, &all) != nil || json.Unmarshal(p.Payload, &payload) != nil {
		return p.raw // it was read before: cannot happen
	}
	change(payload)
	all["payload"] = jsonOf(payload)
	return jsonOf(all)
}
