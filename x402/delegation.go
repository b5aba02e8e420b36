package x402

import (
	"encoding/base64"

	"x402-wallet/x402/money"
)

// Delegation is an SPL token account as its owner set it up, read from the chain. Addresses are
// base58, amounts are atomic units of Mint.
type Delegation struct {
	Account, Owner, Mint, Program string
	Delegate                      string       // "" when there is none
	IsOurs                        bool         // Delegate is this wallet's agent
	Frozen                        bool         // by the token's issuer: nothing can be spent
	Remaining                     money.Amount // of what was delegated; 0 when there is no delegate
	Balance                       money.Amount
}

// DelegationChange is a transaction that changes a delegation, not signed yet: only the owner of
// the token account can sign it. Addresses are base58.
type DelegationChange struct {
	Network, Account, Owner, Mint, Program string
	Delegate                               string // "": the delegation is revoked
	Amount                                 uint64 // atomic units that Delegate may spend from now on
	Decimals                               uint8
	Message                                []byte // what is signed
}

// Transaction is the transaction in base64, with the owner's signature or, for the zero value,
// without one.
func (c DelegationChange) Transaction(signature [64]byte) string {
	return base64.StdEncoding.EncodeToString(append(append([]byte{1}, signature[:]...), c.Message...))
}
