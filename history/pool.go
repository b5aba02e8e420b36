package history

import (
	"context"
	"database/sql"
	"sync"
)

// pool is a database with its statements prepared: parsing SQL costs more than running these queries. A statement cannot be
// prepared while the pool's connections are in transactions, so the first use of a query is unprepared and only noted;
// what was noted is prepared before the next transaction begins.
type pool struct {
	*sql.DB

	mu    sync.Mutex
	stmts map[string]*sql.Stmt // nil: noted
	noted []string
}

// maxStatements bounds the cache; the queries of this package are fewer, but for combinations of filters.
const maxStatements = 100

// prepared is the query's statement, or nil when it is not prepared yet.
func (p *pool) prepared(query string) *sql.Stmt {
	p.mu.Lock()
	defer p.mu.Unlock()
	stmt, known := p.stmts[query]
	if !known && len(p.stmts) < maxStatements {
		if p.stmts == nil {
			p.stmts = map[string]*sql.Stmt{}
		}
		p.stmts[query] = nil
		p.noted = append(p.noted, query)
	}
	return stmt
}

// BeginTx prepares what was noted, and begins.
func (p *pool) BeginTx(ctx context.Context, o *sql.TxOptions) (*sql.Tx, error) {
	p.prepareNoted(ctx)
	return p.DB.BeginTx(ctx, o)
}

// Conn prepares what was noted, and takes a connection.
func (p *pool) Conn(ctx context.Context) (*sql.Conn, error) {
	p.prepareNoted(ctx)
	return p.DB.Conn(ctx)
}

func (p *pool) prepareNoted(ctx context.Context) {
	p.mu.Lock()
	noted := p.noted
	p.noted = nil
	p.mu.Unlock()
	for _, query := range noted {
		stmt, err := p.PrepareContext(ctx, query) //nolint:sqlclosecheck // closed with the pool
		if err != nil {
			continue // a script, or a moment's trouble: it stays unprepared
		}
		p.mu.Lock()
		p.stmts[query] = stmt
		p.mu.Unlock()
	}
}
