package history

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
	budgets "x402-wallet/budget/standing"
	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// teamRules are those of a team below another one, whose agents are known by patterns.
func teamRules(lab, research budget.Team) budget.Rules {
	lab.Parent, lab.Agents = "research", []string{"lab-*"}
	research.Agents = []string{"res-*"}
	return budget.Rules{PerCall: 1000, ApproveAbove: 1000, Rate: 1000, Day: 1000, Month: 1000,
		Agents: map[string]budget.Agent{"lab-1": {}, "lab-2": {}, "lab-3": {}, "res-1": {}, "ops": {}},
		Teams:  budget.Teams{"lab": lab, "research": research}}
}

// Payments that were decided on by the same facts are held only as far as the windows of their team, and of
// the team above it, have room for all of them; what an agent of no such team pays is not in the way.
func TestATeamsCapsHoldWhereTheMoneyIsHeld(t *testing.T) {
	five := new(money.Dollars(5))
	for name, rules := range map[string]budget.Rules{
		"day":                teamRules(budget.Team{Day: five}, budget.Team{}),
		"month":              teamRules(budget.Team{Month: five}, budget.Team{}),
		"the day above it":   teamRules(budget.Team{}, budget.Team{Day: five}),
		"the month above it": teamRules(budget.Team{}, budget.Team{Month: five}),
	} {
		t.Run(name, func(t *testing.T) {
			eachEngine(t, func(t *testing.T, s *Store, _ *clock) {
				must.Get(reserve(s, testHold(1)))(t) // a session has begun
				thirdIsRefused(t, s, rules, []Hold{holdOf("lab-1", 3), holdOf("lab-2", 2), holdOf("lab-3", 1),
					holdOf("ops", 5), holdOf("", 5)})
			})
		})
	}
}

// A team's rate holds there, too: what its agents paid after the decision counts, and what others paid does
// not.
func TestATeamsRateHoldsWhereTheMoneyIsHeld(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *Store, c *clock) {
		rules := teamRules(budget.Team{}, budget.Team{Rate: 2})
		must.Get(reserve(s, holdOf("ops", 1)))(t)
		first, second, third := holdOf("lab-1", 1), holdOf("res-1", 1), holdOf("lab-2", 1)
		for _, h := range []*Hold{&first, &second, &third} {
			must.Get(decide(s, rules, h))(t)
		}
		oldest := must.Get(s.Reserve(t.Context(), first))(t)
		c.set(c.now().Add(time.Second))
		must.Get(s.Reserve(t.Context(), second))(t)
		require.ErrorIs(t, must.Err(s.Reserve(t.Context(), third)), ErrMoved)
		_, err := decide(s, rules, &third)
		requireCode(t, err, x402.RateLimited)
		free := oldest.Created.Add(time.Minute)
		require.Equal(t, x402.Stamp(free), x402.AsError(err).NextStep().At)
		c.set(free)
		must.Get(reserveBy(s, rules, third))(t)
	})
}

// What a team's windows hold: the payments of its agents and of those below it, of the day and of the month.
func TestATeamsFacts(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *Store, c *clock) {
		pay(t, s, holdOf("lab-1", 1), Settled)
		c.set(c.now().Add(24 * time.Hour))
		pay(t, s, holdOf("lab-1", 2), Settled)
		pay(t, s, holdOf("lab-2", 4), Reserved)
		pay(t, s, holdOf("res-1", 8), Settled)
		pay(t, s, holdOf("ops", 16), Settled)
		pay(t, s, holdOf("", 32), Settled)
		p := pay(t, s, holdOf("lab-1", 64), Reserved)
		require.NoError(t, s.Release(t.Context(), p.ID, "not needed"))

		rules := teamRules(budget.Team{}, budget.Team{})
		use := func(spent, held money.Dollars) budget.Use { return budget.Use{Spent: spent, Held: held} }
		f := must.Get(s.Facts(t.Context(), Question{Rules: budgets.TreeQuery(rules)}))(t)
		require.Equal(t, map[string]budget.NodeUsage{
			"lab":      {Day: use(2, 4), Month: use(3, 4)},
			"research": {Day: use(10, 4), Month: use(11, 4)},
		}, f.Used.Teams)
		require.Equal(t, map[string]budget.NodeUsage{
			"lab-1": {Day: use(2, 0), Month: use(3, 0)}, "lab-2": {Day: use(0, 4), Month: use(0, 4)},
			"res-1": {Day: use(8, 0), Month: use(8, 0)}, "ops": {Day: use(16, 0), Month: use(16, 0)},
		}, f.Used.Agents)
		f = must.Get(s.Facts(t.Context(), Question{}))(t)
		require.Empty(t, f.Used.Teams, "nobody's were asked for")

		c.set(time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC))
		f = must.Get(s.Facts(t.Context(), Question{Rules: budgets.TreeQuery(rules)}))(t)
		require.Zero(t, f.Used.Teams["research"], "another month")
		require.Empty(t, f.Used.Agents)
	})
}

