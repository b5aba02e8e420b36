package sandbox

import (
	"encoding/json"
	"slices"
	"strconv"
)

// What a node tells of transactions that landed.

// seen reports whether a transaction is visible at a commitment. The caller holds mu.
func (c *solanaChain) seen(t *solanaTransaction, commitment string) bool {
	return t.slot <= c.at(commitment)
}

func (c *solanaChain) status(t *solanaTransaction) string {
	if t.slot <= c.finalSlot() {
		return "finalized"
	}
	return "confirmed"
}

// getSignatures lists the transactions that name an address, newest first.
func (c *solanaChain) getSignatures(params []json.RawMessage, forgets bool) (any, error) {
	k, err := firstKey(params)
	if err != nil {
		return nil, err
	}
	config, err := configAt(params, 1)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	list, started := []any{}, config.Before == ""
	for _, t := range slices.Backward(c.landed) {
		if t.id == config.Until || forgets || len(list) == config.Limit {
			break
		}
		if started && slices.Contains(t.tx.keys, k) && c.seen(t, config.Commitment) {
			list = append(list, map[string]any{
				"signature": t.id, "slot": t.slot, "err": nil, "memo": memoOf(t.tx), "blockTime": t.at.Unix(),
				"confirmationStatus": c.status(t),
			})
		}
		started = started || t.id == config.Before
	}
	return list, nil
}

// memoOf is the memo as nodes tell it, "[length] text"; nil when there is none.
func memoOf(tx *wireTx) any {
	for _, ix := range tx.instructions {
		if ix.program == programMemo {
			return "[" + strconv.Itoa(len(ix.data)) + "] " + string(ix.data)
		}
	}
	return nil
}

func (c *solanaChain) getStatuses(params []json.RawMessage, forgets bool) (any, error) {
	var ids []string
	if err := param(params, 0, &ids); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	list := []any{}
	for _, id := range ids {
		t := c.byID[id]
		if t == nil || forgets {
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

func (c *solanaChain) getTransaction(params []json.RawMessage, forgets bool) (any, error) {
	var id string
	if err := param(params, 0, &id); err != nil {
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
	t := c.byID[id]
	if t == nil || forgets || !c.seen(t, config.Commitment) {
		return nil, nil
	}
	version := any("legacy")
	if t.tx.versioned {
		version = 0
	}
	return map[string]any{
		"slot": t.slot, "blockTime": t.at.Unix(), "version": version, "transaction": t.encoded(),
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
	for i := range 256 {
		a, there := accounts[i]
		if !there {
			continue
		}
		list = append(list, map[string]any{
			"accountIndex": i, "mint": a.mint.String(), "owner": a.owner.String(),
			"programId": programToken.String(),
			"uiTokenAmount": map[string]any{"amount": strconv.FormatUint(a.amount, 10),
				"decimals":       c.asset.Decimals,
				"uiAmountString": strconv.FormatFloat(float64(a.amount)/USDC, 'f', -1, 64)},
		})
	}
	return list
}
