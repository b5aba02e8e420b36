//go:build unix

package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/sandbox"
)

// A server that runs follows the rules as the owner changes them, and no others.
func TestRulesChangeUnderARunningServer(t *testing.T) {
	t.Parallel()
	w, env := household(t, sandbox.Options{}, sandbox.Rules{})
	env = append(env, passphraseFile(t))
	file := filepath.Join(strings.TrimPrefix(env[0], "X402_WALLET_HOME="), "config.toml")
	original, err := os.ReadFile(file)
	require.NoError(t, err)
	a := serve(t, env...)
	pay := func() string {
		return a.call("x402_pay", fmt.Sprintf(`{"url":"%s/weather?%d"}`, w.SellerURL, a.nextID))
	}
	require.Contains(t, pay(), `"status":"paid"`)

	loose := strings.Replace(string(original), "[budget]", "[budget]\nrate = 100000", 1)
	require.NoError(t, os.WriteFile(file, []byte(loose), 0o600))
	require.Contains(t, pay(), `"error":"POLICY_UNSEALED"`)
	require.NoError(t, os.WriteFile(file, []byte("[budget"), 0o600))
	require.Contains(t, pay(), `"error":"SETUP_FAILED"`)
	require.NoError(t, os.Remove(file))
	require.Contains(t, pay(), `"error":"POLICY_UNSEALED"`)
	require.NoError(t, os.WriteFile(file, original, 0o600))
	require.Contains(t, pay(), `"status":"paid"`)

	sit(t, nil, env, "budget", "set", "session", "0.002").ends(0)
	require.Contains(t, pay(), `"layer":"session"`)
	require.NoError(t, os.WriteFile(file, original, 0o600))
	require.Contains(t, pay(), `"error":"POLICY_UNSEALED"`, "it was tightened and sealed")

	withPassphrase(t, 0, env, "policy", "seal")
	require.Contains(t, pay(), `"status":"paid"`)
	require.Len(t, w.Settlements(), 3)
}
