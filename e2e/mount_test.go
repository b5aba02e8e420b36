package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
	"x402-wallet/x402test"
)

// A server that somebody mounted in config.toml, past the owner's seal, is not started: whoever can
// write there could run anything. The same line under the seal starts it.
func TestAnUnsealedMountStartsNothing(t *testing.T) {
	own, err := os.Executable()
	require.NoError(t, err)
	for _, sealed := range []bool{true, false} {
		world, bin, _ := play(t, x402test.Options{})
		runs := filepath.Join(t.TempDir(), "runs")
		touched := runs + ".started"
		mount := fmt.Sprintf("[servers.shop]\ncommand = [\"/bin/sh\", \"-c\", \"touch %s; exec env %s=%s "+
			"%s\"]\nmount = true\n", touched, behindEnv, runs, own)
		rules := world.WalletConfig()
		if sealed {
			rules += mount
		}
		home := testworld.NewHome(t, rules)
		if !sealed {
			file, err := os.OpenFile(filepath.Join(home.Dir, "config.toml"), os.O_APPEND|os.O_WRONLY, 0)
			require.NoError(t, err)
			_, err = file.WriteString(mount)
			require.NoError(t, err)
			require.NoError(t, file.Close())
		}
		w := StartWallet(t, bin, home)
		list, err := w.Request(t.Context(), "tools/list", map[string]any{})
		require.NoError(t, err)
		if sealed {
			require.Contains(t, string(list), "shop__hello", "%s", w.Stderr())
			require.FileExists(t, touched)
			continue
		}
		require.NotContains(t, string(list), "shop__")
		r, err := w.Call(t.Context(), "x402_call_tool", map[string]any{"server": "shop", "tool": "hello"})
		require.NoError(t, err)
		require.Contains(t, r.Text, "POLICY_UNSEALED")
		require.NoFileExists(t, touched)
	}
}
