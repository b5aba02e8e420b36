package x402

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
)

// Every code has someone who can mend it, is explained, and stands in the table of
// docs/codes.md; and nothing else does.
func TestEveryCodeIsInTheTables(t *testing.T) {
	file := must.Get(parser.ParseFile(gotoken.NewFileSet(), "errors.go", nil, 0))(t)
	var readme strings.Builder
	readme.WriteString("| code | it means | what to do | who can |\n|---|---|---|---|\n")
	declared := map[Code]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if typ, ok := spec.Type.(*ast.Ident); ok && typ.Name == "Code" {
			text := must.Get(strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value))(t)
			require.False(t, declared[Code(text)], "%s stands twice", text)
			declared[Code(text)] = true
			actor := (&Error{Code: Code(text)}).FixableBy()
			require.Contains(t, []Actor{byAgent, ByPerson, ByTime, bySeller, byWallet}, actor, text)
			means, do, ok := Explain(Code(text))
			require.True(t, ok && means != "" && do != "", "%s is not explained", text)
			require.NotContains(t, means+do, "|", "it stands in a table")
			fmt.Fprintf(&readme, "| `%s` | %s | %s | %s |\n", text, means, do, actor)
		}
		return true
	})
	require.Len(t, declared, 49)
	require.Len(t, codes, len(declared))
	_, _, ok := Explain("NO_SUCH")
	require.False(t, ok)

	text := must.Get(os.ReadFile("../docs/codes.md"))(t)
	begin, end := "<!-- codes: the table of x402/errors.go -->\n", "<!-- /codes -->"
	require.True(t, strings.Contains(string(text), begin+readme.String()+end), "docs/codes.md has not:\n%s",
		&readme)
}

type coded struct{ error }

func (coded) Code() string { return "WALLET_LOCKED" }
func (coded) Hint() string { return "unlock it" }

func TestAsErrorKeepsWhatItKnowsAndHidesWhatItDoesNot(t *testing.T) {
	own := Errorf(BudgetExceeded, "no")
	require.Same(t, own, AsError(fmt.Errorf("pay: %w", own)))

	e := AsError(fmt.Errorf("pay: %w", coded{errors.New("locked")}))
	require.Equal(t, []any{WalletLocked, "unlock it", ByPerson}, []any{e.Code, e.Hint, e.FixableBy()})

	e = AsError(errors.New("open /home/someone/secret"))
	require.Equal(t, Internal, e.Code)
	require.NotContains(t, e.Error(), "secret")
	require.False(t, HasCode(nil, Internal))
}

// What is shown of a stranger's text is bounded, whole characters, and in quotes printable ASCII.
func TestTexts(t *testing.T) {
	require.Equal(t, "abc", Clip("abc", 3))
	require.Equal(t, "abc…", Clip("abcd", 3))
	require.Equal(t, "ab…", Clip("abéd", 3), "é is two bytes")
	require.Equal(t, strings.Repeat("0", 114)+`\u2026`, Brief(strings.Repeat("0", 121)))
	require.Equal(t, `"a\n\u202eb\x1b"`, Quote("a\n\u202eb\x1b"))
	require.Len(t, Quote(strings.Repeat("0", 1000)), maxQuoted+len(`""`))
}

// A text of ours may be longer than a stranger's, and has its bound all the same.
func TestBriefTo(t *testing.T) {
	long := strings.Repeat("word ", 50)
	require.Equal(t, long, BriefTo(long, 400))
	require.LessOrEqual(t, len(BriefTo(strings.Repeat("\u202e", 400), 300)), 300)
	require.Greater(t, len(BriefTo(strings.Repeat("\u202e", 400), 300)), 280)
	require.Equal(t, Brief(long), BriefTo(long, maxQuoted))
}
