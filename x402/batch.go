package x402

import (
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
	extra := Object(r.Extra)
	t.ReceiverAuthorizer, err = extra.Identifier("receiverAuthorizer")
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
	if extra.Has("minDeposit") {
		least, err := extra.OptionalAmount("minDeposit")
		if err != nil {
			return t, err
		}
		t.MinDeposit = *least
	}
	return t, nil
}
