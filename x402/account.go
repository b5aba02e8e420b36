package x402

import "x402-wallet/x402/money"

// OwnAccount is the agent's own account on an EVM network, read from the chain. Amounts are atomic units of
// Asset, addresses are EIP-55.
type OwnAccount struct {
	Network, Address, Asset string
	Balance                 money.Amount
	Permitted               money.Amount // what Permit2 may move of it (the ERC-20 allowance)
	Gas                     money.Amount // wei that it has for transactions of its own
}

// MaxCost is the most that its gas may cost, in wei.
func (t OwnerTransaction) MaxCost() money.Amount { return t.MaxFee.Times(t.Gas) }
