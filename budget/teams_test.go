package budget

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"x402-wallet/x402"
)

// names are all of up to some letters, of an alphabet of two.
func names(letters int) (list []string) {
	list = []string{""}
	for from := 0; letters > 0; letters-- {
		end := len(list)
		for _, shorter := range list[from:end] {
			list = append(list, shorter+"a", shorter+"b")
		}
		from = end
	}
	return list
}

func means(pattern, name string) bool {
	if pattern == "" {
		return name == ""
	}
	if pattern[0] == '*' {
		return means(pattern[1:], name) || (name != "" && means(pattern, name[1:]))
	}
	return name != "" && pattern[0] == name[0] && means(pattern[1:], name[1:])
}

func TestPatternsMatchWhatTheyMean(t *testing.T) {
	all := names(6)
	rapid.Check(t, func(rt *rapid.T) {
		pattern := rapid.StringMatching(`[ab*]{0,5}`).Draw(rt, "pattern")
		for _, name := range all {
			require.Equal(rt, means(pattern, name), Matches(pattern, name), "%q", name)
		}
	})
	require.False(t, Matches("a*a", "a"), "one letter is not two")
	require.False(t, Matches("a.*", "abc"), "there is nothing but *")
	require.False(t, Matches("a?", "ab"))
}

// Two patterns overlap exactly where a name is found that both mean: one of theirs put together is long
// enough.
func TestPatternsOverlapWhereANameIsOfBoth(t *testing.T) {
	all := names(8)
	found := map[bool]int{}
	rapid.Check(t, func(rt *rapid.T) {
		a := rapid.StringMatching(`[ab*]{0,4}`).Draw(rt, "one")
		b := rapid.StringMatching(`[ab*]{0,4}`).Draw(rt, "other")
		both := false
		for _, name := range all {
			both = both || (means(a, name) && means(b, name))
		}
		found[both]++
		require.Equal(rt, both, Overlap(a, b))
		require.Equal(rt, both, Overlap(b, a))
	})
	require.NotZero(t, found[true])
	require.NotZero(t, found[false])
}

// science has research, with two labs; sales stands beside it.
func someTeams() Teams {
	return Teams{
		"science":  {Agents: []string{"dean"}},
		"research": {Parent: "science", Agents: []string{"research-*"}},
		"lab":      {Parent: "research", Agents: []string{"research-lab-*", "anna"}},
		"sales":    {Agents: []string{"*", "research-lab-7"}},
	}
}

func TestTheTeamOfAnAgent(t *testing.T) {
	tree := someTeams()
	for agent, path := range map[string]string{
		"dean":           "science", // a name beats "*"
		"research-1":     "research science",
		"research-lab-1": "lab research science", // the longer text beats the shorter one
		"research-lab-7": "sales",                // a name beats any pattern
		"anna":           "lab research science",
		"bob":            "sales",
		"":               "",
	} {
		require.Equal(t, path, strings.Join(tree.Path(agent), " "), "%q", agent)
		for team := range tree {
			in := strings.Contains(" "+path+" ", " "+team+" ")
			require.Equal(t, in, tree.Have(team, agent), "%s in %s", agent, team)
		}
	}
	delete(tree, "sales")
	require.Empty(t, tree.Path("bob"))
	require.Equal(t, []string{"science", "research", "lab"}, tree.inOrder(), "each before those below it")
}

// A path ends, whatever the rules say: they are refused where they are read.
func TestAPathEnds(t *testing.T) {
	require.Len(t, Teams{"a": {Parent: "b"}, "b": {Parent: "a"}}.Up("a"), MaxDepth)
	require.Equal(t, []string{"a"}, Teams{"a": {Parent: "gone"}}.Up("a"))
}

// Which account pays is said by the nearest team that has one, and another one pays nothing for its agents.
func TestAnAgentPaysFromItsAccount(t *testing.T) {
	teams := Teams{"research": {Agents: []string{"research"}, Account: true},
		"bots": {Agents: []string{"bot-*"}, Parent: "research"},
		"far":  {Agents: []string{"bot-9"}, Parent: "bots", Account: true},
		"desk": {Agents: []string{"anna"}}}
	agents := map[string]Agent{"research": {}, "bot-1": {}, "bot-9": {}, "anna": {}, "ops": {}}
	for agent, account := range map[string]string{"research": "research", "bot-1": "research", "bot-9": "far",
		"anna": "", "ops": "", "": ""} {
		require.Equal(t, account, teams.Account(agent), agent)
		for _, of := range []string{"", "research", "far"} {
			err := Rules{Teams: teams, Agents: agents, Account: of}.CheckAgent(agent)
			if of == account {
				require.NoError(t, err, agent)
				continue
			}
			require.True(t, x402.HasCode(err, x402.PolicyDenied), "%s by %s: %v", agent, of, err)
		}
	}
}
