package dashboard

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
	"x402-wallet/x402/money"
)

// Where agents share the wallet, the overview says what each spent, and the history and its exports can be
// those of one; nowhere else is anything said of agents.
func TestAgents(t *testing.T) {
	b := opened(t)
	now := time.Now().UTC()
	b.pays("pay_n", "https://api.example/nameless", "settled", 10_000, now)
	for _, page := range []string{"/", "/history"} {
		require.NotContains(t, b.get(page).body, "gent</", page)
	}

	b.wallet.Engine.Rules.Agents = map[string]budget.Agent{"ann": {}, "bob": {}}
	b.wallet.AgentLabels = map[string]string{"ann": "team=research"}
	b.paysAs("ann", "pay_a", "https://api.example/anns", "settled", 20_000, now)
	b.paysAs("bob", "pay_b", "https://api.example/bobs", "settled", 40_000, now)

	overview := b.get("/").body
	_, agents, found := strings.Cut(overview, "By agent")
	require.True(t, found)
	require.Regexp(t, `(?s)bob.*\$0\.04.*ann.*\$0\.02.*all others.*\$0\.01`, agents)

	list := b.get("/history?agent=ann").body
	require.Contains(t, list, "api.example/anns")
	require.NotContains(t, list, "api.example/bobs")
	require.NotContains(t, list, "api.example/nameless")
	require.Contains(t, list, "<option selected>ann</option>")
	require.Contains(t, list, "agent=ann&amp;format=csv", "what is exported is what is shown")
	all := b.get("/history").body
	require.Contains(t, all, "<small>ann</small>")

	written := b.get("/export?agent=ann&format=csv").body
	require.Equal(t, 2, strings.Count(written, "\n"), written)
	require.Contains(t, written, ",ann,team=research\n")
	require.Contains(t, b.get("/payments/pay_a").body, "<dt>Agent</dt>")
	require.NotContains(t, b.get("/payments/pay_n").body, "<dt>Agent</dt>")
}

// The owner sees what is left of each team's budgets.
func TestTeamsOnTheOverview(t *testing.T) {
	b := opened(t)
	b.wallet.Engine.Rules.Agents = map[string]budget.Agent{"ann": {}, "bob": {}}
	b.wallet.Engine.Rules.Teams = budget.Teams{"research": {Agents: []string{"a*"},
		Day: new(money.Dollars(50_000))}}
	now := time.Now().UTC()
	b.paysAs("ann", "pay_a", "https://api.example/anns", "settled", 20_000, now)
	b.paysAs("bob", "pay_b", "https://api.example/bobs", "settled", 40_000, now)
	_, team, found := strings.Cut(b.get("/").body, "Team research, day")
	require.True(t, found)
	team, _, _ = strings.Cut(team, "</li>")
	require.Contains(t, team, "$0.03", "what is left to it: %s", team)
	require.NotContains(t, b.get("/").body, "Team research, month")

	// Its payments alone, and those of agents that no rule names any more.
	b.wallet.Engine.Rules.Agents = nil
	list := b.get("/history?team=research").body
	require.Contains(t, list, "api.example/anns")
	require.NotContains(t, list, "api.example/bobs")
	require.Contains(t, list, "<option selected>research</option>")
	require.Contains(t, list, "<option>bob</option>")
	require.Contains(t, list, "format=csv&amp;team=research")
	require.Equal(t, 2, strings.Count(b.get("/export?team=research&format=csv").body, "\n"))
	require.Contains(t, b.get("/history?team=sales").body, "there is no team")
}

// Who asks is shown where a person decides, and a part of what they decide on.
func TestAnApprovalSaysWhoAsks(t *testing.T) {
	b := opened(t)
	a := b.askAs("ann", 1)
	require.Contains(t, b.get("/").body, "Asked by <strong>ann</strong>")
	require.Contains(t, b.get("/approvals/"+a.ID).body, "<dt>Asked by</dt><dd>ann</dd>")
	form := b.form(a.ID, "approve", "right")
	b.sql(`UPDATE approvals SET agent = 'eve' WHERE id = ?`, a.ID)
	got := b.send("POST", b.base+"/approvals/"+a.ID, form, nil)
	require.Equal(t, http.StatusConflict, got.status)
	require.Contains(t, got.body, "<dd>eve</dd>")
	nameless := b.ask(2)
	require.NotContains(t, b.get("/approvals/"+nameless.ID).body, "Asked by")
}
