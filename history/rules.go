package history

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"time"

	"x402-wallet/history/internal/audit"
	"x402-wallet/history/sqldb"
)

// SealedRules is config.toml as the owner sealed it. What the seal means is package seal's business.
type SealedRules struct {
	Version int64 // 1, 2, …; 0: nothing was ever sealed
	At      time.Time
	Config  []byte
	Seal    []byte

	// by the audit chain, which only Rules asks
	Newest     int64 // the version that was sealed last
	IsAccepted bool  // the owner accepted the ledger with it
}

// Rules returns what was sealed last.
func (s *Store) Rules(ctx context.Context) (SealedRules, error) { return s.rules(ctx, "") }

// SealedAs returns the newest rules that were sealed with this text; version 0 if none were.
func (s *Store) SealedAs(ctx context.Context, config []byte) (SealedRules, error) {
	return s.rules(ctx, ` WHERE config = ?`, config)
}

func (s *Store) rules(ctx context.Context, where string, args ...any) (SealedRules, error) {
	return read(ctx, s, func(t *tx) (r SealedRules, err error) {
		var at int64
		err = t.Row(`SELECT version, at, config, seal FROM rules`+where+` ORDER BY version DESC LIMIT 1`,
			args...).Scan(&r.Version, &at, &r.Config, &r.Seal)
		r.At = sqldb.FromMicros(at)
		if err = sqldb.Otherwise(err, nil); err != nil || where != "" {
			return r, err
		}
		last, err := t.sealedDetail()
		r.Newest, r.IsAccepted = last.Version, last.Accepted != nil
		return r, err
	})
}

// sealedDetail is what the audit chain says of the rules that were sealed last. It is zero if none were: a
// row that is not ours says nothing.
type sealedDetail struct {
	Version  int64
	Home     string
	Accepted json.RawMessage
}

func (t *tx) sealedDetail() (d sealedDetail, err error) {
	detail, err := sqldb.ScanText(t.Row(`SELECT detail FROM audit WHERE payment = 0 AND event = 'sealed'
		ORDER BY seq DESC LIMIT 1`))
	_ = json.Unmarshal([]byte(detail), &d)
	return d, sqldb.Otherwise(err, nil)
}

// ErrRulesMoved says that somebody else sealed rules meanwhile. Nothing was changed.
var ErrRulesMoved = errors.New("other rules were sealed meanwhile")

// SealedIn is the home in which rules were sealed last; "" when that is not known. The seal covers it, too.
func (s *Store) SealedIn(ctx context.Context) (string, error) {
	return read(ctx, s, func(t *tx) (string, error) {
		d, err := t.sealedDetail()
		return d.Home, err
	})
}

// SealRules adds rules, which must be of the version behind the last one's, as sealed in a home. Its
// row of the audit chain is sealed by k, and goes on from the one before. accept is the owner's word
// that the ledger is good as it is: where that row, or the tables, are not what this wallet wrote,
// it begins anew from the payments as they are.
func (s *Store) SealRules(ctx context.Context, r SealedRules, home string, accept bool, k Keyholder) error {
	return s.tx(ctx, func(t *tx) error {
		var last int64
		if err := t.Row(`SELECT coalesce(max(version), 0) FROM rules`).Scan(&last); err != nil {
			return err
		}
		if r.Version != last+1 {
			return ErrRulesMoved
		}
		_, err := t.Exec(`INSERT INTO rules VALUES (?, ?, ?, ?)`, r.Version, sqldb.Micros(t.Now), r.Config, r.Seal)
		if err != nil {
			return err
		}
		read := t.checkedSealed
		if accept {
			read = t.rebuildSealed
		}
		now, err := read(k)
		if err == nil && !accept {
			err = t.ownFreezes(k)
		}
		if err != nil {
			return err
		}
		detail := map[string]any{"version": r.Version, "home": home, "sha256": audit.Digest(r.Config),
			"seal": audit.Digest(r.Seal)}
		if accept {
			now.Memory = "" // which follows from what was signed
			detail["accepted"] = now.Sums
		}
		return t.seal(k, now, 0, audit.SealedEvent, detail)
	})
}

