package history

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
	"x402-wallet/history/sqldb"
	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// clock is a time that a test sets.
type clock struct {
	mu   sync.Mutex
	at   time.Time
	told func(time.Time) // nil: nobody else goes by it
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(time.Microsecond) // no two payments at once
	if c.told != nil {
		c.told(c.at)
	}
	return c.at
}

func (c *clock) set(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = at
	if c.told != nil {
		c.told(at)
	}
}

func emptyStore(t *testing.T) (*Store, *clock, string) {
	t.Helper()
	home := t.TempDir()
	c := &clock{at: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}
	require.NoError(t, Create(t.Context(), home, Options{Now: c.now}))
	s := must.Get(Open(t.Context(), home, Options{Contents: Keeper, Now: c.now}))(t)
	t.Cleanup(func() { s.Close() })
	return s, c, home
}

// used sums one window.
func (t *tx) used(w budget.Window) (budget.Use, error) {
	list, err := t.usedIn(w)
	if err != nil {
		return budget.Use{}, err
	}
	return list[0], nil
}

func testHold(atomic uint64) Hold {
	return Hold{
		Payment: Payment{
			Method: "GET", URL: "https://api.example/weather", Host: "api.example", Network: "eip155:84532",
			Scheme: "exact", Dialect: x402.DialectV2Header,
			Asset: "0xasset", Symbol: "USDC", Amount: money.NewAmount(atomic), Price: money.Dollars(atomic),
			PayTo: "0xpayee", Source: "0xagent",
		},
		Funds: x402.Funds{Source: "0xagent", Free: money.NewAmount(1 << 40)},
	}
}

// unlimited is a decision that any payment of a session rests on.
func unlimited(session string) budget.Decision {
	return budget.Decision{Session: session, Caps: []budget.Cap{{Limit: math.MaxInt64}}}
}

// reserve holds money whatever it is for, if the ledger lets it.
func reserve(s *Store, h Hold) (Payment, error) {
	f, err := s.Facts(context.Background(), Question{})
	if err != nil {
		return Payment{}, err
	}
	h.Decision = unlimited(f.Session.ID)
	return s.Reserve(context.Background(), h)
}

// decide asks rules about a hold; the hold has the decision then.
func decide(s *Store, rules budget.Rules, h *Hold) (Facts, error) {
	p := h.Payment
	ask := budget.Ask{Agent: p.Agent, Price: p.Price, Host: p.Host, Payee: budget.Payee{Network: p.Network,
		Asset: p.Asset, PayTo: p.PayTo, Resource: p.Resource()}}
	f, err := s.Facts(context.Background(), Question{Rules: rules.Query(ask), Payment: p, Resume: h.Resume})
	if err == nil {
		err = f.Refusal()
	}
	if err != nil {
		return f, err
	}
	if f.Session.ID == "" {
		f.Session.Cap = h.SessionCap
	}
	h.DecidedAt, h.DecidedHead = f.Now, f.Head
	h.Decision, err = rules.Decide(ask, f.Facts)
	return f, err
}

// reserveBy holds money by rules, as the engine does: what moved is decided again.
func reserveBy(s *Store, rules budget.Rules, h Hold) (Payment, error) {
	for {
		if _, err := decide(s, rules, &h); err != nil {
			return Payment{}, err
		}
		p, err := s.Reserve(context.Background(), h)
		if !errors.Is(err, ErrMoved) {
			return p, err
		}
	}
}

func pay(t *testing.T, s *Store, h Hold, to State) Payment {
	t.Helper()
	p := must.Get(reserve(s, h))(t)
	if to == Reserved {
		return p
	}
	require.NoError(t, s.Submit(t.Context(), p, Signed{Payload: []byte(`{"signed":true}`),
		Requirement: []byte(`{}`), UniqueKey: p.ID}, testKeyholder()))
	if to != Submitted {
		p = must.Get(finish(s, p.ID, Outcome{State: to, Proof: map[State]Proof{Settled: Claimed}[to],
			Transaction: "0xtx"}))(t)
	}
	return p
}

