package history

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"time"

	"x402-wallet/history/internal/audit"
	"x402-wallet/history/internal/seals"
	"x402-wallet/history/sqldb"
	"x402-wallet/x402"
)

// Freeze stops payments until the owner lifts it: all of them, or those from one account.
type Freeze struct {
	Network, Account string // both empty: the whole wallet
	At               time.Time
	By               string // owner | agent | breaker
	Why              string
}

// What is what it stops.
func (f Freeze) What() string {
	if f.Account == "" {
		return "the whole wallet"
	}
	return "the account " + f.Account + " on " + x402.NetworkName(f.Network)
}

// Freeze is durable when it returns: from then on no process puts a signed payment on disk, so that
// none leaves. It is read in the transaction that holds money, and again in the one that puts
// signed bytes on disk: what was signed in between is dropped. A payment that is on disk already is
// held as before and goes out no more until the freeze is lifted (pay.Engine); where the chain
// shows it as settled, its content is still fetched.
func (s *Store) Freeze(ctx context.Context, f Freeze) error {
	return s.tx(ctx, func(t *tx) error { return t.freeze(f) })
}

// FreezeAt is Freeze if a row is still the audit chain's last one, else ErrMoved.
func (s *Store) FreezeAt(ctx context.Context, f Freeze, last int64) error {
	return s.tx(ctx, func(t *tx) error {
		if err := t.readEnds(); err != nil {
			return err
		}
		if t.known.head != last {
			return moved("something was written")
		}
		return t.freeze(f)
	})
}

func (t *tx) freeze(f Freeze) error {
	isFrozen, err := t.Is(`SELECT EXISTS (SELECT 1 FROM freezes WHERE`+standing+
		` AND network = ? AND account = ?)`, f.Network, f.Account)
	if err != nil || isFrozen {
		return err
	}
	// not a number that was lifted, whatever is left of the table
	seq, err := sqldb.ScanNumber(t.Row(`SELECT 1 + coalesce(max(seq), 0) FROM (SELECT seq FROM freezes
		UNION ALL SELECT upto FROM lifts) AS numbers`))
	if err != nil {
		return err
	}
	_, err = t.Exec(`INSERT INTO freezes (seq, network, account, at, by, why) VALUES (?, ?, ?, ?, ?, ?)`,
		seq, f.Network, f.Account, sqldb.Micros(t.Now), f.By, f.Why)
	if err != nil {
		return err
	}
	if f.By != ByOwner { // of what they stopped themselves nobody has to be told
		if err := t.alerts.Frozen(t.Tx, seq, f); err != nil {
			return err
		}
	}
	t.known.freezes = nil
	if stops, err := t.frozenBy(f.Network, f.Account); err != nil || stops == nil {
		return cmp.Or(err, audit.Corrupt("what was frozen does not stand in it"))
	}
	return t.audit(0, audit.FrozenEvent, f.told())
}

// told is what the event of a freeze says of it.
func (f Freeze) told() map[string]string {
	return map[string]string{"network": f.Network, "account": f.Account, "by": f.By, "why": f.Why}
}

// standing selects the freezes that no lift has come up to.
const standing = ` seq > coalesce((SELECT upto FROM lifts ORDER BY upto DESC LIMIT 1), 0)`

// Lift is the owner's word that everything frozen up to one freeze may be paid from again. What its
// seal means is package seal's business.
type Lift struct {
	UpTo int64 // a freeze's seq; 0: nothing was ever lifted
	At   time.Time
	Seal []byte
}

// Unfreeze lifts every freeze and returns them; from here on the circuit breaker counts again. seal
// is called inside the transaction; nil leaves the lift without one.
func (s *Store) Unfreeze(ctx context.Context, seal func(Lift) ([]byte, error)) (lifted []Freeze, err error) {
	err = s.tx(ctx, func(t *tx) error {
		if _, err := t.notBeforeLedger(); err != nil {
			return err
		}
		if lifted, err = t.freezes(); err != nil || len(lifted) == 0 {
			return err
		}
		l := Lift{At: sqldb.FromMicros(sqldb.Micros(t.Now)), Seal: []byte{}}
		if err := t.Row(`SELECT max(seq) FROM freezes`).Scan(&l.UpTo); err != nil {
			return err
		}
		if seal != nil {
			l.Seal, err = seal(l)
			if err != nil {
				return err
			}
		}
		if _, err := t.Exec(`INSERT INTO lifts VALUES (?, ?, ?)`, l.UpTo, sqldb.Micros(l.At), l.Seal); err != nil {
			return err
		}
		t.known.freezes = nil
		return t.audit(0, audit.UnfrozenEvent, map[string]any{"lifted": len(lifted), "upTo": l.UpTo,
			"n":    t.known.last,
			"seal": audit.Digest(l.Seal)})
	})
	return lifted, err
}

// Lifted is the owner's last lift.
func (s *Store) Lifted(ctx context.Context) (Lift, error) { return readOnce(ctx, s, (*tx).lifted) }

func (t *tx) lifted() (l Lift, err error) {
	var at int64
	err = t.Row(`SELECT upto, at, seal FROM lifts ORDER BY upto DESC LIMIT 1`).Scan(&l.UpTo, &at, &l.Seal)
	l.At = sqldb.FromMicros(at)
	return l, sqldb.Otherwise(err, nil)
}

