package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
)

// Every mutant still has its place in the sources.
func TestMutantsArePlaced(t *testing.T) {
	mutants := must.Get(parse(list))(t)
	require.GreaterOrEqual(t, len(mutants), 25)
	names := map[string]bool{}
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			text := must.Get(os.ReadFile("../../" + m.file))(t)
			require.Equal(t, 1, strings.Count(string(text), m.from), "the text is not once in %s:\n%s",
				m.file, m.from)
			require.NotEqual(t, m.from, m.to)
			require.False(t, names[m.name], "the name stands twice")
			names[m.name] = true
		})
	}
}
