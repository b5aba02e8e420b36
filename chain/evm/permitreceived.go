package evm

import (
	"context"
	"errors"
	"slices"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/crypto"

	"x402-wallet/chain/rpc"
	"x402-wallet/x402"
)

// What became of a payment by Permit2 that somebody else signed. Permit2 has a bit for each nonce of an
// owner, and no event that names one: two payments of one owner of the same amount to the same payee look
// alike in the token's log. What tells them apart is the call that made them, in the transaction's own input:
// to the proxy that the owner signed, with this owner and this nonce. A proxy uses a nonce once, and pays the
// witness's payee in the same call. A transaction that calls the proxy through another contract is not
// recognized: it stays open.

// maxLookalikes bounds the transactions that are looked at for one nonce: as many transfers of exactly this
// amount from this payer to this payee.
const maxLookalikes = 32

// The proxies' entry points, with the place of owner, nonce and amount in their arguments, in words.
var permitCalls = []permitCall{
	{x402.Permit2, "settle(((address,uint256),uint256,uint256),address,(address,uint256),bytes)", 4, 2, 1},
	{x402.Permit2,
		"settleWithPermit((uint256,uint256,bytes32,bytes32,uint8),((address,uint256),uint256,uint256)," +
			"address,(address,uint256),bytes)", 9, 7, 6},
	{x402.Upto, "settle(((address,uint256),uint256,uint256),uint256,address,(address,address,uint256),bytes)",
		5, 2, 4},
	{x402.Upto,
		"settleWithPermit((uint256,uint256,bytes32,bytes32,uint8),((address,uint256),uint256,uint256)," +
			"uint256,address,(address,address,uint256),bytes)", 10, 7, 9},
}

type permitCall struct {
	way, signature       string
	owner, nonce, amount int
}

// ReceivedByPermit2 is Received for a payment by Permit2, whose Evidence has a Way.
//
//	nonceBitmap  | found in the token's logs                   | Status
//	-------------+---------------------------------------------+------------------------------
//	used         | the exact Transfer, by a call of the proxy  | Settled
//	             | with this owner and this nonce              |
//	used         | nothing of that kind                        | Open, with a note
//	unused       | final time past the deadline, and unused    | Expired
//	             | there                                       |
//	unused       | otherwise                                   | Open
//
// A used nonce without its transfer is never Expired: the owner may have invalidated it, but the transfer may
// as well be where it is not looked for.
func (e *Exact) ReceivedByPermit2(ctx context.Context, evidence x402.Evidence) (x402.Status, error) {
	a, err := readEvidence(evidence)
	if err != nil {
		return x402.Status{}, err
	}
	n, err := e.node(a.evidence.Network)
	if err != nil {
		return x402.Status{}, &x402.Error{Code: x402.RPCError, FixedBy: x402.ByPerson,
			Message: "the payment's network has no node in config.toml", Hint: x402.AsError(err).Hint,
			Err: err}
	}
	used, err := n.nonceBit(ctx, a, latest)
	if err != nil {
		return x402.Status{}, err
	}
	if !used {
		return n.permitUnused(ctx, a)
	}
	tip, err := n.block(ctx, latest)
	if err != nil {
		return x402.Status{}, err
	}
	entry, err := n.findPermit(ctx, a, tip)
	if err != nil {
		return x402.Status{}, err
	}
	if entry == nil {
		return x402.Status{Note: "the Permit2 nonce is used; its transfer was not found"}, nil
	}
	return x402.Status{State: x402.Settled, Transaction: entry.TransactionHash.Hex(),
		Block: uint64(entry.BlockNumber)}, nil
}