func used(t *testing.T, s *Store, w budget.Window) (u budget.Use) {
	t.Helper()
	require.NoError(t, s.view(t.Context(), func(tx *tx) (err error) { u, err = tx.used(w); return err }))
	return u
}

func requireCode(t *testing.T, err error, want x402.Code) {
	t.Helper()
	require.True(t, x402.HasCode(err, want), "%v", err)
}

func TestWhatEachStateCountsAs(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *Store, _ *clock) {
		for i, state := range []State{Reserved, Submitted, Unknown, Settled} {
			pay(t, s, testHold(1<<i), state)
		}
		p := pay(t, s, testHold(16), Reserved)
		require.NoError(t, s.Release(t.Context(), p.ID, "not sent"))
		require.Equal(t, budget.Use{Spent: 8, Held: 1 + 2 + 4}, used(t, s, budget.Window{}))
	})
}

// The table of states of payment.go, in its own words.
func TestStatesFollowTheTable(t *testing.T) {
	legal := map[[2]State]bool{
		{Reserved, Submitted}: true, {Reserved, Failed}: true,
		{Submitted, Settled}: true, {Submitted, Failed}: true, {Submitted, Unknown}: true,
		{Unknown, Unknown}: true, {Unknown, Settled}: true, {Unknown, Failed}: true,
		{Settled, Settled}: true, // better proof
		{Settled, Failed}:  true, // a false receipt, of what was only claimed
	}
	all := []State{Reserved, Submitted, Unknown, Settled, Failed}
	for _, from := range all {
		for _, to := range all {
			t.Run(string(from)+" to "+string(to), func(t *testing.T) {
				eachEngine(t, func(t *testing.T, s *Store, _ *clock) {
					var p Payment
					if from == Failed {
						p = pay(t, s, testHold(1), Reserved)
						require.NoError(t, s.Release(t.Context(), p.ID, "not sent"))
					} else {
						p = pay(t, s, testHold(1), from)
					}
					p = must.Get(s.Payment(t.Context(), p.ID))(t)
					err := s.tx(t.Context(), func(tx *tx) error { return tx.move(p, to, "{}", "note = ''") })
					if legal[[2]State{from, to}] {
						require.NoError(t, err)
					} else {
						require.ErrorIs(t, err, ErrTransition)
					}
				})
			})
		}
	}
}

// The hold and the check are one: with room for ten, a hundred at once hold exactly ten.
func TestAHundredAtOnceNeverHoldMoreThanTheCap(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *Store, _ *clock) {
		second := besides(t, s) // of the same day and month
		rules := budget.Rules{PerCall: 100, Day: 100, Month: 100, ApproveAbove: 100, Rate: 1000}
		var wait sync.WaitGroup
		var mu sync.Mutex
		held, refused := 0, 0
		for i := range 100 {
			store := []*Store{s, second}[i%2]
			wait.Go(func() {
				_, err := reserveBy(store, rules, testHold(10))
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					held++
				} else if x402.HasCode(err, x402.BudgetExceeded) {
					refused++
				}
			})
		}
		wait.Wait()
		require.Equal(t, 10, held)
		require.Equal(t, 90, refused)
	})
}

// A process that was taken for dead, and comes back, leaves a payment to who works on it by now.
func TestALeaseIsReleasedByItsOwner(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *Store, _ *clock) {
		other := besides(t, s)
		p := pay(t, s, testHold(1), Submitted)
		require.True(t, must.Get(other.AcquireLease(t.Context(), p.ID, s.Self()))(t))
		for _, who := range []*Store{s, other} {
			p = must.Get(s.Payment(t.Context(), p.ID))(t)
			require.Equal(t, other.Self(), p.LeaseOwner)
			require.NoError(t, who.ReleaseLease(t.Context(), p.ID))
		}
		p = must.Get(s.Payment(t.Context(), p.ID))(t)
		require.Empty(t, p.LeaseOwner)
	})
}

