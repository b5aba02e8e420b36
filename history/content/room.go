package content

import (
	"context"
	"math"
	"time"

	"x402-wallet/history"
	"x402-wallet/history/sqldb"
	"x402-wallet/x402"
)

// Why the bytes of a content are gone.
const (
	RemovedByQuota = "quota"
	RemovedByOwner = "pruned"
)

// Use says how much content is stored, in bytes.
type Use struct {
	Stored int64 // in all
	Owed   int64 // of that, what was paid for and nobody got yet
	Quota  int64 // 0: none
}

// Use says how much content is stored.
func (k Keeper) Use(ctx context.Context, s *history.Store) (use Use, err error) {
	err = s.View(ctx, func(t *sqldb.Tx) error {
		use, err = k.use(t)
		return err
	})
	return use, err
}

func (k Keeper) use(t *sqldb.Tx) (use Use, err error) {
	use.Quota = k.Quota
	err = t.Row(`SELECT stored, owed FROM content_use`).Scan(&use.Stored, &use.Owed)
	return use, err
}

func (k Keeper) Refusal(t *sqldb.Tx) (refusal, err error) {
	use, err := k.use(t)
	return use.Refusal(), err
}

// Refusal is LEDGER_UNAVAILABLE where what was paid for and nobody got yet fills the quota: what is
// bought now could be kept only by losing some of that.
func (u Use) Refusal() error {
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
func (k Keeper) evict(t *sqldb.Tx, stays, most int64) (rows int64, err error) {
	if k.Quota <= 0 {
		return 0, nil
	}
	use, err := k.use(t)
	if err != nil {
		return 0, err
	}
	var freed int64
	for use.Stored-freed > k.Quota && rows < mostRemoved && freed < most {
		oldest, err := sqldb.Find(t, scanStored, selectStored+` WHERE removed = ''
			AND spare = 1 AND payment <> ? ORDER BY payment LIMIT 1`, stays)
		if err != nil || oldest == nil { // nil: all that is left is owed to somebody
			return rows, err
		}
		if err := remove(t, *oldest, RemovedByQuota); err != nil {
			return rows, err
		}
		rows, freed = rows+1, freed+oldest.size
	}
	return rows, nil
}

// remove deletes the bytes of a content; what it was stays.
func remove(t *sqldb.Tx, c stored, why string) error {
	if _, err := t.Exec(`DELETE FROM bodies WHERE payment = ?`, c.payment); err != nil {
		return err
	}
	if _, err := t.Exec(`UPDATE contents SET removed = ? WHERE payment = ?`, why, c.payment); err != nil {
		return err
	}
	return recount(t, c.use(), Use{})
}

// Prune removes the content of payments made before a time, for space, and gives the space back to
// the disk. What nobody got yet stays, unless the owner gives it up. The payments, their evidence, and
// what their content was, stay in any case.
func Prune(ctx context.Context, s *history.Store, before time.Time,
	undelivered bool) (rows, freed int64, err error) {
	// from the file's end, where nothing is to be moved; they are looked for while others write
	for from, done := int64(math.MaxInt64), false; !done; {
		var list []stored
		err := s.View(ctx, func(t *sqldb.Tx) (err error) {
			list, err = sqldb.Collect(t, scanStored, selectStored+`
				WHERE removed = '' AND payment < ? AND (spare = 1 OR ? = 1)
				AND payment IN (SELECT seq FROM payments WHERE created_at < ?)
				ORDER BY payment DESC LIMIT ?`, from, undelivered, sqldb.Micros(before), mostRemoved)
			return err
		})
		done = len(list) < mostRemoved
		for len(list) > 0 && err == nil {
			n, size := 0, int64(0)
			for n < len(list) && size <= tidyStep {
				from, size = list[n].payment, size+list[n].size
				n++
			}
			var removed, of int64
			removed, of, err = removeThese(ctx, s, list[:n], undelivered)
			rows, freed, list = rows+removed, freed+of, list[n:]
			if err == nil {
				err = giveBack(ctx, s, 0)
			}
		}
		if err != nil {
			return rows, freed, err
		}
	}
	return rows, freed, giveBack(ctx, s, 0)
}

// removeThese removes contents for the owner, but for what has become another one since it was looked for.
func removeThese(ctx context.Context, s *history.Store, list []stored, undelivered bool) (rows, freed int64,
	err error) {
	err = s.Write(ctx, func(t *sqldb.Tx) error {
		rows, freed = 0, 0
		for _, c := range list {
			found, err := sqldb.Find(t, scanStored, selectStored+`
				WHERE payment = ? AND removed = '' AND (spare = 1 OR ? = 1)`, c.payment, undelivered)
			if err != nil {
				return err
			}
			if found == nil {
				continue
			}
			if err := remove(t, *found, RemovedByOwner); err != nil {
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
func (k Keeper) Tidy(ctx context.Context, s *history.Store) error {
	untidy, err := k.untidy(ctx, s)
	if err != nil || !untidy {
		return err
	}
	for {
		var removed int64
		err := s.Write(ctx, func(t *sqldb.Tx) (err error) {
			removed, err = k.evict(t, 0, tidyStep)
			return err
		})
		if err == nil {
			err = giveBack(ctx, s, keptFree)
		}
		if err != nil || removed == 0 {
			return err
		}
	}
}

// untidy reports whether more content is stored than the quota, or more of the file is free than is
// kept for the next.
func (k Keeper) untidy(ctx context.Context, s *history.Store) (is bool, err error) {
	err = s.View(ctx, func(t *sqldb.Tx) error {
		use, err := k.use(t)
		if err != nil {
			return err
		}
		free, err := t.Free()
		is = (k.Quota > 0 && use.Stored > k.Quota) || free > keptFree
		return err
	})
	return is, err
}

// bytesAtOnce is how much one step gives back: 4 MiB of log at most, and some milliseconds in which nobody
// else writes.
const bytesAtOnce = 4 << 20

// giveBack makes the database's file smaller until at most so many bytes in it are free. A full disk ends it:
// what is moved goes through the log.
func giveBack(ctx context.Context, s *history.Store, keep int64) error {
	for left := true; left; {
		err := s.Write(ctx, func(t *sqldb.Tx) error {
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
	return s.CutLog(ctx)
}
