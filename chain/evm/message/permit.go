package message

import (
	"x402-wallet/x402/money"
)

// Permit is EIP-2612's message: it lets Permit2 move Value of the owner's token.
type Permit struct {
	Owner    string // EIP-55
	Value    money.Amount
	Nonce    money.Amount // the token's nonces(owner)
	Deadline int64        // Unix seconds
}

// ApprovalGas is what a payment's approval by a transaction has of its own; all else in it is the payment's.
type ApprovalGas struct {
	Nonce  uint64       `json:"nonce"` // of the account that pays
	Gas    uint64       `json:"gas"`
	MaxFee money.Amount `json:"maxFee"` // wei for each gas, as is Tip
	Tip    money.Amount `json:"tip"`
}

// MaxCost is the most that its gas may cost, in wei.
func (g ApprovalGas) MaxCost() money.Amount { return g.MaxFee.Times(g.Gas) }
