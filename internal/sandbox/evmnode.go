package sandbox

import (
	"encoding/hex"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"x402-wallet/x402test/fault"
)

// The token's functions and events by their selectors and topics (EIP-20, EIP-3009).
const (
	callBalanceOf          = "70a08231" // balanceOf(address)
	callAuthorizationState = "e94a0102" // authorizationState(address,bytes32)
	callDecimals           = "313ce567" // decimals()

	// AuthorizationUsed(address,bytes32)
	topicUsed = "0x98de503528ee59b575ef0c0a2576a82497bfc029a5685b209e9ec333479b10a5"
	// Transfer(address,address,uint256)
	topicTransfer = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"
)

// maxLogRange is how many blocks one eth_getLogs may ask for, as public nodes limit it.
const maxLogRange = 10_000

// evmNode answers the Ethereum JSON-RPC methods that a payer needs, of Tempo behind /tempo.
func (s *Sandbox) evmNode() http.Handler {
	c := s.evm
	forgetful := func(method func(p []json.RawMessage, forgets bool) (any, error)) Method {
		return func(p []json.RawMessage) (any, error) {
			return method(p, s.Strike(fault.EVMNodeForgets) != "")
		}
	}
	methods := map[string]Method{
		"eth_chainId": func([]json.RawMessage) (any, error) {
			if s.Strike(fault.EVMNodeElsewhere) != "" {
				return quantity(c.ID() + 1), nil
			}
			return quantity(c.ID()), nil
		},
		"eth_blockNumber":           func([]json.RawMessage) (any, error) { return quantity(c.Head()), nil },
		"eth_getBlockByNumber":      c.getBlock,
		"eth_getBalance":            func([]json.RawMessage) (any, error) { return quantity(0), nil },
		"eth_call":                  forgetful(c.call),
		"eth_getLogs":               forgetful(c.getLogs),
		"eth_getTransactionReceipt": forgetful(c.getReceipt),
	}
	maps.Copy(methods, s.extra.Methods)
	node, tempo := rpcNode{chain: &c.Mutex, methods: methods}, s.tempoNode()
	return s.node(fault.EVMNodeDown, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/tempo" {
			tempo.ServeHTTP(w, r)
			return
		}
		node.ServeHTTP(w, r)
	}))
}

func (s *Sandbox) node(down string, node http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.Strike(down) != "" {
			http.Error(w, "out of order", http.StatusServiceUnavailable)
			return
		}
		node.ServeHTTP(w, r)
	})
}

// number reads a block tag; ok is false for a block that does not exist.
func (c *Chain) number(tag string) (n uint64, ok bool, err error) {
	switch tag {
	case "", "latest", "pending":
		return c.Head(), true, nil
	case "finalized", "safe":
		return c.final(), true, nil
	case "earliest":
		return firstBlock, true, nil
	}
	n, err = strconv.ParseUint(strings.TrimPrefix(tag, "0x"), 16, 64)
	if err != nil || !strings.HasPrefix(tag, "0x") {
		return 0, false, BadParams("not a block: " + tag)
	}
	return n, n >= firstBlock && n <= c.Head(), nil
}

// Existing reads the tag of a block that has to be there.
func (c *Chain) Existing(tag string) (uint64, error) {
	n, exists, err := c.number(tag)
	if err == nil && !exists {
		err = NodeRefuses("header not found")
	}
	return n, err
}

func (c *Chain) getBlock(params []json.RawMessage) (any, error) {
	var tag string
	if err := Read(params, &tag); err != nil {
		return nil, err
	}
	n, exists, err := c.number(tag)
	if err != nil || !exists {
		return nil, err
	}
	hashes := []string{}
	for _, tx := range c.txs {
		if tx.Block == n {
			hashes = append(hashes, tx.Hash)
		}
	}
	return map[string]any{
		"number": quantity(n), "timestamp": quantity(uint64(c.blocks[n-firstBlock])),
		"hash":       HashOf("block", n),
		"parentHash": HashOf("block", n-1), "transactions": hashes, "baseFeePerGas": quantity(BaseFee),
	}, nil
}

// call runs a view function of a contract at a block; an address without code answers nothing.
func (c *Chain) call(params []json.RawMessage, forgets bool) (any, error) {
	var message struct{ To, Data, Input string }
	var tag string
	if err := Read(params, &message, &tag); err != nil {
		return nil, err
	}
	block, err := c.Existing(tag)
	if err != nil {
		return nil, err
	}
	if !c.HasCode(message.To) {
		return "0x", nil
	}
	data := strings.TrimPrefix(message.Data+message.Input, "0x")
	if _, err := hex.DecodeString(data); err != nil || len(data) < 8 {
		return nil, Reverted("")
	}
	answer, known := c.view(message.To, data[:8], strings.ToLower(data[8:]), block, forgets)
	if !known {
		return nil, Reverted("")
	}
	return answer, nil
}

