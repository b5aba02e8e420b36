package x402

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What is shown of a stranger's text is bounded, whole characters, and in quotes printable ASCII.
func TestTexts(t *testing.T) {
	require.Equal(t, "abc", Clip("abc", 3))
	require.Equal(t, "abc…", Clip("abcd", 3))
	require.Equal(t, "ab…", Clip("abéd", 3), "é is two bytes")
	require.Equal(t, strings.Repeat("0", 88)+"…", Brief(strings.Repeat("0", 89)))
	require.Equal(t, `"a\n\u202eb\x1b"`, Quote("a\n\u202eb\x1b"))
	require.Len(t, Quote(strings.Repeat("0", 1000)), 200+len(`"\u2026"`))
}
