package postgres

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNumbered(t *testing.T) {
	for query, want := range map[string]string{
		`a = ? AND b = ?`:           `a = $1 AND b = $2`,
		`a = ?2 AND b = ?1 OR c= ?`: `a = $2 AND b = $1 OR c= $2`,
		`a = '?' AND b = ?`:         `a = '?' AND b = $1`,
	} {
		require.Equal(t, want, Numbered(query))
	}
}
