package crash

import (
	"context"
	"database/sql"
	"fmt"
	"sync/atomic"

	_ "github.com/jackc/pgx/v5/stdlib"

	"x402-wallet/history"
	"x402-wallet/history/historytest"
	"x402-wallet/history/ledgers"
	"x402-wallet/history/sqldb/postgres"
	"x402-wallet/internal/pgtest"
)

// databases are a PostgreSQL server's, each with a ledger for one world at a time. No world kills the server.
type databases struct {
	server *pgtest.Cluster
	made   atomic.Int64
	free   chan *database
}

// database is one of them. The session is past the wallet.
type database struct {
	*sql.DB
	url  string
	back chan<- *database // where it goes when it is free
}

func (d *databases) connect(name string) (*database, error) {
	url := d.server.URL(name)
	db, err := sql.Open("pgx", url)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	return &database{db, url, d.free}, nil
}

// A new ledger's rows are kept in tables of their own, and put back for the next world: that takes a
// hundredth of the time of another database.
const (
	keepRows = `DO $$ DECLARE t TEXT; BEGIN CREATE SCHEMA kept;
		FOR t IN SELECT tablename FROM pg_tables WHERE schemaname = 'x402' LOOP
			EXECUTE format('CREATE TABLE kept.%1$I AS TABLE x402.%1$I', t);
		END LOOP; END $$`
	putRowsBack = `DO $$ DECLARE t TEXT; BEGIN
		FOR t IN SELECT tablename FROM pg_tables WHERE schemaname = 'kept' LOOP
			EXECUTE format('DELETE FROM x402.%1$I', t);
			EXECUTE format('INSERT INTO x402.%1$I TABLE kept.%1$I', t);
		END LOOP; END $$`
)

// take gives a database with a new ledger.
func (d *databases) take() (*database, error) {
	select {
	case known := <-d.free:
		if _, err := known.Exec(putRowsBack); err == nil {
			return known, nil
		}
		_ = known.Close() // there is no ledger in it
	default:
	}
	name := fmt.Sprint("world", d.made.Add(1))
	admin, err := d.connect("postgres")
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	made, err := d.connect(name)
	if err != nil {
		return nil, err
	}
	_, err = admin.Exec("CREATE DATABASE " + name)
	if err == nil {
		_, err = ledgers.MakePostgres(context.Background(), postgres.Server{URL: made.url})
	}
	if err == nil {
		_, err = made.Exec(keepRows)
	}
	if err != nil {
		return nil, err
	}
	return made, nil
}

// open opens the ledger.
func (w *world) open(ctx context.Context, o history.Options) (*history.Store, error) {
	return historytest.Open(ctx, w.home, w.url(), o)
}

func (w *world) url() string {
	if w.database == nil {
		return ""
	}
	return w.database.url
}
