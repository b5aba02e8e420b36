package sandbox

import (
	"encoding/hex"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"x402-wallet/chain/evm"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// The token's functions and events by their selectors and topics (EIP-20, EIP-3009).
const (
	callBalanceOf          = "70a08231" // balanceOf(address)
	callAuthorizationState = "e94a0102" // authorizationState(address,bytes32)
	callDecimals           = "313ce567" // decimals()
	callAllowance          = "dd62ed3e" // allowance(address,address)
	callNonces             = "7ecebe00" // nonces(address)
	callNonceBitmap        = "4fe02b44" // nonceBitmap(address,uint256), of Permit2

	// AuthorizationUsed(address,bytes32)
	topicUsed = "0x98de503528ee59b575ef0c0a2576a82497bfc029a5685b209e9ec333479b10a5"
	// Transfer(address,address,uint256)
	topicTransfer = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"
	// Approval(address,address,uint256)
	topicApproval = "0x8c5be1e5ebec7d5bd14f71427d1e84f3dd0314c0f7b2291e5b200ac8c7c3b925"
)

// maxLogRange is how many blocks one eth_getLogs may ask for, as public nodes limit it.
const maxLogRange = 10_000

// evmNode answers the Ethereum JSON-RPC methods that a payer needs.
func (s *Sandbox) evmNode() http.Handler {
	c := s.evm
	forgetful := func(method func(p []json.RawMessage, forgets bool) (any, error)) rpcMethod {
		return func(p []json.RawMessage) (any, error) { return method(p, s.strikes(evmNodeForgets)) }
	}
	return s.node(evmNodeDown, rpcNode{chain: &c.mu, methods: map[string]rpcMethod{
		"eth_chainId": func([]json.RawMessage) (any, error) {
			id, _ := x402.ChainID(s.evm.asset.Network)
			if s.strikes(evmNodeElsewhere) {
				id++
			}
			return quantity(id), nil
		},
		"eth_blockNumber":           func([]json.RawMessage) (any, error) { return quantity(c.head()), nil },
		"eth_getBlockByNumber":      c.getBlock,
		"eth_call":                  forgetful(c.call),
		"eth_getCode":               c.getCode,
		"eth_getBalance":            c.account(c.coins),
		"eth_getTransactionCount":   c.account(c.counts),
		"eth_estimateGas":           c.estimateGas,
		"eth_maxPriorityFeePerGas":  func([]json.RawMessage) (any, error) { return quantity(usualTip), nil },
		"eth_sendRawTransaction":    s.sendRaw,
		"eth_getLogs":               forgetful(c.getLogs),
		"eth_getTransactionReceipt": forgetful(c.getReceipt),
		"eth_getTransactionByHash":  forgetful(c.getTransaction),
	}})
}

// node is a node that may be down.
func (s *Sandbox) node(down string, node http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.strikes(down) {
			http.Error(w, "out of order", http.StatusServiceUnavailable)
			return
		}
		node.ServeHTTP(w, r)
	})
}

// number reads a block tag; ok is false for a block that does not exist.
func (c *evmChain) number(tag string) (n uint64, ok bool, err error) {
	switch tag {
	case "", "latest", "pending":
		return c.head(), true, nil
	case "finalized", "safe":
		return c.final(), true, nil
	case "earliest":
		return c.first, true, nil
	}
	n, err = strconv.ParseUint(strings.TrimPrefix(tag, "0x"), 16, 64)
	if err != nil || !strings.HasPrefix(tag, "0x") {
		return 0, false, badParams("not a block: " + tag)
	}
	return n, n >= c.first && n <= c.head(), nil
}

// existing reads the tag of a block that has to be there.
func (c *evmChain) existing(tag string) (uint64, error) {
	n, exists, err := c.number(tag)
	if err == nil && !exists {
		err = nodeRefuses("header not found")
	}
	return n, err
}

func (c *evmChain) getBlock(params []json.RawMessage) (any, error) {
	var tag string
	if err := read(params, &tag); err != nil {
		return nil, err
	}
	n, exists, err := c.number(tag)
	if err != nil || !exists {
		return nil, err
	}
	hashes := []string{}
	for _, tx := range c.txs {
		if tx.block == n {
			hashes = append(hashes, tx.hash)
		}
	}
	return map[string]any{
		"number": quantity(n), "timestamp": quantity(uint64(c.blocks[n-c.first])),
		"hash":       hashOf("block", n),
		"parentHash": hashOf("block", n-1), "transactions": hashes, "baseFeePerGas": quantity(baseFee),
	}, nil
}

// call runs a view function of a contract at a block; an address without code answers nothing.
func (c *evmChain) call(params []json.RawMessage, forgets bool) (any, error) {
	var message struct{ To, Data, Input string }
	var tag string
	if err := read(params, &message, &tag); err != nil {
		return nil, err
	}
	block, err := c.existing(tag)
	if err != nil {
		return nil, err
	}
	view := c.viewOf(message.To)
	if view == nil {
		return "0x", nil
	}
	data := strings.TrimPrefix(message.Data+message.Input, "0x")
	if _, err := hex.DecodeString(data); err != nil || len(data) < 8 {
		return nil, reverted("")
	}
	answer, known := view(data[:8], strings.ToLower(data[8:]), block, forgets)
	if !known {
		return nil, reverted("")
	}
	return answer, nil
}

// viewOf is what answers the view functions of a contract; nil: there is none.
func (c *evmChain) viewOf(contract string) func(selector, words string, block uint64, forgets bool) (string,
	bool) {
	switch {
	case c.isToken(contract):
		return c.viewToken
	case strings.EqualFold(contract, evm.Permit2Address):
		return c.viewPermit2
	case strings.EqualFold(contract, batchContract):
		return c.viewBatch
	case c.isVault(contract):
		return c.viewVault
	}
	return nil
}

