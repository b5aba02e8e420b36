package x402

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEveryCodeIsExplainedOnce(t *testing.T) {
	seen := map[Code]bool{}
	for _, e := range explanations {
		require.False(t, seen[e.Code], "twice: %s", e.Code)
		seen[e.Code] = true
		require.NotEmpty(t, e.Means)
		require.NotEmpty(t, e.Do)
		require.NotContains(t, e.Means+e.Do, "|", "it stands in a table")
	}
	for code := range fixedBy {
		require.True(t, seen[code], "not explained: %s", code)
	}
	require.Len(t, explanations, len(fixedBy))
	e, ok := Explain(BudgetExceeded)
	require.True(t, ok)
	require.Equal(t, BudgetExceeded, e.Code)
	_, ok = Explain("NO_SUCH")
	require.False(t, ok)
}