func TestTheChainsLayerCountsHoldsAndWhatSettledAfterItWasRead(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *Store, c *clock) {
		readAt := c.now()
		pay(t, s, testHold(3), Settled) // after the reading: not in its figure
		left := pay(t, s, testHold(4), Unknown)
		// nobody works on it, and it is held all the same
		require.NoError(t, s.ReleaseLease(t.Context(), left.ID))
		h := testHold(4)
		h.Funds.Free, h.Funds.ReadAt = money.NewAmount(10), readAt
		_, err := reserve(s, h)
		var short *ShortOfFunds
		require.ErrorAs(t, err, &short)
		require.Equal(t, ShortOfFunds{money.NewAmount(10), money.NewAmount(7), money.NewAmount(4)}, *short)

		h.Funds.ReadAt = c.now() // a reading that shows the settled payment
		must.Get(reserve(s, h))(t)
	})
}

func TestWindowsNeverOpenBackwards(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *Store, c *clock) {
		pay(t, s, testHold(5), Settled)
		c.set(time.Date(2026, 11, 19, 12, 0, 0, 0, time.UTC)) // two days back
		require.Equal(t, 21, must.Get(s.Facts(t.Context(), Question{}))(t).Now.Day())
		require.Equal(t, 21, must.Get(reserve(s, testHold(1)))(t).Created.Day())
	})
}

func TestSessionOutlivesTheProcessAndEndsIdle(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *Store, c *clock) {
		first := pay(t, s, testHold(1), Settled)
		require.NoError(t, s.Close())
		s = besides(t, s)
		c.set(c.now().Add(budget.SessionIdle - time.Second))
		again := pay(t, s, testHold(1), Settled)
		require.Equal(t, first.Session, again.Session, "a restart begins no session")
		c.set(c.now().Add(budget.SessionIdle))
		limit := money.Dollars(42)
		h := testHold(1)
		h.SessionCap = &limit
		p := must.Get(reserve(s, h))(t)
		facts := must.Get(s.Facts(t.Context(), Question{}))(t)
		require.Equal(t, limit, *facts.Session.Cap)
		require.NotEqual(t, first.Session, p.Session)
	})
}

func TestIdempotencyKeyBelongsToOneLivingPayment(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *Store, _ *clock) {
		h := testHold(1)
		h.Payment.IdempotencyKey = "k"
		p := pay(t, s, h, Reserved)
		_, err := reserve(s, h)
		var taken *AlreadyPaying
		require.ErrorAs(t, err, &taken)
		require.Equal(t, p.ID, taken.Payment.ID)
		require.NoError(t, s.Release(t.Context(), p.ID, "not sent"))
		require.NoError(t, must.Err(reserve(s, h)), "a failed payment lets go of its key")
	})
}

func TestTheSameSignatureIsNeverSubmittedTwice(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *Store, _ *clock) {
		a, b := pay(t, s, testHold(1), Reserved), pay(t, s, testHold(1), Reserved)
		require.NoError(t, s.Submit(t.Context(), a, Signed{Payload: []byte("{}"), Requirement: []byte("{}"),
			UniqueKey: "x"}, testKeyholder()))
		require.ErrorIs(t, s.Submit(t.Context(), b, Signed{Payload: []byte("{}"), Requirement: []byte("{}"),
			UniqueKey: "x"}, testKeyholder()), ErrSignedBefore)
		require.Equal(t, Reserved, must.Get(s.Payment(t.Context(), b.ID))(t).State)
	})
}

func TestTheChainsWordStands(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *Store, _ *clock) {
		p := pay(t, s, testHold(1), Submitted)
		must.Get(s.Finish(t.Context(), p.ID, Outcome{State: Settled, Proof: Chain, Transaction: "0xtrue"}))(t)
		got := must.Get(s.Finish(t.Context(), p.ID,
			Outcome{State: Settled, Proof: Claimed, Transaction: "0xother"}))(t)
		require.Equal(t, Chain, got.Proof)
		require.Equal(t, "0xtrue", got.Transaction)
		got = must.Get(s.Finish(t.Context(), p.ID,
			Outcome{State: Unknown, Content: &Content{Status: 200, Body: []byte("late")}}))(t)
		require.Equal(t, Settled, got.State, "a late shrug takes no proof away")
		c := must.Get(s.Content(t.Context(), p.ID))(t)
		require.Equal(t, "late", string(c.Body), "but its content is kept")
	})
}

