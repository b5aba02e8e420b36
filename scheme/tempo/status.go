package tempo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"

	"x402-wallet/chain/evm"
	"x402-wallet/chain/evm/message"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// topicMemo is of TransferWithMemo(address indexed, address indexed, uint256, bytes32 indexed).
var topicMemo = common.HexToHash("0x57bc7354aa85aed339e000bccffabbc529466af35f0772c8f8ee1145927de7f0")

// A payee's receive policy (TIP-1028) makes the chain give the money of a transfer to the guard, which keeps
// it for whom the payee names. The transaction succeeds. It has the guard's event and no TransferWithMemo.
var (
	guard = common.HexToAddress("0xB10C000000000000000000000000000000000000")
	// TransferBlocked(address indexed,address indexed,uint64 indexed,uint256,uint8,bytes): the token first
	topicBlocked = common.HexToHash("0x361d86e46fd139dc3eac4148f16b53597f0f8ddd9aba772aae0034bda5531b1c")
)

// lookBack is how long before its end a payment is looked for in the chain's blocks.
const lookBack = time.Minute

// sought is a payment that the chain is asked about.
type sought struct {
	token, payer, payee common.Address
	memo, hash          common.Hash // hash is zero where the seller pays the fee: it is the seller's to make
	amount, fee         money.Amount
	end                 uint64 // Unix seconds
}

func read(e x402.Evidence) (s sought, err error) {
	var errs [5]error
	s.token, errs[0] = message.ParseAddress(e.Asset)
	s.payer, errs[1] = message.ParseAddress(e.Payer)
	s.payee, errs[2] = message.ParseAddress(e.PayTo)
	errs[3] = message.DecodeHex(s.memo[:], e.Memo)
	if e.Hash != "" {
		errs[4] = message.DecodeHex(s.hash[:], e.Hash)
	}
	if err := errors.Join(errs[:]...); err != nil || e.ValidBefore <= 0 {
		return s, evm.Internal("the payment's stored evidence cannot be read", err)
	}
	s.amount, s.fee, s.end = e.Amount.SubFloor(e.Fee), e.Fee, uint64(e.ValidBefore)
	return s, nil
}

// Status asks the chain what became of a payment:
//
//	its transaction, by its hash or by the memo's event | Status
//	-----------------------------------------------------+-----------------------------------------------
//	success, and the exact TransferWithMemo              | Settled
//	success, and TransferWithMemo to another             | Settled, with a note
//	success, and the guard has the money                 | Settled, with a note: a receive policy
//	success, without it                                  | Open: the node contradicts itself
//	failed, the buyer pays the fee                       | Settled, for the fee alone
//	none up to a finalized block after the payment's end | Expired
//	none                                                 | Open
//
// With an error the status is Open.
func (p Payer) Status(ctx context.Context, e x402.Evidence) (x402.Status, error) {
	n, err := p.on.Node(e.Network)
	if err != nil {
		return x402.Status{}, err
	}
	s, err := read(e)
	if err != nil {
		return x402.Status{}, err
	}
	final, err := n.Block(ctx, evm.Finalized) // before the payment is looked for
	if err != nil {
		return x402.Status{}, err
	}
	status, found, err := s.find(ctx, n)
	if found || err != nil {
		return status, err
	}
	status = x402.Status{Block: uint64(*final.Number), At: final.Time()}
	if uint64(*final.Timestamp) < s.end {
		status.Unused = true
		status.Note = fmt.Sprintf("in no block yet; finalized time %s, valid before %s",
			x402.Stamp(final.Time()), x402.Stamp(e.ExpiresAt))
		return status, nil
	}
	status.State = x402.Expired
	status.Note = fmt.Sprintf("in no block up to %d of %s, valid before %s", status.Block,
		x402.Stamp(status.At), x402.Stamp(e.ExpiresAt))
	return status, nil
}

// find looks for the payment's transaction in the blocks until its end.
func (s sought) find(ctx context.Context, n *evm.Node) (status x402.Status, found bool, err error) {
	if s.hash != (common.Hash{}) {
		return s.byHash(ctx, n, s.hash)
	}
	tip, err := n.Block(ctx, evm.Latest)
	if err != nil {
		return status, false, err
	}
	to, err := n.LastBefore(ctx, tip, s.end)
	if err != nil {
		return status, false, err
	}
	from, err := n.LastBefore(ctx, tip, s.end-min(s.end, uint64(lookBack/time.Second)))
	if err != nil {
		return status, false, err
	}
	for _, filter := range []struct {
		address common.Address
		topics  []any
	}{
		{s.token, []any{topicMemo, common.BytesToHash(s.payer[:]), nil, s.memo}},
		{guard, []any{topicBlocked, common.BytesToHash(s.token[:])}},
	} {
		var logs []evm.LogEntry
		err := n.Call(ctx, &logs, "eth_getLogs", map[string]any{"address": filter.address.Hex(),
			"fromBlock": hexutil.Uint64(from), "toBlock": hexutil.Uint64(to), "topics": filter.topics})
		if err != nil {
			return status, false, err
		}
		for _, l := range logs {
			if s.isTransfer(l) || s.isBlocked(l) {
				return s.byHash(ctx, n, l.TransactionHash)
			}
		}
	}
	return status, false, nil
}

