package sandbox

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"

	"x402-wallet/chain/evm"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// The accounts' own transactions on the play chain (EIP-1559): their account nonces, the coins that they pay
// gas with, and how a node takes, estimates and refuses them, in the words of go-ethereum. A transaction is
// in a block of its own as soon as a node has taken it.

const (
	baseFee  = 5_000_000  // wei for each gas, of every block
	usualTip = 1_000_000  // what the node suggests
	callGas  = 50_000     // what a call of the token takes
	plainGas = 21_000     // what a transaction takes at least
	blockGas = 30_000_000 // what a block has
)

// errAlreadyKnown is what a node says of a transaction that it has.
var errAlreadyKnown = nodeRefuses("already known")

func nodeRefuses(format string, args ...any) error {
	return &rpcError{Code: -32000, Message: fmt.Sprintf(format, args...)}
}

// sendRaw takes a signed transaction and puts it into a block, or does what the fault says.
func (s *Sandbox) sendRaw(params []json.RawMessage) (any, error) {
	c := s.evm
	var text string
	if err := read(params, &text); err != nil {
		return nil, err
	}
	raw, err := hex.DecodeString(strings.TrimPrefix(text, "0x"))
	if err != nil || !strings.HasPrefix(text, "0x") {
		return nil, badParams("not hex with 0x")
	}
	tx, err := evm.RecoverTransaction(raw)
	if err != nil {
		return nil, nodeRefuses("%s", err)
	}
	if c.keep == 0 || len(c.shown) < maxKept*c.keep {
		c.shown[tx.Hash] = true
	}
	fault := s.strike("", evmNodeDrops, evmNodeMute, evmNodeKnows)
	if fault == evmNodeDrops {
		return tx.Hash, nil
	}
	if err := c.admit(tx); err != nil {
		return nil, err
	}
	c.include(tx)
	switch fault {
	case evmNodeMute:
		cut()
	case evmNodeKnows:
		return nil, errAlreadyKnown
	}
	return tx.Hash, nil
}

// admit is why a node does not take a transaction; nil: it does.
func (c *evmChain) admit(tx evm.SignedTransaction) error {
	next := c.counts.at(tx.From, math.MaxUint64)
	id, _ := x402.ChainID(c.asset.Network)
	cost, fits := tx.MaxFee.Times(tx.Gas).Uint64()
	coins := c.coins.at(tx.From, math.MaxUint64)
	switch {
	case c.byHash[tx.Hash] != nil:
		return errAlreadyKnown
	case tx.ChainID != id:
		return nodeRefuses("invalid chain id for signer: have %d want %d", tx.ChainID, id)
	case tx.Nonce < next:
		return nodeRefuses("nonce too low: next nonce %d, tx nonce %d", next, tx.Nonce)
	case tx.Nonce > next:
		return nodeRefuses("nonce too high: next nonce %d, tx nonce %d", next, tx.Nonce)
	case tx.Gas > blockGas:
		return nodeRefuses("exceeds block gas limit")
	case tx.Gas < plainGas:
		return nodeRefuses("intrinsic gas too low: gas %d, minimum needed %d", tx.Gas, plainGas)
	case tx.Tip.Cmp(tx.MaxFee) > 0:
		return nodeRefuses("max priority fee per gas higher than max fee per gas")
	case tx.MaxFee.Cmp(money.NewAmount(baseFee)) < 0:
		return nodeRefuses("max fee per gas less than block base fee: maxFeePerGas: %s, baseFee: %d",
			tx.MaxFee, baseFee)
	case !fits || cost > coins:
		return nodeRefuses("insufficient funds for gas * price + value: balance %d, tx cost %s", coins,
			tx.MaxFee.Times(tx.Gas))
	}
	return nil
}

// include puts an admitted transaction into a block: what it does, or that it failed. Its gas is paid in
// either case.
func (c *evmChain) include(tx evm.SignedTransaction) {
	gas, run, err := c.simulate(tx.From, tx.To, tx.Data)
	done := &evmTransaction{hash: tx.Hash, block: c.next(), from: tx.From, to: tx.To,
		input: "0x" + hex.EncodeToString(tx.Data), gas: min(gas, tx.Gas), gasPrice: priceOf(tx),
		failed: err != nil || gas > tx.Gas}
	c.counts.put(done.block, tx.From, tx.Nonce+1)
	c.coins.put(done.block, tx.From, c.coins.at(tx.From, math.MaxUint64)-done.gas*done.gasPrice)
	if !done.failed {
		run(done)
	}
	c.add(done)
}

// priceOf is what a transaction pays for each gas: the block's fee with its tip, as far as it allows.
func priceOf(tx evm.SignedTransaction) uint64 {
	most, fits := tx.MaxFee.Uint64()
	tip, _ := tx.Tip.Uint64() // not above the fee
	if !fits || most-baseFee > tip {
		return baseFee + tip
	}
	return most
}

// simulate is what a transaction would take and do, or why it would revert. What has no code takes every
// call, and does nothing; contracts but the token are not called by accounts here, and none can be made.
func (c *evmChain) simulate(from, to string, data []byte) (gas uint64, run func(*evmTransaction), err error) {
	switch {
	case c.isToken(to):
		run, err = c.runToken(from, data)
		return callGas, run, err
	case to == "" || c.hasCode(to):
		return callGas, nil, reverted("")
	}
	return plainGas, func(*evmTransaction) {}, nil
}

func (c *evmChain) estimateGas(params []json.RawMessage) (any, error) {
	var message struct{ From, To, Data, Input string }
	var tag string
	if err := read(params, &message, &tag); err != nil {
		return nil, err
	}
	data, err := hex.DecodeString(strings.TrimPrefix(message.Data+message.Input, "0x"))
	from, errFrom := evm.Address(message.From)
	if err := errors.Join(err, errFrom); err != nil {
		return nil, badParams(err.Error())
	}
	gas, _, err := c.simulate(from, message.To, data)
	return quantity(gas), err
}

// account answers about an account at a block, from one of the timelines.
func (c *evmChain) account(t timeline) rpcMethod {
	return func(params []json.RawMessage) (any, error) {
		var address, tag string
		if err := read(params, &address, &tag); err != nil {
			return nil, err
		}
		block, err := c.existing(tag)
		if err != nil {
			return nil, err
		}
		return quantity(t.at(address, block)), nil
	}
}
