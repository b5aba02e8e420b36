package history

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"strconv"

	"x402-wallet/x402"
)

// format is the ledger's format: what schema.sql makes. A newer ledger is refused; an older one is
// brought here step by step, by migrations/N.sql from format N-1 to N, all in one transaction.
const format = 10

//go:embed migrations
var migrations embed.FS

// migrate brings an older ledger to this program's format.
func (s *Store) migrate(ctx context.Context) error {
	var now int
	if err := s.view(ctx, func(t *Tx) (err error) { now, err = t.format(); return err }); err != nil {
		return err
	}
	if now == format {
		return nil // as nearly always, and without a writer's lock
	}
	return s.tx(ctx, func(t *Tx) error {
		now, err := t.format() // another process may have done it meanwhile
		if err != nil || now == format {
			return err
		}
		for next := now + 1; next <= format; next++ {
			step, err := migrations.ReadFile(fmt.Sprintf("migrations/%d.sql", next))
			if err != nil {
				return err
			}
			if _, err := t.conn.ExecContext(t.ctx, string(step)); err != nil {
				return fmt.Errorf("migrate to format %d: %w", next, err)
			}
		}
		if _, err := t.exec(`UPDATE meta SET value = ? WHERE key = 'format'`,
			strconv.Itoa(format)); err != nil {
			return err
		}
		return t.audit("", "migrated", map[string]int{"from": now, "to": format})
	})
}

// format is the ledger's own. One that this program does not know is an error.
func (t *Tx) format() (n int, err error) {
	var text string
	err = t.row(`SELECT value FROM meta WHERE key = 'format'`).Scan(&text)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return 0, err
	}
	if n, err = strconv.Atoi(text); err != nil {
		return 0, damaged("read the ledger's format", err)
	}
	if n < 1 || n > format {
		return 0, x402.Errorf(x402.LedgerUnavailable, "the ledger has format %d, this program knows 1 to %d",
			n, format).
			WithHint("use the version of x402-wallet that wrote it, or a newer one")
	}
	return n, nil
}

// sameFormat refuses to go on in a ledger that a newer program has migrated under this one's feet.
func (t *Tx) sameFormat() error {
	n, err := t.format()
	if err == nil && n != format {
		return x402.Errorf(x402.LedgerUnavailable, "the ledger has format %d, this program needs %d", n,
			format)
	}
	return err
}