func TestExpired(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *Store, c *clock) {
		signed := func(network, feePayer string, to State) {
			h := testHold(1)
			h.Payment.Network = network
			p := pay(t, s, h, Reserved)
			require.NoError(t,
				s.Submit(t.Context(), p, Signed{Payload: []byte(`{}`), Requirement: []byte(`{}`),
					UniqueKey: p.ID, Evidence: x402.Evidence{FeePayer: feePayer}}, testKeyholder()))
			if to != Submitted {
				must.Get(finish(s, p.ID, Outcome{State: to, Proof: map[State]Proof{Settled: Claimed}[to]}))(t)
			}
		}
		signed("solana:x", "long ago", Failed)
		c.set(c.now().Add(2 * time.Hour))
		since := c.now()
		signed("solana:x", "late", Failed)
		signed("solana:x", "late", Failed)
		signed("solana:x", "good", Settled)
		signed("solana:x", "open", Unknown)
		signed("solana:y", "elsewhere", Failed)
		signed("solana:x", "", Failed)
		expired := must.Get(s.Expired(t.Context(), "solana:x", since))(t)
		var who []string
		for _, p := range expired {
			who = append(who, p.Evidence.FeePayer)
		}
		require.Equal(t, []string{"late", "late", ""}, who)
	})
}

// A connection is opened without waiting for whoever writes, in this process or another, and writes nothing.
func TestAConnectionIsOpenedWhileOthersWrite(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *Store, _ *clock) {
		size := func() int64 {
			if s.Shared() {
				return 0
			}
			info := must.Get(os.Stat(filepath.Join(s.home, FileName+"-wal")))(t)
			return info.Size()
		}
		require.NoError(t, s.tx(t.Context(), func(*tx) error {
			before := size()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			require.NoError(t, must.Get(openNamed(ctx, nameOf(s), Options{}))(t).Close())
			require.Equal(t, before, size())
			return nil
		}))
	})
}

func TestAliveDistinguishesRunningFromEndedProcesses(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *Store, _ *clock) {
		p := pay(t, s, testHold(1), Submitted)
		require.True(t, s.Alive(p.LeaseOwner))
		other := besides(t, s)
		require.True(t, other.Alive(p.LeaseOwner), "seen from another process's store")
		require.NoError(t, s.Close())
		require.False(t, other.Alive(p.LeaseOwner))
		require.False(t, other.Alive(""))
		require.False(t, other.Alive("run_../../etc/passwd"))
	})
}

// A ledger that is gone or damaged stops payments; it is never replaced.
func TestABrokenLedgerIsNeverOverwritten(t *testing.T) {
	for name, damage := range map[string]func(t *testing.T, path string){
		"missing": func(t *testing.T, path string) { require.NoError(t, os.Remove(path)) },
		"garbage": func(t *testing.T, path string) {
			require.NoError(t, os.WriteFile(path, []byte("not a database, but somebody's only copy"), 0o600))
		},
		"empty": func(t *testing.T, path string) { require.NoError(t, os.WriteFile(path, nil, 0o600)) },
	} {
		t.Run(name, func(t *testing.T) {
			s, _, home := emptyStore(t)
			require.NoError(t, s.Close())
			path := filepath.Join(home, FileName)
			damage(t, path)
			before, _ := os.ReadFile(path)
			requireCode(t, must.Err(Open(t.Context(), home, Options{Contents: Keeper})), x402.LedgerCorrupt)
			after, _ := os.ReadFile(path)
			require.Equal(t, string(before), string(after))
			if name != "missing" {
				require.Error(t, Create(t.Context(), home, Options{}), "creating replaces nothing either")
			}
		})
	}
}

