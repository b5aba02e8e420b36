package budget

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// withAgents are the rules of a wallet that two agents share, and one that has no limits of its own.
func withAgents(t *testing.T) Rules {
	r := rules(t)
	perCall, day, month := dollars(t, "0.5"), dollars(t, "2"), dollars(t, "20")
	r.Agents = map[string]Agent{
		"research": {PerCall: &perCall, Day: &day, Month: &month, AllowHosts: []string{"api.example"}},
		"ops":      {Day: &month},
		"monthly":  {Month: &day},
		"free":     {},
	}
	return r
}

func askOf(t *testing.T, agent, price string) Ask {
	a := ask(t, price)
	a.Agent = agent
	return a
}

// An agent's limits pass at the limit and refuse one micro-dollar above it, with the numbers and with what
// would raise them; what another agent, or nobody, spent is not in its windows.
func TestAnAgentsLimits(t *testing.T) {
	by := func(agent, price string, when time.Time) row {
		return row{at: when, session: "old", host: "api.example", price: dollars(t, price), agent: agent}
	}
	for _, c := range []struct {
		name, agent, window string
		ledger              fake
		at, over, command   string
	}{
		{"per call", "research", "per_call", nil, "0.5", "0.500001", "budget set per_call 0.51"},
		{"day", "research", "day", fake{by("research", "1.6", noon.Add(-time.Hour))}, "0.4", "0.400001",
			"budget set day 2.01"},
		{"month", "research", "month", fake{by("research", "19.6", noon.AddDate(0, 0, -2))}, "0.4",
			"0.400001", "budget set month 20.01"},
		{"a month alone", "monthly", "month", fake{by("monthly", "1.6", noon.AddDate(0, 0, -2))}, "0.4",
			"0.400001", "budget set month 2.01"},
		{"held counts", "research", "day", fake{{at: noon.Add(-time.Hour), price: dollars(t, "1.6"),
			agent: "research", held: true}}, "0.4", "0.400001", "budget set day 2.01"},
		{"what others spent is theirs", "research", "day", fake{by("research", "1.6", noon.Add(-time.Hour)),
			by("ops", "3", noon.Add(-time.Hour)), by("", "2", noon.Add(-time.Hour))}, "0.4", "0.400001",
			"budget set day 2.01"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := withAgents(t)
			require.NoError(t, check(r, askOf(t, c.agent, c.at), c.ledger))
			err := check(r, askOf(t, c.agent, c.over), c.ledger)
			e := x402.AsError(err)
			require.Equal(t, x402.BudgetExceeded, e.Code, "%v", err)
			require.Equal(t, "agent", e.Details["layer"])
			require.Equal(t, c.window, e.Details["window"])
			require.Equal(t, c.agent, e.Details["agent"])
			require.Equal(t, "x402-wallet "+c.command+" --agent "+c.agent, e.NextStep().Command)
			require.NoError(t, check(r, askOf(t, "", c.over), c.ledger), "who has no name has no such limit")
		})
	}
}

func TestTheOwnersLimitsHoldForEveryAgent(t *testing.T) {
	r := withAgents(t)
	full := fake{{at: noon.Add(-time.Hour), session: "old", price: r.Day}}
	for _, agent := range []string{"", "ops", "free"} {
		err := check(r, askOf(t, agent, "0.000001"), full)
		require.Equal(t, "day", x402.AsError(err).Details["layer"], "%s", agent)
		err = check(r, askOf(t, agent, "1.000001"), nil)
		require.Equal(t, "per_call", x402.AsError(err).Details["layer"], "%s", agent)
	}
}

func TestAnAgentsHosts(t *testing.T) {
	r := withAgents(t)
	require.NoError(t, r.CheckHost("research", "api.example:8443"))
	err := r.CheckHost("research", "other.example")
	require.True(t, x402.HasCode(err, x402.PolicyDenied), "%v", err)
	require.Equal(t, "x402-wallet policy allow other.example --agent research",
		x402.AsError(err).NextStep().Command)
	require.NoError(t, r.CheckHost("free", "other.example"))
	require.NoError(t, r.CheckHost("", "other.example"))
	r.DenyHosts = []string{"api.example"}
	require.Error(t, r.CheckHost("research", "api.example"), "what the owner denies nobody is allowed")
	r.DenyHosts, r.AllowHosts = nil, []string{"other.example"}
	require.Error(t, r.CheckHost("research", "api.example"), "and what they do not allow, neither")
}

func TestARevokedAgent(t *testing.T) {
	r := withAgents(t)
	for _, a := range []Ask{askOf(t, "gone", "0"), {Agent: "gone", Host: "api.example", SignIn: true},
		{Agent: "gone", Host: "api.example", Prepaid: true}} {
		require.True(t, x402.HasCode(check(r, a, nil), x402.PolicyDenied))
	}
	_, err := r.MaxPrice(askOf(t, "gone", "1"), r.PerCall, Facts{})
	require.True(t, x402.HasCode(err, x402.PolicyDenied))
}

// What a payment of an agent's may cost at most is what Decide lets pass, and a micro-dollar more is not.
func TestAnAgentsMaxPriceIsTheEdgeOfDecide(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := withAgents(t)
		own := Agent{}
		for _, limit := range []**money.Dollars{&own.PerCall, &own.Day, &own.Month} {
			if rapid.Bool().Draw(rt, "has") {
				*limit = new(money.Dollars(rapid.Int64Range(0, 3_000_000).Draw(rt, "limit")))
			}
		}
		r.Agents["research"] = own
		var ledger fake
		for range rapid.IntRange(0, 3).Draw(rt, "payments") {
			ledger = append(ledger, row{at: noon.AddDate(0, 0, -rapid.IntRange(0, 3).Draw(rt, "days ago")).
				Add(-time.Hour), price: money.Dollars(rapid.Int64Range(0, 1_500_000).Draw(rt, "price")),
				agent: rapid.SampledFrom([]string{"", "research", "ops"}).Draw(rt, "agent")})
		}
		a := askOf(t, "research", "0")
		facts := ledger.facts(r.Query(a), noon, current)
		most, err := r.MaxPrice(a, r.PerCall, facts)
		if err != nil {
			return
		}
		a.Price, a.Approved = most, true
		must.Get(r.Decide(a, facts))(rt)
		a.Price++
		require.Error(rt, must.Err(r.Decide(a, facts)))
	})
}

// The caps that the ledger enforces are those of the decision: the agent's among them.
func TestAnAgentsCaps(t *testing.T) {
	r := withAgents(t)
	a := askOf(t, "research", "0.1")
	d := must.Get(r.Decide(a, fake(nil).facts(r.Query(a), noon, current)))(t)
	require.Contains(t, d.Caps, Cap{Window: Window{Agent: "research", Since: DayOf(noon)},
		Limit: dollars(t, "2"), name: agentLayer, part: "day"})
	require.Contains(t, d.Caps, Cap{Window: Window{Agent: "research", Since: MonthOf(noon)},
		Limit: dollars(t, "20"), name: agentLayer, part: "month"})
	a.Prepaid = true
	d = must.Get(r.Decide(a, fake(nil).facts(r.Query(a), noon, current)))(t)
	require.Empty(t, d.Caps, "it was counted when it was deposited")
}
