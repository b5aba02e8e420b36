//go:build unix

package cli

import (
	"crypto/ed25519"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/config/callers"
	"x402-wallet/wallet/fleet"
)

// withSigners is a fleet whose keys are in services, and what starts its containers: it enrols research-*.
type withSigners struct {
	aFleet
	orchestrator fleet.OrchestratorKey
	tokens       map[string]string // of the agents that the rules know
}

const researchDay = "0.005"

func newSigners(t *testing.T) withSigners {
	t.Helper()
	s := withSigners{tokens: map[string]string{}}
	more := "day = \"" + researchDay + "\"\n[budget.teams.sales]\nagents = [\"sales-*\"]\n"
	for _, agent := range []string{"research-1", "research-2", "sales-1"} {
		s.tokens[agent] = "x402w_" + strings.Repeat(agent[:1], 42) + agent[len(agent)-1:]
		more += fmt.Sprintf("[agents.%s]\ntoken = %q\n", agent, callers.TokenHash(s.tokens[agent]))
	}
	s.aFleet = newFleetOf(t, "1.00", "rate = 1000", "signer", more)
	public, private, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	s.orchestrator = fleet.OrchestratorKey(private)
	s.owner("policy", "seal", "--fleet", "--add",
		"orchestrator="+fleet.Key(public).String()+",research-*,research")
	return s
}

// join is the join.json that the orchestrator writes for a machine: of this name, enrolled with all agents
// of a pattern from a day before until a time.
func (s withSigners) join(home, machine, pattern, team string, until time.Time) {
	s.t.Helper()
	file := filepath.Join(home, "join.json")
	text, err := os.ReadFile(file)
	require.NoError(s.t, err)
	j, err := fleet.ParseJoin(text)
	require.NoError(s.t, err)
	e := j.Anchor().NewEnrolment(fleet.Key(s.orchestrator.Public()), pattern, team, nil,
		time.Now().AddDate(0, 0, -1), until)
	j.Agent = machine
	j.Enrolment, err = e.Sign(s.orchestrator)
	require.NoError(s.t, err)
	s.writes(home, j)
}

func (s withSigners) writes(home string, j fleet.Join) {
	s.t.Helper()
	text, err := j.Encode()
	require.NoError(s.t, err)
	require.NoError(s.t, os.WriteFile(filepath.Join(home, "join.json"), text, 0o600))
}

// signer starts a service with the keys, on a machine that the orchestrator enrolled.
func (s withSigners) signer(machine, pattern, team string, until time.Time) (home string, at *service) {
	s.t.Helper()
	home = s.enrolled(machine, "research", "--keystore", "keystore.json")
	s.join(home, machine, pattern, team, until)
	return home, startService(s.t, []string{"X402_WALLET_HOME=" + home, passphraseFile(s.t)})
}

// container is the environment of an agent's container: join.json, which names the signer, and no key.
func (s withSigners) container(agent, joinOf, signer string) []string {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(joinOf, "join.json"))
	require.NoError(s.t, err)
	j, err := fleet.ParseJoin(text)
	require.NoError(s.t, err)
	j.Signer = signer
	home := s.t.TempDir()
	require.NoError(s.t, os.Chmod(home, 0o700))
	s.writes(home, j)
	return []string{"X402_WALLET_HOME=" + home, "X402_WALLET_TOKEN=" + s.tokens[agent]}
}

