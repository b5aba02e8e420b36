package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"
)

// What a connection runs again is prepared there, so that the server parses and plans it once: most of what a
// decision's questions cost it.

// maxPrepared bounds what one connection has prepared. The ledger has some 200 statements.
const maxPrepared = 300

// planned is a statement as one connection knows it.
type planned struct {
	text     string // as PostgreSQL has it
	wasAsked bool
	// what it is prepared as, and what its answers are made of, which the server then does not say each time;
	// nil: it is not
	prepared *pgconn.StatementDescription
}

// plan is what c knows of a statement, which write writes as PostgreSQL has it.
func (c *Conn) plan(query string, write func() string) *planned {
	if p := c.plans[query]; p != nil {
		return p
	}
	p := &planned{text: write()}
	if len(c.plans) < maxPrepared {
		if c.plans == nil {
			c.plans = map[string]*planned{}
		}
		c.plans[query] = p
	}
	return p
}

// prepare prepares what is asked for the second time, and nothing inside of a transaction, which an error
// would end. A pooler that hands each transaction to another connection may not know of it: then nothing is
// prepared any more.
func (c *Conn) prepare(ctx context.Context, p *planned) error {
	isAsked := p.wasAsked
	p.wasAsked = true
	if !isAsked || p.prepared != nil || c.TxStatus() != 'I' || c.pool.isPlain.Load() {
		return nil
	}
	sum := sha256.Sum256([]byte(p.text))
	prepared, err := c.Prepare(ctx, "x402_"+hex.EncodeToString(sum[:12]), p.text, nil)
	p.prepared = prepared
	var said *pgconn.PgError
	if errors.As(err, &said) { // it is asked in plain words, and then says what is wrong with it
		c.pool.isPlain.Store(true)
		return nil
	}
	return err
}

func (c *Conn) isPrepared(p *planned) bool { return p.prepared != nil && !c.pool.isPlain.Load() }

// failure says what an error of a statement means. Where it is about what was prepared, nothing was run: that
// is not there (26000), is there twice (42P05), or the tables are others by now (0A000).
func (c *Conn) failure(err error) error {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		switch {
		case e.Code == "26000", e.Code == "42P05":
			c.pool.isPlain.Store(true)
			return &Failure{Kind: Again, Doing: asking, State: e.Code, err: err}
		case e.Code == "0A000" && e.Routine == "RevalidateCachedQuery":
			c.close()
			return &Failure{Kind: Again, Doing: asking, State: e.Code, err: err}
		}
	}
	return failure(asking, err)
}