// viewPermit2 answers a view function of Permit2.
func (c *evmChain) viewPermit2(selector, words string, block uint64, forgets bool) (answer string,
	known bool) {
	if selector != callNonceBitmap || len(words) != 128 {
		return "", false
	}
	if forgets {
		return word(0), true
	}
	return c.nonceBitmap(words[:64], words[64:], block), true
}

// viewToken answers a view function of the token.
func (c *evmChain) viewToken(selector, words string, block uint64, forgets bool) (answer string,
	known bool) {
	switch {
	case selector == callBalanceOf && len(words) == 64:
		return word(c.balances.at("0x"+words[24:], block)), true
	case selector == callNonces && len(words) == 64:
		return word(c.permits.at("0x"+words[24:], block)), true
	case selector == callAllowance && len(words) == 128:
		return word(c.allowance("0x"+words[24:64], "0x"+words[88:], block)), true
	case selector == callAuthorizationState && len(words) == 128:
		used := c.used["0x"+words[24:64]+words[64:]].block
		if used != 0 && used <= block && !forgets {
			return word(1), true
		}
		return word(0), true
	case selector == callDecimals && words == "":
		return word(uint64(c.asset.Decimals)), true
	}
	return "", false
}

func (c *evmChain) getCode(params []json.RawMessage) (any, error) {
	var address string
	if err := read(params, &address); err != nil {
		return nil, err
	}
	if c.hasCode(address) {
		return "0x60806040", nil
	}
	return "0x", nil
}

// hasCode reports whether an address is a contract's.
func (c *evmChain) hasCode(address string) bool {
	contracts := []string{c.asset.Address, evm.Permit2Address, evm.ExactProxy, evm.UptoProxy, batchContract,
		batchCollector}
	isIt := func(contract string) bool { return strings.EqualFold(address, contract) }
	return c.isVault(address) || slices.ContainsFunc(contracts, isIt)
}

// evmLog is an event as nodes tell it.
type evmLog struct {
	Address         string   `json:"address"`
	Topics          []string `json:"topics"`
	Data            string   `json:"data"`
	BlockNumber     string   `json:"blockNumber"`
	TransactionHash string   `json:"transactionHash"`
	LogIndex        string   `json:"logIndex"`
	Removed         bool     `json:"removed"`
}

// emit is an event of a contract's.
func (tx *evmTransaction) emit(contract, data string, topics ...string) {
	tx.logs = append(tx.logs, evmLog{Address: strings.ToLower(contract), Topics: topics, Data: data,
		BlockNumber: quantity(tx.block), TransactionHash: tx.hash,
		LogIndex: quantity(uint64(len(tx.logs)))})
}

func (c *evmChain) getLogs(params []json.RawMessage, forgets bool) (any, error) {
	var filter struct {
		Address            json.RawMessage
		FromBlock, ToBlock string
		Topics             []json.RawMessage
	}
	if err := read(params, &filter); err != nil {
		return nil, err
	}
	from, _, errFrom := c.number(filter.FromBlock)
	to, _, errTo := c.number(filter.ToBlock)
	if errFrom != nil || errTo != nil || from > to {
		return nil, badParams("not a range of blocks")
	}
	if to-from > maxLogRange {
		return nil, &rpcError{Code: -32005, Message: "query exceeds the range of 10000 blocks"}
	}
	contracts := []string{""}
	if json.Unmarshal(filter.Address, &contracts[0]) != nil &&
		json.Unmarshal(filter.Address, &contracts) != nil {
		return nil, badParams("not an address or a list of them")
	}
	wanted := wantedTopics(filter.Topics)
	found := []evmLog{}
	for _, tx := range c.txs {
		if tx.block < from || tx.block > to || forgets {
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

func (c *evmChain) getReceipt(params []json.RawMessage, forgets bool) (any, error) {
	var hash string
	if err := read(params, &hash); err != nil {
		return nil, err
	}
	tx := c.byHash[strings.ToLower(hash)]
	if tx == nil || forgets {
		return nil, nil
	}
	status, logs := "0x1", tx.logs
	if tx.failed {
		status = "0x0"
	}
	if logs == nil {
		logs = []evmLog{}
	}
	return map[string]any{
		"transactionHash": tx.hash, "status": status, "blockNumber": quantity(tx.block),
		"blockHash": hashOf("block", tx.block), "gasUsed": quantity(tx.gas),
		"effectiveGasPrice": quantity(tx.gasPrice),
		"from":              strings.ToLower(tx.from), "to": strings.ToLower(tx.to), "logs": logs,
	}, nil
}

func (c *evmChain) getTransaction(params []json.RawMessage, forgets bool) (any, error) {
	var hash string
	if err := read(params, &hash); err != nil {
		return nil, err
	}
	tx := c.byHash[strings.ToLower(hash)]
	if tx == nil || forgets {
		return nil, nil
	}
	return map[string]any{
		"hash": tx.hash, "blockNumber": quantity(tx.block), "blockHash": hashOf("block", tx.block),
		"from": strings.ToLower(tx.from), "to": strings.ToLower(tx.to), "input": tx.input, "value": "0x0",
	}, nil
}

func quantity(n uint64) string { return "0x" + strconv.FormatUint(n, 16) }

func word(n uint64) string { return wordOf(money.NewAmount(n)) }

func wordOf(amount money.Amount) string {
	b := amount.Bytes32()
	return "0x" + hex.EncodeToString(b[:])
}

func topicOf(address string) string {
	return "0x" + strings.Repeat("0", 24) + strings.ToLower(strings.TrimPrefix(address, "0x"))
}
