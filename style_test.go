package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
)

// The two rules of style that no linter of ours knows: && inside || stands in parentheses, and a
// condition has no side effect (err may be assigned there, as is usual in Go).
func TestConditionsAreReadOnce(t *testing.T) {
	files := must.Get(exec.Command("git", "ls-files", "*.go").Output())(t)
	var faults []string
	for path := range strings.Lines(string(files)) {
		set := token.NewFileSet()
		file := must.Get(parser.ParseFile(set, strings.TrimSpace(path), nil, parser.SkipObjectResolution))(t)
		report := func(at token.Pos, what string) {
			faults = append(faults, set.Position(at).String()+": "+what)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BinaryExpr:
				if n.Op == token.LOR && (isAnd(n.X) || isAnd(n.Y)) {
					report(n.OpPos, "&& inside || without parentheses")
				}
			case *ast.IfStmt:
				if n.Init != nil && hasSideEffect(n.Init) {
					report(n.Pos(), "a side effect inside a condition")
				}
			}
			return true
		})
	}
	require.Empty(t, faults)
}

func isAnd(e ast.Expr) bool {
	b, ok := e.(*ast.BinaryExpr)
	return ok && b.Op == token.LAND
}

// hasSideEffect reports whether an if's first part changes anything but new variables and err.
func hasSideEffect(s ast.Stmt) bool {
	if _, step := s.(*ast.IncDecStmt); step {
		return true
	}
	assign, ok := s.(*ast.AssignStmt)
	if !ok || assign.Tok == token.DEFINE {
		return false
	}
	setsErr := false
	for _, e := range assign.Lhs {
		name, isVariable := e.(*ast.Ident)
		if !isVariable {
			return true
		}
		setsErr = setsErr || name.Name == "err" || name.Name == "_"
	}
	return assign.Tok != token.ASSIGN || !setsErr
}
