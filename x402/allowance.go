package x402

import (
	"time"

	"x402-wallet/x402/money"
)

// Allowance is the scheme, in the ledger, of the wallet's own transfers from an owner's account to the
// agent's (Pull). No seller asks for it.
const Allowance = "allowance"

// AllowanceRule is how an owner lets the agent spend from their own account on an EVM network: they approve
// the agent's address (ERC-20), and the wallet moves a float to it when a payment needs one.
type AllowanceRule struct {
	Owner  string        // EIP-55
	Float  money.Dollars // how much is moved at a time; what a payment needs where that is more
	MaxGas money.Amount  // the most that one transfer may cost the agent, in wei
}

// OwnerAllowance is what an owner lets the agent take from their account, read from the chain. Amounts are
// atomic units of Asset, addresses are EIP-55.
type OwnerAllowance struct {
	Network, Owner, Agent, Asset string
	Approved                     money.Amount // the ERC-20 allowance
	Balance                      money.Amount // what the owner has
	Float                        money.Amount // what is at the agent's own address
	Gas                          money.Amount // wei that the agent has to pay for transfers
}

// Pullable is what the agent may take now.
func (a OwnerAllowance) Pullable() money.Amount {
	if a.Approved.Cmp(a.Balance) < 0 {
		return a.Approved
	}
	return a.Balance
}

// Pull is a transaction of EIP-1559 that is nothing but transferFrom(Owner, Agent, Amount) of a token,
// signed and paid for by the agent.
type Pull struct {
	Network, Token, Owner, Agent string // addresses EIP-55
	Amount                       money.Amount
	ChainID, Nonce, Gas          uint64
	Made                         time.Time    // in whole seconds
	MaxFee, Tip                  money.Amount // wei for each gas
}

// MaxCost is the most that its gas may cost, in wei.
func (p Pull) MaxCost() money.Amount { return p.MaxFee.Times(p.Gas) }
