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
	original := w.configText(t)
	a := serve(t, env...)
	pay := func() string {
		return a.call("x402_pay", fmt.Sprintf(`{"url":"%s/weather?%d"}`, w.SellerURL, a.nextID))
	}
	require.Contains(t, pay(), `"status":"paid"`)

	w.setConfig(t, strings.Replace(original, "[budget]", "[budget]\nrate = 100000", 1))
	require.Contains(t, pay(), `"error":"POLICY_UNSEALED"`)
	w.setConfig(t, "[budget")
	require.Contains(t, pay(), `"error":"SETUP_FAILED"`)
	require.NoError(t, os.Remove(filepath.Join(w.home, "config.toml")))
	require.Contains(t, pay(), `"error":"POLICY_UNSEALED"`)
	w.setConfig(t, original)
	require.Contains(t, pay(), `"status":"paid"`)

	sit(t, nil, env, "budget", "set", "session", "0.002").ends(0)
	require.Contains(t, pay(), `"layer":"session"`)
	w.setConfig(t, original)
	require.Contains(t, pay(), `"error":"POLICY_UNSEALED"`, "it was tightened and sealed")

	withPassphrase(t, 0, env, "policy", "seal")
	require.Contains(t, pay(), `"status":"paid"`)
	require.Len(t, w.Settlements(), 3)
}