// Head is how far the ledger has come: the audit chain's last row, and what is frozen.
type Head struct {
	Seq  int64
	Hash []byte

	Frozen, Lifted int64             // the newest freeze, and up to which they are lifted
	Freezes        [sha256.Size]byte // over those that stand
}

// Head returns how far the ledger has come.
func (s *Store) Head(ctx context.Context) (Head, error) { return read(ctx, s, (*tx).signedHead) }

func (t *tx) head() (h Head, err error) {
	// That money was held and that an answer was delivered need not outlive a power cut, and a
	// checkpoint should not wait for them to.
	err = t.Row(`SELECT seq, hash, (SELECT coalesce(max(seq), 0) FROM freezes),
		(SELECT coalesce(max(upto), 0) FROM lifts) FROM audit
		WHERE event NOT IN ('delivered', 'reserved') ORDER BY seq DESC LIMIT 1`).
		Scan(&h.Seq, &h.Hash, &h.Frozen, &h.Lifted)
	if err == nil && h.Frozen > h.Lifted {
		h.Freezes, err = t.frozen(h.Lifted, h.Frozen)
	}
	return h, sqldb.Otherwise(err, nil)
}

// Has reports whether the ledger has come from a head: whether the audit chain has exactly this
// row, and what was frozen then is frozen still, or lifted.
func (s *Store) Has(ctx context.Context, h Head) (bool, error) {
	return read(ctx, s, func(t *tx) (bool, error) { return t.has(h) })
}

func (t *tx) has(h Head) (has bool, err error) {
	has, err = t.hasRow(h)
	if err != nil || !has {
		return has, err
	}
	return t.hasFreezes(h)
}

func (t *tx) hasRow(h Head) (bool, error) {
	return t.Is(`SELECT EXISTS (SELECT 1 FROM audit WHERE seq = ? AND hash = ?)`, h.Seq, h.Hash)
}

func (t *tx) hasFreezes(h Head) (bool, error) {
	newest, err := sqldb.ScanNumber(t.Row(`SELECT coalesce(max(seq), 0) FROM freezes`))
	if err != nil || newest < h.Frozen || h.Frozen == h.Lifted {
		return err == nil && newest >= h.Frozen, err
	}
	freezes, err := t.frozen(h.Lifted, h.Frozen)
	return freezes == h.Freezes, err
}

// Standing is how the ledger stands, read at once.
type Standing struct {
	Head
	Lift    Lift
	Follows bool // it has come from the head that was asked about, or none was
}

// AtHead calls f with how the ledger stands, and no other process's f meanwhile. after is a head that it has
// to have come from, or nil for any. Its last row is on the disk by then, because SQLite shows nobody a
// commit that it has not flushed: a checkpoint must not name a row that a power cut may take back.
func (s *Store) AtHead(ctx context.Context, after *Head, f func(Standing) error) error {
	unlock, err := s.checkpointLock.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	now, err := read(ctx, s, func(t *tx) (now Standing, err error) {
		now.Head, err = t.signedHead()
		if err == nil {
			now.Lift, err = t.lifted()
		}
		now.Follows = after == nil
		if err == nil && after != nil {
			now.Follows, err = t.has(*after)
		}
		return now, err
	})
	if err != nil {
		return err
	}
	return f(now)
}

// signedHead is the head of a ledger that has what this process signed last: who else writes to it may have
// put an older one in its place.
func (t *tx) signedHead() (h Head, err error) {
	if err := t.hasNewest(); err != nil {
		return h, err
	}
	return t.head()
}

// hasNewest refuses a ledger without the row that this process sealed last. A server's is not compared: what
// a failover loses package app finds.
func (t *tx) hasNewest() error {
	last := t.newest.Load()
	if last == nil || t.IsServer() {
		return nil
	}
	has, err := t.hasRow(*last)
	if err == nil && !has {
		err = audit.Corrupt("event %d, which this process sealed, is not in it", last.Seq)
	}
	return err
}

// ForgetSealed forgets which row this process sealed last: the owner accepted another ledger.
func (s *Store) ForgetSealed() { s.newest.Store(nil) }