// The keys are with the signers alone. An agent finds its signer by join.json, and pays under its name and in
// its team; that team's window holds over two signers on two machines.
func TestAFleetsKeysAreWithItsSigners(t *testing.T) {
	t.Parallel()
	s := newSigners(t)
	soon := time.Now().Add(time.Hour)
	homeA, a := s.signer("research-a", "research-*", "research", soon)
	_, b := s.signer("research-b", "research-*", "research", soon)
	agents := []*mcpClient{
		serve(t, s.container("research-1", homeA, "unix:"+a.Socket)...),
		serve(t, s.container("research-2", homeA, "unix:"+b.Socket)...),
	}
	const each = 8
	for i, agent := range agents {
		for n := range each {
			agent.send("tools/call",
				fmt.Sprintf(`{"name":"x402_pay","arguments":%s}`, weather(s.w, fmt.Sprint(i, "-", n))))
		}
	}
	var paid int
	for _, agent := range agents {
		for range each {
			answer := string(agent.hear())
			if strings.Contains(answer, `\"status\":\"paid\"`) {
				paid++
				continue
			}
			require.Contains(t, answer, "BUDGET_EXCEEDED")
			require.Contains(t, answer, `\"team\":\"research\"`)
		}
	}
	require.Equal(t, 5, paid)
	require.Len(t, s.w.Settlements(), 5)
	out, _ := runs(t, 0, s.env, "history")
	require.Contains(t, out, `"count": 5`)
	require.Equal(t, 5, strings.Count(out, `"agent": "research-1"`)+strings.Count(out,
		`"agent": "research-2"`))
	require.NotContains(t, out, `"agent": "research-a"`)

	// over the socket without a token it is the signer's own user, whose name is the machine's
	own := serve(t, s.container("", homeA, "unix:"+a.Socket)...)
	require.Contains(t, own.call("x402_pay", weather(s.w, "own")), "BUDGET_EXCEEDED")
}

// An enrolment ends with its orchestrator's entry in the rules, for a session that is open, too.
func TestAnEnrolmentEndsBeforeItsSession(t *testing.T) {
	t.Parallel()
	s := newSigners(t)
	home, signer := s.signer("research-a", "research-*", "research", time.Now().Add(time.Hour))
	agent := serve(t, s.container("research-1", home, "unix:"+signer.Socket)...)
	require.Contains(t, agent.call("x402_pay", weather(s.w, "1")), `"status":"paid"`)
	s.owner("policy", "seal", "--fleet", "--remove",
		"orchestrator="+fleet.Key(s.orchestrator.Public()).String())
	for _, query := range []string{"2", "2", "3"} { // the first finds that the rules are others
		require.Contains(t, agent.call("x402_pay", weather(s.w, query)), "POLICY_UNSEALED")
	}
	require.Len(t, s.w.Settlements(), 1)
}

// Whom the owner takes out of the rules pays nothing more, in a session that is open, too.
func TestARevokedAgentOfASigner(t *testing.T) {
	t.Parallel()
	s := newSigners(t)
	home, signer := s.signer("research-a", "research-*", "research", time.Now().Add(time.Hour))
	agent := serve(t, s.container("research-1", home, "unix:"+signer.Socket)...)
	require.Contains(t, agent.call("x402_pay", weather(s.w, "1")), `"status":"paid"`)
	before, after, found := strings.Cut(s.w.configText(t), "[agents.research-1]\n")
	require.True(t, found)
	_, after, _ = strings.Cut(after, "\n")
	s.w.setConfig(t, before+after)
	s.owner("policy", "seal", "--fleet")
	for _, again := range []string{"2", "3"} { // the first may find that the rules are others
		require.NotContains(t, agent.call("x402_pay", weather(s.w, again)), `"status":"paid"`)
	}
	require.Contains(t, agent.call("x402_pay", weather(s.w, "4")), "POLICY_DENIED")
	require.Len(t, s.w.Settlements(), 1)
	again := s.container("research-1", home, "unix:"+signer.Socket)
	for end := time.Now().Add(time.Minute); ; { // the door looks at the rules every two seconds
		if _, ok := tryServe(t, command(t, again, "mcp")); !ok {
			break
		}
		require.True(t, time.Now().Before(end), "its token opens another session")
	}
}

// Where a signer cannot be reached, the agent's host hears why.
func TestASignerThatIsNotThere(t *testing.T) {
	t.Parallel()
	s := newSigners(t)
	home := s.enrolled("research-a", "research")
	none := s.container("research-1", home, "unix:"+filepath.Join(t.TempDir(), "none.sock"))
	_, said := runs(t, 1, none, "mcp")
	require.Contains(t, said, "SERVER_UNAVAILABLE")
	_, said = runs(t, 1, s.container("research-1", home, "https://signer.example:8402"), "mcp")
	require.Contains(t, said, "SETUP_FAILED")
	require.Contains(t, said, "https://signer.example:8402/mcp")
}
