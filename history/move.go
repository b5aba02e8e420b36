package history

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"time"

	"x402-wallet/budget"
	"x402-wallet/x402"
)

// A ledger moves from ledger.db to a fleet's, or back. At each moment one of both pays, or none:
//
//	                      old     new       a run that was killed before it is done goes on with
//	the old is marked     none    none      the next line, or the move is taken back
//	the new is written    none    none      likewise: the new one refuses, for it is marked, too
//	the old says: moved   none    none      the next line: it cannot be taken back any more
//	the new is released   none    pays      nothing
//
// On SQLite a mark is a sealed row of the audit chain, which a signature is held against (lastSealed), and
// a row of meta that says so to every other change. In a fleet it is a row of meta alone (function
// not_moving).

// moveKey is where meta has a ledger's mark.
const moveKey = "move"

// The events of a move: the ledger is marked, that was taken back, it has moved away; it comes from another
// one, and has come. Their rows are sealed.
const (
	movingEvent, stayedEvent, movedEvent = "moving", "stayed", "moved"
	arrivingEvent, arrivedEvent          = "arriving", "arrived"
)

var moveEvents = []string{movingEvent, stayedEvent, movedEvent, arrivingEvent, arrivedEvent}

// move is a ledger's mark; the zero value: there is none.
type move struct {
	Event  string `json:"event"`        // moving | moved | arriving
	Ledger string `json:"ledger"`       // the other one's id
	As     string `json:"as,omitempty"` // whose the payments without an agent's name are, for the budgets
	// in a fleet: how far the chain of the home's ledger had come when it was marked
	Head int64  `json:"head,omitempty"`
	Hash string `json:"hash,omitempty"`
}

// asMark is the mark that an event leaves; nil: it ends one.
func asMark(event, ledger, as string) *move {
	if event == stayedEvent || event == arrivedEvent {
		return nil
	}
	return &move{Event: event, Ledger: ledger, As: as}
}

// refusal is what the mark says to whoever would write.
func (m move) refusal() error {
	if m.Event == movedEvent {
		return x402.Errorf(x402.LedgerCorrupt, "this ledger has moved to the ledger %s: it pays nothing "+
			"any more",
			m.Ledger).WithHint("use that one (docs/fleet.md); of this file keep a copy, for it can be read")
	}
	e := x402.Errorf(x402.LedgerUnavailable, "this ledger moves (%s the ledger %s), and pays nothing "+
		"meanwhile",
		map[string]string{movingEvent: "to", arrivingEvent: "from"}[m.Event], m.Ledger)
	return e.WithHint("the owner goes on with it, or takes it back: x402-wallet ledger move").
		WithCommand(x402.Command("ledger", "move"), "The wallet's ledger moves: please finish that.")
}

// mark is the ledger's mark.
func (t *tx) mark() (m move, err error) {
	text, err := scanText(t.row(`SELECT value FROM meta WHERE key = ?`, moveKey))
	if err != nil {
		return m, none(err, nil)
	}
	return readMark(text)
}

func readMark(text string) (m move, err error) {
	if json.Unmarshal([]byte(text), &m) != nil {
		err = damaged("read the ledger's mark", errors.New("it is none"))
	}
	return m, err
}

// setMark writes an event of a move, and the mark that it leaves. heads is an arrival's.
func (t *tx) setMark(event, ledger, as string, heads map[string]string, k Keyholder) error {
	last, err := t.checkedSealed(k)
	if err != nil {
		return err
	}
	detail := map[string]any{"ledger": ledger}
	if as != "" {
		detail["as"] = as
	}
	if heads != nil {
		detail["heads"] = heads
	}
	if err := t.seal(k, last, 0, event, detail); err != nil {
		return err
	}
	if _, err := t.exec(`DELETE FROM meta WHERE key = ?`, moveKey); err != nil {
		return err
	}
	if mark := asMark(event, ledger, as); mark != nil {
		_, err = t.exec(`INSERT INTO meta VALUES (?, ?)`, moveKey, toJSON(mark))
	}
	return err
}

// OpenMoving opens the ledger of a home for who moves it: also one that is marked.
func OpenMoving(ctx context.Context, home string, o Options) (*Store, error) {
	o.moves = true
	return Open(ctx, home, o)
}

// HasMoved reports whether a home's ledger has moved away for good.
func HasMoved(ctx context.Context, s *Store) (bool, error) {
	is, err := read(ctx, s, (*tx).mark)
	return is.Event == movedEvent, err
}

// inUse refuses a ledger that another process works on.
func (s *Store) inUse() error {
	found, err := filepath.Glob(filepath.Join(s.home, "run", "run_*"))
	if err != nil {
		return err
	}
	for _, path := range found {
		if s.Alive(filepath.Base(path)) {
			return errInUse()
		}
	}
	return nil
}

func errInUse() error {
	return x402.Errorf(x402.LedgerUnavailable, "another process pays with this wallet: a ledger moves alone").
		WithHint("end the wallet's other processes (an editor's MCP server, x402-wallet serve, a paywall; " +
			"in a fleet half a minute before), then run the same command again")
}

