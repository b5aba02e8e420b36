package schemes

import (
	"math"
	"slices"

	"x402-wallet/internal/sandbox"
)

// An owner's account on EVM, out of which an agent may take floats: what its owner does there, and what came
// of it.

// Allowed is what an agent may still take from the owner's account on EVM.
func (s *World) Allowed(agent string) uint64 {
	s.chain.Lock()
	defer s.chain.Unlock()
	return s.chain.allowance(s.OwnerEVM, agent, math.MaxUint64)
}

// Empty takes all play dollars from an EVM address, as a transfer of its own would.
func (s *World) Empty(address string) {
	s.chain.Lock()
	defer s.chain.Unlock()
	s.chain.Balances.Put(s.chain.Next(), address, 0)
}

// FundGas gives an EVM address coins (wei), of which it pays gas.
func (s *World) FundGas(address string, wei uint64) {
	s.chain.Lock()
	defer s.chain.Unlock()
	s.chain.coins.Put(s.chain.Next(), address, s.chain.coins.At(address, math.MaxUint64)+wei)
}

// Gas is what an EVM address has of coins, in wei.
func (s *World) Gas(address string) uint64 {
	s.chain.Lock()
	defer s.chain.Unlock()
	return s.chain.coins.At(address, math.MaxUint64)
}

// Pulls lists what was taken out of accounts whose owners had approved it, oldest first, as the chain knows
// it.
func (s *World) Pulls() []sandbox.Settlement {
	s.chain.Lock()
	defer s.chain.Unlock()
	return slices.Clone(s.chain.pulls)
}

// Transactions is how many transactions of its own an EVM address has in blocks, failed ones as well, and
// shown how many different ones of anybody's the node was ever brought.
func (s *World) Transactions(address string) (mined, shown uint64) {
	s.chain.Lock()
	defer s.chain.Unlock()
	return s.chain.counts.At(address, math.MaxUint64), uint64(len(s.chain.shown))
}