func TestFilesAreTheOwnersOnly(t *testing.T) {
	s, _, home := emptyStore(t)
	pay(t, s, testHold(1), Settled)
	for _, name := range []string{FileName, FileName + "-wal", "run"} {
		info := must.Get(os.Stat(filepath.Join(home, name)))(t)
		require.Zero(t, info.Mode().Perm()&0o077, name)
	}
}

// Errors are classified where the database answers, by its own codes. A mistake in our SQL is no
// damage of the file, and what a transaction itself answers passes unchanged, whatever it is.
func TestErrorsAreClassifiedByTheDatabase(t *testing.T) {
	s, _, _ := emptyStore(t)
	answer := errors.New("an answer that this package does not know")
	spoil := func(query string) func(*tx) error {
		return func(tx *tx) error { _, err := tx.Exec(query); return err }
	}
	for _, c := range []struct {
		name string
		f    func(*tx) error
		code x402.Code // "": the answer itself
	}{
		{"an answer", func(*tx) error { return answer }, ""},
		{"no row is an answer", func(tx *tx) error {
			err := tx.Row(`SELECT id FROM payments WHERE id = 'none'`).Scan(new(string))
			require.ErrorIs(t, err, sql.ErrNoRows)
			return sqldb.Otherwise(err, answer)
		}, ""},
		{"a table that is not there", spoil(`INSERT INTO nowhere VALUES (1)`), x402.Internal},
		{"a mistake of syntax", spoil(`INSRT`), x402.Internal},
		{"a question with a mistake", func(tx *tx) error {
			return tx.Row(`SELECT nothing`).Scan(new(int))
		}, x402.Internal},
		{"a list with a mistake", func(tx *tx) error {
			return tx.Each(func(sqldb.Row) error { return nil }, `SELECT nothing`)
		}, x402.Internal},
		{"a value of another type", func(tx *tx) error {
			return tx.Row(`SELECT 'a'`).Scan(new(int))
		}, x402.LedgerUnavailable},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, run := range []func(context.Context, func(*tx) error) error{s.tx, s.view} {
				if err := run(t.Context(), c.f); c.code == "" {
					require.Equal(t, answer, err)
				} else {
					requireCode(t, err, c.code)
				}
			}
		})
	}
	pay(t, s, testHold(1), Settled)
}

// A ledger of another format is refused, also by a program that had it open when it was changed; so
// is a database that is none of ours.
func TestAnotherFormatIsRefused(t *testing.T) {
	s, _, home := emptyStore(t)
	p := pay(t, s, testHold(1), Reserved)
	must.Get(rawDB(t, s).Exec(`UPDATE meta SET value = ? WHERE key = 'format'`, format+1))(t)
	_, err := Open(t.Context(), home, Options{Contents: Keeper})
	requireCode(t, err, x402.LedgerUnavailable)
	require.ErrorContains(t, err, fmt.Sprintf("format %d, this program needs %d", format+1, format))
	requireCode(t, must.Err(reserve(s, testHold(1))), x402.LedgerUnavailable)
	requireCode(t, s.Submit(t.Context(), p, Signed{Payload: []byte("{}"), Requirement: []byte("{}"),
		UniqueKey: "x"}, testKeyholder()), x402.LedgerUnavailable)
	for _, spoil := range []string{
		`UPDATE meta SET value = ''`, `UPDATE meta SET value = 'two'`, `UPDATE meta SET value = '0'`,
		`UPDATE meta SET value = '-1'`, `DELETE FROM meta`, `DROP TABLE meta`,
	} {
		must.Get(rawDB(t, s).Exec(spoil))(t)
		_, err := Open(t.Context(), home, Options{Contents: Keeper})
		var e *x402.Error
		require.ErrorAs(t, err, &e, spoil)
		require.Contains(t, []x402.Code{x402.LedgerUnavailable, x402.LedgerCorrupt}, e.Code, spoil)
	}
}

