package config

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"x402-wallet/internal/must"
	"x402-wallet/x402/money"
)

// Of each pair the second is tighter, and the first looser.
func TestTeamsCompared(t *testing.T) {
	const x, each = "[budget.teams.x]\nagents=['a*']\n", "[budget.agents.'a*']\n"
	const above = "[budget.teams.y]\nday='1'\n"
	for _, c := range []struct{ name, loose, tight string }{
		{"a team", "", x + "day='1'"},
		{"a limit", x, x + "day='1'"},
		{"a lower one", x + "per_call='0.02'", x + "per_call='0.01'"},
		{"a lower month", x + "month='2'", x + "month='1'"},
		{"a rate", x, x + "rate=9"},
		{"a lower rate", x + "rate=9", x + "rate=8"},
		{"some hosts", x, x + "allow_hosts=['a.example']"},
		{"a parent", above + x, above + x + "parent='y'"},
		{"a team between", above + x + "parent='y'", above + x + "parent='z'\n[budget.teams.z]\nparent='y'"},
		{"agents of no team", x, "[budget.teams.x]\nagents=['a*','b*']"},
		{"the rest, that are in no team", x, x + "[budget.teams.rest]\nagents=['*']"},
		{"an agent into a team of its team", x, x + "[budget.teams.y]\nagents=['anna']\nparent='x'"},
		{"limits for each", "", each + "day='1'"},
		{"a limit for each", each, each + "rate=5"},
		{"a lower one for each", each + "day='2'", each + "day='1'"},
		{"a lower call for each", each + "per_call='2'", each + "per_call='1'"},
		{"a lower month for each", each + "month='2'", each + "month='1'"},
	} {
		t.Run(c.name, func(t *testing.T) {
			loose, tight := rules(t, c.loose), rules(t, c.tight)
			require.Equal(t, []bool{false}, loosening(loose, tight))
			require.Equal(t, []bool{true}, loosening(tight, loose))
		})
	}
	for _, c := range []struct{ name, from, to string }{
		{"a pattern that takes agents from a team", x + "day='1'",
			x + "day='1'\n[budget.teams.y]\nagents=['anna']"},
		{"a longer one, likewise", x + "day='1'", x + "day='1'\n[budget.teams.y]\nagents=['an*']"},
		{"into a stricter team", x + "day='1'", x + "day='1'\n[budget.teams.y]\nagents=['anna']\nday='0.50'"},
		{"another pattern", x, "[budget.teams.x]\nagents=['b*']"},
		{"another parent", above + "[budget.teams.z]\n" + x + "parent='y'", above + "[budget.teams.z]\n" + x +
			"parent='z'"},
		{"other hosts", x + "allow_hosts=['a.example']", x + "allow_hosts=['b.example']"},
		{"one is lower, one higher", x + "day='1'\nmonth='1'", x + "day='0.50'\nmonth='2'"},
		{"another pattern for each", each + "day='1'", "[budget.agents.'b*']\nday='1'"},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, []bool{true}, loosening(rules(t, c.from), rules(t, c.to)))
		})
	}
	require.Equal(t, []bool{false}, loosening(rules(t, x), rules(t, x+"labels=['a=b']")), "for the books")
}

