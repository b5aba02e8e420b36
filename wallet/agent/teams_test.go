package agent_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
	"x402-wallet/history"
	. "x402-wallet/wallet/agent"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// A team's windows in a Tally are of its agents' payments and of those below it, its rate likewise.
func TestTallyOfTeams(t *testing.T) {
	noon := time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	tally := &Tally{}
	for i, p := range []struct {
		agent string
		ago   time.Duration
		price money.Dollars
	}{{"lab-1", 2 * 24 * time.Hour, 1}, {"lab-1", 24 * time.Hour, 2}, {"lab-2", time.Hour, 4},
		{"res-1", time.Hour, 8}, {"ops", time.Hour, 16}, {"", time.Hour, 32}} {
		tally.Add(history.Payment{ID: string(rune('0' + i)), Agent: p.agent, Created: noon.Add(-p.ago),
			Price: p.price}, noon.Add(-30*time.Second))
	}
	query := budget.Query{Teams: []string{"lab", "research"}, Tree: budget.Teams{
		"lab": {Parent: "research", Agents: []string{"lab-*"}}, "research": {Agents: []string{"res-*"}}}}
	for _, team := range query.Teams {
		query.NodeRates = append(query.NodeRates, budget.RateLimit{Max: 1, Per: time.Minute,
			Window: budget.Window{Team: team, Teams: query.Tree}})
	}
	held := func(n money.Dollars) budget.Use { return budget.Use{Held: n} }
	facts := tally.Facts(budget.Facts{Now: noon}, query, noon)
	require.Equal(t, map[string]budget.NodeUsage{"lab": {Day: held(4), Month: held(6)},
		"research": {Day: held(12), Month: held(14)}}, facts.Used.Teams)
	require.Equal(t, 3, facts.NodeRates["team:lab"].LastMinute)
	require.Equal(t, 4, facts.NodeRates["team:research"].LastMinute)
	require.Equal(t, 6, facts.LastMinute)
	tally.TakeBack("2")
	require.Equal(t, budget.NodeUsage{Month: held(2)},
		tally.Facts(budget.Facts{Now: noon}, query, noon).Used.Teams["lab"])
}

// Whoever holds the key asks the rules about a team by what is sealed, and once more by what this process
// signed: neither lets a team's window be passed, whichever of its agents pays, and its rate holds by the
// latter.
func TestWhoSignsKeepsToATeamsWindows(t *testing.T) {
	w := newWorld(t)
	rate := 0
	allow := func() {
		w.allow(func(r *Rules) {
			r.Budget.Agents = map[string]budget.Agent{"lab-1": {}, "lab-2": {}, "res-1": {}, "ops": {}}
			r.Budget.Teams = budget.Teams{
				"research": {Agents: []string{"res-*"}, Day: new(money.Dollars(5)), Rate: rate},
				"lab":      {Agents: []string{"lab-*"}, Parent: "research"},
			}
		})
	}
	allow()
	r := &Recorder{Store: w.store, Guard: w.guard, Tally: &Tally{}, Now: time.Now}
	permit := func(agent string, price uint64, sealed money.Dollars) error {
		p := w.reserve(price, nil)
		p.Agent = agent
		facts := budget.Facts{Now: p.Created}
		facts.Used.Teams = map[string]budget.NodeUsage{"research": {Day: budget.Use{Held: sealed}}}
		return r.Permit(t.Context(), *w.rules.Load(), p, TermsOf(p, usdc), facts, false)
	}
	err := permit("lab-1", 3, 3)
	require.Equal(t, "research", x402.AsError(err).Details["team"], "by what is sealed: %v", err)
	require.NoError(t, permit("lab-1", 3, 2))
	err = permit("res-1", 3, 0)
	require.Equal(t, "research", x402.AsError(err).Details["team"], "by the tally: %v", err)
	require.NoError(t, permit("ops", 3, 0))
	require.NoError(t, permit("res-1", 1, 0))
	rate = 2
	allow()
	err = permit("lab-2", 1, 0)
	requireCode(t, err, x402.RateLimited)
	require.Equal(t, "research", x402.AsError(err).Details["team"])
	require.NoError(t, permit("ops", 1, 0))
}