// The questions asked for every payment must not become slower with every payment: each is answered
// from an index that holds only what is open, or one row.
func TestPlansUseTheirIndexes(t *testing.T) {
	s, _, _ := emptyStore(t)
	for query, index := range map[string]string{
		SelectPayment + ` WHERE fingerprint = ? AND (state IN ('reserved', 'submitted', 'unknown')
			OR state = 'settled' AND delivered = 0) ORDER BY seq DESC`: "payments_resumable",
		`SELECT EXISTS (SELECT 1 FROM payments WHERE fingerprint = ? AND (` + resumable +
			`))`: "payments_resumable",
		`SELECT EXISTS (SELECT 1 FROM payments WHERE fingerprint = ? AND (` + resumable +
			`) AND waiter = '' AND delivered = 0)`: "payments_resumable",
		SelectPayment + ` WHERE state IN ('reserved', 'submitted', 'unknown') AND seq > ` + seqOf +
			` ORDER BY seq LIMIT ?`: "payments_unfinished",
		`SELECT amount FROM payments WHERE source = ? AND asset = ? AND network = ?
			AND state IN ('reserved', 'submitted', 'unknown')`: "payments_held",
		`SELECT amount FROM payments WHERE source = ? AND asset = ? AND network = ? AND state = 'settled'
			AND updated_at >= ?`: "payments_settled",
		SelectPayment + ` WHERE state = 'settled' AND proof = 'claimed' AND created_at >= ?
			ORDER BY seq LIMIT ?`: "payments_claimed",
		`SELECT max(created_at) FROM payments`:                                           "payments_by_time",
		SelectPayment + ` WHERE idempotency_key = ? AND agent = ? AND state <> 'failed'`: "payments_by_key",
	} {
		args := make([]any, strings.Count(query, "?"))
		rows := must.Get(rawDB(t, s).Query("EXPLAIN QUERY PLAN "+query, args...))(t)
		plan := ""
		for rows.Next() {
			var id, parent, unused int
			var detail string
			require.NoError(t, rows.Scan(&id, &parent, &unused, &detail))
			plan += detail + "\n"
		}
		require.NoError(t, rows.Close())
		require.Contains(t, plan, index, query)
	}
}

// A home on a disk that became read-only is reported with what to do, and not in SQLite's words.
func TestAReadOnlyDisk(t *testing.T) {
	s, _, _ := emptyStore(t)
	require.NoError(t, s.tx(t.Context(), func(tx *tx) error {
		return must.Err(tx.Exec(`PRAGMA query_only = 1`))
	}))
	_, err := reserve(s, testHold(1))
	requireCode(t, err, x402.LedgerUnavailable)
	require.NotContains(t, err.Error(), "database")
	require.Contains(t, x402.AsError(err).Hint, "read-only")
}

// A full disk is trouble of the moment: what has no room was not done, and what was done
// before is there.
func TestAFullDisk(t *testing.T) {
	s, _, _ := emptyStore(t)
	sent := pay(t, s, testHold(1), Submitted)
	var pages int
	require.NoError(t, rawDB(t, s).QueryRow(`PRAGMA page_count`).Scan(&pages))
	full := func(most int) {
		require.NoError(t, s.tx(t.Context(), func(tx *tx) error {
			return tx.Each(func(sqldb.Row) error { return nil }, fmt.Sprintf(`PRAGMA max_page_count = %d`, most))
		}))
	}
	full(pages)
	large := testHold(1)
	large.Payment.URL = "https://api.example/?" + strings.Repeat("x", 1<<20)
	_, err := reserve(s, large)
	requireCode(t, err, x402.LedgerUnavailable)
	require.ErrorContains(t, err, "the disk is full")
	require.Contains(t, x402.AsError(err).Hint, "make room")
	requireCode(t, must.Err(s.Finish(t.Context(), sent.ID, Outcome{State: Settled, Proof: Claimed,
		Content: &Content{Body: make([]byte, 1<<20)}})), x402.LedgerUnavailable)
	list := must.Get(s.Recent(t.Context(), 10))(t)
	require.Len(t, list, 1)
	require.Equal(t, Submitted, list[0].State)
	full(1 << 30)
	must.Get(s.Finish(t.Context(), sent.ID, Outcome{State: Settled, Proof: Claimed}))(t)
	must.Get(s.Verify(t.Context(), Head{}))(t)
}

