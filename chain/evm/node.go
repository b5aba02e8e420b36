package evm

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"

	"x402-wallet/chain/rpc"
	"x402-wallet/x402"
)

const (
	// MaxSkew is how far our clock may be from the node's before signing: a signature's
	// life is counted on it.
	MaxSkew = 120 * time.Second
	// clockAge is how long a look at the node's clock is good for.
	clockAge = 30 * time.Second
)

// Block tags of the Ethereum JSON-RPC specification.
const (
	Latest    = "latest"
	Finalized = "finalized"
	Pending   = "pending"
)

type Node struct {
	*rpc.Node
	ChainID uint64
	now     func() time.Time
	clock   atomic.Pointer[clockReading] // nil: none yet
}

func newNode(network string, chainID uint64, url string, o Options) *Node {
	n := &Node{ChainID: chainID, now: o.Now}
	n.Node = rpc.New(rpc.Options{Network: network, URL: url, HTTP: o.HTTP, Identify: n.identify,
		Observe: o.Observe,
		OnDate:  func(date time.Time) { n.clock.Store(&clockReading{theirs: date, ours: n.now()}) }})
	return n
}

// clockReading is the node's time and ours at one moment.
type clockReading struct{ theirs, ours time.Time }

// identify errs with CHECK_FAILED when the node does not serve the chain that the CAIP-2 id names.
func (n *Node) identify(ask rpc.Ask) error {
	var id hexutil.Uint64
	if err := ask(&id, "eth_chainId"); err != nil {
		return err
	}
	if uint64(id) != n.ChainID {
		e := x402.Errorf(x402.CheckFailed, "the node configured for %s serves eip155:%d", n.Network,
			uint64(id))
		e.WithCommand(x402.Command("policy", "seal"), "The node in config.toml for "+x402.Title(n.Network)+
			" is one of another chain: please correct rpc there, and seal the rules.")
		return e.WithHint("the person corrects rpc under [networks.%q] in config.toml", n.Network)
	}
	return nil
}

// readClock is a reading no older than age, asking the node for its latest block where there is
// none: its Date header is the clock, or the block's time where it sends none.
func (n *Node) readClock(ctx context.Context, now time.Time, age time.Duration) (*clockReading, error) {
	if c := n.clock.Load(); c != nil && now.Sub(c.ours).Abs() <= age {
		return c, nil
	}
	asked := n.now()
	tip, err := n.Block(ctx, Latest)
	if err != nil {
		return nil, err
	}
	if c := n.clock.Load(); c != nil && !c.ours.Before(asked) {
		return c, nil
	}
	c := &clockReading{theirs: tip.Time(), ours: n.now()}
	n.clock.Store(c)
	return c, nil
}

// ReadyAt errs as Ready does where the node serves another chain, and as checkClock does where its clock
// and ours differ: it is asked before anything is signed.
func (n *Node) ReadyAt(ctx context.Context, now time.Time) error {
	if err := n.Ready(ctx); err != nil {
		return err
	}
	return n.checkClock(ctx, now)
}

// checkClock compares now with the node's clock and errs with CLOCK_SUSPECT beyond maxSkew: with a
// wrong clock a cheque for a minute can be one for a year. A node that lies here can only stop a
// payment.
func (n *Node) checkClock(ctx context.Context, now time.Time) error {
	clock, err := n.readClock(ctx, now, clockAge)
	if err != nil {
		return err
	}
	if skew := now.Sub(clock.theirs).Abs(); skew > MaxSkew {
		return x402.Errorf(x402.ClockSuspect, "this computer's clock and the node's differ by %s, and at "+
			"most %s is signed with", skew.Round(time.Second), MaxSkew).
			WithHint("set this computer's clock").
			WithDetail("ours", now.UTC()).WithDetail("node", clock.theirs.UTC())
	}
	return nil
}

// Clock asks a network's node what time it is: its Date, or the time of its newest block. Its
// errors are RPC_ERROR, and CHECK_FAILED for a node of another chain.
func (e *Exact) Clock(ctx context.Context, network string) (time.Time, error) {
	n, err := e.Node(network)
	if err != nil {
		return time.Time{}, err
	}
	clock, err := n.readClock(ctx, n.now(), -1) // none is young enough: it is asked now
	if err != nil {
		return time.Time{}, err
	}
	return clock.theirs, nil
}

// Block is what we need of a block's header.
type Block struct {
	Number    *hexutil.Uint64 `json:"number"`
	Timestamp *hexutil.Uint64 `json:"timestamp"` // Unix seconds
}

func (b *Block) Time() time.Time { return time.Unix(int64(*b.Timestamp), 0).UTC() }

// Block reads a header by tag. A node that does not have it is an RPC_ERROR.
func (n *Node) Block(ctx context.Context, tag string) (*Block, error) {
	b, err := n.BlockOrNil(ctx, tag)
	if err == nil && b == nil {
		err = n.Failed("eth_getBlockByNumber", errors.New("it has no such block"))
	}
	return b, err
}

