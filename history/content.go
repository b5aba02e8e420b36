package history

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"time"

	"x402-wallet/history/internal/audit"
	"x402-wallet/history/sqldb"
	"x402-wallet/x402"
)

// Content has a quota (policy.content_quota). When more is stored, the bytes of the oldest that
// nobody waits for go: what a client has, or what is of no use. What was paid for and nobody got yet
// is never among them; when that alone fills the quota, nothing more is bought (Facts.Refusal) until
// it was delivered or the owner makes room. What goes leaves its row, with size and digest, and the
// evidence of its payment is not content and never goes.
//
// What the audit chain says of a content is compared when it is given out: bytes that somebody
// changed are LEDGER_CORRUPT.

// Why the bytes of a content are gone.
const (
	RemovedByQuota = "quota"
	RemovedByOwner = "pruned"
)

// ErrContentRemoved says that the bytes of a content are gone. It is an ErrNotFound.
var ErrContentRemoved = fmt.Errorf("its bytes were removed: %w", ErrNotFound)

// storedContent is a content as its row has it.
type storedContent struct {
	payment, status, size int64
	isSpare, isRemoved    bool // nobody waits for it; its bytes are gone
}

const selectStored = `SELECT payment, http_status, size, spare, removed <> '' FROM contents`

func scanStored(row sqldb.Row) (c storedContent, err error) {
	err = row.Scan(&c.payment, &c.status, &c.size, &c.isSpare, &c.isRemoved)
	return c, err
}

// use is what a content adds to the sums of contents.
func (c storedContent) use() (u ContentUse) {
	if c.isRemoved {
		return u
	}
	u.Stored = c.size
	if !c.isSpare {
		u.Owed = c.size
	}
	return u
}

// recountContent moves the sums of contents from one content's use to another.
func (t *tx) recountContent(from, to ContentUse) error {
	if from == to {
		return nil
	}
	_, err := t.Exec(`UPDATE content_use SET stored = stored + ?, owed = owed + ?`, to.Stored-from.Stored,
		to.Owed-from.Owed)
	return err
}

// isGood reports whether an HTTP status is one of success.
func isGood(status int64) bool { return status >= 200 && status <= 299 }

// keep stores what came, and returns what the chain has to say of it, or nil if the content that is stored is
// better. What was bought is never replaced by a later refusal to give it once more.
func (t *tx) keep(p Payment, c Content) (*audit.ContentDetail, error) {
	body := c.Body
	if body == nil {
		body = []byte{} // nil would be NULL
	}
	digest := sha256.Sum256(body)
	d := audit.ContentDetail{SHA256: encodeDigest(digest[:]), Bytes: int64(len(body)),
		Status: int64(c.Status), Type: c.Type, Truncated: c.Truncated}
	before, err := sqldb.Find(t.Tx, scanStored, selectStored+` WHERE payment = ?`, p.Number)
	if err != nil {
		return nil, err
	}
	if before == nil {
		before = &storedContent{}
	} else if isGood(before.status) && !isGood(d.Status) {
		return nil, nil
	}
	now := storedContent{size: d.Bytes, isSpare: p.Delivered || p.State == Failed || !isGood(d.Status)}
	_, err = t.Exec(`INSERT INTO contents (payment, http_status, type, truncated, size, sha256, spare)
		VALUES (?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (payment) DO UPDATE SET http_status = excluded.http_status, type = excluded.type,
			truncated = excluded.truncated, size = excluded.size, sha256 = excluded.sha256,
			spare = excluded.spare, removed = ''`,
		p.Number, d.Status, d.Type, d.Truncated, d.Bytes, digest[:], now.isSpare)
	if err == nil {
		err = t.recountContent(before.use(), now.use())
	}
	if err == nil {
		_, err = t.evict(t.contentQuota, p.Number, mostEvicted) // first: the file need not grow for it
	}
	if err != nil {
		return nil, err
	}
	_, err = t.Exec(`INSERT INTO bodies VALUES (?, ?) ON CONFLICT (payment) DO UPDATE SET body = excluded.body`,
		p.Number, body)
	return &d, err
}

// nobodyWaits notes that nobody waits for a payment's content any more: it was delivered, or the payment
// failed.
func (t *tx) nobodyWaits(payment int64) error {
	c, err := sqldb.Find(t.Tx, scanStored, selectStored+` WHERE payment = ? AND spare = 0`, payment)
	if c == nil || err != nil {
		return err
	}
	before := c.use()
	c.isSpare = true
	if _, err := t.Exec(`UPDATE contents SET spare = 1 WHERE payment = ?`, payment); err != nil {
		return err
	}
	return t.recountContent(before, c.use())
}

