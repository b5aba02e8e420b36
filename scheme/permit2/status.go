package permit2

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"

	"x402-wallet/chain/evm"
	"x402-wallet/chain/evm/message"
	"x402-wallet/chain/rpc"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// What became of a payment by Permit2. A nonce that is set was used by a settlement, or invalidated by its
// owner, and Permit2 says nothing else of it. So the token's transfers from payer to payee are looked for,
// and that one is the payment's whose transaction called a proxy with its owner and nonce (settlement.go):
// Permit2 takes a nonce once, so a call that succeeded is the one that used it.
//
//	nonce (latest)     | found in the logs                    | Status
//	-------------------+--------------------------------------+---------------------------------
//	set                | the transfer, its transaction a call | Settled (upto: when it is final,
//	                   | of a proxy with this nonce           | with what moved)
//	set                | the transfer of exactly the amount,  | exact: Settled
//	                   | its transaction has the nonce in it  |
//	set, final         | UnorderedNonceInvalidation, and the  | Expired
//	                   | nonce was unused before it           |
//	set, final         | nothing                              | Settled, with a note; of upto, whose
//	                   |                                      | amount is not known, as all of it
//	set                | otherwise                            | Open
//	unset              | as in Status                         | as in Status
//
// Of a key that is not ours (Received) only this is Settled, and only what is unused is ever Expired: its
// owner may have invalidated it, but the transfer may as well be where it is not looked for.
//
//	nonce (latest)     | found in the logs                    | Status
//	-------------------+--------------------------------------+---------------------------------
//	set                | the transfer of exactly the amount,  | Settled
//	                   | its transaction a call of the proxy  |
//	                   | with this owner, nonce and amount    |
//	set                | otherwise                            | Open

// Functions and events of Permit2 and of the proxies; TestSelectors derives them.
var (
	// nonceBitmap(address,uint256)
	selectNonceBitmap = []byte{0x4f, 0xe0, 0x2b, 0x44}
	// UnorderedNonceInvalidation(address,uint256,uint256)
	topicInvalidated = common.HexToHash("0x3704902f963766a4e561bbaab6e6cdc1b1dd12f6e9e99648da8843b3f46b918d")
)

// maxCandidates bounds the transactions that are read for one nonce: whoever is paid often by the same payer
// has many transfers that look alike.
const maxCandidates = 100

// permit is a signed permit that the chain is asked about.
type permit struct{ evm.Authorization }

// chain is a network's node.
type chain struct{ *evm.Node }

// nonces are an evm.Nonces: those of Permit2.
type nonces struct{}

func (nonces) IsUsed(ctx context.Context, n *evm.Node, a evm.Authorization, tag string) (bool, error) {
	return chain{n}.nonceBit(ctx, permit{a}, tag)
}

func (nonces) StatusOfUsed(ctx context.Context, n *evm.Node, a evm.Authorization, tip *evm.Block) (
	x402.Status, error) {
	return chain{n}.statusOfUsed(ctx, permit{a}, tip)
}

// Status asks the chain what became of a payment of the agent's own account, by Permit2 or without it: see
// evm.Exact.Status.
func (p *Payer) Status(ctx context.Context, e x402.Evidence) (x402.Status, error) {
	return p.status(ctx, e, false)
}

// Received is Status for a payment that somebody else signed: see evm.Exact.Received.
func (p *Payer) Received(ctx context.Context, e x402.Evidence) (x402.Status, error) {
	return p.status(ctx, e, true)
}

func (p *Payer) status(ctx context.Context, e x402.Evidence, isForeign bool) (x402.Status, error) {
	switch {
	case e.Way == "" && isForeign:
		return p.Exact.Received(ctx, e)
	case e.Way == "":
		return p.Exact.Status(ctx, e)
	}
	a, err := evm.ReadEvidence(e, x402.Permit2, x402.Upto)
	if err != nil {
		return x402.Status{}, err
	}
	a.Foreign = isForeign
	return p.StatusBy(ctx, a, nonces{})
}

// IsUsed reports whether a payment's nonce was used at the latest block.
func (p *Payer) IsUsed(ctx context.Context, e x402.Evidence) (bool, error) {
	if e.Way == "" {
		return p.Exact.IsUsed(ctx, e)
	}
	n, err := p.Node(e.Network)
	if err != nil {
		return false, err
	}
	a, err := evm.ReadEvidence(e, x402.Permit2, x402.Upto)
	if err != nil {
		return false, err
	}
	return nonces{}.IsUsed(ctx, n, a, evm.Latest)
}

// nonceBit reports whether a nonce is set at a block.
func (n chain) nonceBit(ctx context.Context, a permit, tag string) (bool, error) {
	word, err := n.Read(ctx, common.HexToAddress(message.Permit2Address), tag, selectNonceBitmap,
		message.Word(a.Payer),
		a.nonceWord())
	if err != nil {
		return false, err
	}
	return hasBit(word, a.Nonce[31]), nil
}

