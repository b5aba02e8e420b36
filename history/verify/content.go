package verify

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"math"

	"x402-wallet/history"
	"x402-wallet/history/sqldb"
)

// Content compares the bytes of all content with what the ledger says was bought, which Ledger compares with
// the audit chain. It reads a page at a time, each in a reading of its own.
func Content(ctx context.Context, s *history.Store) (bytes int64, err error) {
	for after, more := int64(math.MinInt64), true; more && err == nil; {
		err = s.View(ctx, func(t *sqldb.Tx) (err error) {
			var size int64
			size, after, more, err = contentPage(t, after)
			bytes += size
			return err
		})
	}
	return bytes, err
}

// Bounds of what one reading compares: meanwhile SQLite's log cannot begin anew.
const (
	contentsOfPage = 10_000
	bytesOfPage    = 16 << 20
)

// contentPage compares the stored contents behind one, and says which was the last and whether there are
// more.
func contentPage(t *sqldb.Tx, after int64) (bytes, last int64, more bool, err error) {
	last = after
	for n := 0; n < contentsOfPage && bytes < bytesOfPage; n++ {
		var id, removed string
		var size int64
		var digest, body []byte
		err := t.Row(`SELECT c.payment, coalesce((SELECT id FROM payments WHERE seq = c.payment), ''), c.size,
			c.sha256, c.removed, b.body FROM contents c LEFT JOIN bodies b ON b.payment = c.payment
			WHERE c.payment > ? ORDER BY c.payment LIMIT 1`, last).Scan(&last, &id, &size, &digest, &removed, &body)
		if errors.Is(err, sql.ErrNoRows) {
			return bytes, last, false, nil
		}
		if err != nil {
			return bytes, last, true, err
		}
		is := sha256.Sum256(body)
		isSame := body != nil && int64(len(body)) == size && string(is[:]) == string(digest)
		if (removed == "" && !isSame) || (removed != "" && body != nil) {
			return bytes, last, true, history.AnotherContent(id)
		}
		bytes += int64(len(body))
	}
	return bytes, last, true, nil
}