// isTransfer reports whether l is the event of a transfer by the payer with the payment's memo.
func (s sought) isTransfer(l evm.LogEntry) bool {
	return !l.Removed && l.Address == s.token && len(l.Topics) == 4 && len(l.Data) == 32 &&
		l.Topics[0] == topicMemo && l.Topics[1] == common.BytesToHash(s.payer[:]) && l.Topics[3] == s.memo
}

// isBlocked reports whether l is the guard's event of a transfer by the payer with the payment's memo. Both
// are words of the receipt that is in its data.
func (s sought) isBlocked(l evm.LogEntry) bool {
	isBlock := !l.Removed && l.Address == guard && len(l.Topics) == 4 && l.Topics[0] == topicBlocked &&
		l.Topics[1] == common.BytesToHash(s.token[:])
	hasPayer, hasMemo := false, false
	for word := range slices.Chunk(l.Data, common.HashLength) {
		hasPayer = hasPayer || common.BytesToHash(word) == common.BytesToHash(s.payer[:])
		hasMemo = hasMemo || common.BytesToHash(word) == s.memo
	}
	return isBlock && hasPayer && hasMemo
}

// byHash reads what a transaction did.
func (s sought) byHash(ctx context.Context, n *evm.Node, hash common.Hash) (status x402.Status, found bool,
	err error) {
	var r *struct {
		evm.Receipt
		BlockNumber *hexutil.Uint64 `json:"blockNumber"`
		GasUsed     hexutil.Uint64  `json:"gasUsed"`
		GasPrice    hexutil.Uint64  `json:"effectiveGasPrice"`
	}
	const method = "eth_getTransactionReceipt"
	if err := n.Call(ctx, &r, method, hash.Hex()); err != nil || r == nil {
		return status, false, err
	}
	if r.TransactionHash != hash || r.Status == nil || r.BlockNumber == nil {
		return status, false, n.Failed(method, errors.New("another transaction's receipt"))
	}
	status = x402.Status{Transaction: hash.Hex(), Block: uint64(*r.BlockNumber)}
	at, err := n.BlockOrNil(ctx, r.BlockNumber.String())
	if err != nil {
		return x402.Status{}, false, err
	}
	if at != nil {
		status.At = at.Time()
	}
	fee := s.feeOf(uint64(r.GasUsed), uint64(r.GasPrice))
	switch {
	case *r.Status == 1:
		status.State, status.Note = s.judge(r.Logs)
		fee, _ = s.amount.Add(fee)
	case s.fee.IsZero():
		status.Note = "its transaction failed"
	default:
		status.State, status.Note = x402.Settled, "the transfer failed, and the network took its fee"
	}
	if status.State == x402.Settled && !s.fee.IsZero() {
		status.Amount = &fee
	}
	return status, true, nil
}

// judge compares the events of a transaction that succeeded with what was signed.
func (s sought) judge(logs []evm.LogEntry) (state x402.StatusState, note string) {
	note = "its transaction shows no such transfer: the node contradicts itself"
	for _, l := range logs {
		if s.isBlocked(l) {
			return x402.Settled, "money moved, but the payee's receive policy keeps it from them (TIP-1028)"
		}
		if !s.isTransfer(l) {
			continue
		}
		to, amount := common.BytesToAddress(l.Topics[2][12:]), message.AmountOf(l.Data)
		if to == s.payee && amount == s.amount {
			return x402.Settled, ""
		}
		state, note = x402.Settled, fmt.Sprintf("money moved, but not as signed: %s to %s", amount, to.Hex())
	}
	return state, note
}

// feeOf returns the network's fee, in units of the token. It is 0 if the seller paid it.
func (s sought) feeOf(gas, price uint64) money.Amount {
	const perUnit = 1_000_000_000_000                   // 10^-18 dollars in a unit of 10^-6
	if s.fee.IsZero() || gas > 1<<24 || price > 1<<38 { // no such fee was signed
		return s.fee
	}
	fee := money.NewAmount((gas*price + perUnit - 1) / perUnit)
	if fee.Cmp(s.fee) > 0 {
		return s.fee
	}
	return fee
}
