package sandbox

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"

	"x402-wallet/x402test/fault"

	"github.com/gagliardetto/solana-go"
)

const (
	genesisDevnet  = "EtWTRABZaYq6iMfeYKouRu166VU2xqa1wcaWoxPkrZBG"
	genesisMainnet = "5eykt4UsFv8P8NJdTREpY1vzqKqZKvdpKuc147dw2N9d"
)

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
	return s.node(fault.SolanaNodeDown, rpcNode{chain: &c.mu, methods: map[string]Method{
		"getGenesisHash":             func([]json.RawMessage) (any, error) { return c.genesis(), nil },
		"getLatestBlockhash":         c.getLatestBlockhash,
		"isBlockhashValid":           configured(c.isBlockhashValid),
		"getBlockHeight":             c.getBlockHeight,
		"getAccountInfo":             inBase64(c.getAccountInfo),
		"getMultipleAccounts":        configured(c.getMultipleAccounts),
		"getBalance":                 configured(c.getBalance),
		"getTokenAccountsByOwner":    c.tokenAccounts(false),
		"getTokenAccountsByDelegate": c.tokenAccounts(true),
		"getSignaturesForAddress":    configured(c.getSignatures),
		"getSignatureStatuses":       configured(c.getStatuses),
		"getTransaction":             inBase64(c.getTransaction),
		"simulateTransaction":        inBase64(c.simulateTransaction),
		"sendTransaction":            inBase64(c.sendTransaction),
	}})
}

// configured is a method with one parameter, and a configuration that may be absent.
func configured[P any](answer func(parameter P, config rpcConfig) (any, error)) Method {
	return func(params []json.RawMessage) (any, error) {
		var parameter P
		config := rpcConfig{Limit: maxSignatures}
		if err := Read(params, &parameter, &config); err != nil {
			return nil, err
		}
		return answer(parameter, config)
	}
}

var errEncoding = BadParams("this node speaks base64 only")

// inBase64 is configured, where the configuration has to ask for base64.
func inBase64[P any](answer func(parameter P, config rpcConfig) (any, error)) Method {
	return configured(func(parameter P, config rpcConfig) (any, error) {
		if config.Encoding != "base64" {
			return nil, errEncoding
		}
		return answer(parameter, config)
	})
}

// withContext is the form of an answer that belongs to a slot.
func withContext(slot uint64, value any) any {
	return map[string]any{"context": map[string]any{"slot": slot}, "value": value}
}

func (c *solanaChain) getLatestBlockhash(params []json.RawMessage) (any, error) {
	var config rpcConfig
	if err := Read(params, &config); err != nil {
		return nil, err
	}
	slot := c.at(config.Commitment)
	return withContext(slot, map[string]any{"blockhash": c.issue(slot).String(),
		"lastValidBlockHeight": height(slot) + blockhashLife}), nil
}

func (c *solanaChain) isBlockhashValid(hash solana.PublicKey, config rpcConfig) (any, error) {
	slot := c.at(config.Commitment)
	return withContext(slot, c.alive(hash, slot)), nil
}

func (c *solanaChain) getBlockHeight(params []json.RawMessage) (any, error) {
	var config rpcConfig
	err := Read(params, &config)
	return height(c.at(config.Commitment)), err
}

// getBalance is nothing: whoever pays in the sandbox needs no SOL.
func (c *solanaChain) getBalance(_ solana.PublicKey, config rpcConfig) (any, error) {
	return withContext(c.at(config.Commitment), 0), nil
}

func (c *solanaChain) getAccountInfo(k solana.PublicKey, config rpcConfig) (any, error) {
	return withContext(c.at(config.Commitment), c.info(k)), nil
}

func (c *solanaChain) getMultipleAccounts(keys []solana.PublicKey, config rpcConfig) (any, error) {
	infos := []any{}
	for _, k := range keys {
		infos = append(infos, c.info(k))
	}
	return withContext(c.at(config.Commitment), infos), nil
}

// info is an account as nodes show it. It returns nil if there is none.
func (c *solanaChain) info(k solana.PublicKey) any {
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
		"data":  []string{base64.StdEncoding.EncodeToString(data), "base64"},
		"owner": solana.TokenProgramID.String(), "executable": false, "lamports": 2_039_280,
		"rentEpoch": 0, "space": len(data),
	}
}

// tokenAccounts lists accounts by owner or by delegate, and by mint or program.
func (c *solanaChain) tokenAccounts(byDelegate bool) Method {
	return func(params []json.RawMessage) (any, error) {
		var whose solana.PublicKey
		var filter struct{ Mint, ProgramID string }
		var config rpcConfig
		err := Read(params, &whose, &filter, &config)
		switch {
		case err != nil:
			return nil, err
		case config.Encoding != "base64":
			return nil, errEncoding
		case (filter.Mint == "") == (filter.ProgramID == ""):
			return nil, BadParams("one of mint and programId")
		}
		var found []string
		for k, a := range c.accounts {
			ofMint := filter.Mint == a.mint.String() || filter.ProgramID == solana.TokenProgramID.String()
			by := a.owner
			if byDelegate {
				by = a.delegate
			}
			if by == whose && !whose.IsZero() && ofMint {
				found = append(found, k.String())
			}
		}
		slices.Sort(found)
		list := []any{}
		for _, address := range found {
			list = append(list, map[string]any{"pubkey": address, "account": c.info(solana.MPK(address))})
		}
		return withContext(c.at(config.Commitment), list), nil
	}
}