// From where an agent pays is the owner's to say, whatever it may spend there.
func TestAccountsAreTheOwners(t *testing.T) {
	const team = "[budget.teams.x]\nagents=['a*']\n"
	const account = team + "account=true\n"
	const plain = "[budget.teams.y]\nagents=['b*']\n"
	for _, c := range []struct{ name, from, to string }{
		{"one more", "", account + "day='0.01'"},
		{"of a team", team, account},
		{"no longer", account, "[budget.teams.x]\nagents=['a*', 'x']\n"},
		{"an agent more that pays from it", account, "[budget.teams.x]\nagents=['a*','b*']\naccount=true\n"},
		{"a team that becomes a part of it", account + plain, account + plain + "parent='x'"},
		{"one between", account + plain + "parent='x'", account + plain +
			"parent='z'\n[budget.teams.z]\nparent='x'\naccount=true"},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, []bool{true}, loosening(rules(t, c.from), rules(t, c.to)))
		})
	}
	require.Equal(t, []bool{false}, loosening(rules(t, account), rules(t, account+"day='1'")))
	c := rules(t, account)
	require.Equal(t, []string{"x", "x", ""},
		[]string{c.AccountOf("x"), c.AccountOf("anna"), c.AccountOf("b")})
	require.Equal(t, []string{"x"}, c.Accounts())
	require.True(t, c.HasAccount("x"))
	require.False(t, rules(t, team).HasAccount("x"))
	for name, text := range map[string]string{
		"another team's agent":  account + "[budget.teams.y]\nagents=['x']\n",
		"an account that is no": "[budget.teams.x]\naccount='yes'\n",
	} {
		require.Error(t, must.Err(Parse([]byte(text))), name)
	}
}

// What is said to tighten does so for every agent: it is still in each team that it was in, with limits that
// are no higher, and pays from the same account. Names of two letters of the alphabet stand for all.
func TestWhatTightensTeamsTightensForEveryAgent(t *testing.T) {
	var names []string
	for _, a := range []string{"a", "b"} {
		names = append(names, a)
		for _, b := range []string{"a", "b"} {
			names = append(names, a+b, a+b+"a", a+b+"b")
		}
	}
	ids := []string{"", "t0", "t1", "t2"}
	tightened, moved := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		team := func(i int) Team {
			made := Team{Parent: ids[rapid.IntRange(0, i).Draw(rt, "parent")],
				Agents: rapid.SliceOfNDistinct(rapid.StringMatching(`[ab*]{1,3}`), 0, 2, rapid.ID).
					Draw(rt, "agents")}
			if rapid.Bool().Draw(rt, "has a day") {
				made.Day = new(money.Dollars(rapid.IntRange(1, 3).Draw(rt, "day")))
			}
			made.Account = rapid.IntRange(0, 3).Draw(rt, "account") == 0
			return made
		}
		valid := func(teams map[string]Team) bool {
			c := &Checker{}
			c.parents(teams)
			c.ambiguous(teams)
			return len(c.errs) == 0
		}
		from, to := map[string]Team{}, map[string]Team{}
		for i := range rapid.IntRange(0, 3).Draw(rt, "teams") {
			from[ids[i+1]] = team(i)
			to[ids[i+1]] = from[ids[i+1]]
		}
		for range rapid.IntRange(1, 2).Draw(rt, "changes") {
			i := rapid.IntRange(0, 2).Draw(rt, "of")
			changed := to[ids[i+1]]
			switch rapid.IntRange(0, 4).Draw(rt, "what") {
			case 0:
				to[ids[i+1]] = team(i)
				continue
			case 1:
				changed.Agents = append([]string{rapid.StringMatching(`[ab*]{1,3}`).Draw(rt, "agent")},
					changed.Agents...)
			case 2:
				changed.Parent = ids[rapid.IntRange(0, i).Draw(rt, "parent")]
			case 4:
				changed.Account = !changed.Account
			case 3:
				changed.Day = new(money.Dollars(rapid.IntRange(1, 3).Draw(rt, "day")))
			}
			to[ids[i+1]] = changed
		}
		if !valid(from) || !valid(to) || !stricterTeams(from, to) {
			return
		}
		tightened++
		before, after := Tree(from), Tree(to)
		for _, name := range names {
			for _, of := range before.Path(name) {
				require.True(rt, after.Have(of, name), "%s is no longer in %s", name, of)
				require.True(rt, isTighter(after[of].Day, before[of].Day))
			}
			require.Equal(rt, before.Account(name), after.Account(name), "%s pays from another account", name)
			if fmt.Sprint(before.Path(name)) != fmt.Sprint(after.Path(name)) {
				moved++
			}
		}
	})
	require.NotZero(t, tightened)
	require.NotZero(t, moved)
}
