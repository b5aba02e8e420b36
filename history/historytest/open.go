package historytest

import (
	"context"

	"x402-wallet/history"
	"x402-wallet/history/sqldb"
)

// Open opens a home's ledger: the file in it, or the one in PostgreSQL that url names. It keeps all
// content unless o.Contents says otherwise.
func Open(ctx context.Context, home, url string, o history.Options) (*history.Store, error) {
	o = withContents(o)
	if url == "" {
		return history.Open(ctx, home, o)
	}
	return history.OpenPostgres(ctx, home, sqldb.Postgres{URL: url}, o)
}
