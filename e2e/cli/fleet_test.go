package cli

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/pgtest"
	"x402-wallet/internal/sandbox"
)

// aFleet is an owner's home and the homes of machines that joined its fleet.
type aFleet struct {
	t   *testing.T
	w   *world
	env []string // of the owner
}

// serverURL is the address of a new database, as config.toml may have it.
func serverURL(t *testing.T) string {
	database, err := url.Parse(pgtest.Start(t).Database(t))
	require.NoError(t, err)
	at := database.Query()
	return fmt.Sprintf("postgres://%s@%s?host=%s&port=%s", at.Get("user"), database.Path, at.Get("host"),
		at.Get("port"))
}

// newFleet is a fleet with this budget for a day and these limits in [budget], in a database of its own.
func newFleet(t *testing.T, day, limits string) aFleet {
	ledger := serverURL(t)
	w, env := householdWith(t, sandbox.Options{}, func(w *world) string {
		rules := strings.Replace(
			w.rules(sandbox.Rules{Session: "100", Day: day}),
			"[budget]",
			"[budget]\n"+limits,
			1,
		)
		return rules + fmt.Sprintf("\n[ledger]\nurl = %q\nreplication = \"none\"\nkeys = \"shared\"\n"+
			"[budget.teams.research]\nagents = [\"research-*\"]\n", ledger)
	})
	w.Fund(w.evm, 100*sandbox.USDC)
	f := aFleet{t, w, env}
	f.owner("policy", "seal", "--fleet")
	return f
}

// owner types the passphrase for a command that asks for it.
func (f aFleet) owner(args ...string) {
	f.t.Helper()
	c := sit(f.t, nil, f.env, args...)
	c.sees("Passphrase", 1)
	c.types(testPassphrase + "\n")
	c.ends(0)
}

// joins makes the home of a machine whose agent joins, and returns its environment.
func (f aFleet) joins(agent, team string) []string {
	f.t.Helper()
	home := filepath.Join(f.t.TempDir(), "home")
	require.NoError(f.t, os.Mkdir(home, 0o700))
	f.owner(
		"agents",
		"enroll",
		agent,
		"--team",
		team,
		"--until",
		time.Now().AddDate(0, 1, 0).Format(time.DateOnly),
		"--out",
		filepath.Join(home, "join.json"),
		"--keystore",
		filepath.Join(home, "keystore.json"),
	)
	return []string{"X402_WALLET_HOME=" + home, passphraseFile(f.t)}
}

// What one machine stops is stopped on all of them, and the owner alone lets it go on: with a key that no
// machine has.
func TestAFleetsOwnerLetsItGoOn(t *testing.T) {
	f := newFleet(t, "1.00", "rate = 1000")
	a, b := f.joins("research-1", "research"), f.joins("research-2", "research")
	pay := []string{"pay", "--max", "0.05", f.w.SellerURL + "/weather"}
	runs(t, 0, a, pay...)
	runs(t, 0, b, pay...)
	runs(t, 0, a, "freeze")
	out, _ := runs(t, 3, b, pay...)
	require.Contains(t, out, "WALLET_FROZEN")
	c := sit(t, nil, a[:1], "unfreeze")
	c.sees("Passphrase", 1)
	c.types(testPassphrase + "\n")
	require.Contains(t, c.ends(1), "no owner's key")
	f.owner("unfreeze")
	runs(t, 0, b, pay...)

	// What the owner changes holds for all machines from the next call on, and a machine changes nothing.
	f.owner("budget", "set", "day", "0.003")
	out, _ = runs(t, 3, a, pay...)
	require.Contains(t, out, "BUDGET_EXCEEDED")
	out, _ = runs(t, 3, a, "budget", "set", "day", "0.001")
	require.Contains(t, out, "owner's key is not on this machine")
	f.owner("budget", "set", "day", "1.00")

	out, _ = runs(t, 0, f.env, "history")
	require.Contains(t, out, `"count": 3`)
	require.Contains(t, out, `"agent": "research-2"`)
	for _, whose := range [][]string{{"--agent", "research-2"}, {"--agent", "*-2"},
		{"--team", "research", "--agent", "*2"}} {
		out, _ = runs(t, 0, f.env, append([]string{"history"}, whose...)...)
		require.Contains(t, out, `"count": 2`)
	}
	out, _ = runs(t, 0, f.env, "export", "--by", "team")
	require.Contains(t, out, "research,3,0.003")
	runs(t, 0, f.env, "history", "verify")
	for _, machine := range [][]string{a, f.env} {
		out, _ = runs(t, 0, machine, "doctor")
		require.Contains(t, out, `"ok": true`)
		out, _ = runs(t, 0, machine, "policy")
		require.Contains(t, out, `"sealed": true`)
		out, _ = runs(t, 0, machine, "budget")
		require.Contains(t, out, `"spent": "0.003"`)
	}
}

// A home that somebody put into a fleet of theirs pays by nobody's rules; the owner of its keys alone ties
// them to one.
func TestAFleetOfSomebodyElse(t *testing.T) {
	f := newFleet(t, "1.00", "rate = 1000")
	machine := f.joins("research-1", "research")
	home := strings.TrimPrefix(machine[0], "X402_WALLET_HOME=")
	file := filepath.Join(home, "join.json")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	var join map[string]any
	require.NoError(t, json.Unmarshal(text, &join))
	delete(join, "seal")
	text, err = json.Marshal(join)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, text, 0o600))

	pay := []string{"pay", "--max", "0.05", f.w.SellerURL + "/weather"}
	out, _ := runs(t, 4, machine, pay...)
	require.Contains(t, out, "POLICY_UNSEALED")
	require.Empty(t, f.w.Settlements())
	c := sit(t, nil, machine, "policy", "seal")
	c.sees("Passphrase", 1)
	c.types(testPassphrase + "\n")
	c.ends(0)
	runs(t, 0, machine, pay...)
}

// Two machines on one budget: of 64 payments at once with room for 40, 40 are made. The owner sees all of
// them.
func TestAFleetHasOneBudget(t *testing.T) {
	f := newFleet(t, "0.04", "rate = 1000")
	const each = 32
	var machines []*mcpClient
	for _, name := range []string{"research-1", "research-2"} {
		machines = append(machines, serve(t, f.joins(name, "research")...))
	}
	for i, m := range machines {
		for n := range each {
			m.send(
				"tools/call",
				fmt.Sprintf(`{"name":"x402_pay","arguments":%s}`, weather(f.w, fmt.Sprint(i, "-", n))),
			)
		}
	}
	var paid, refused int
	for _, m := range machines {
		for range each {
			switch answer := string(m.hear()); {
			case strings.Contains(answer, `\"status\":\"paid\"`):
				paid++
			case strings.Contains(answer, "BUDGET_EXCEEDED"):
				refused++
			default:
				t.Error(answer)
			}
		}
	}
	require.Equal(t, []int{40, 24}, []int{paid, refused})
	require.Len(t, f.w.Settlements(), 40)
}
