package cli

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/sandbox"
)

// A wallet's ledger moves into the fleet's and back. What it has spent counts where it is, the old one pays
// nothing any more, also as an older copy, and the owner's word goes along.
func TestALedgerMovesThereAndBack(t *testing.T) {
	ledger, _ := serverURL(t)
	w, env := household(t, sandbox.Options{}, sandbox.Rules{Session: "1.00", Day: "1.00"})
	env = append(env, passphraseFile(t))
	w.Fund(w.evm, 100*sandbox.USDC)
	home := w.home
	file := func(name string) string { return filepath.Join(home, name) }
	pay := []string{"pay", "--max", "0.05", w.SellerURL + "/weather"}
	f := aFleet{t: t, w: w, env: env}
	runs(t, 0, env, pay...)
	runs(t, 0, env, "freeze")
	f.owner("unfreeze")
	runs(t, 0, env, pay...)
	copies := map[string][]byte{}
	for _, name := range []string{"config.toml", "ledger.db", "ledger.mark"} {
		text, err := os.ReadFile(file(name))
		require.NoError(t, err)
		copies[name] = text
	}
	fleet := string(copies["config.toml"]) + "\n[ledger]\nurl = '" + ledger + "'\nreplication = " +
		"'none'\nkeys = 'shared'\n"
	w.setConfig(t, fleet)
	out, _ := runs(t, 1, env, "ledger", "move", "--to", "fleet")
	require.Contains(t, out, "policy seal --fleet")
	f.owner("policy", "seal", "--fleet")

	f.owner("ledger", "move", "--to", "fleet")
	f.owner("ledger", "move", "--to", "fleet") // again is nothing
	out, _ = runs(t, 0, env, "history")
	require.Contains(t, out, `"count": 2`)
	out, _ = runs(t, 0, env, "budget")
	require.Contains(t, out, `"spent": "0.002"`)
	runs(t, 0, env, pay...)
	runs(t, 0, env, "history", "verify")
	runs(t, 0, env, "doctor")

	// the old one, by a config.toml of before, is none; nor is a copy of it
	w.setConfig(t, string(copies["config.toml"]))
	moved, err := os.ReadFile(file("ledger.db"))
	require.NoError(t, err)
	out, _ = runs(t, 4, env, pay...)
	require.Contains(t, out, "has moved to")
	require.NoError(t, os.WriteFile(file("ledger.db"), copies["ledger.db"], 0o600))
	out, _ = runs(t, 4, env, pay...)
	require.Contains(t, out, "LEDGER_CORRUPT")
	require.Contains(t, out, "has moved to")
	require.NoError(t, os.WriteFile(file("ledger.db"), moved, 0o600))
	w.setConfig(t, fleet)

	f.owner("ledger", "move", "--to", "home")
	require.NotContains(t, w.configText(t), "[ledger]")
	runs(t, 0, env, pay...)
	out, _ = runs(t, 0, env, "history")
	require.Contains(t, out, `"count": 4`)
	out, _ = runs(t, 0, env, "budget")
	require.Contains(t, out, `"spent": "0.004"`)
	runs(t, 0, env, "history", "verify", "--seals")
	w.setConfig(t, fleet)
	out, _ = runs(t, 4, env, pay...)
	require.Contains(t, out, "has moved to")
}
