package sandbox

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// genesisDevnet is devnet's genesis hash, whose first 32 characters are its CAIP-2 reference; the
// other is testnet's.
const (
	genesisDevnet  = "EtWTRABZaYq6iMfeYKouRu166VU2xqa1wcaWoxPkrZBG"
	genesisTestnet = "4uhcVJyU9pJkvQyS88uRDiswHXSCkY3zQawwpjk2NsNY"
)

// rpcConfig is the configuration object of Solana's methods.
type rpcConfig struct {
	Commitment string `json:"commitment"`
	Encoding   string `json:"encoding"`
	Before     string `json:"before"`
	Until      string `json:"until"`
	Limit      int    `json:"limit"`
}

// solanaNode answers the Solana JSON-RPC methods that payers, delegating owners and facilitators
// need.
func (s *Sandbox) solanaNode() http.Handler {
	c := s.solana
	fixed := func(v any) func([]json.RawMessage) (any, error) {
		return func([]json.RawMessage) (any, error) { return v, nil }
	}
	methods := rpcMethods{
		"getGenesisHash": func([]json.RawMessage) (any, error) {
			if s.strikes(solanaNodeElsewhere) {
				return genesisTestnet, nil
			}
			return genesisDevnet, nil
		},
		"getHealth":  fixed("ok"),
		"getVersion": fixed(map[string]any{"solana-core": "3.0.0", "feature-set": 0}),
		// a SOL for everybody: fees are no part of the play
		"getBalance": fixed(
			map[string]any{"context": map[string]any{"slot": firstSlot}, "value": 1_000_000_000}),
		"getMinimumBalanceForRentExemption": fixed(2_039_280),
		"getLatestBlockhash":                c.getLatestBlockhash,
		"isBlockhashValid":                  c.isBlockhashValid,
		"getSlot":                           c.bySlot(func(slot uint64) uint64 { return slot }),
		"getBlockHeight":                    c.bySlot(height),
		"getBlockTime":                      c.getBlockTime,
		"getAccountInfo":                    c.getAccountInfo,
		"getMultipleAccounts":               c.getMultipleAccounts,
		"getTokenAccountsByOwner":           c.tokenAccounts(func(a *tokenAccount) key { return a.owner }),
		"getTokenAccountsByDelegate":        c.tokenAccounts(func(a *tokenAccount) key { return a.delegate }),
		"getSignaturesForAddress": func(p []json.RawMessage) (any, error) {
			return c.getSignatures(p, s.strikes(solanaNodeForgets))
		},
		"getSignatureStatuses": func(p []json.RawMessage) (any, error) {
			return c.getStatuses(p, s.strikes(solanaNodeForgets))
		},
		"getTransaction": func(p []json.RawMessage) (any, error) {
			return c.getTransaction(p, s.strikes(solanaNodeForgets))
		},
		"simulateTransaction": c.simulateTransaction,
		"sendTransaction":     c.sendTransaction,
	}
	return s.node(methods, solanaNodeDown, solanaNodeSlow)
}

// withContext is the form of an answer that belongs to a slot.
func withContext(slot uint64, value any) any {
	return map[string]any{"context": map[string]any{"slot": slot}, "value": value}
}

func configAt(params []json.RawMessage, i int) (config rpcConfig, err error) {
	err = param(params, i, &config)
	if config.Limit == 0 {
		config.Limit = 1000
	}
	if err == nil && (config.Limit < 1 || config.Limit > 1000) {
		err = badParams("limit")
	}
	return config, err
}

func firstKey(params []json.RawMessage) (key, error) {
	var text string
	if err := param(params, 0, &text); err != nil {
		return key{}, err
	}
	k, err := parseKey(text)
	if err != nil {
		return k, badParams("WrongSize")
	}
	return k, nil
}

func (c *solanaChain) getLatestBlockhash(params []json.RawMessage) (any, error) {
	config, err := configAt(params, 0)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	slot := c.at(config.Commitment)
	return withContext(slot, map[string]any{"blockhash": c.issue(slot).String(),
		"lastValidBlockHeight": height(slot) + blockhashLife}), nil
}

func (c *solanaChain) isBlockhashValid(params []json.RawMessage) (any, error) {
	hash, err := firstKey(params)
	if err != nil {
		return nil, err
	}
	config, err := configAt(params, 1)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	slot := c.at(config.Commitment)
	return withContext(slot, c.alive(hash, slot)), nil
}

func (c *solanaChain) bySlot(of func(slot uint64) uint64) func([]json.RawMessage) (any, error) {
	return func(params []json.RawMessage) (any, error) {
		config, err := configAt(params, 0)
		return of(c.at(config.Commitment)), err
	}
}

