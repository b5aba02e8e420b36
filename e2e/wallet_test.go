package e2e

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
)

func startFake(t *testing.T, options WalletOptions) *Wallet {
	bin := fakeBin(t)
	return StartWalletWith(t, bin, testworld.NewHome(t, "[budget]\n"), options)
}

func TestNewHome(t *testing.T) {
	home := testworld.NewHome(t, "[budget]\nsession = \"1.00\"\n")
	assert.Regexp(t, "^0x[0-9A-Fa-f]{40}$", home.EVM)
	assert.Regexp(t, "^[1-9A-HJ-NP-Za-km-z]{32,44}$", home.Solana)
	config, err := os.ReadFile(filepath.Join(home.Dir, "config.toml"))
	require.NoError(t, err)
	assert.Equal(t, "[budget]\nsession = \"1.00\"\n", string(config))
	passphrase, err := os.Stat(home.PassphraseFile)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), passphrase.Mode().Perm())
}

func TestHomeEnvironmentIsClean(t *testing.T) {
	t.Setenv("SOLANA_RPC_URL", "http://somewhere")
	env := testworld.Home{Dir: "/home/of/wallet", PassphraseFile: "/pass"}.Env("EXTRA=1")
	assert.Contains(t, env, "X402_WALLET_HOME=/home/of/wallet")
	assert.Contains(t, env, "X402_WALLET_PASSPHRASE_FILE=/pass")
	assert.Contains(t, env, "EXTRA=1")
	assert.NotContains(t, env, "SOLANA_RPC_URL=http://somewhere")
}

func TestWalletCalls(t *testing.T) {
	w := startFake(t, WalletOptions{Env: []string{"EXTRA=on"}})
	assert.JSONEq(t, `{"protocolVersion":"2025-11-25"}`, string(w.Initialize))

	got, err := w.Call(t.Context(), "echo", map[string]any{"a": 1})
	require.NoError(t, err)
	assert.False(t, got.IsError)
	assert.Equal(t, "echo", got.Text)
	assert.JSONEq(t, `{"a":1}`, string(got.Structured))

	got, err = w.Call(t.Context(), "refuse", nil)
	require.NoError(t, err)
	assert.True(t, got.IsError)
	assert.JSONEq(t, `{"error":"BUDGET_EXCEEDED"}`, string(got.Structured))

	_, err = w.Call(t.Context(), "unknown", nil)
	var refused *RPCError
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, -32602, refused.Code)

	require.NoError(t, w.Close())
	assert.Contains(t, w.Stderr(), " on")
}

func TestWalletCallsAreConcurrent(t *testing.T) {
	w := startFake(t, WalletOptions{})
	slow := make(chan Result, 1)
	asked := make(chan struct{})
	go func() {
		close(asked)
		got, err := w.Call(t.Context(), "slow", nil)
		assert.NoError(t, err)
		slow <- got
	}()
	<-asked
	var echoes sync.WaitGroup
	for i := range 20 { // one of them is surely after the slow one
		echoes.Go(func() {
			got, err := w.Call(t.Context(), "echo", map[string]any{"i": i})
			assert.NoError(t, err)
			assert.JSONEq(t, string(must(json.Marshal(map[string]any{"i": i}))), string(got.Structured))
		})
	}
	echoes.Wait()
	for len(slow) == 0 {
		_, err := w.Call(t.Context(), "echo", nil)
		require.NoError(t, err)
	}
	assert.Equal(t, "slow", (<-slow).Text)
}

func TestWalletAnswersRequests(t *testing.T) {
	w := startFake(t, WalletOptions{
		Capabilities: map[string]any{"elicitation": map[string]any{}},
		OnRequest: func(method string, params json.RawMessage) (any, error) {
			assert.Equal(t, "elicitation/create", method)
			assert.JSONEq(t, `{"message":"pay?"}`, string(params))
			return map[string]any{"action": "accept"}, nil
		},
	})
	got, err := w.Call(t.Context(), "ask", nil)
	require.NoError(t, err)
	assert.JSONEq(t, `{"action":"accept"}`, string(got.Structured))
}

func TestWalletCancel(t *testing.T) {
	w := startFake(t, WalletOptions{})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := w.Call(ctx, "never", nil)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, w.Close())
	assert.Contains(t, w.Stderr(), "cancelled")
}

func TestWalletKilledThenPaymentExpires(t *testing.T) {
	t.Run("kill", func(t *testing.T) {
		w := startFake(t, WalletOptions{})
		w.Kill()
		_, err := w.Call(t.Context(), "echo", nil)
		require.ErrorIs(t, err, ErrWalletEnded)
	})
	t.Run("dies in a call", func(t *testing.T) {
		w := startFake(t, WalletOptions{})
		_, err := w.Call(t.Context(), "die", nil)
		require.ErrorIs(t, err, ErrWalletEnded)
		require.EqualError(t, w.Close(), "exit status 3")
	})
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
