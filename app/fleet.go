package app

import (
	"context"

	"x402-wallet/cli"
	"x402-wallet/internal/config"
	"x402-wallet/x402"
)

// OpenFleet implements cli.App. There is no such ledger in this version (config.Fleet).
func (a *app) OpenFleet(context.Context, *config.Config) (cli.Fleet, error) {
	return nil, x402.Errorf(x402.LedgerUnavailable,
		"one ledger for several machines, in PostgreSQL, is not in this version").
		WithHint("nothing was changed; each wallet counts in its own ledger.db")
}
