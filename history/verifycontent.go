package history

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"math"
)

// VerifyContent reads all content that is stored, and finds bytes that are not those that the ledger says
// were bought; that this is what the audit chain says, Verify finds. It reads a page at a time, each in a
// reading of its own.
func (s *Store) VerifyContent(ctx context.Context) (bytes int64, err error) {
	for after, more := int64(math.MinInt64), true; more && err == nil; {
		err = s.view(ctx, func(t *tx) (err error) {
			var size int64
			size, after, more, err = t.contentPage(after)
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
func (t *tx) contentPage(after int64) (bytes, last int64, more bool, err error) {
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
			return bytes, last, true, AnotherContent(id)
		}
		bytes += int64(len(body))
	}
	return bytes, last, true, nil
}