// Unlift takes a lift away that was not the owner's: what it lifted is frozen again.
func (s *Store) Unlift(ctx context.Context, upTo int64) error {
	return s.tx(ctx, func(t *tx) error {
		if _, err := t.Exec(`DELETE FROM lifts WHERE upto = ?`, upTo); err != nil {
			return err
		}
		t.known.freezes = nil
		return t.audit(0, audit.LiftRefusedEvent, map[string]int64{"upto": upTo})
	})
}

// frozen is a hash over the freezes behind one and up to another.
func (t *tx) frozen(after, upTo int64) (sum [sha256.Size]byte, err error) {
	err = t.Each(func(row sqldb.Row) error {
		var seq, at int64
		var network, account string
		err := row.Scan(&seq, &network, &account, &at)
		copy(sum[:], audit.Link(sum[:], seq, network, account, strconv.FormatInt(at, 10)))
		return err
	}, `SELECT seq, network, account, at FROM freezes WHERE seq > ? AND seq <= ? ORDER BY seq`, after, upTo)
	return sum, err
}

func (s *Store) Freezes(ctx context.Context) ([]Freeze, error) { return read(ctx, s, (*tx).freezes) }

func (t *tx) freezes() (list []Freeze, err error) {
	return sqldb.Collect(t.Tx, scanFreeze, selectFreeze+` ORDER BY network, account`)
}

const selectFreeze = `SELECT network, account, at, by, why FROM freezes WHERE` + standing

func scanFreeze(row sqldb.Row) (f Freeze, err error) {
	var at int64
	err = row.Scan(&f.Network, &f.Account, &at, &f.By, &f.Why)
	f.At = sqldb.FromMicros(at)
	return f, err
}

// NotFrozen is WALLET_FROZEN where payments from an account are stopped.
func (s *Store) NotFrozen(ctx context.Context, network, account string) error {
	return s.view(ctx, func(t *tx) error { return t.notFrozen(network, account) })
}

func (t *tx) notFrozen(network, account string) error {
	f, err := t.frozenBy(network, account)
	if f == nil || err != nil {
		return err
	}
	return f.refusal()
}

// frozenBy is the freeze that stops payments from an account; nil: none does.
func (t *tx) frozenBy(network, account string) (*Freeze, error) {
	if t.known.freezes == nil {
		list, err := t.freezes()
		if err != nil {
			return nil, err
		}
		t.known.freezes = &list
	}
	var found *Freeze
	for _, f := range *t.known.freezes {
		if f.Account == "" {
			return &f, nil
		}
		if f.Network == network && f.Account == account {
			found = &f
		}
	}
	return found, nil
}

func (f Freeze) refusal() error {
	what, from, stopped := "this wallet is frozen", "", "All payments are stopped"
	if f.Account != "" {
		what, from = "the account "+f.Account+" is frozen", "from it "
		stopped = "Payments from the account " + f.Account + " are stopped"
	}
	return x402.Errorf(x402.WalletFrozen, "%s: %s", what, f.Why).
		WithHint("nothing is paid %suntil the person has looked at it", from).
		WithDetail("since", f.At.Format(time.RFC3339)).WithDetail("by", f.By).
		WithCommand(x402.Command("unfreeze"), stopped+", because "+f.Why+
			": please look at x402-wallet history, and unfreeze if it is right.")
}

// ownFreezes refuses freezes that are not those of the keyholder's checkpoint, and a lift that is not the
// owner's: to be asked in the transaction that signs, because the tables can be edited for a moment.
func (t *tx) ownFreezes(k Keyholder) error {
	has, err := t.hasFreezes(k.After)
	if err != nil {
		return err
	}
	lift, err := t.lifted()
	if err != nil {
		return err
	}
	own, err := k.OwnLift(lift)
	if err == nil && (!has || !own || lift.UpTo < k.After.Lifted) {
		err = audit.Corrupt("something was frozen before it, or a freeze was lifted in it, and not by " +
			"the owner")
	}
	return err
}

// lastUnfreeze is when the owner last lifted a freeze; zero: never, or by a clock that was ahead.
func (t *tx) lastUnfreeze() (time.Time, error) {
	l, err := t.lifted()
	if l.At.After(t.Now) {
		l.At = time.Time{}
	}
	return l.At, err
}

// consecutiveFailures counts the newest payments in a row, made after since, that were signed and
// sent and came to nothing: open without the buyer having got anything, or proven never to have
// happened. The first one that settled ends the row; what is under way, or provably never left, is
// no part of it.
func (t *tx) consecutiveFailures(since time.Time, most int) (n int, err error) {
	if err := t.readEnds(); err != nil {
		return 0, err
	}
	oldest := t.known.last - seals.FailuresWithin
	settled, err := sqldb.ScanNumber(t.Row(`SELECT coalesce(max(seq), 0) FROM payments WHERE seq > ?
		AND state = 'settled' AND proof <> ''`, oldest))
	if err != nil {
		return 0, err
	}
	err = t.Row(`SELECT count(*) FROM payments WHERE seq > ? AND created_at > ?
		AND (state = 'unknown' AND delivered = 0 OR state = 'failed' AND chain_proof IS NOT NULL)`,
		max(oldest, settled), sqldb.Micros(since)).Scan(&n)
	return min(n, most), err
}

func hexOf(b [32]byte) string { return hex.EncodeToString(b[:]) }
