package x402

import (
	"x402-wallet/x402/money"
)

// Channels of the scheme "batch-settlement" (x402-foundation, scheme_batch_settlement_evm.md; reference
// packages 2.27): the buyer deposits once, signs for each call a voucher for all that it has been charged so
// far, and the seller claims the newest of many at once. What a seller says of a channel is read here; what
// is believed of it is package scheme/batch's to decide.

// BatchSettlement is the scheme that pays from a deposit by vouchers.
const BatchSettlement = "batch-settlement"

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

// OwnersDeposit is a deposit that the owner of a channel signed: ReceiveWithAuthorization of the token
// (EIP-3009), good for this channel alone, which its nonce names.
type OwnersDeposit struct {
	Value       money.Amount `json:"value"`
	ValidBefore int64        `json:"validBefore"` // Unix seconds
	Salt        string       `json:"salt"`        // 0x and 64 hex digits
	Signature   string       `json:"signature"`   // 0x and 130 hex digits
}
