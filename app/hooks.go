package app

import (
	"context"
	"path/filepath"

	"x402-wallet/history"
	"x402-wallet/internal/child"
	"x402-wallet/internal/config"
	"x402-wallet/internal/config/environ"
	"x402-wallet/internal/hooks"
)

// hooks are the owner's programs before and after each payment; nil: their rules name none.
func (a *app) hooks(rules *config.Config, store *history.Store,
	sealed func(context.Context) error) *hooks.Hooks {
	named := rules.Hooks
	if len(named.Before) == 0 && len(named.After) == 0 {
		return nil
	}
	program := func(argv []string) child.Program {
		return child.Program{Argv: argv, Env: environ.Child(), Sandbox: a.sandbox(named.Sandbox, rules)}
	}
	return &hooks.Hooks{Before: program(named.Before), After: program(named.After), Limit: named.Timeout,
		Dir: filepath.Join(a.home, "hooks"), Sealed: sealed, Store: store, Log: a.log, Ending: &a.telling}
}
