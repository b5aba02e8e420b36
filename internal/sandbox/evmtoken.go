package sandbox

import (
	"encoding/hex"
	"math"
	"strings"

	"x402-wallet/x402/money"
)

// The token's functions that an account calls by a transaction of its own (EIP-20): approve and transferFrom.
// What the token refuses it refuses in the words of USDC's contract.

const (
	callApprove      = "095ea7b3" // approve(address,uint256)
	callTransferFrom = "23b872dd" // transferFrom(address,address,uint256)
)

// allowance is what a spender may move of an owner's tokens, at a block.
func (c *evmChain) allowance(owner, spender string, block uint64) uint64 {
	return c.allowed.at(owner+spender, block)
}

// allow sets it, from a block on.
func (c *evmChain) allow(block uint64, owner, spender string, amount uint64) {
	c.allowed.put(block, owner+spender, amount)
}

// runToken is what a call of the token does, of an account that has the means; or why the token reverts it.
func (c *evmChain) runToken(sender string, data []byte) (run func(*evmTransaction), err error) {
	if len(data) < 4 {
		return nil, reverted("")
	}
	words := data[4:]
	switch selector := hex.EncodeToString(data[:4]); {
	case selector == callApprove && len(words) == 64:
		spender, amount := addressIn(words), amountIn(words[32:])
		return func(tx *evmTransaction) {
			c.allow(tx.block, sender, spender, amount)
			tx.emit(c.asset.Address, "0x"+hex.EncodeToString(words[32:]), topicApproval, topicOf(sender),
				topicOf(spender))
		}, nil
	case selector == callTransferFrom && len(words) == 96:
		from, to, amount := addressIn(words), addressIn(words[32:]), amountIn(words[64:])
		allowed := c.allowance(from, sender, math.MaxUint64)
		switch {
		case allowed < amount:
			return nil, reverted("ERC20: transfer amount exceeds allowance")
		case c.balance(from) < amount:
			return nil, reverted("ERC20: transfer amount exceeds balance")
		}
		return func(tx *evmTransaction) {
			c.allow(tx.block, from, sender, allowed-amount)
			c.move(tx, from, to, amount)
			c.pulls = newest(c.keep, append(c.pulls, Settlement{Network: c.asset.Network,
				Transaction: tx.hash, Payer: from, Signer: sender, PayTo: to, Amount: amount}))
		}, nil
	}
	return nil, reverted("")
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

// reverted is a node's answer about a call that the contract reverts, with its reason as Solidity encodes it.
func reverted(why string) error {
	e := &rpcError{Code: 3, Message: "execution reverted", Data: "0x"}
	if why != "" {
		in := &callData{}
		e.Message, e.Data = e.Message+": "+why, in.end("Error(string)", []byte(why))
	}
	return e
}

// isToken reports whether an address is the token's.
func (c *evmChain) isToken(address string) bool { return strings.EqualFold(address, c.asset.Address) }
