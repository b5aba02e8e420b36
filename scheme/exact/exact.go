// Package exact is the way to pay exactly what is asked: by EIP-3009 on EVM chains, by a transfer of SPL
// tokens on Solana (specs/schemes/exact). Who signs reads it by package exact/check.
//
// What must stay true: nothing is special about it, so that it is paid as the engine pays.
package exact

import (
	"x402-wallet/scheme"
	"x402-wallet/x402"
)

// Way is a scheme.Way.
type Way struct{ scheme.Plain }

func (Way) Name() string { return x402.Exact }
