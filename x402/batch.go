package x402

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"x402-wallet/x402/money"
)

// Channels of the scheme "batch-settlement" (x402-foundation, scheme_batch_settlement_evm.md; reference
// packages 2.27): the buyer deposits once, signs for each call a voucher for all that it has been charged so
// far, and the seller claims the newest of many at once. What a seller says of a channel is read here; what
// is believed of it is package pay's to decide.

// BatchSettlement is the scheme that pays from a deposit by vouchers.
const BatchSettlement = "batch-settlement"

// The contract's own bounds of a channel's withdrawDelay.
const (
	MinWithdrawDelay = 15 * time.Minute
	MaxWithdrawDelay = 30 * 24 * time.Hour
)

// ChannelConfig is what a channel is: nothing of it can change without its being another channel, because
// the channel's id is a hash of it. Addresses are EIP-55, the delay is in seconds, the salt 0x and 64 hex
// digits.
type ChannelConfig struct {
	Payer              string `json:"payer"`
	PayerAuthorizer    string `json:"payerAuthorizer"`
	Receiver           string `json:"receiver"`
	ReceiverAuthorizer string `json:"receiverAuthorizer"`
	Token              string `json:"token"`
	WithdrawDelay      int64  `json:"withdrawDelay"`
	Salt               string `json:"salt"`
}

// ChannelVoucher is a promise of Ceiling in all, in the token's atomic units.
type ChannelVoucher struct {
	Ceiling   money.Amount `json:"ceiling"`
	Signature string       `json:"signature"` // 0x and 130 hex digits
}

// ChannelOrder is what to sign for one call that is paid through a channel.
type ChannelOrder struct {
	Config  ChannelConfig
	Salt    string          // that Config has to have: of the agent whose channel it is; "": zeros
	Number  uint64          // of the vouchers that were signed in the channel, with this one
	Ceiling money.Amount    // of the voucher
	Deposit money.Amount    // what is deposited with it; 0: nothing
	Shown   *ChannelVoucher // an older one of ours, which the seller showed; nil: our own book is enough
	// a deposit of the owner's, of a channel that they fund, to be brought with the voucher; nil: none
	Owners *OwnersDeposit
}

// OwnersDeposit is a deposit that the owner of a channel signed: ReceiveWithAuthorization of the token
// (EIP-3009), good for this channel alone, which its nonce names.
type OwnersDeposit struct {
	Value       money.Amount `json:"value"`
	ValidBefore int64        `json:"validBefore"` // Unix seconds
	Salt        string       `json:"salt"`        // 0x and 64 hex digits
	Signature   string       `json:"signature"`   // 0x and 130 hex digits
}

// ChannelBalance is a channel as the chain has it at one block.
type ChannelBalance struct {
	Block         uint64       // its number
	At            time.Time    // its time
	Balance       money.Amount // deposited, and not returned
	Claimed       money.Amount // of that the seller's
	Withdrawing   money.Amount // what was asked back, without the seller
	WithdrawBegan time.Time    // zero: nothing was
}

// ChannelTerms is what a seller asks of a channel.
type ChannelTerms struct {
	ReceiverAuthorizer string
	WithdrawDelay      time.Duration
	MinDeposit         money.Amount // 0: it names none
}

// ChannelTerms reads extra of an option of this scheme. Its error says what is wrong, without a word of the
// seller's.
func (r Requirement) ChannelTerms() (t ChannelTerms, err error) {
	extra := object(r.Extra)
	t.ReceiverAuthorizer, err = extra.identifier("receiverAuthorizer")
	if err != nil {
		return t, errors.New("extra.receiverAuthorizer is not an address")
	}
	seconds, err := strconv.ParseInt(string(extra["withdrawDelay"]), 10, 64)
	if err != nil || seconds < int64(MinWithdrawDelay/time.Second) ||
		seconds > int64(MaxWithdrawDelay/time.Second) {
		return t, fmt.Errorf("extra.withdrawDelay is not a number of seconds from %d to %d",
			MinWithdrawDelay/time.Second, MaxWithdrawDelay/time.Second)
	}
	t.WithdrawDelay = time.Duration(seconds) * time.Second
	if extra.has("minDeposit") {
		least, err := extra.optionalAmount("minDeposit")
		if err != nil {
			return t, err
		}
		t.MinDeposit = *least
	}
	return t, nil
}

