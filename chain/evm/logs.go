package evm

import (
	"context"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"

	"x402-wallet/chain/rpc"
)

const (
	// logWindow is how many blocks one eth_getLogs asks for: what public nodes commonly allow. A
	// node that refuses is asked for a quarter, down to logWindowMin, which every node known to
	// limit ranges allows.
	logWindow    = 2000
	logWindowMin = 10
	// maxLogQueries bounds the search: 64,000 blocks at the full window, the longest validity (24
	// h) at 2 s a block and more.
	maxLogQueries = 32
	// maxHeaders bounds the search for a block by time: enough to halve 2^31 blocks after doubling
	// up to them.
	maxHeaders = 64
	// maxEvents bounds the receipts that are read for one nonce; EIP-3009 makes one event.
	maxEvents = 4
)

// The token's functions and events; TestSelectors derives them.
var (
	// balanceOf(address)
	selectBalanceOf = []byte{0x70, 0xa0, 0x82, 0x31}
	// authorizationState(address,bytes32)
	selectAuthorizationState = []byte{0xe9, 0x4a, 0x01, 0x02}
	// AuthorizationUsed(address,bytes32)
	topicUsed = common.HexToHash("0x98de503528ee59b575ef0c0a2576a82497bfc029a5685b209e9ec333479b10a5")
	// AuthorizationCanceled(address,bytes32)
	topicCanceled = common.HexToHash("0x1cdd46ff242716cdaa72d159d339a485b3438398348d68f09d7c8c0a59353d81")
	// Transfer(address,address,uint256)
	topicTransfer = common.HexToHash("0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef")
)

// logEntry is an event in a node's answer.
type logEntry struct {
	Address         common.Address `json:"address"`
	Topics          []common.Hash  `json:"topics"`
	Data            hexutil.Bytes  `json:"data"`
	BlockNumber     hexutil.Uint64 `json:"blockNumber"`
	TransactionHash common.Hash    `json:"transactionHash"`
	Removed         bool           `json:"removed"`
}

// isEventOf reports whether l is the token's AuthorizationUsed or AuthorizationCanceled of exactly
// our nonce. The node's own filter is not trusted.
func (a authorization) isEventOf(l logEntry) bool {
	if l.Removed || l.Address != a.token || len(l.Topics) != 3 {
		return false
	}
	if l.Topics[0] != topicUsed && l.Topics[0] != topicCanceled {
		return false
	}
	return l.Topics[1] == common.BytesToHash(a.payer[:]) && l.Topics[2] == a.nonce
}

// findLogs looks for the nonce's events, backwards from the last block in which the authorization
// could be used. None is no error: they may be out of reach, and a node that refuses the smallest
// window will refuse for ever.
func (n *node) findLogs(ctx context.Context, a authorization, tip *block) ([]logEntry, error) {
	to, err := n.lastBefore(ctx, tip, a.validBefore)
	if err != nil {
		return nil, err
	}
	window := uint64(logWindow)
	for range maxLogQueries {
		from := to - min(window-1, to)
		logs, err := n.logs(ctx, a, from, to)
		switch {
		case rpc.Refused(err) && window > logWindowMin:
			window = max(window/4, logWindowMin)
			continue
		case rpc.Refused(err):
			return nil, nil
		case err != nil || len(logs) > 0 || from == 0:
			return logs, err
		}
		to = from - 1
	}
	return nil, nil
}

// logs reads the nonce's events in the blocks from … to.
func (n *node) logs(ctx context.Context, a authorization, from, to uint64) (ours []logEntry, err error) {
	var all []logEntry
	err = n.Call(ctx, &all, "eth_getLogs", map[string]any{
		"address":   a.token.Hex(),
		"fromBlock": hexutil.Uint64(from), "toBlock": hexutil.Uint64(to),
		"topics": []any{[]common.Hash{topicUsed, topicCanceled}, common.BytesToHash(a.payer[:]), a.nonce},
	})
	for _, l := range all {
		if a.isEventOf(l) && uint64(l.BlockNumber) >= from && uint64(l.BlockNumber) <= to &&
			len(ours) < maxEvents {
			ours = append(ours, l)
		}
	}
	return ours, err
}

// lastBefore finds the last block whose time is before seconds: by doubling steps back from the
// tip, where payments usually are, then by halves. A block that the node has pruned counts as
// before.
func (n *node) lastBefore(ctx context.Context, tip *block, seconds uint64) (uint64, error) {
	above := uint64(*tip.Number)
	if uint64(*tip.Timestamp) < seconds {
		return above, nil
	}
	below, step := uint64(0), uint64(logWindow)
	doubling := true
	for range maxHeaders {
		if above <= below+1 {
			break
		}
		probe := below + (above-below)/2
		if doubling {
			probe = above - min(step, above)
			step *= 2
		}
		b, err := n.blockOrNil(ctx, hexutil.Uint64(probe).String())
		if err != nil {
			return 0, err
		}
		if b == nil || uint64(*b.Timestamp) < seconds {
			below, doubling = probe, false
		} else {
			above = probe
		}
	}
	return below, nil
}
