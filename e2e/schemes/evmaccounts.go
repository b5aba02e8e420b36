package schemes

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"math"
	"strings"

	"x402-wallet/chain/evm/message"
	"x402-wallet/chain/evm/payload"
	"x402-wallet/internal/sandbox"
	"x402-wallet/x402/money"
)

// The accounts' own transactions on the play chain (EIP-1559): their account nonces, the coins that they pay
// gas with, and how a node takes, estimates and refuses them, in the words of go-ethereum. A transaction is
// in a block of its own as soon as a node has taken it.

const (
	plainGas = 21_000     // what a transaction takes at least
	blockGas = 30_000_000 // what a block has
)

// errAlreadyKnown is what a node says of a transaction that it has.
var errAlreadyKnown = sandbox.NodeRefuses("already known")

// sendRaw takes a signed transaction and puts it into a block, or does what the fault says.
func (s *World) sendRaw(params []json.RawMessage) (any, error) {
	c := s.chain
	var text string
	if err := sandbox.Read(params, &text); err != nil {
		return nil, err
	}
	raw, err := hex.DecodeString(strings.TrimPrefix(text, "0x"))
	if err != nil || !strings.HasPrefix(text, "0x") {
		return nil, sandbox.BadParams("not hex with 0x")
	}
	tx, err := payload.RecoverTransaction(raw)
	if err != nil {
		return nil, sandbox.NodeRefuses("%s", err)
	}
	c.shown[tx.Hash] = true
	fault := s.Strike(evmNodeDrops, evmNodeMute, evmNodeKnows)
	if fault == evmNodeDrops {
		return tx.Hash, nil
	}
	if err := c.admit(tx); err != nil {
		return nil, err
	}
	c.include(tx)
	switch fault {
	case evmNodeMute:
		sandbox.Cut()
	case evmNodeKnows:
		return nil, errAlreadyKnown
	}
	return tx.Hash, nil
}

// admit is why a node does not take a transaction; nil: it does.
func (c *chain) admit(tx payload.SignedTransaction) error {
	next := c.counts.At(tx.From, math.MaxUint64)
	id := c.ID()
	cost, fits := tx.MaxFee.Times(tx.Gas).Uint64()
	coins := c.coins.At(tx.From, math.MaxUint64)
	switch {
	case c.Mined(tx.Hash) != nil:
		return errAlreadyKnown
	case tx.ChainID != id:
		return sandbox.NodeRefuses("invalid chain id for signer: have %d want %d", tx.ChainID, id)
	case tx.Nonce < next:
		return sandbox.NodeRefuses("nonce too low: next nonce %d, tx nonce %d", next, tx.Nonce)
	case tx.Nonce > next:
		return sandbox.NodeRefuses("nonce too high: next nonce %d, tx nonce %d", next, tx.Nonce)
	case tx.Gas > blockGas:
		return sandbox.NodeRefuses("exceeds block gas limit")
	case tx.Gas < plainGas:
		return sandbox.NodeRefuses("intrinsic gas too low: gas %d, minimum needed %d", tx.Gas, plainGas)
	case tx.Tip.Cmp(tx.MaxFee) > 0:
		return sandbox.NodeRefuses("max priority fee per gas higher than max fee per gas")
	case tx.MaxFee.Cmp(money.NewAmount(sandbox.BaseFee)) < 0:
		return sandbox.NodeRefuses("max fee per gas less than block base fee: maxFeePerGas: %s, baseFee: %d",
			tx.MaxFee, sandbox.BaseFee)
	case !fits || cost > coins:
		return sandbox.NodeRefuses("insufficient funds for gas * price + value: balance %d, tx cost %s",
			coins, tx.MaxFee.Times(tx.Gas))
	}
	return nil
}

// include puts an admitted transaction into a block: what it does, or that it failed. Its gas is paid in
// either case.
func (c *chain) include(tx payload.SignedTransaction) {
	gas, run, err := c.simulate(tx.From, tx.To, tx.Data)
	done := &sandbox.Transaction{Hash: tx.Hash, Block: c.Next(), From: tx.From, To: tx.To,
		Input: "0x" + hex.EncodeToString(tx.Data), Gas: min(gas, tx.Gas), GasPrice: priceOf(tx),
		Failed: err != nil || gas > tx.Gas}
	c.counts.Put(done.Block, tx.From, tx.Nonce+1)
	c.coins.Put(done.Block, tx.From, c.coins.At(tx.From, math.MaxUint64)-done.Gas*done.GasPrice)
	if !done.Failed {
		run(done)
	}
	c.Add(done)
}

// priceOf is what a transaction pays for each gas: the block's fee with its tip, as far as it allows.
func priceOf(tx payload.SignedTransaction) uint64 {
	most, fits := tx.MaxFee.Uint64()
	tip, _ := tx.Tip.Uint64() // not above the fee
	if !fits || most-sandbox.BaseFee > tip {
		return sandbox.BaseFee + tip
	}
	return most
}

// simulate is what a transaction would take and do, or why it would revert. What has no code takes every
// call, and does nothing; contracts but the token are not called by accounts here, and none can be made.
func (c *chain) simulate(from, to string, data []byte) (gas uint64,
	run func(*sandbox.Transaction), err error) {
	switch {
	case c.IsToken(to):
		run, err = c.runToken(from, data)
		return sandbox.CallGas, run, err
	case to == "" || c.HasCode(to):
		return sandbox.CallGas, nil, sandbox.Reverted("")
	}
	return plainGas, func(*sandbox.Transaction) {}, nil
}

func (c *chain) estimateGas(params []json.RawMessage) (any, error) {
	var call struct{ From, To, Data, Input string }
	var tag string
	if err := sandbox.Read(params, &call, &tag); err != nil {
		return nil, err
	}
	data, err := hex.DecodeString(strings.TrimPrefix(call.Data+call.Input, "0x"))
	from, errFrom := message.Address(call.From)
	if err := errors.Join(err, errFrom); err != nil {
		return nil, sandbox.BadParams(err.Error())
	}
	gas, _, err := c.simulate(from, call.To, data)
	return quantity(gas), err
}

// account answers about an account at a block, from one of the timelines.
func (c *chain) account(t sandbox.Timeline) sandbox.Method {
	return func(params []json.RawMessage) (any, error) {
		var address, tag string
		if err := sandbox.Read(params, &address, &tag); err != nil {
			return nil, err
		}
		block, err := c.Existing(tag)
		if err != nil {
			return nil, err
		}
		return quantity(t.At(address, block)), nil
	}
}

func (c *chain) getCode(params []json.RawMessage) (any, error) {
	var address string
	if err := sandbox.Read(params, &address); err != nil {
		return nil, err
	}
	if c.HasCode(address) {
		return "0x60806040", nil
	}
	return "0x", nil
}

func (c *chain) getTransaction(params []json.RawMessage) (any, error) {
	var hash string
	if err := sandbox.Read(params, &hash); err != nil {
		return nil, err
	}
	tx := c.Mined(hash)
	if tx == nil || c.world.Strike(evmNodeForgets) != "" {
		return nil, nil
	}
	return map[string]any{
		"hash": tx.Hash, "blockNumber": quantity(tx.Block), "blockHash": sandbox.HashOf("block", tx.Block),
		"from": strings.ToLower(tx.From), "to": strings.ToLower(tx.To), "input": tx.Input, "value": "0x0",
	}, nil
}