// ChannelCount is what a seller says of a channel. Nothing of it is proven but the voucher, by its signature.
type ChannelCount struct {
	ID          string
	Charged     *money.Amount   // in all; nil: not said
	ChargedNow  *money.Amount   // by this call; nil: not said
	Balance     *money.Amount   // after a refund
	Voucher     *ChannelVoucher // the newest one that it has; nil: none was shown
	WithdrawsAt int64           // Unix seconds of a withdrawal that it knows of; 0: none
}

// ChannelCount is what a receipt says of a channel; nil, without error: nothing.
func (s Settlement) ChannelCount() (*ChannelCount, error) {
	var top object
	err := json.Unmarshal(s.Raw, &top)
	if err != nil {
		return nil, err
	}
	extra, err := top.object("extra")
	if err != nil {
		return nil, err
	}
	return readChannelCount(extra)
}

// CorrectiveCount is what a seller that counts otherwise says in the option of its new challenge (reference
// server: channelState and voucherState in extra); nil: nothing.
func (c Challenge) CorrectiveCount(network string) (*ChannelCount, error) {
	for _, r := range c.Accepts {
		if r.Scheme != BatchSettlement || r.Network != network {
			continue
		}
		if n, err := readChannelCount(r.Extra); n != nil || err != nil {
			return n, err
		}
	}
	return nil, nil
}

// readChannelCount reads {channelState: {…}, voucherState: {…}, chargedAmount: "…"}.
func readChannelCount(extra object) (*ChannelCount, error) {
	state, err := extra.object("channelState")
	if err != nil || state == nil {
		return nil, err
	}
	var n ChannelCount
	at := object(state)
	n.ID, err = at.identifier("channelId")
	if err != nil && at.has("channelId") {
		return nil, errors.New("channelId is not an id")
	}
	for _, field := range []struct {
		of   object
		key  string
		into **money.Amount
	}{{at, "chargedCumulativeAmount", &n.Charged}, {extra, "chargedAmount", &n.ChargedNow},
		{at, "balance", &n.Balance}} {
		*field.into, err = field.of.optionalAmount(field.key)
		if err != nil {
			return nil, err
		}
	}
	if at.has("withdrawRequestedAt") {
		n.WithdrawsAt, err = strconv.ParseInt(string(at["withdrawRequestedAt"]), 10, 64)
		if err != nil || n.WithdrawsAt < 0 {
			return nil, errors.New("withdrawRequestedAt is not a time")
		}
	}
	n.Voucher, err = readShownVoucher(extra)
	return &n, err
}

// readShownVoucher reads voucherState, in which a seller that has no voucher yet shows "0" and no signature.
func readShownVoucher(extra object) (*ChannelVoucher, error) {
	shown, err := extra.object("voucherState")
	if err != nil || shown == nil {
		return nil, err
	}
	of := object(shown)
	ceiling, err := of.optionalAmount("signedMaxClaimable")
	signature, errText := of.text("signature")
	if err := errors.Join(err, errText); err != nil {
		return nil, err
	}
	if ceiling == nil || ceiling.IsZero() || signature == "" || signature == "0x" {
		return nil, nil
	}
	return &ChannelVoucher{Ceiling: *ceiling, Signature: signature}, nil
}

// optionalAmount is a number of atomic units in a JSON string, 0 too; nil: it is absent.
func (o object) optionalAmount(key string) (*money.Amount, error) {
	if !o.has(key) {
		return nil, nil
	}
	text, err := o.text(key)
	if err != nil {
		return nil, err
	}
	a, err := money.ParseAmount(text)
	if err != nil {
		return nil, fmt.Errorf("%s is not an amount", key)
	}
	return &a, nil
}