func (c *solanaChain) simulateTransaction(text string, _ rpcConfig) (any, error) {
	tx, err := decodeTransaction(text)
	if err != nil {
		return nil, BadParams(err.Error())
	}
	value := map[string]any{"err": nil, "logs": []string{}, "unitsConsumed": 6_000}
	var why *runError
	if _, err := c.run(tx, 1); errors.As(err, &why) { // the fee payer's signature may still be missing
		value["err"] = why.shown()
	}
	return withContext(c.slot(), value), nil
}

func (c *solanaChain) sendTransaction(text string, _ rpcConfig) (any, error) {
	tx, err := decodeTransaction(text)
	if err != nil {
		return nil, BadParams(err.Error())
	}
	done, err := c.execute(tx)
	var why *runError
	if errors.As(err, &why) { // what preflight says
		return nil, &rpcError{Code: -32002, Message: "Transaction simulation failed: " + why.Error(),
			Data: map[string]any{"err": why.shown(), "logs": []string{}}}
	}
	return done.Transaction, nil
}

// status is how sure a transaction that landed is.
func (c *solanaChain) status(t *solanaTransaction) string {
	if t.slot <= c.finalSlot() {
		return "finalized"
	}
	return "confirmed"
}

// maxSignatures is how many signatures getSignaturesForAddress lists at most, as public nodes do.
const maxSignatures = 1000

// getSignatures lists the transactions that name an address, newest first.
func (c *solanaChain) getSignatures(k solana.PublicKey, config rpcConfig) (any, error) {
	if config.Limit < 1 || config.Limit > maxSignatures {
		return nil, BadParams("limit")
	}
	list, started := []any{}, config.Before == ""
	for _, t := range slices.Backward(c.landed) {
		if t.id == config.Until || len(list) == config.Limit {
			break
		}
		if started && slices.Contains(t.tx.Message.AccountKeys, k) && t.slot <= c.at(config.Commitment) {
			list = append(list, map[string]any{
				"signature": t.id, "slot": t.slot, "err": nil, "memo": memoOf(t.tx), "blockTime": t.at.Unix(),
				"confirmationStatus": c.status(t),
			})
		}
		started = started || t.id == config.Before
	}
	return list, nil
}

// memoOf is the memo as nodes show it. It returns nil if there is none.
func memoOf(tx *transaction) any {
	if memo := tx.memo(); memo != "" {
		return fmt.Sprintf("[%d] %s", len(memo), memo)
	}
	return nil
}

func (c *solanaChain) getStatuses(ids []string, _ rpcConfig) (any, error) {
	list := []any{}
	for _, id := range ids {
		t := c.byID[id]
		if t == nil {
			list = append(list, nil)
			continue
		}
		list = append(list, map[string]any{
			"slot": t.slot, "confirmations": nil, "err": nil, "status": map[string]any{"Ok": nil},
			"confirmationStatus": c.status(t),
		})
	}
	return withContext(c.slot(), list), nil
}

func (c *solanaChain) getTransaction(id string, config rpcConfig) (any, error) {
	t := c.byID[id]
	if t == nil || t.slot > c.at(config.Commitment) {
		return nil, nil
	}
	version := any("legacy")
	if t.tx.Message.IsVersioned() {
		version = 0
	}
	return map[string]any{
		"slot": t.slot, "blockTime": t.at.Unix(), "version": version,
		"transaction": []string{t.tx.MustToBase64(), "base64"},
		"meta": map[string]any{
			"err": nil, "status": map[string]any{"Ok": nil}, "fee": 10_000, "innerInstructions": []any{},
			"logMessages":      []string{},
			"preTokenBalances": c.tokenBalances(t.before), "postTokenBalances": c.tokenBalances(t.after),
			"loadedAddresses": map[string]any{"writable": []string{}, "readonly": []string{}},
		},
	}, nil
}

func (c *solanaChain) tokenBalances(accounts map[int]tokenAccount) []any {
	list := []any{}
	for _, i := range slices.Sorted(maps.Keys(accounts)) {
		a := accounts[i]
		list = append(list, map[string]any{
			"accountIndex": i, "mint": a.mint.String(), "owner": a.owner.String(),
			"programId": solana.TokenProgramID.String(),
			"uiTokenAmount": map[string]any{"amount": strconv.FormatUint(a.amount, 10),
				"decimals":       c.asset.Decimals,
				"uiAmountString": strconv.FormatFloat(float64(a.amount)/USDC, 'f', -1, 64)},
		})
	}
	return list
}

// genesis is the genesis hash. Its first 32 characters are the network's CAIP-2 reference.
func (c *solanaChain) genesis() string {
	if c.asset.Network == Solana {
		return genesisDevnet
	}
	return genesisMainnet
}