// Bounds of what one transaction removes: freeing the pages of a body takes time in which
// nobody else writes.
const (
	mostRemoved = 1000
	// mostEvicted is for what is being stored: four of the largest bodies.
	mostEvicted = 128 << 20
	// tidyStep is for what gives its pages back at once: SQLite looks for each page of them in the list
	// of free ones, which has to be short.
	tidyStep = 16 << 20
)

// evict removes the oldest spare content, but not the one that is just being stored, until no more
// than the quota is stored. It returns how many it removed: fewer than it should where that would take long.
func (t *tx) evict(quota, stays, most int64) (rows int64, err error) {
	if quota <= 0 {
		return 0, nil
	}
	use, err := t.contentUse()
	if err != nil {
		return 0, err
	}
	var freed int64
	for use.Stored-freed > quota && rows < mostRemoved && freed < most {
		oldest, err := sqldb.Find(t.Tx, scanStored, selectStored+` WHERE removed = ''
			AND spare = 1 AND payment <> ? ORDER BY payment LIMIT 1`, stays)
		if err != nil || oldest == nil { // nil: all that is left is owed to somebody
			return rows, err
		}
		if err := t.remove(*oldest, RemovedByQuota); err != nil {
			return rows, err
		}
		rows, freed = rows+1, freed+oldest.size
	}
	return rows, nil
}

// remove deletes the bytes of a content; what it was stays.
func (t *tx) remove(c storedContent, why string) error {
	if _, err := t.Exec(`DELETE FROM bodies WHERE payment = ?`, c.payment); err != nil {
		return err
	}
	if _, err := t.Exec(`UPDATE contents SET removed = ? WHERE payment = ?`, why, c.payment); err != nil {
		return err
	}
	return t.recountContent(c.use(), ContentUse{})
}

// Content returns what a payment bought; ErrNotFound when nothing is stored. Where its bytes were
// removed it returns what they were, and ErrContentRemoved.
func (s *Store) Content(ctx context.Context, id string) (Content, error) {
	return read(ctx, s, func(t *tx) (Content, error) { return t.content(id) })
}

func (t *tx) content(id string) (c Content, err error) {
	var payment int64
	var digest []byte
	err = t.Row(`SELECT c.payment, http_status, type, truncated, size, sha256, removed, body FROM contents c
		LEFT JOIN bodies b ON b.payment = c.payment WHERE c.payment = (SELECT seq FROM payments WHERE id = ?)`, id).
		Scan(&payment, &c.Status, &c.Type, &c.Truncated, &c.Size, &digest, &c.Removed, &c.Body)
	if err != nil {
		return c, sqldb.Otherwise(err, errNoPayment)
	}
	c.SHA256 = hex.EncodeToString(digest)
	if err := t.isAsChained(id, payment, digest, c); err != nil {
		return Content{}, err
	}
	if c.Removed != "" {
		return c, ErrContentRemoved
	}
	return c, nil
}

