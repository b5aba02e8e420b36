package docs

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestScaleNamesTestsThatExist(t *testing.T) {
	_, named := testsExist(t, "docs/scale.md")
	require.Positive(t, named)
}
