package permit2

import (
	"bytes"
	"context"
	"errors"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/crypto"

	"x402-wallet/chain/evm"
	"x402-wallet/chain/evm/message"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// What a transaction did by Permit2. It has a bit for each nonce of an owner, and no event that names one:
// two payments of one owner of the same amount to the same payee look alike in the token's log. What tells
// them apart is the call that made them, in the transaction's own input: to the proxy that the owner signed,
// with this owner and this nonce. A proxy uses a nonce once, and pays the witness's payee in the same call.

// settleCalls are the proxies' functions that settle, with the places of owner, nonce and of what is paid in
// their arguments, in words.
var settleCalls = []settleCall{
	{message.ExactProxy, "settle(((address,uint256),uint256,uint256),address,(address,uint256),bytes)", 4, 2,
		1},
	{message.ExactProxy,
		"settleWithPermit((uint256,uint256,bytes32,bytes32,uint8),((address,uint256),uint256,uint256)," +
			"address,(address,uint256),bytes)", 9, 7, 6},
	{message.UptoProxy,
		"settle(((address,uint256),uint256,uint256),uint256,address,(address,address,uint256),bytes)",
		5, 2, 4},
	{message.UptoProxy,
		"settleWithPermit((uint256,uint256,bytes32,bytes32,uint8),((address,uint256),uint256,uint256)," +
			"uint256,address,(address,address,uint256),bytes)", 10, 7, 9},
}

type settleCall struct {
	proxy, signature     string
	owner, nonce, amount int
}

func (c settleCall) selector() []byte { return crypto.Keccak256([]byte(c.signature))[:4] }

// settled is what a call of a proxy says that it settles.
type settled struct {
	proxy        string
	owner, nonce []byte // words
	amount       money.Amount
}

// readSettle reads a transaction's call of a proxy, as far as it calls one itself.
func readSettle(to *common.Address, input []byte) (s settled, isOne bool) {
	for _, c := range settleCalls {
		isCall := to != nil && *to == common.HexToAddress(c.proxy) && bytes.HasPrefix(input, c.selector()) &&
			len(input) >= 4+32*(max(c.owner, c.nonce, c.amount)+1)
		if isCall {
			word := func(i int) []byte { return input[4+32*i : 4+32*(i+1)] }
			return settled{c.proxy, word(c.owner), word(c.nonce), message.AmountOf(word(c.amount))}, true
		}
	}
	return s, false
}

// isOf reports whether a call settles the payment: its owner's nonce, by the proxy that was signed, and of a
// key that is not ours exactly what was asked.
func (s settled) isOf(a permit) bool {
	return s.proxy == a.proxy() && bytes.Equal(s.owner, message.Word(a.Payer)) &&
		bytes.Equal(s.nonce, a.Nonce[:]) && (!a.Foreign || s.amount == a.Evidence.Amount)
}

func (a permit) proxy() string {
	if a.Evidence.Way == x402.Upto {
		return message.UptoProxy
	}
	return message.ExactProxy
}

// use is what a transaction with a transfer from payer to payee has to do with the nonce.
type use int

const (
	other   use = iota // nothing: it called a proxy for something else
	used               // it used the nonce
	unclear            // it called neither of the proxies itself
)

// useOf reads a transaction. One that calls the proxy through another contract has the nonce of an exact
// payment in it somewhere, which is enough where the key is ours.
func (n chain) useOf(ctx context.Context, a permit, entry evm.LogEntry) (use, error) {
	var tx *struct {
		Hash  common.Hash     `json:"hash"`
		To    *common.Address `json:"to"`
		Input hexutil.Bytes   `json:"input"`
	}
	if err := n.Call(ctx, &tx, "eth_getTransactionByHash", entry.TransactionHash.Hex()); err != nil {
		return unclear, err
	}
	if tx == nil {
		return unclear, nil
	}
	if tx.Hash != entry.TransactionHash {
		return unclear, n.Failed("eth_getTransactionByHash", errors.New("another transaction"))
	}
	if call, isOne := readSettle(tx.To, tx.Input); isOne {
		if call.isOf(a) {
			return used, nil
		}
		return other, nil
	}
	isExact := a.Evidence.Way != x402.Upto && !a.Foreign
	if isExact && bytes.Contains(tx.Input, a.Nonce[:]) {
		return used, nil
	}
	return unclear, nil
}
