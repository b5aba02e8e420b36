package onchain

import (
	"time"

	"x402-wallet/x402/money"
)

// Vault is an owner's contract that holds the money and lets the agent spend some of it
// (chain/evm/vault/AgentVault.sol), read from the chain. Addresses are EIP-55, amounts are atomic units of
// Asset.
type Vault struct {
	Network, Address, Owner, Asset string
	Agent                          string       // whose signatures it takes; "" when it takes nobody's
	IsOurs                         bool         // Agent is this wallet's
	Balance                        money.Amount // what lies in it
	Available                      money.Amount // what the agent may spend now, in all its payments
	PerPayment                     money.Amount
	PerPeriod                      money.Amount // what becomes available in each Period
	Period                         time.Duration
	NextPeriod                     time.Time     // when more becomes available; zero: never
	MaxWindow                      time.Duration // how long what the agent signs may be good for
}

// VaultLimits are what an owner lets the agent spend from a vault.
type VaultLimits struct {
	PerPeriod  money.Amount // atomic units of the vault's asset
	Period     time.Duration
	PerPayment money.Amount
	MaxWindow  time.Duration // how long what the agent signs may be good for
}

// OwnerTransaction is a transaction of EIP-1559 about a vault, not signed yet: only the vault's owner, who
// pays its gas, can sign it. It moves none of the network's own money.
type OwnerTransaction struct {
	Network string
	ChainID uint64
	From    string // the owner, EIP-55
	To      string // "": it makes the contract
	Data    []byte
	Does    string // in words
	// as the node estimated them: the owner's next nonce, the most gas, and wei for each
	Nonce, Gas  uint64
	MaxFee, Tip money.Amount
}

// MaxCost is the most that its gas may cost, in wei.
func (t OwnerTransaction) MaxCost() money.Amount { return t.MaxFee.Times(t.Gas) }

// OwnAccount is the agent's own account on an EVM network, read from the chain. Amounts are atomic units of
// Asset, addresses are EIP-55.
type OwnAccount struct {
	Network, Address, Asset string
	Balance                 money.Amount
	Permitted               money.Amount // what Permit2 may move of it (the ERC-20 allowance)
	Gas                     money.Amount // wei that it has for transactions of its own
}
