package sqldb_test

import (
	"context"

	"x402-wallet/history/sqldb"
	"x402-wallet/history/sqldb/postgres"
	"x402-wallet/history/sqldb/sqlite"
)

func init() {
	e := &sqldb.Engines
	e.OpenFile = func(home, name string) (*sqldb.DB, error) {
		return sqlite.Open(sqlite.File{Home: home, Name: name, Create: true})
	}
	e.MakeServer = func(ctx context.Context, url string) error {
		return postgres.Create(ctx, postgres.Server{URL: url}, "", func(*sqldb.Tx) error { return nil })
	}
	e.OpenServer = func(url string) (*sqldb.DB, error) { return postgres.Open(postgres.Server{URL: url}) }
}