// view answers a view function of a contract.
func (c *Chain) view(contract, selector, words string, block uint64, forgets bool) (answer string,
	known bool) {
	isToken := c.IsToken(contract)
	switch {
	case isToken && selector == callBalanceOf && len(words) == 64:
		return Word(c.Balances.At("0x"+words[24:], block)), true
	case isToken && selector == callAuthorizationState && len(words) == 128:
		used := c.used["0x"+words[24:64]+words[64:]]
		if used != 0 && used <= block && !forgets {
			return Word(1), true
		}
		return Word(0), true
	case isToken && selector == callDecimals && words == "":
		return Word(uint64(c.Asset.Decimals)), true
	case c.extra.View != nil:
		return c.extra.View(contract, selector, words, block, forgets)
	}
	return "", false
}

func (c *Chain) IsToken(address string) bool { return strings.EqualFold(address, c.Asset.Address) }

// HasCode reports whether an address is a contract's.
func (c *Chain) HasCode(address string) bool {
	return c.IsToken(address) || (c.extra.HasCode != nil && c.extra.HasCode(address))
}

type evmLog struct {
	Address         string   `json:"address"`
	Topics          []string `json:"topics"`
	Data            string   `json:"data"`
	BlockNumber     string   `json:"blockNumber"`
	TransactionHash string   `json:"transactionHash"`
	LogIndex        string   `json:"logIndex"`
	Removed         bool     `json:"removed"`
}

// Emit logs an event of a contract's.
func (tx *Transaction) Emit(contract, data string, topics ...string) {
	tx.logs = append(tx.logs, evmLog{Address: strings.ToLower(contract), Topics: topics, Data: data,
		BlockNumber: quantity(tx.Block), TransactionHash: tx.Hash,
		LogIndex: quantity(uint64(len(tx.logs)))})
}

func (c *Chain) getLogs(params []json.RawMessage, forgets bool) (any, error) {
	var filter struct {
		Address            json.RawMessage
		FromBlock, ToBlock string
		Topics             []json.RawMessage
	}
	if err := Read(params, &filter); err != nil {
		return nil, err
	}
	from, _, errFrom := c.number(filter.FromBlock)
	to, _, errTo := c.number(filter.ToBlock)
	if errFrom != nil || errTo != nil || from > to {
		return nil, BadParams("not a range of blocks")
	}
	if to-from > maxLogRange {
		return nil, &rpcError{Code: -32005, Message: "query exceeds the range of 10000 blocks"}
	}
	contracts := []string{""}
	if json.Unmarshal(filter.Address, &contracts[0]) != nil &&
		json.Unmarshal(filter.Address, &contracts) != nil {
		return nil, BadParams("not an address or a list of them")
	}
	wanted := wantedTopics(filter.Topics)
	found := []evmLog{}
	for _, tx := range c.txs {
		if tx.Block < from || tx.Block > to || forgets {
			continue
		}
		for _, l := range tx.logs {
			isFrom := func(contract string) bool { return strings.EqualFold(contract, l.Address) }
			if slices.ContainsFunc(contracts, isFrom) && matches(wanted, l.Topics) {
				found = append(found, l)
			}
		}
	}
	return found, nil
}

// wantedTopics is eth_getLogs' filter: by position a topic, a list of which one must match, or null, which is
// nil here.
func wantedTopics(filter []json.RawMessage) [][]string {
	wanted := make([][]string, len(filter))
	for i, raw := range filter {
		var one string
		if json.Unmarshal(raw, &one) == nil && one != "" {
			wanted[i] = []string{one}
		} else if json.Unmarshal(raw, &wanted[i]) != nil {
			wanted[i] = nil
		}
	}
	return wanted
}

func matches(wanted [][]string, topics []string) bool {
	if len(wanted) > len(topics) {
		return false
	}
	for i, list := range wanted {
		isIt := func(one string) bool { return strings.EqualFold(one, topics[i]) }
		if list != nil && !slices.ContainsFunc(list, isIt) {
			return false
		}
	}
	return true
}

func (c *Chain) getReceipt(params []json.RawMessage, forgets bool) (any, error) {
	var hash string
	if err := Read(params, &hash); err != nil {
		return nil, err
	}
	tx := c.byHash[strings.ToLower(hash)]
	if tx == nil || forgets {
		return nil, nil
	}
	status, logs := "0x1", tx.logs
	if tx.Failed {
		status = "0x0"
	}
	if logs == nil {
		logs = []evmLog{}
	}
	return map[string]any{
		"transactionHash": tx.Hash, "status": status, "blockNumber": quantity(tx.Block),
		"blockHash": HashOf("block", tx.Block), "gasUsed": quantity(tx.Gas),
		"effectiveGasPrice": quantity(tx.GasPrice),
		"from":              strings.ToLower(tx.From), "to": strings.ToLower(tx.To), "logs": logs,
	}, nil
}