// nonceWord is the word of the bitmap that the nonce is a bit of.
func (a permit) nonceWord() []byte { return append([]byte{0}, a.Nonce[:31]...) }

func hasBit(word []byte, bit byte) bool { return word[31-bit/8]>>(bit%8)&1 == 1 }

// search is what was found of a nonce that is set.
type search struct {
	use        *evm.LogEntry  // the transfer of the transaction that used it; nil: not found
	unclear    []evm.LogEntry // transfers that may be the payment's
	voided     *evm.LogEntry  // its invalidation
	isComplete bool           // all blocks were searched in which it could have been used
}

func (n chain) statusOfUsed(ctx context.Context, a permit, tip *evm.Block) (x402.Status, error) {
	final, err := n.Block(ctx, evm.Finalized)
	if err != nil {
		return x402.Status{}, err
	}
	found, err := n.searchPermit(ctx, a, tip)
	switch {
	case err != nil:
		return x402.Status{}, err
	case found.use != nil:
		return n.statusOfUse(ctx, a, *found.use, final)
	case a.Foreign:
		return x402.Status{Note: "nonce set; its transfer was not found"}, nil
	}
	return n.statusWithoutUse(ctx, a, found, final)
}

// searchPermit looks for the payer's transfers to the payee and for the nonce's invalidation, backwards from
// the last block in which it could be used, as findLogs does, until its use is found.
func (n chain) searchPermit(ctx context.Context, a permit, tip *evm.Block) (found search, err error) {
	to, err := n.LastBefore(ctx, tip, a.ValidBefore+1)
	if err != nil {
		return found, err
	}
	seen := map[common.Hash]bool{}
	window := uint64(evm.LogWindow)
	for range evm.MaxLogQueries {
		from := to - min(window-1, to)
		logs, err := n.permitLogs(ctx, a, from, to)
		switch {
		case rpc.Refused(err) && window > evm.LogWindowMin:
			window = max(window/4, evm.LogWindowMin)
			continue
		case rpc.Refused(err):
			return found, nil
		case err != nil:
			return found, err
		}
		if err := n.classify(ctx, a, logs, seen, &found); err != nil || found.use != nil {
			return found, err
		}
		if len(seen) >= maxCandidates {
			return found, nil
		}
		if a.Foreign && from > 0 { // who knows when it was signed
			to = from - 1
			continue
		}
		first, err := n.BlockOrNil(ctx, hexutil.Uint64(from).String())
		if err != nil {
			return found, err
		}
		found.isComplete = from == 0 || (first != nil && uint64(*first.Timestamp) < a.earliest())
		if found.isComplete {
			return found, nil
		}
		to = from - 1
	}
	return found, nil
}

// earliest is a time before which nothing that ends with the authorization was signed.
func (a permit) earliest() uint64 {
	return a.ValidBefore - min(a.ValidBefore, uint64((evm.MaxValidity+evm.MaxSkew)/time.Second))
}

// classify says what events have to do with the nonce, each transaction once.
func (n chain) classify(ctx context.Context, a permit, logs []evm.LogEntry, seen map[common.Hash]bool,
	found *search) error {
	for _, l := range logs {
		if a.isInvalidation(l) {
			found.voided = &l
			continue
		}
		if seen[l.TransactionHash] || len(seen) >= maxCandidates {
			continue
		}
		seen[l.TransactionHash] = true
		switch is, err := n.useOf(ctx, a, l); {
		case err != nil:
			return err
		case is == used:
			found.use = &l
			return nil
		case is == unclear:
			found.unclear = append(found.unclear, l)
		}
	}
	return nil
}

// permitLogs reads the events of the blocks from … to, the newest first.
func (n chain) permitLogs(ctx context.Context, a permit, from, to uint64) (ours []evm.LogEntry,
	err error) {
	var all []evm.LogEntry
	filter := map[string]any{"fromBlock": hexutil.Uint64(from), "toBlock": hexutil.Uint64(to),
		"address": []string{a.Token.Hex(), message.Permit2Address},
		"topics":  []any{[]common.Hash{evm.TopicTransfer, topicInvalidated}, common.BytesToHash(a.Payer[:])}}
	if a.Foreign { // nothing follows from an invalidation, and who pays much has many other transfers
		filter["address"] = a.Token.Hex()
		filter["topics"] = []any{evm.TopicTransfer, common.BytesToHash(a.Payer[:]),
			common.BytesToHash(a.Payee[:])}
	}
	err = n.Call(ctx, &all, "eth_getLogs", filter)
	for i := len(all) - 1; i >= 0; i-- {
		l := all[i]
		isIn := uint64(l.BlockNumber) >= from && uint64(l.BlockNumber) <= to
		if isIn && (a.mayBeUse(l) || a.isInvalidation(l)) {
			ours = append(ours, l)
		}
	}
	return ours, err
}