func (c *solanaChain) getBlockTime(params []json.RawMessage) (any, error) {
	var slot uint64
	if err := param(params, 0, &slot); err != nil {
		return nil, err
	}
	if slot < firstSlot || slot > c.slot() {
		return nil, &rpcError{Code: -32004, Message: "Block not available for slot " +
			strconv.FormatUint(slot, 10)}
	}
	return c.timeOf(slot), nil
}

func (c *solanaChain) timeOf(slot uint64) int64 {
	return c.born.Add(slotTime * time.Duration(slot-firstSlot)).Unix()
}

func (c *solanaChain) getAccountInfo(params []json.RawMessage) (any, error) {
	k, err := firstKey(params)
	if err != nil {
		return nil, err
	}
	config, err := configAt(params, 1)
	if err != nil {
		return nil, err
	}
	if config.Encoding != "base64" {
		return nil, badParams("this node speaks base64 only")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return withContext(c.at(config.Commitment), c.info(k)), nil
}

func (c *solanaChain) getMultipleAccounts(params []json.RawMessage) (any, error) {
	var names []string
	if err := param(params, 0, &names); err != nil {
		return nil, err
	}
	config, err := configAt(params, 1)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	infos := []any{}
	for _, name := range names {
		k, err := parseKey(name)
		if err != nil {
			return nil, badParams("WrongSize")
		}
		infos = append(infos, c.info(k))
	}
	return withContext(c.at(config.Commitment), infos), nil
}

// info is an account as nodes tell it; nil when there is none. The caller holds mu.
func (c *solanaChain) info(k key) any {
	var data []byte
	switch {
	case k == c.mint:
		data = c.mintData()
	case c.accounts[k] != nil:
		data = c.accounts[k].data()
	default:
		return nil
	}
	return map[string]any{
		"data": []string{base64.StdEncoding.EncodeToString(data), "base64"}, "owner": programToken.String(),
		"executable": false, "lamports": 2_039_280, "rentEpoch": 0, "space": len(data),
	}
}

// tokenAccounts lists accounts by owner or delegate, and by mint or program.
func (c *solanaChain) tokenAccounts(by func(*tokenAccount) key) func([]json.RawMessage) (any, error) {
	return func(params []json.RawMessage) (any, error) {
		whose, err := firstKey(params)
		if err != nil {
			return nil, err
		}
		var filter struct{ Mint, ProgramID string }
		if err := param(params, 1, &filter); err != nil {
			return nil, err
		}
		config, err := configAt(params, 2)
		if err != nil {
			return nil, err
		}
		if (filter.Mint == "") == (filter.ProgramID == "") || config.Encoding != "base64" {
			return nil, badParams("one of mint and programId, and encoding base64")
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		var found []string
		for k, a := range c.accounts {
			ofMint := filter.Mint == a.mint.String() || filter.ProgramID == programToken.String()
			if by(a) == whose && whose != (key{}) && ofMint {
				found = append(found, k.String())
			}
		}
		slices.Sort(found)
		list := []any{}
		for _, address := range found {
			list = append(list, map[string]any{"pubkey": address, "account": c.info(mustKey(address))})
		}
		return withContext(c.at(config.Commitment), list), nil
	}
}

func (c *solanaChain) simulateTransaction(params []json.RawMessage) (any, error) {
	tx, err := transactionAt(params)
	if err != nil {
		return nil, err
	}
	value := map[string]any{"err": nil, "logs": []string{}, "unitsConsumed": 6_000}
	var why *runError
	if err := c.simulate(tx); errors.As(err, &why) {
		value["err"] = why.shown()
	}
	return withContext(c.slot(), value), nil
}

func (c *solanaChain) sendTransaction(params []json.RawMessage) (any, error) {
	tx, err := transactionAt(params)
	if err != nil {
		return nil, err
	}
	done, err := c.execute(tx)
	var why *runError
	if errors.As(err, &why) { // what preflight says
		return nil, &rpcError{Code: -32002, Message: "Transaction simulation failed: " + why.Error(),
			Data: map[string]any{"err": why.shown(), "logs": []string{}}}
	}
	return done.id, nil
}

func transactionAt(params []json.RawMessage) (*wireTx, error) {
	var text string
	if err := param(params, 0, &text); err != nil {
		return nil, err
	}
	config, err := configAt(params, 1)
	if err != nil {
		return nil, err
	}
	if config.Encoding != "base64" {
		return nil, badParams("this node speaks base64 only")
	}
	tx, err := decodeTransaction(text)
	if err != nil {
		return nil, badParams(err.Error())
	}
	return tx, nil
}
