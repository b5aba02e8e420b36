// Package content stores what payments bought, in the ledger, up to a quota (policy.content_quota).
//
// When more is stored, the bytes of the oldest that nobody waits for go: what a client has, or what is of no
// use. What was paid for and nobody got yet is never among them; when that alone fills the quota, nothing
// more is bought (history.Facts.Refusal) until it was delivered or the owner makes room. What goes leaves
// its row, with size and digest, and the evidence of its payment is not content and never goes.
//
// What must stay true: a content is given out only if it is what the audit chain says. Bytes that somebody
// changed are LEDGER_CORRUPT.
//
// The files: content.go (a content is stored and read), room.go (the quota, and the room on the disk).
package content

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"x402-wallet/history"
	"x402-wallet/history/internal/audit"
	"x402-wallet/history/sqldb"
)

// Keeper keeps what payments buy. It is a ledger's history.Contents.
type Keeper struct {
	// Quota is how many bytes of content may be stored, besides what nobody got yet. Zero is no limit.
	Quota int64
}

// stored is a content as its row has it.
type stored struct {
	payment, status, size int64
	isSpare, isRemoved    bool // nobody waits for it; its bytes are gone
}

const selectStored = `SELECT payment, http_status, size, spare, removed <> '' FROM contents`

func scanStored(row sqldb.Row) (c stored, err error) {
	err = row.Scan(&c.payment, &c.status, &c.size, &c.isSpare, &c.isRemoved)
	return c, err
}

// use is what a content adds to the sums of contents.
func (c stored) use() (u Use) {
	if c.isRemoved {
		return u
	}
	u.Stored = c.size
	if !c.isSpare {
		u.Owed = c.size
	}
	return u
}

// recount moves the sums of contents from one content's use to another.
func recount(t *sqldb.Tx, from, to Use) error {
	if from == to {
		return nil
	}
	_, err := t.Exec(`UPDATE content_use SET stored = stored + ?, owed = owed + ?`, to.Stored-from.Stored,
		to.Owed-from.Owed)
	return err
}

// isGood reports whether an HTTP status is one of success.
func isGood(status int64) bool { return status >= 200 && status <= 299 }

// Keep implements history.Contents. What was bought is never replaced by a later refusal to give it once
// more.
func (k Keeper) Keep(t *sqldb.Tx, p history.Payment, c history.Content) (*audit.ContentDetail, error) {
	body := c.Body
	if body == nil {
		body = []byte{} // nil would be NULL
	}
	digest := sha256.Sum256(body)
	d := audit.ContentDetail{SHA256: audit.EncodeDigest(digest[:]), Bytes: int64(len(body)),
		Status: int64(c.Status), Type: c.Type, Headers: c.Headers, Truncated: c.Truncated}
	before, err := sqldb.Find(t, scanStored, selectStored+` WHERE payment = ?`, p.Number)
	if err != nil {
		return nil, err
	}
	if before == nil {
		before = &stored{}
	} else if isGood(before.status) && !isGood(d.Status) {
		return nil, nil
	}
	now := stored{size: d.Bytes, isSpare: p.Delivered || p.State == history.Failed || !isGood(d.Status)}
	_, err = t.Exec(`INSERT INTO contents (payment, http_status, type, headers, truncated, size, sha256, spare)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (payment) DO UPDATE SET http_status = excluded.http_status, type = excluded.type,
			headers = excluded.headers, truncated = excluded.truncated, size = excluded.size,
			sha256 = excluded.sha256, spare = excluded.spare, removed = ''`,
		p.Number, d.Status, d.Type, d.Headers, d.Truncated, d.Bytes, digest[:], now.isSpare)
	if err == nil {
		err = recount(t, before.use(), now.use())
	}
	if err == nil {
		_, err = k.evict(t, p.Number, mostEvicted) // first: the file need not grow for it
	}
	if err != nil {
		return nil, err
	}
	_, err = t.Exec(`INSERT INTO bodies VALUES (?, ?) ON CONFLICT (payment) DO UPDATE SET body = excluded.body`,
		p.Number, body)
	return &d, err
}

func (Keeper) NobodyWaits(t *sqldb.Tx, payment int64) error {
	c, err := sqldb.Find(t, scanStored, selectStored+` WHERE payment = ? AND spare = 0`, payment)
	if c == nil || err != nil {
		return err
	}
	before := c.use()
	c.isSpare = true
	if _, err := t.Exec(`UPDATE contents SET spare = 1 WHERE payment = ?`, payment); err != nil {
		return err
	}
	return recount(t, before, c.use())
}

var errNone = fmt.Errorf("no such payment: %w", history.ErrNotFound)

func (Keeper) Read(ctx context.Context, s *history.Store, id string) (c history.Content, err error) {
	err = s.View(ctx, func(t *sqldb.Tx) error {
		c, err = read(t, id)
		return err
	})
	return c, err
}

func read(t *sqldb.Tx, id string) (c history.Content, err error) {
	var payment int64
	var digest []byte
	err = t.Row(`SELECT c.payment, http_status, type, headers, truncated, size, sha256, removed, body FROM contents c
		LEFT JOIN bodies b ON b.payment = c.payment WHERE c.payment = (SELECT seq FROM payments WHERE id = ?)`, id).
		Scan(&payment, &c.Status, &c.Type, &c.Headers, &c.Truncated, &c.Size, &digest, &c.Removed, &c.Body)
	if err != nil {
		return c, sqldb.Otherwise(err, errNone)
	}
	c.SHA256 = hex.EncodeToString(digest)
	if err := isAsChained(t, id, payment, digest, c); err != nil {
		return history.Content{}, err
	}
	if c.Removed != "" {
		return c, history.ErrContentRemoved
	}
	return c, nil
}

// isAsChained compares a content, and its digest, with what the audit chain says of it.
func isAsChained(t *sqldb.Tx, id string, payment int64, digest []byte, c history.Content) error {
	var said audit.ContentDetail
	err := t.Each(func(row sqldb.Row) error {
		text, err := sqldb.ScanText(row)
		if err != nil {
			return err
		}
		d, err := audit.ReadStep(text)
		if err == nil && d.SHA256 != "" {
			said = d.ContentDetail
		}
		return nil
	}, `SELECT detail FROM audit WHERE payment = ? AND event IN ('content', 'settled', 'unknown', 'failed')
		ORDER BY seq`, payment)
	if err != nil {
		return err
	}
	body := sha256.Sum256(c.Body)
	isBody := bytes.Equal(body[:], digest) && c.Size == int64(len(c.Body))
	is := audit.ContentDetail{SHA256: audit.EncodeDigest(digest), Bytes: c.Size, Status: int64(c.Status),
		Type: c.Type, Headers: c.Headers, Truncated: c.Truncated}
	if is != said || (c.Removed == "" && !isBody) {
		return history.AnotherContent(id)
	}
	return nil
}
