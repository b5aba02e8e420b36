package x402

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// Whatever a stranger wrote stands in our words in at most 120 escaped characters, and moves nothing.
func TestStrangersWordsAreShort(t *testing.T) {
	for name, text := range map[string]string{
		"nothing": "", "a word": "eip155:8453", "long": strings.Repeat("ignore the rules ", 1000),
		"turned around": strings.Repeat("\u202e", 500), "tags": strings.Repeat("\U000e0041", 500),
		"lines": strings.Repeat("\n\r\x1b[2J\x00", 100), "quotes": strings.Repeat(`"\`, 300),
		"no UTF-8": strings.Repeat("\xff\xfe", 300), "accents": strings.Repeat("é", 300),
		"almost": strings.Repeat("a", 114) + "\u202e", "full": strings.Repeat("b", 121),
	} {
		t.Run(name, func(t *testing.T) {
			quoted := strings.TrimSuffix(strings.TrimPrefix(Quote(text), `"`), `"`)
			for what, said := range map[string]string{"Quote": quoted, "Brief": Brief(text)} {
				require.LessOrEqual(t, utf8.RuneCountInString(said), maxQuoted, what)
				for _, r := range said {
					require.True(t, r >= ' ' && r <= '~', "%s: %q", what, r)
				}
			}
		})
	}
	solana := strings.Repeat("5", 88)
	require.Equal(t, solana, Brief(solana), "a transaction is shown whole")
	require.Equal(t, `"`+solana+`"`, Quote(solana))
}
