package x402

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// SPEC §7.1: every code has someone who can mend it, and nobody mends a code that does not exist.
func TestEveryCodeIsInTheTable(t *testing.T) {
	file, err := parser.ParseFile(gotoken.NewFileSet(), "errors.go", nil, 0)
	require.NoError(t, err)
	declared := map[Code]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok {
			if typ, ok := spec.Type.(*ast.Ident); ok && typ.Name == "Code" {
				text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
				require.NoError(t, err)
				require.False(t, declared[Code(text)], "%s stands twice", text)
				declared[Code(text)] = true
			}
		}
		return true
	})
	require.Len(t, declared, 49, "SPEC §7.1 lists as many")
	for code := range declared {
		require.NotEmpty(t, fixedBy[code], "%s has nobody who mends it", code)
	}
	for code, actor := range fixedBy {
		require.True(t, declared[code], "%s is no code", code)
		require.Contains(t, []Actor{ByAgent, ByPerson, ByTime, BySeller, ByWallet}, actor)
	}
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