// isAsChained compares a content, and its digest, with what the audit chain says of it.
func (t *tx) isAsChained(id string, payment int64, digest []byte, c Content) error {
	var said audit.ContentDetail
	err := t.Each(func(row sqldb.Row) error {
		text, err := scanText(row)
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
	is := audit.ContentDetail{SHA256: encodeDigest(digest), Bytes: c.Size, Status: int64(c.Status),
		Type: c.Type, Truncated: c.Truncated}
	if is != said || (c.Removed == "" && !isBody) {
		return AnotherContent(id)
	}
	return nil
}

// AnotherContent is LEDGER_CORRUPT: the bytes of a content are not those that were bought.
func AnotherContent(id string) error {
	return x402.Errorf(x402.LedgerCorrupt, "what is stored as the content of %s is not what was stored", id).
		WithHint("somebody changed the ledger: stop every process of this wallet and look at " +
			"x402-wallet history verify")
}

// ContentUse says how much content is stored, in bytes.
type ContentUse struct {
	Stored int64 // in all
	Owed   int64 // of that, what was paid for and nobody got yet
	Quota  int64 // 0: none
}

// ContentUse says how much content is stored.
func (s *Store) ContentUse(ctx context.Context) (ContentUse, error) {
	use, err := read(ctx, s, (*tx).contentUse)
	use.Quota = s.contentQuota
	return use, err
}

func (t *tx) contentUse() (use ContentUse, err error) {
	err = t.Row(`SELECT stored, owed FROM content_use`).Scan(&use.Stored, &use.Owed)
	return use, err
}

// Refusal is LEDGER_UNAVAILABLE where what was paid for and nobody got yet fills the quota: what is
// bought now could be kept only by losing some of that.
func (u ContentUse) Refusal() error {
	if u.Quota <= 0 || u.Owed < u.Quota {
		return nil
	}
	return x402.Errorf(x402.LedgerUnavailable, "%d bytes of content were paid for and not fetched yet, "+
		"which fills the quota of %d: nothing more is bought", u.Owed, u.Quota).
		WithHint("repeat the calls whose answers were lost: they pay nothing and get what was bought; "+
			"or the owner raises policy.content_quota above %d bytes, or gives that content up with "+
			"x402-wallet ledger prune --undelivered", u.Owed).
		WithDetail("layer", "content").
		WithDetail("limit", u.Quota).
		WithDetail("undelivered", u.Owed).
		WithCommand(x402.Command("ledger", "prune", "--undelivered", "--before",
			time.Now().UTC().AddDate(0, 0, 1).Format(time.DateOnly)), "What was paid for and never "+
			"fetched fills the store: please raise policy.content_quota, or give that content up.")
}

// Prune removes the content of payments made before a time, for space, and gives the space back to
// the disk. What nobody got yet stays, unless the owner gives it up. The payments, their evidence, and
// what their content was, stay in any case.
func (s *Store) Prune(ctx context.Context, before time.Time,
	undelivered bool) (rows, freed int64, err error) {
	// from the file's end, where nothing is to be moved; they are looked for while others write
	for from, done := int64(math.MaxInt64), false; !done; {
		list, err := read(ctx, s, func(t *tx) ([]storedContent, error) {
			return sqldb.Collect(t.Tx, scanStored, selectStored+`
				WHERE removed = '' AND payment < ? AND (spare = 1 OR ? = 1)
				AND payment IN (SELECT seq FROM payments WHERE created_at < ?)
				ORDER BY payment DESC LIMIT ?`, from, undelivered, micros(before), mostRemoved)
		})
		done = len(list) < mostRemoved
		for len(list) > 0 && err == nil {
			n, size := 0, int64(0)
			for n < len(list) && size <= tidyStep {
				from, size = list[n].payment, size+list[n].size
				n++
			}
			var removed, of int64
			removed, of, err = s.removeThese(ctx, list[:n], undelivered)
			rows, freed, list = rows+removed, freed+of, list[n:]
			if err == nil {
				err = s.giveBack(ctx, 0)
			}
		}
		if err != nil {
			return rows, freed, err
		}
	}
	return rows, freed, s.giveBack(ctx, 0)
}

// removeThese removes contents for the owner, but for what has become another one since it was looked for.
func (s *Store) removeThese(ctx context.Context, list []storedContent, undelivered bool) (rows, freed int64,
	err error) {
	err = s.tx(ctx, func(t *tx) error {
		rows, freed = 0, 0
		for _, c := range list {
			found, err := sqldb.Find(t.Tx, scanStored, selectStored+`
				WHERE payment = ? AND removed = '' AND (spare = 1 OR ? = 1)`, c.payment, undelivered)
			if err != nil {
				return err
			}
			if found == nil {
				continue
			}
			if err := t.remove(*found, RemovedByOwner); err != nil {
				return err
			}
			rows, freed = rows+1, freed+found.size
		}
		return nil
	})
	return rows, freed, err
}

// keptFree is how much room in the file is left for the next content: giving it back and taking it
// again would be work for nothing.
const keptFree = 64 << 20

// Tidy removes what is above the quota, as after it was lowered, and gives space that is not soon
// needed back to the disk. It may take long, in steps that each take little. Where there is nothing
// to do it writes nothing.
func (s *Store) Tidy(ctx context.Context) error {
	untidy, err := s.untidy(ctx)
	if err != nil || !untidy {
		return err
	}
	for {
		var removed int64
		err := s.tx(ctx, func(t *tx) (err error) {
			removed, err = t.evict(t.contentQuota, 0, tidyStep)
			return err
		})
		if err == nil {
			err = s.giveBack(ctx, keptFree)
		}
		if err != nil || removed == 0 {
			return err
		}
	}
}

// untidy reports whether more content is stored than the quota, or more of the file is free than is
// kept for the next.
func (s *Store) untidy(ctx context.Context) (bool, error) {
	return read(ctx, s, func(t *tx) (bool, error) {
		use, err := t.contentUse()
		if err != nil {
			return false, err
		}
		free, err := t.Free()
		isOver := s.contentQuota > 0 && use.Stored > s.contentQuota
		return isOver || free > keptFree, err
	})
}

// bytesAtOnce is how much one step gives back: 4 MiB of log at most, and some milliseconds in which nobody
// else writes.
const bytesAtOnce = 4 << 20

// giveBack makes the database's file smaller until at most so many bytes in it are free. A full disk ends it:
// what is moved goes through the log.
func (s *Store) giveBack(ctx context.Context, keep int64) error {
	for left := true; left; {
		err := s.tx(ctx, func(t *tx) error {
			free, err := t.Free()
			if err != nil || free <= keep {
				left = false
				return err
			}
			left = free-keep > bytesAtOnce
			return t.GiveBack(min(free-keep, bytesAtOnce))
		})
		if err != nil {
			return err
		}
	}
	return s.db.CutLog(ctx)
}
