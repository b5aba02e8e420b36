package history

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// holdOf is testHold for an agent.
func holdOf(agent string, atomic uint64) Hold {
	h := testHold(atomic)
	h.Payment.Agent = agent
	return h
}

func agentRules(day, month money.Dollars) budget.Rules {
	own := budget.Agent{Day: &day, Month: &month}
	return budget.Rules{PerCall: 1000, ApproveAbove: 1000, Rate: 1000, Day: 1000, Month: 1000,
		Agents: map[string]budget.Agent{"ann": own, "bob": own}}
}

// thirdIsRefused decides on holds by the same facts: there is room for all but the third.
func thirdIsRefused(t *testing.T, s *Store, rules budget.Rules, holds []Hold) {
	t.Helper()
	for i := range holds {
		must.Get(decide(s, rules, &holds[i]))(t)
	}
	for i, h := range holds {
		_, err := s.Reserve(t.Context(), h)
		if i == 2 {
			require.ErrorIs(t, err, ErrMoved)
			continue
		}
		require.NoError(t, err)
	}
}

// Two payments that were decided on by the same facts are held only as far as their agent's window has room
// for both, whichever window it is; another agent's has its own.
func TestAnAgentsCapsHoldWhereTheMoneyIsHeld(t *testing.T) {
	for name, rules := range map[string]budget.Rules{"day": agentRules(5, 1000),
		"month": agentRules(1000, 5)} {
		t.Run(name, func(t *testing.T) {
			eachEngine(t, func(t *testing.T, s *Store, _ *clock) {
				must.Get(reserve(s, testHold(1)))(t) // a session has begun
				thirdIsRefused(t, s, rules, []Hold{holdOf("ann", 3), holdOf("ann", 2), holdOf("ann", 1),
					holdOf("bob", 5), holdOf("", 5)})
			})
		})
	}
}

// What an agent's windows hold: its own payments of the day and of the month, whatever others paid.
func TestAnAgentsFacts(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *Store, c *clock) {
		pay(t, s, holdOf("ann", 1), Settled)
		c.set(c.now().Add(24 * time.Hour))
		pay(t, s, holdOf("ann", 2), Settled)
		pay(t, s, holdOf("ann", 4), Reserved)
		pay(t, s, holdOf("bob", 8), Settled)
		pay(t, s, holdOf("", 16), Settled)
		p := pay(t, s, holdOf("ann", 32), Reserved)
		require.NoError(t, s.Release(t.Context(), p.ID, "not needed"))

		f := must.Get(s.Facts(t.Context(), Question{Rules: budget.Query{Agent: "ann"}}))(t)
		require.Equal(t, budget.NodeUsage{Day: budget.Use{Spent: 2, Held: 4},
			Month: budget.Use{Spent: 3, Held: 4}}, f.Used.Agent)
		f = must.Get(s.Facts(t.Context(), Question{}))(t)
		require.Zero(t, f.Used.Agent, "nobody's were asked for")

		c.set(time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC))
		f = must.Get(s.Facts(t.Context(), Question{Rules: budget.Query{Agent: "ann"}}))(t)
		require.Zero(t, f.Used.Agent, "another month")
	})
}

// A key is its agent's: the same word is another purchase of another agent, and of who has no name.
func TestAnAgentsKeys(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *Store, _ *clock) {
		ids := map[string]string{}
		for _, agent := range []string{"", "ann", "bob"} {
			h := holdOf(agent, 1)
			h.Payment.IdempotencyKey = "k"
			ids[agent] = pay(t, s, h, Settled).ID
		}
		for agent, id := range ids {
			require.Equal(t, id, must.Get(s.ByKey(t.Context(), agent, "k"))(t).ID)
		}
		require.ErrorIs(t, must.Err(s.ByKey(t.Context(), "nobody", "k")), ErrNotFound)
	})
}

// Whose a payment is, and what an agent's windows hold, is covered by what is sealed.
func TestForgedAgents(t *testing.T) {
	for name, forge := range map[string]string{
		"whose a payment to be signed is":  `UPDATE payments SET agent = 'bob' WHERE seq = 4`,
		"an agent's sum":                   `UPDATE totals SET spent = 0 WHERE scope = 'agent'`,
		"an agent's sum, given to another": `UPDATE totals SET key = 'eve' WHERE scope = 'agent'`,
		"all of an agent's sums":           `DELETE FROM totals WHERE scope = 'agent'`,
		"the day of an agent's sum":        `UPDATE totals SET day = day - 1 WHERE scope = 'agent'`,
	} {
		t.Run(name, func(t *testing.T) {
			eachGuarded(t, func(t *testing.T, g *guarded) {
				g.k.Query = func(p Payment) budget.Query { return budget.Query{Agent: p.Agent} }
				g.settle(g.sign(g.reserve(holdOf("ann", 3))))
				p := g.reserve(holdOf("ann", 4))
				g.sql(forge)
				err := g.Submit(t.Context(), p, Signed{Payload: []byte(`{}`), Requirement: []byte(`{}`),
					UniqueKey: "forged"}, g.k)
				requireCode(t, err, x402.LedgerCorrupt)
				requireCode(t, must.Err(g.VerifySealed(t.Context(), g.k)), x402.LedgerCorrupt)
				requireCode(t, g.CheckSealed(t.Context(), g.k), x402.LedgerCorrupt)
			})
		})
	}
}

// Of an agent without windows nothing is summed: whose a payment is, is a part of what is sealed of it.
func TestAForgedAgentWithoutWindows(t *testing.T) {
	eachGuarded(t, func(t *testing.T, g *guarded) {
		p := g.reserve(holdOf("ann", 4))
		g.sql(`UPDATE payments SET agent = 'bob' WHERE id = ?`, p.ID)
		signed := Signed{Payload: []byte(`{}`), Requirement: []byte(`{}`), UniqueKey: "forged"}
		requireCode(t, g.Submit(t.Context(), p, signed, g.k), x402.LedgerCorrupt)
		p.Agent = "bob" // whoever signs read it there
		requireCode(t, g.Submit(t.Context(), p, signed, g.k), x402.LedgerCorrupt)
	})
}

// What was bought is found for who bought it; without a name, for whoever did.
func TestBoughtByAnAgent(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *Store, _ *clock) {
		p := pay(t, s, holdOf("ann", 1), Settled)
		for agent, finds := range map[string]bool{"ann": true, "bob": false, "": true} {
			got, err := s.Bought(t.Context(), agent, p.URL, p.Resource())
			if finds {
				require.NoError(t, err)
				require.Equal(t, p.ID, got.ID)
				continue
			}
			require.ErrorIs(t, err, ErrNotFound, "%s", agent)
		}
	})
}

// The last payments of an agent at a host are found among those of others.
func TestRecentAt(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *Store, _ *clock) {
		require.Empty(t, must.Get(s.RecentAt(t.Context(), "a", "api.example", 10))(t))
		var wanted []string
		for i, at := range []string{"a api.example", "b api.example", "a other.example", "a api.example"} {
			h := testHold(uint64(i) + 1)
			h.Payment.Agent, h.Payment.Host, _ = strings.Cut(at, " ")
			p := must.Get(reserve(s, h))(t)
			if at == "a api.example" {
				wanted = append([]string{p.ID}, wanted...)
			}
		}
		var found []string
		for _, p := range must.Get(s.RecentAt(t.Context(), "a", "api.example", 10))(t) {
			found = append(found, p.ID)
		}
		require.Equal(t, wanted, found)
		require.Len(t, must.Get(s.RecentAt(t.Context(), "a", "api.example", 1))(t), 1)
	})
}
