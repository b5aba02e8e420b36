package explain

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/x402"
)

// Each code is explained, and docs/codes.md has just that, in the order in which they are declared.
func TestCodesAreExplained(t *testing.T) {
	var page strings.Builder
	page.WriteString("| code | it means | what to do | who can |\n|---|---|---|---|\n")
	source := string(must.Get(os.ReadFile("../errors.go"))(t))
	declared := regexp.MustCompile(`(?m)^\t\w+ +Code = "(\w+)"`).FindAllStringSubmatch(source, -1)
	require.Len(t, declared, 49)
	require.Len(t, words, len(declared))
	for _, d := range declared {
		code := x402.Code(d[1])
		means, do, ok := Code(code)
		require.True(t, ok && means != "" && do != "", "%s is not explained", code)
		require.NotContains(t, means+do, "|", "it stands in a table")
		fmt.Fprintf(&page, "| `%s` | %s | %s | %s |\n", code, means, do, (&x402.Error{Code: code}).FixableBy())
	}
	_, _, ok := Code("NO_SUCH")
	require.False(t, ok)
	text := string(must.Get(os.ReadFile("../../docs/codes.md"))(t))
	begin, end := "<!-- codes: the table of x402/explain -->\n", "<!-- /codes -->"
	require.True(t, strings.Contains(text, begin+page.String()+end), "docs/codes.md has not:\n%s", &page)
}