// A decision is checked again as soon as anything that it rests on may have changed: each such
// change moves the head of the ledger's facts, whoever makes it.
func TestChangesMoveTheHead(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, s *Store, p Payment) error{
		"reserved": func(t *testing.T, s *Store, _ Payment) error {
			pay(t, s, testHold(1), Reserved)
			return nil
		},
		"submitted": func(t *testing.T, s *Store, p Payment) error {
			return s.Submit(t.Context(), p, Signed{Payload: []byte(`{}`), Requirement: []byte(`{}`),
				UniqueKey: "u"}, testKeyholder())
		},
		"released": func(t *testing.T, s *Store, p Payment) error {
			return s.Release(t.Context(), p.ID, "test")
		},
		"frozen": func(t *testing.T, s *Store, _ Payment) error {
			return s.Freeze(t.Context(), Freeze{By: "owner", Why: "test"})
		},
		"a new session": func(t *testing.T, s *Store, _ Payment) error {
			return must.Err(s.NewSession(t.Context(), nil, nil))
		},
		"approved": func(t *testing.T, s *Store, _ Payment) error {
			return must.Err(s.Approve(t.Context(), asking(t, s, 1).ID, "owner", nil))
		},
		"redated": func(t *testing.T, s *Store, _ Payment) error { return s.Redate(t.Context()) },
	} {
		t.Run(name, func(t *testing.T) {
			eachEngine(t, func(t *testing.T, s *Store, _ *clock) {
				p := pay(t, s, testHold(1), Reserved)
				before := must.Get(s.Facts(t.Context(), Question{}))(t)
				require.NoError(t, change(t, s, p))
				require.Greater(t, must.Get(s.Facts(t.Context(), Question{}))(t).Head, before.Head)
			})
		})
	}
}

// What a decision rests on is checked again when the money is held.
func TestReserveChecksADecisionAgain(t *testing.T) {
	another := func(price uint64, payTo string, to State) func(*testing.T, *Store, *clock) {
		return func(t *testing.T, s *Store, _ *clock) {
			h := testHold(price)
			h.Payment.PayTo = payTo
			pay(t, s, h, to)
		}
	}
	for name, c := range map[string]struct {
		change    func(*budget.Rules)
		meanwhile func(*testing.T, *Store, *clock)
	}{
		"money was held": {func(r *budget.Rules) { r.Day = 10 }, another(6, "0xpayee", Reserved)},
		"others paid, and the rate is full": {func(r *budget.Rules) { r.Rate = 1 },
			another(1, "0xpayee", Submitted)},
		"another was paid in the payee's place": {func(r *budget.Rules) { r.PayeeChange = budget.RuleRefuse },
			another(1, "0xother", Submitted)},
		"the clock was set back": {func(*budget.Rules) {},
			func(_ *testing.T, _ *Store, at *clock) { at.set(at.now().Add(-24 * time.Hour)) }},
	} {
		t.Run(name, func(t *testing.T) {
			eachEngine(t, func(t *testing.T, s *Store, at *clock) {
				rules := budget.Rules{PerCall: 10, Day: 100, Month: 100, ApproveAbove: 10, Rate: 100}
				c.change(&rules)
				h := testHold(6)
				must.Get(decide(s, rules, &h))(t)
				c.meanwhile(t, s, at)
				now := must.Get(s.Facts(t.Context(), Question{}))(t)
				h.Decision.Session = now.Session.ID // which began meanwhile: that alone would be enough
				require.ErrorIs(t, must.Err(s.Reserve(t.Context(), h)), ErrMoved)
			})
		})
	}
}
