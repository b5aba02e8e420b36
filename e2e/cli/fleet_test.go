package cli

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
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
	sql string   // the ledger's address, as the server's own user
}

// serverURL is the address of a new database, as config.toml may have it, and as the server's own user.
func serverURL(t *testing.T) (ledger, sql string) {
	sql = pgtest.Shared(t).Database(t)
	database, err := url.Parse(sql)
	require.NoError(t, err)
	at := database.Query()
	return fmt.Sprintf("postgres://%s@%s?host=%s&port=%s", at.Get("user"), database.Path, at.Get("host"),
		at.Get("port")), sql
}

// newFleet is a fleet with this budget for a day and these limits in [budget], in a database of its own. The
// keys are in the agents' own processes.
func newFleet(t *testing.T, day, limits string) aFleet {
	return newFleetOf(t, day, limits, "shared", "")
}

// newFleetOf is newFleet with its keys elsewhere, and more rules, which begin in [budget.teams.research].
func newFleetOf(t *testing.T, day, limits, keys, more string) aFleet {
	t.Helper()
	ledger, at := serverURL(t)
	w, env := householdWith(t, sandbox.Options{}, func(w *world) string {
		rules := strings.Replace(
			w.rules(sandbox.Rules{Session: "100", Day: day}),
			"[budget]",
			"[budget]\n"+limits,
			1,
		)
		return rules + fmt.Sprintf("\n[ledger]\nurl = %q\nreplication = \"none\"\nkeys = %q\n"+
			"[budget.teams.research]\nagents = [\"research-*\"]\n%s", ledger, keys, more)
	})
	w.Fund(w.evm, 100*sandbox.USDC)
	f := aFleet{t, w, env, at}
	f.owner("policy", "seal", "--fleet")
	return f
}

// owner types the passphrase for a command that asks for it.
func (f aFleet) owner(args ...string) {
	f.t.Helper()
	withPassphrase(f.t, 0, f.env, args...)
}

// joins makes the home of a machine whose agent joins, and returns its environment.
func (f aFleet) joins(agent, team string) []string {
	f.t.Helper()
	home := f.enrolled(agent, team, "--keystore", "keystore.json")
	return []string{"X402_WALLET_HOME=" + home, passphraseFile(f.t)}
}

// enrolled makes a home with join.json, for which the owner enrols an agent. flags are more of that
// command's; its files are the home's.
func (f aFleet) enrolled(agent, team string, flags ...string) (home string) {
	f.t.Helper()
	home = filepath.Join(f.t.TempDir(), "home")
	require.NoError(f.t, os.Mkdir(home, 0o700))
	for i, flag := range flags {
		if flag == "keystore.json" {
			flags[i] = filepath.Join(home, flag)
		}
	}
	f.owner(append([]string{"agents", "enroll", agent, "--team", team, "--until",
		time.Now().AddDate(0, 1, 0).Format(time.DateOnly), "--out", filepath.Join(home, "join.json")},
		flags...)...)
	return home
}

// What one machine stops is stopped on all of them, and the owner alone lets it go on: with a key that no
// machine has.
func TestAFleetsOwnerLetsItGoOn(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "1.00", "rate = 1000")
	a, b := f.joins("research-1", "research"), f.joins("research-2", "research")
	pay := []string{"pay", "--max", "0.05", f.w.SellerURL + "/weather"}
	runs(t, 0, a, pay...)
	runs(t, 0, b, pay...)
	runs(t, 0, a, "freeze")
	out, _ := runs(t, 3, b, pay...)
	require.Contains(t, out, "WALLET_FROZEN")
	require.Contains(t, withPassphrase(t, 1, a[:1], "unfreeze"), "no owner's key")
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
	withPassphrase(t, 0, machine, "policy", "seal")
	runs(t, 0, machine, pay...)
}

// What the owner raises holds on every machine at once, in a session that was refused by the old rules, too;
// so does what they lower.
func TestAFleetsOwnerChangesTheRules(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "0.001", "rate = 1000")
	agent := serve(t, f.joins("research-1", "research")...)
	pays := func(query string) string {
		const most = 3
		for range most {
			answer := agent.call("x402_pay", weather(f.w, query))
			if !strings.Contains(answer, `"next":{"do":"repeat"`) {
				return answer
			}
		}
		return "it is to be repeated for ever"
	}
	seals := func(day string) {
		line := regexp.MustCompile(`(?m)^day = .*$`)
		f.w.setConfig(t, line.ReplaceAllString(f.w.configText(t), "day = \""+day+"\""))
		f.owner("policy", "seal", "--fleet")
	}
	require.Contains(t, pays("1"), `"status":"paid"`)
	require.Contains(t, pays("2"), "BUDGET_EXCEEDED")
	seals("0.002")
	require.Contains(t, pays("2"), `"status":"paid"`)
	require.Contains(t, pays("3"), "BUDGET_EXCEEDED")
	seals("1.00")
	require.Contains(t, pays("3"), `"status":"paid"`)
	seals("0.003")
	require.Contains(t, pays("4"), "BUDGET_EXCEEDED")
	require.Len(t, f.w.Settlements(), 3)
}