// What a signature believes of a team is what was sealed of its agents, not the tables.
func TestForgedTeams(t *testing.T) {
	rules := teamRules(budget.Team{Day: new(money.Dollars(9))}, budget.Team{})
	for name, forge := range map[string]string{
		"":                                       `SELECT 1`,
		"the sum of one of its agents":           `UPDATE totals SET spent = 0 WHERE scope = 'agent'`,
		"that, given to an agent of another one": `UPDATE totals SET key = 'eve' WHERE key = 'lab-1'`,
		"all of its agents' sums":                `DELETE FROM totals WHERE scope = 'agent'`,
		"the day of a sum":                       `UPDATE totals SET day = day - 1 WHERE scope = 'agent'`,
	} {
		t.Run(name, func(t *testing.T) {
			eachGuarded(t, func(t *testing.T, g *guarded) {
				var facts budget.Facts
				g.k.Query = func(p Payment) budget.Query { return rules.Query(budget.Ask{Agent: p.Agent}) }
				g.k.Permit = func(_ Payment, f budget.Facts, _ Sealed) (*Fact, error) {
					facts = f
					return nil,
						nil
				}
				g.settle(g.sign(g.reserve(holdOf("lab-1", 3))))
				g.settle(g.sign(g.reserve(holdOf("res-1", 16))))
				p := g.reserve(holdOf("lab-2", 4))
				g.sql(forge)
				err := g.Submit(t.Context(), p, Signed{Payload: []byte(`{}`), Requirement: []byte(`{}`),
					UniqueKey: "forged"}, g.k)
				if name == "" {
					require.NoError(t, err)
					require.Equal(t, budget.Use{Held: 3}, facts.Used.Teams["lab"].Day, "without itself")
					require.NotContains(t, facts.Used.Teams, "research", "it has no window")
					return
				}
				requireCode(t, err, x402.LedgerCorrupt)
			})
		})
	}
}

// payerLedger is the variable that makes another process of this test binary one that pays for a team.
const payerLedger = "HISTORY_TEST_PAYER"

var payersTime = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// payersRules have room for 30 in the team, and for 20 in the one below it.
func payersRules() budget.Rules {
	return teamRules(budget.Team{Day: new(money.Dollars(20))}, budget.Team{Month: new(money.Dollars(30))})
}

// payForATeam pays for agents of both teams at once until nothing passes any more; it begins when its input
// ends.
func payForATeam(ledger string) int {
	_, _ = os.Stdin.Read(make([]byte, 1))
	s, err := openNamed(context.Background(), ledger, Options{Now: func() time.Time { return payersTime }})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer s.Close()
	var wait sync.WaitGroup
	var failed sync.Once
	code := 0
	for _, agent := range []string{"lab-1", "lab-2", "lab-3", "res-1"} {
		wait.Go(func() {
			var err error
			for err == nil {
				_, err = reserveBy(s, payersRules(), holdOf(agent, 1))
			}
			if !x402.HasCode(err, x402.BudgetExceeded) {
				failed.Do(func() { fmt.Fprintln(os.Stderr, err); code = 1 })
			}
		})
	}
	wait.Wait()
	return code
}

// Two processes, four agents in each: the team's cap is reached and not passed by one unit, nor is that of
// the team below it.
func TestTwoProcessesFillATeamsCapExactly(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *Store, _ *clock) {
		start, gate, err := os.Pipe()
		require.NoError(t, err)
		var cmds [2]*exec.Cmd
		var outs [2]bytes.Buffer
		for i := range cmds {
			cmds[i] = exec.CommandContext(t.Context(), os.Args[0])
			cmds[i].Env = append(os.Environ(), payerLedger+"="+nameOf(s), "GORACE=atexit_sleep_ms=0")
			cmds[i].Stdin, cmds[i].Stderr = start, &outs[i]
			require.NoError(t, cmds[i].Start())
		}
		require.NoError(t, gate.Close())
		require.NoError(t, start.Close())
		for i, cmd := range cmds {
			require.NoError(t, cmd.Wait(), outs[i].String())
		}
		tree := payersRules().Teams
		day, month := budget.DayOf(payersTime), budget.MonthOf(payersTime)
		lab := used(t, s, budget.Window{Team: "lab", Teams: tree, Since: day})
		research := used(t, s, budget.Window{Team: "research", Teams: tree, Since: month})
		require.Equal(t, money.Dollars(30), research.Total())
		require.LessOrEqual(t, lab.Total(), money.Dollars(20))
		require.NotZero(t, lab.Total())
	})
}
