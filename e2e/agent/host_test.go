package agent

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"x402-wallet/e2e/testworld"
)

// patience is how long a host waits for an answer that is sure to come.
const patience = 40 * time.Second

// host is an MCP host with the wallet as its child process. A call that takes too long it gives up without a
// word, as many hosts do.
type host struct {
	*testworld.Wallet
	elicit string // what its person answers to a question: "accept" or "decline"; "": it cannot ask
}

func startHost(t *testing.T, home testworld.Home, env []string, elicit string) *host {
	h := &host{elicit: elicit}
	options := testworld.WalletOptions{Env: env, IsSilent: true, OnRequest: h.answer}
	if elicit != "" {
		options.Capabilities = map[string]any{"elicitation": map[string]any{}}
	}
	h.Wallet = testworld.StartWalletWith(t, testworld.Build(t), home, options)
	return h
}

func (h *host) answer(method string, _ json.RawMessage) (any, error) {
	if method != "elicitation/create" {
		return nil, errors.New("this host does not know it")
	}
	return map[string]any{"action": h.elicit, "content": map[string]any{}}, nil
}

func (h *host) call(tool string, args map[string]any, wait time.Duration) answer {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	result, err := h.Call(ctx, tool, args)
	var refused *testworld.RPCError
	switch {
	case errors.As(err, &refused):
		return answer{isError: true, text: refused.Error(), fields: map[string]any{"error": "JSON-RPC"}}
	case err != nil:
		return answer{lost: true}
	}
	a := answer{isError: result.IsError, text: result.Text}
	_ = json.Unmarshal([]byte(a.text), &a.fields)
	return a
}
