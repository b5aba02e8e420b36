package sandbox

import (
	"math"
	"slices"
)

// An owner's account on EVM, out of which an agent may take floats: what its owner does there, and what came
// of it.

// Allow lets an agent take up to amount from the owner's account on EVM, and returns the account. As on the
// real chain it replaces whatever was approved before.
func (s *Sandbox) Allow(agent string, amount uint64) (owner string) {
	s.evm.mu.Lock()
	defer s.evm.mu.Unlock()
	s.evm.allow(s.evm.next(), s.OwnerEVM, agent, amount)
	return s.OwnerEVM
}

// Allowed is what an agent may still take from the owner's account on EVM.
func (s *Sandbox) Allowed(agent string) uint64 {
	s.evm.mu.Lock()
	defer s.evm.mu.Unlock()
	return s.evm.allowance(s.OwnerEVM, agent, math.MaxUint64)
}

// Empty takes all play dollars from an EVM address, as a transfer of its own would.
func (s *Sandbox) Empty(address string) {
	s.evm.mu.Lock()
	defer s.evm.mu.Unlock()
	s.evm.balances.put(s.evm.next(), address, 0)
}

// FundGas gives an EVM address coins (wei), of which it pays gas.
func (s *Sandbox) FundGas(address string, wei uint64) {
	s.evm.mu.Lock()
	defer s.evm.mu.Unlock()
	s.evm.coins.put(s.evm.next(), address, s.evm.coins.at(address, math.MaxUint64)+wei)
}

// Gas is what an EVM address has of coins, in wei.
func (s *Sandbox) Gas(address string) uint64 {
	s.evm.mu.Lock()
	defer s.evm.mu.Unlock()
	return s.evm.coins.at(address, math.MaxUint64)
}

// Pulls lists what was taken out of accounts whose owners had approved it, oldest first, as the chain knows
// it.
func (s *Sandbox) Pulls() []Settlement {
	s.evm.mu.Lock()
	defer s.evm.mu.Unlock()
	return slices.Clone(s.evm.pulls)
}

// Transactions is how many transactions of its own an EVM address has in blocks, failed ones as well, and
// shown how many different ones of anybody's the node was ever brought.
func (s *Sandbox) Transactions(address string) (mined, shown uint64) {
	s.evm.mu.Lock()
	defer s.evm.mu.Unlock()
	return s.evm.counts.at(address, math.MaxUint64), uint64(len(s.evm.shown))
}