// BlockOrNil reads a header by tag, nil when the node does not have it (pruned).
func (n *Node) BlockOrNil(ctx context.Context, tag string) (*Block, error) {
	const method = "eth_getBlockByNumber"
	var b *Block
	if err := n.Call(ctx, &b, method, tag, false); err != nil {
		return nil, err
	}
	switch {
	case b == nil:
		return nil, nil
	case b.Number == nil || b.Timestamp == nil || *b.Timestamp > 1<<40:
		return nil, n.Failed(method, errors.New("a block without number or time"))
	case tag != Latest && tag != Finalized && tag != b.Number.String():
		return nil, n.Failed(method, errors.New("another block than the one asked for"))
	}
	return b, nil
}

// Read calls a view function of token at a block and wants exactly one 32-byte word: an address
// without code answers nothing, and nothing is not zero.
func (n *Node) Read(ctx context.Context, token common.Address, tag string, selector []byte,
	args ...[]byte) ([]byte, error) {
	data := slices.Concat(append([][]byte{selector}, args...)...)
	var word hexutil.Bytes
	err := n.Call(ctx, &word, "eth_call", map[string]any{"to": token.Hex(), "data": hexutil.Bytes(data)}, tag)
	if err == nil && len(word) != 32 {
		err = n.Failed("eth_call", errors.New("the token's contract did not answer with one word"))
	}
	return word, err
}

const (
	// logWindow is how many blocks one eth_getLogs asks for: what public nodes commonly allow. A
	// node that refuses is asked for a quarter, down to logWindowMin, which every node known to
	// limit ranges allows.
	LogWindow    = 2000
	LogWindowMin = 10
	// maxLogQueries bounds the search: 64,000 blocks at the full window, the longest validity (24
	// h) at 2 s a block and more.
	MaxLogQueries = 32
	// maxHeaders bounds the search for a block by time: enough to halve 2^31 blocks after doubling
	// up to them.
	maxHeaders = 64
	// maxEvents bounds the receipts that are read for one nonce; EIP-3009 makes one event.
	maxEvents = 4
)

// The token's functions and events; TestSelectors derives them.
var (
	// balanceOf(address)
	SelectBalanceOf = []byte{0x70, 0xa0, 0x82, 0x31}
	// authorizationState(address,bytes32)
	selectAuthorizationState = []byte{0xe9, 0x4a, 0x01, 0x02}
	// AuthorizationUsed(address,bytes32)
	topicUsed = common.HexToHash("0x98de503528ee59b575ef0c0a2576a82497bfc029a5685b209e9ec333479b10a5")
	// AuthorizationCanceled(address,bytes32)
	topicCanceled = common.HexToHash("0x1cdd46ff242716cdaa72d159d339a485b3438398348d68f09d7c8c0a59353d81")
	// Transfer(address,address,uint256)
	TopicTransfer = common.HexToHash("0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef")
)

type LogEntry struct {
	Address         common.Address `json:"address"`
	Topics          []common.Hash  `json:"topics"`
	Data            hexutil.Bytes  `json:"data"`
	BlockNumber     hexutil.Uint64 `json:"blockNumber"`
	TransactionHash common.Hash    `json:"transactionHash"`
	Removed         bool           `json:"removed"`
}

// isEventOf reports whether l is the token's AuthorizationUsed or AuthorizationCanceled of exactly
// our nonce. The node's own filter is not trusted.
func (a Authorization) isEventOf(l LogEntry) bool {
	return !l.Removed && l.Address == a.Token && len(l.Topics) == 3 &&
		(l.Topics[0] == topicUsed || l.Topics[0] == topicCanceled) &&
		l.Topics[1] == common.BytesToHash(a.Payer[:]) && l.Topics[2] == a.Nonce
}

// findLogs looks for the nonce's events, backwards from the last block in which the authorization
// could be used. None is no error: they may be out of reach, and a node that refuses the smallest
// window will refuse for ever.
func (n *Node) findLogs(ctx context.Context, a Authorization, tip *Block) ([]LogEntry, error) {
	to, err := n.LastBefore(ctx, tip, a.ValidBefore)
	if err != nil {
		return nil, err
	}
	window := uint64(LogWindow)
	for range MaxLogQueries {
		from := to - min(window-1, to)
		logs, err := n.logs(ctx, a, from, to)
		switch {
		case rpc.Refused(err) && window > LogWindowMin:
			window = max(window/4, LogWindowMin)
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
func (n *Node) logs(ctx context.Context, a Authorization, from, to uint64) (ours []LogEntry, err error) {
	var all []LogEntry
	err = n.Call(ctx, &all, "eth_getLogs", map[string]any{
		"address":   a.Token.Hex(),
		"fromBlock": hexutil.Uint64(from), "toBlock": hexutil.Uint64(to),
		"topics": []any{[]common.Hash{topicUsed, topicCanceled}, common.BytesToHash(a.Payer[:]), a.Nonce},
	})
	for _, l := range all {
		block := uint64(l.BlockNumber)
		if a.isEventOf(l) && block >= from && block <= to && len(ours) < maxEvents {
			ours = append(ours, l)
		}
	}
	return ours, err
}

// LastBefore finds the last block whose time is before seconds: by doubling steps back from the
// tip, where payments usually are, then by halves. A block that the node has pruned counts as
// before.
func (n *Node) LastBefore(ctx context.Context, tip *Block, seconds uint64) (uint64, error) {
	above := uint64(*tip.Number)
	if uint64(*tip.Timestamp) < seconds {
		return above, nil
	}
	below, step := uint64(0), uint64(LogWindow)
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
		b, err := n.BlockOrNil(ctx, hexutil.Uint64(probe).String())
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
