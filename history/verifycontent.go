package history

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math"
)

// VerifyContent reads all content that is stored, and finds bytes that are not those that the ledger says
// were bought; that this is what the audit chain says, Verify finds. It reads a page at a time, each in a
// reading of its own.
func (s *Store) VerifyContent(ctx context.Context) (bytes int64, err error) {
	page := (*tx).contentPage
	if s.fleet != nil {
		page = (*tx).fleetContentPage
	}
	for after, more := int64(math.MinInt64), true; more && err == nil; {
		err = s.view(ctx, func(t *tx) (err error) {
			var size int64
			size, after, more, err = page(t, after)
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
	contents, err := t.openTree("contents", contentKinds, after)
	if err != nil {
		return 0, after, false, err
	}
	bodies, err := t.openBeside("bodies", bodyKinds, after, false)
	last = after
	for n := 0; err == nil && n < contentsOfPage && bytes < bytesOfPage; n++ {
		err = contents.next()
		if errors.Is(err, io.EOF) {
			return bytes, last, false, nil
		}
		if err == nil {
			last = contents.row.number
			var size int64
			size, err = t.compareBody(&contents.row, bodies)
			bytes += size
		}
	}
	return bytes, last, true, err
}

// compareBody compares the bytes of a content, where they are not removed, with what it says of them.
func (t *tx) compareBody(content *record, bodies *beside) (size int64, err error) {
	isThere, err := bodies.of(content.number)
	if err != nil {
		return 0, err
	}
	isRemoved := content.text(7) != ""
	isSame := isThere != isRemoved
	if isThere && isSame {
		body := bodies.row.text(1)
		size = int64(len(body))
		digest := sha256.Sum256([]byte(body))
		isSame = string(digest[:]) == content.text(5) && size == content.int(4)
	}
	if !isSame {
		var id string
		err := t.row(`SELECT id FROM payments WHERE seq = ?`, content.number).Scan(&id)
		return 0, cmpOr(none(err, nil), anotherContent(id))
	}
	return size, nil
}