// mayBeUse reports whether l is a transfer as the payment may have made.
func (a permit) mayBeUse(l evm.LogEntry) bool {
	if a.Evidence.Way != x402.Upto || a.Foreign {
		return a.IsExact(l)
	}
	return !l.Removed && a.IsTransferOf(l) && l.Topics[2] == common.BytesToHash(a.Payee[:]) &&
		message.AmountOf(l.Data).Cmp(a.Evidence.Amount) <= 0
}

// isInvalidation reports whether l is the payer's own invalidation of the nonce.
func (a permit) isInvalidation(l evm.LogEntry) bool {
	return !l.Removed && l.Address == common.HexToAddress(message.Permit2Address) && len(l.Topics) == 2 &&
		l.Topics[0] == topicInvalidated && l.Topics[1] == common.BytesToHash(a.Payer[:]) &&
		len(l.Data) == 64 && bytes.Equal(l.Data[:32], a.nonceWord()) && hasBit(l.Data[32:], a.Nonce[31])
}

// statusOfUse reads what the transaction moved that used the nonce.
func (n chain) statusOfUse(ctx context.Context, a permit, entry evm.LogEntry, final *evm.Block) (x402.Status,
	error) {
	var r *evm.Receipt
	if err := n.Call(ctx, &r, "eth_getTransactionReceipt", entry.TransactionHash.Hex()); err != nil {
		return x402.Status{}, err
	}
	status := x402.Status{Transaction: entry.TransactionHash.Hex(), Block: uint64(entry.BlockNumber)}
	if r == nil || r.TransactionHash != entry.TransactionHash || r.Status == nil || *r.Status != 1 {
		status.Note = "nonce set, but the node's receipt is of another or a failed transaction, or missing"
		return status, nil
	}
	// were there several, the payment's is one of them: the most is counted
	var moved money.Amount
	for _, l := range r.Logs {
		if a.mayBeUse(l) && message.AmountOf(l.Data).Cmp(moved) > 0 {
			moved = message.AmountOf(l.Data)
		}
	}
	isFinal := *final.Number >= entry.BlockNumber
	mayBeLess := a.Evidence.Way == x402.Upto && !a.Foreign
	switch {
	case moved.IsZero():
		status.Note = "nonce set, but its transaction shows no transfer: the node contradicts itself"
		return status, nil
	case mayBeLess && !isFinal:
		status.Note = fmt.Sprintf("%s moved, not final yet", moved)
		return status, nil
	case mayBeLess:
		status.Amount = &moved
	}
	status.State = x402.Settled
	at, err := n.BlockOrNil(ctx, entry.BlockNumber.String())
	if err == nil && at != nil {
		status.At = at.Time()
	}
	return status, err
}

// statusWithoutUse is for a nonce that is set, of whose use nothing was seen.
func (n chain) statusWithoutUse(ctx context.Context, a permit, found search, final *evm.Block) (
	x402.Status, error) {
	isSet, err := n.nonceBit(ctx, a, final.Number.String())
	if err != nil {
		return x402.Status{}, err
	}
	status := x402.Status{Block: uint64(*final.Number), At: final.Time()}
	switch {
	case !isSet:
		status.Note = "nonce set, and not final yet"
	case found.voided != nil:
		return n.statusOfInvalidated(ctx, a, found, status)
	default:
		status.State, status.Note = x402.Settled, "nonce set; its use was not found"
	}
	return status, nil
}

// statusOfInvalidated is Expired where the nonce was not used before its owner invalidated it: by the state
// before that, in a block in which nothing moved to the payee, or else because nothing at all did.
func (n chain) statusOfInvalidated(ctx context.Context, a permit, found search, status x402.Status) (
	x402.Status, error) {
	how := "nonce invalidated (UnorderedNonceInvalidation)"
	block := uint64(found.voided.BlockNumber)
	if block > status.Block {
		status.Note = how + "; not final yet"
		return status, nil
	}
	status.Transaction, status.Block = found.voided.TransactionHash.Hex(), block
	isFree := found.isComplete && len(found.unclear) == 0
	if !isFree && block > 0 {
		wasSet, err := n.nonceBit(ctx, a, hexutil.Uint64(block-1).String())
		if err != nil && !rpc.Refused(err) {
			return x402.Status{}, err
		}
		isFree = err == nil && !wasSet
		for _, entry := range found.unclear {
			isFree = isFree && uint64(entry.BlockNumber) != block
		}
	}
	status.Note = how + "; whether it was used before cannot be seen"
	if isFree {
		status.State, status.Note = x402.Expired, how
	}
	return status, nil
}
