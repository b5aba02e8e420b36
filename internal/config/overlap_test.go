package config

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"x402-wallet/budget"
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
			both = both || (budget.Matches(a, name) && budget.Matches(b, name))
		}
		found[both]++
		require.Equal(rt, both, overlap(a, b))
		require.Equal(rt, both, overlap(b, a))
	})
	require.NotZero(t, found[true])
	require.NotZero(t, found[false])
}
