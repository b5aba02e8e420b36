package history

import (
	"bytes"
	"context"
	"time"
)

// A fleet's content. What is stored is added up by who tidies, and not by each payment, which would all write
// one row: each process does at most once in tidyEvery, when it has stored something, and when it starts. So
// what is stored may be above the quota by what came since, and as late a purchase is refused because of what
// nobody got yet.

const (
	tidyEvery = time.Minute
	// contentsOfStep bounds what one step of it removes, beside tidyStep.
	contentsOfStep = mostRemoved
	// fleetContents is how many contents one reading of VerifyContent compares: the server reads them
	// meanwhile.
	fleetContents = 100
)

// tidySoon tidies beside whoever stored something, if nobody of this process did lately.
func (s *Store) tidySoon() {
	e := s.fleet
	e.mu.Lock()
	defer e.mu.Unlock()
	if s.contentQuota <= 0 || e.closed || (!e.tidied.IsZero() && time.Since(e.tidied) < tidyEvery) {
		return
	}
	e.tidied = time.Now()
	e.ended.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), beatEvery)
		defer cancel()
		_ = s.fleetTidy(ctx) // the next one will
	})
}

// fleetTidy is Tidy.
func (s *Store) fleetTidy(ctx context.Context) error {
	s.fleet.mu.Lock()
	s.fleet.tidied = time.Now()
	s.fleet.mu.Unlock()
	err := s.txRows(ctx, func(t *tx) error {
		if err := t.lockContent(); err != nil {
			return err
		}
		use, err := t.sumContent()
		if err != nil {
			return err
		}
		_, err = t.exec(`UPDATE content_use SET stored = ?, owed = ?`, use.Stored, use.Owed)
		return err
	})
	for removed := int64(1); removed > 0 && err == nil; {
		err = s.txRows(ctx, func(t *tx) error {
			removed, err = t.fleetEvict()
			return err
		})
	}
	return err
}

func (t *tx) lockContent() error {
	_, err := t.exec(`SELECT FROM content_use FOR UPDATE`)
	return err
}

// sumContent adds up what is stored: the quota is of all teams, so the ledger does it, which sees all of it.
func (t *tx) sumContent() (use ContentUse, err error) {
	err = t.slowRow(`SELECT _stored, _owed FROM sum_content()`).Scan(&use.Stored, &use.Owed)
	return use, err
}

// fleetEvict removes the oldest spare contents, as many as are above the quota and one step may.
func (t *tx) fleetEvict() (removed int64, err error) {
	if t.contentQuota <= 0 {
		return 0, nil
	}
	if err := t.lockContent(); err != nil {
		return 0, err
	}
	use, err := t.contentUse()
	if err != nil || use.Stored <= t.contentQuota {
		return 0, err
	}
	var freed int64
	err = t.slowRow(`WITH oldest AS (SELECT payment, sum(size) OVER (ORDER BY payment) - size AS before
			FROM (SELECT payment, size FROM contents WHERE removed = '' AND spare = 1
				ORDER BY payment LIMIT ?) AS spare),
		gone AS (UPDATE contents SET removed = ? FROM oldest
			WHERE contents.payment = oldest.payment AND oldest.before < ?
				AND contents.removed = '' AND contents.spare = 1 RETURNING contents.payment, contents.size),
		freed AS (DELETE FROM bodies WHERE payment IN (SELECT payment FROM gone))
		SELECT count(*), coalesce(sum(size), 0) FROM gone`,
		contentsOfStep, RemovedByQuota, min(use.Stored-t.contentQuota, tidyStep)).Scan(&removed, &freed)
	if err == nil {
		_, err = t.exec(`UPDATE content_use SET stored = stored - ?`, freed)
	}
	return removed, err
}

// fleetContentPage is contentPage; the server adds up what it reads.
func (t *tx) fleetContentPage(after int64) (size, last int64, more bool, err error) {
	last = after
	n := 0
	err = t.forEach(func(row scanner) error {
		var id, removed string
		var is, should []byte
		var length, said int64
		if err := row.Scan(&last, &id, &removed, &should, &said, &is, &length); err != nil {
			return err
		}
		n++
		size += length
		isThere := is != nil
		if isThere != (removed == "") || (isThere && (!bytes.Equal(is, should) || length != said)) {
			return anotherContent(id)
		}
		return nil
	}, `SELECT c.payment, coalesce(p.id, ''), c.removed, c.sha256, c.size, sha256(b.body),
		coalesce(octet_length(b.body), 0)
		FROM contents c LEFT JOIN bodies b ON b.payment = c.payment LEFT JOIN payments p ON p.seq = c.payment
		WHERE c.payment > ? ORDER BY c.payment LIMIT ?`, after, fleetContents)
	return size, last, n == fleetContents, err
}
