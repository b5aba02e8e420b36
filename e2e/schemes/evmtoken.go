package schemes

import (
	"encoding/hex"
	"math"

	"x402-wallet/internal/sandbox"
	"x402-wallet/x402/money"
)

// The token's functions that an account calls by a transaction of its own (EIP-20): approve and transferFrom.
// What the token refuses it refuses in the words of USDC's contract.

const (
	callApprove      = "095ea7b3" // approve(address,uint256)
	callAllowance    = "dd62ed3e" // allowance(address,address)
	callNonces       = "7ecebe00" // nonces(address)
	callTransferFrom = "23b872dd" // transferFrom(address,address,uint256)

	// Approval(address,address,uint256)
	topicApproval = "0x8c5be1e5ebec7d5bd14f71427d1e84f3dd0314c0f7b2291e5b200ac8c7c3b925"
)

// allowance is what a spender may move of an owner's tokens, at a block.
func (c *chain) allowance(owner, spender string, block uint64) uint64 {
	return c.allowed.At(owner+spender, block)
}

// allow sets it, from a block on.
func (c *chain) allow(block uint64, owner, spender string, amount uint64) {
	c.allowed.Put(block, owner+spender, amount)
}

// runToken is what a call of the token does, of an account that has the means; or why the token reverts it.
func (c *chain) runToken(sender string, data []byte) (run func(*sandbox.Transaction), err error) {
	if len(data) < 4 {
		return nil, sandbox.Reverted("")
	}
	words := data[4:]
	switch selector := hex.EncodeToString(data[:4]); {
	case selector == callApprove && len(words) == 64:
		spender, amount := addressIn(words), amountIn(words[32:])
		return func(tx *sandbox.Transaction) {
			c.allow(tx.Block, sender, spender, amount)
			tx.Emit(c.Asset.Address, "0x"+hex.EncodeToString(words[32:]), topicApproval, topicOf(sender),
				topicOf(spender))
		}, nil
	case selector == callTransferFrom && len(words) == 96:
		from, to, amount := addressIn(words), addressIn(words[32:]), amountIn(words[64:])
		allowed := c.allowance(from, sender, math.MaxUint64)
		switch {
		case allowed < amount:
			return nil, sandbox.Reverted("ERC20: transfer amount exceeds allowance")
		case c.Balance(from) < amount:
			return nil, sandbox.Reverted("ERC20: transfer amount exceeds balance")
		}
		return func(tx *sandbox.Transaction) {
			c.allow(tx.Block, from, sender, allowed-amount)
			c.Move(tx, from, to, amount)
			c.pulls = append(c.pulls, sandbox.Settlement{Network: c.Asset.Network,
				Transaction: tx.Hash, Payer: from, Signer: sender, PayTo: to, Amount: amount})
		}, nil
	}
	return nil, sandbox.Reverted("")
}

func addressIn(word []byte) string { return "0x" + hex.EncodeToString(word[12:32]) }

// amountIn is a word's amount; more than this chain counts is as much as it counts.
func amountIn(word []byte) uint64 {
	amount, _ := money.AmountFromBytes(word[:32]) // 32 bytes always fit
	n, fits := amount.Uint64()
	if !fits {
		return math.MaxUint64
	}
	return n
}
