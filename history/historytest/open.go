package historytest

import (
	"context"

	"x402-wallet/history"
	"x402-wallet/history/ledgers"
	"x402-wallet/history/sqldb/postgres"
)

// Open opens a home's ledger: the file in it, or the one in PostgreSQL that url names. It keeps all
// content unless o.Contents says otherwise.
func Open(ctx context.Context, home, url string, o history.Options) (*history.Store, error) {
	o = withContents(o)
	if url == "" {
		return ledgers.Open(ctx, home, o)
	}
	return ledgers.OpenPostgres(ctx, home, postgres.Server{URL: url}, o)
}
