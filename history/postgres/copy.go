package postgres

import (
	"context"
	"io"
)

// CopyIn runs a COPY … FROM STDIN with all of a reader, and returns how many rows it was. It takes as long as
// it takes: ctx ends it, and the connection with it.
func (c *Conn) CopyIn(ctx context.Context, words string, from io.Reader) (rows int64, err error) {
	tag, err := c.CopyFrom(ctx, from, words)
	return tag.RowsAffected(), failure("copy into the ledger's server", err)
}

// CopyOut runs a COPY … TO STDOUT into a writer. It takes as long as it takes, as CopyIn does.
func (c *Conn) CopyOut(ctx context.Context, words string, to io.Writer) error {
	_, err := c.CopyTo(ctx, to, words)
	return failure("copy out of the ledger's server", err)
}

// RunLong is Run for what may take long: ctx ends it, and the connection with it.
func (c *Conn) RunLong(ctx context.Context, words string) error {
	_, err := c.Exec(ctx, words).ReadAll()
	return failure("ask the ledger's server", err)
}