// settle ends what nobody works on any more: holds of which nothing was signed, and approvals, which another
// ledger's owner has to give again. What was signed stays as it is. It refuses a payment that somebody works
// on.
func (s *Store) settle(t *tx) error {
	open, err := collect(t, scanPayment, selectPayment+` WHERE `+unfinished+` ORDER BY seq`)
	if err != nil {
		return err
	}
	for _, p := range open {
		if s.Alive(p.LeaseOwner) {
			return errInUse()
		}
		if p.State != Reserved {
			continue
		}
		const why = "nobody worked on it when the ledger moved"
		if err := t.returnApproval(p); err != nil {
			return err
		}
		err = t.move(p, Failed, toJSON(map[string]string{"why": why}),
			`note = ?, lease_owner = '', waiter = ''`, why)
		if err != nil {
			return err
		}
	}
	if err := t.notSelling(); err != nil {
		return err
	}
	return t.expireWhere(`expires_at > ? AND state = 'approved'`, fromMicros(0))
}

// sellsFor is how long a sale is taken for one that somebody works on.
const sellsFor = 10 * time.Minute

// notSelling refuses a ledger in which a paywall settles a sale at this moment.
func (t *tx) notSelling() error {
	is, err := t.is(`SELECT EXISTS (SELECT 1 FROM sales WHERE state IN ('running', 'settling')
		AND updated_at > ?)`, micros(t.Now.Add(-sellsFor)))
	if err == nil && is {
		err = errInUse()
	}
	return err
}

// beginMoving marks the ledger as one that moves to another, and says how far its chain has come. Nothing is
// written to it from then on. as is what the first attempt said, if there was one.
func (s *Store) beginMoving(ctx context.Context, ledger, as string, k Keyholder) (at Head, was move,
	err error) {
	if err := s.inUse(); err != nil {
		return at, was, err
	}
	err = s.tx(ctx, func(t *tx) error {
		if was, err = t.mark(); err != nil {
			return err
		}
		switch {
		case was.Event == "":
			if err := s.settle(t); err != nil {
				return err
			}
			if err := t.setMark(movingEvent, ledger, as, nil, k); err != nil {
				return err
			}
			was = *asMark(movingEvent, ledger, as)
		case was.Ledger != ledger || was.Event == arrivingEvent:
			return was.refusal()
		}
		at, err = t.chainEnd(was.Event == movedEvent)
		return err
	})
	return at, was, err
}

// chainEnd is the last row of the chain, or the one before it.
func (t *tx) chainEnd(before bool) (h Head, err error) {
	skip := 0
	if before {
		skip = 1
	}
	err = t.row(`SELECT seq, hash FROM audit ORDER BY seq DESC LIMIT 1 OFFSET ?`, skip).Scan(&h.Seq, &h.Hash)
	return h, err
}

// endMoving says that the ledger has moved: the last row of its chain. It refuses where anything was written
// since the mark.
func (s *Store) endMoving(ctx context.Context, at Head, k Keyholder) (last auditRow, err error) {
	err = s.tx(ctx, func(t *tx) error {
		is, err := t.mark()
		if err != nil {
			return err
		}
		end, err := t.chainEnd(is.Event == movedEvent)
		if err != nil {
			return err
		}
		if end.Seq != at.Seq || string(end.Hash) != string(at.Hash) {
			e := x402.Errorf(x402.LedgerUnavailable, "another process wrote to the ledger while it moved")
			e.FixedBy = x402.ByTime
			return e.WithHint("end the wallet's other processes, and run the same command again")
		}
		if is.Event != movedEvent {
			if err := t.setMark(movedEvent, is.Ledger, is.As, nil, k); err != nil {
				return err
			}
		}
		return t.row(`SELECT seq, at, payment, event, detail, hash, seal FROM audit ORDER BY seq DESC
			LIMIT 1`).
			Scan(&last.seq, &last.at, &last.payment, &last.event, &last.detail, &last.hash, &last.seal)
	})
	return last, err
}

// stay takes a mark back.
func (s *Store) stay(ctx context.Context, k Keyholder) error {
	return s.tx(ctx, func(t *tx) error {
		switch is, err := t.mark(); {
		case err != nil || is.Event == "":
			return err
		case is.Event != movingEvent:
			return is.refusal()
		default:
			return t.setMark(stayedEvent, is.Ledger, "", nil, k)
		}
	})
}

// Seals make the owner's word on what comes from another ledger, in the new one. It was good in the old one,
// or was not there.
type Seals struct {
	Approval func(Approval) ([]byte, error)
	Lift     func(Lift) ([]byte, error)
	Session  func(budget.Session) ([]byte, error)
}

// Mover moves a ledger. Its calls may be repeated: what one of them that was killed has done is found.
type Mover struct {
	Home  *Store // OpenMoving
	Fleet *Store // as the login that owns it, writing the chain of the home
	Keys  Keyholder
	Seals Seals
	// As is the agent in whose budgets payments without an agent's name count; "": in no agent's.
	As string
	// Marked and Copied are called once the old ledger is marked, and once the new one is written: for
	// checkpoints. Left is called once the old one says that it has moved.
	Marked, Copied, Left func(ctx context.Context) error
	// Progress is told how many rows of how many are written; nil: nobody is.
	Progress func(done, all int64)

	step      func(name string) error // before and behind each write, for tests; nil: nothing
	done, all int64                   // rows
	heads     map[string]string       // see arrival
}

// Moved is what was moved.
type Moved struct {
	From, To string // ledgers' ids
	Payments int64
	Events   int64
	Again    bool // it had moved before
}

func (m *Mover) at(step string) error {
	if m.step == nil {
		return nil
	}
	return m.step(step)
}

// written is a write between two steps.
func (m *Mover) written(step string, f func() error) error {
	if err := m.at("before " + step); err != nil {
		return err
	}
	if f != nil {
		if err := f(); err != nil {
			return err
		}
	}
	return m.at("after " + step)
}

func quoted(text string) string { return `'` + strings.ReplaceAll(text, `'`, `''`) + `'` }