// permitUnused decides between Expired and Open: Permit2 takes a permit up to its deadline itself.
func (n *node) permitUnused(ctx context.Context, a authorization) (x402.Status, error) {
	final, err := n.block(ctx, finalized)
	if err != nil {
		return x402.Status{}, err
	}
	status := x402.Status{Block: uint64(*final.Number), At: final.at(), Unused: true,
		Note: "the Permit2 nonce is unused; deadline " + rfc3339(a.end())}
	if uint64(*final.Timestamp) <= a.validBefore {
		return status, nil
	}
	tip, err := n.block(ctx, latest)
	if err != nil {
		return x402.Status{}, err
	}
	if *tip.Number < *final.Number || *tip.Timestamp < *final.Timestamp {
		return x402.Status{}, n.Failed("eth_getBlockByNumber",
			errors.New("its finalized block is later than its latest one"))
	}
	used, err := n.nonceBit(ctx, a, final.Number.String())
	if err != nil {
		return x402.Status{}, err
	}
	if used { // between our two questions
		return x402.Status{Note: "the Permit2 nonce was used just now"}, nil
	}
	status.State, status.Unused = x402.Expired, false
	return status, nil
}

// findPermit looks for the transfer, backwards from the last block in which the permit could be used; nil:
// it is not found.
func (n *node) findPermit(ctx context.Context, a authorization, tip *block) (*logEntry, error) {
	to, err := n.lastBefore(ctx, tip, a.validBefore+1)
	if err != nil {
		return nil, err
	}
	window, left := uint64(logWindow), maxLookalikes
	for range maxLogQueries {
		from := to - min(window-1, to)
		var all []logEntry
		err := n.Call(ctx, &all, "eth_getLogs", map[string]any{"address": a.token.Hex(),
			"fromBlock": hexutil.Uint64(from), "toBlock": hexutil.Uint64(to),
			"topics": []any{topicTransfer, common.BytesToHash(a.payer[:]), common.BytesToHash(a.payee[:])}})
		switch {
		case rpc.Refused(err) && window > logWindowMin:
			window = max(window/4, logWindowMin)
			continue
		case rpc.Refused(err):
			return nil, nil
		case err != nil:
			return nil, err
		}
		for _, entry := range slices.Backward(all) {
			block := uint64(entry.BlockNumber)
			if !a.isExact(entry) || block < from || block > to {
				continue
			}
			left--
			if left < 0 {
				return nil, nil
			}
			is, err := n.isPermit(ctx, a, entry)
			if err != nil || is {
				return &entry, err
			}
		}
		if from == 0 {
			return nil, nil
		}
		to = from - 1
	}
	return nil, nil
}

// minedCall is what we need of a transaction.
type minedCall struct {
	Hash  common.Hash     `json:"hash"`
	To    *common.Address `json:"to"`
	Input hexutil.Bytes   `json:"input"`
}

// isPermit reports whether a transfer was made by the proxy for this owner's nonce, in a transaction that
// succeeded.
func (n *node) isPermit(ctx context.Context, a authorization, entry logEntry) (bool, error) {
	var t *minedCall
	if err := n.Call(ctx, &t, "eth_getTransactionByHash", entry.TransactionHash.Hex()); err != nil {
		return false, err
	}
	if t == nil || t.Hash != entry.TransactionHash || !a.isPermitCall(t) {
		return false, nil
	}
	var r *receipt
	if err := n.Call(ctx, &r, "eth_getTransactionReceipt", entry.TransactionHash.Hex()); err != nil {
		return false, err
	}
	return r != nil && r.TransactionHash == entry.TransactionHash && r.Status != nil && *r.Status == 1 &&
		slices.ContainsFunc(r.Logs, a.isExact), nil
}

// isPermitCall reports whether a transaction calls the payment's proxy with its owner, nonce and amount.
func (a authorization) isPermitCall(t *minedCall) bool {
	proxy := ExactProxy
	if a.evidence.Way == x402.Upto {
		proxy = UptoProxy
	}
	if t.To == nil || *t.To != common.HexToAddress(proxy) || len(t.Input) < 4 {
		return false
	}
	args := t.Input[4:]
	word := func(i int) []byte {
		if len(args) < 32*(i+1) {
			return nil
		}
		return args[32*i : 32*(i+1)]
	}
	for _, c := range permitCalls {
		selector := crypto.Keccak256([]byte(c.signature))[:4]
		if c.way == a.evidence.Way && slices.Equal(t.Input[:4], selector) {
			owner, nonce, amount := word(c.owner), word(c.nonce), word(c.amount)
			return slices.Equal(owner, wordOf(a.payer)) && slices.Equal(nonce, a.nonce[:]) &&
				amountOf(amount) == a.evidence.Amount
		}
	}
	return false
}
