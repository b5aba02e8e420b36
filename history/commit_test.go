package history

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
	"x402-wallet/internal/must"
	"x402-wallet/x402"
)

// occupy keeps the one writer busy, so that changes gather behind it; release lets it go on.
func occupy(t *testing.T, s *Store) (release func()) {
	t.Helper()
	begun, end := make(chan struct{}), make(chan struct{})
	go func() {
		_ = s.tx(context.Background(), func(*tx) error { close(begun); <-end; return nil })
	}()
	<-begun
	return func() { close(end) }
}

// What a transaction knows of the ledger is what is in it, after each of the changes that share it, also
// after those that were undone.
func TestWhatATransactionKnows(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *Store, c *clock) {
		done := func(f func(*tx) error) func() error {
			return func() error { return s.tx(t.Context(), f) }
		}
		undone := func(f func(*tx) error) func() error { return undone(t, s, f) }
		frozen := Freeze{Network: "net", Account: "account", By: "owner", Why: "test"}
		insert := func(tx *tx, id string, later time.Duration) error {
			p := testHold(1).Payment
			p.ID, p.Session, p.State = id, "ses_1", Reserved
			p.Created, p.Updated = c.now().Add(later), c.now().Add(later)
			return tx.insert(&p)
		}
		together(t, s, knowsWhatIs, []func() error{
			done(func(tx *tx) error { return tx.audit(0, "a", 1) }),
			undone(func(tx *tx) error { return tx.audit(0, "b", 1) }),
			done(func(tx *tx) error { return insert(tx, "pay_1", time.Hour) }),
			undone(func(tx *tx) error { return insert(tx, "pay_2", 2*time.Hour) }),
			done(func(tx *tx) error { return insert(tx, "pay_3", 3*time.Hour) }),
			func() error { return s.Freeze(t.Context(), frozen) },
			undone(func(tx *tx) error {
				_, err := tx.Exec(`INSERT INTO lifts VALUES (1, 1, ?)`, []byte{})
				tx.known.freezes = nil
				return errors.Join(err, knowsWhatIs(t, tx))
			}),
			func() error { _, err := s.Unfreeze(t.Context(), nil); return err },
			func() error { return s.Freeze(t.Context(), Freeze{By: "owner"}) },
			func() error { return s.Unlift(t.Context(), 1) },
			func() error { return s.Redate(t.Context()) },
		})
	})
}

// together makes changes in one transaction, in their order, and has a look in it after each of them.
func together(t *testing.T, s *Store, look func(*testing.T, *tx) error, changes []func() error) {
	t.Helper()
	release := occupy(t, s)
	var all sync.WaitGroup
	next := func(f func() error) {
		before := s.db.Waiting()
		all.Go(func() { assert.NoError(t, f()) })
		require.Eventually(t, func() bool { return s.db.Waiting() > before }, time.Minute, time.Millisecond)
	}
	for _, f := range changes {
		next(f)
		next(func() error {
			return s.tx(context.Background(), func(tx *tx) error { return look(t, tx) })
		})
	}
	require.LessOrEqual(t, s.db.Waiting(), 64, "as many as share a transaction")
	release()
	all.Wait()
}

// undone is a change that fails behind f.
func undone(t *testing.T, s *Store, f func(*tx) error) func() error {
	t.Helper()
	refusal := x402.Errorf(x402.BudgetExceeded, "no")
	return func() error {
		err := s.tx(context.Background(), func(tx *tx) error { return errors.Join(f(tx), refusal) })
		if !errors.Is(err, refusal) {
			return fmt.Errorf("not undone: %w", err)
		}
		return nil
	}
}

// Signatures that share a transaction carry the sealed sums and the memory on as if each had read them,
// also behind changes that were refused or undone, and behind what is no signature.
func TestSignaturesTogether(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *Store, _ *clock) {
		var list []Payment
		for i := range uint64(9) {
			h := testHold(i + 1)
			h.Payment.Host, h.Payment.PayTo = fmt.Sprint("host", i%3), fmt.Sprint("0xpayee", i%4)
			h.Payment.URL = fmt.Sprintf("https://%s/%d", h.Payment.Host, i)
			h.Payment.IdempotencyKey = fmt.Sprint("key ", i)
			list = append(list, pay(t, s, h, Reserved))
		}
		k, refusing, other := testKeyholder(), testKeyholder(), testKeyholder()
		refusing.Permit = func(Payment, budget.Facts, Sealed) (*Fact, error) {
			return nil, errors.New("no")
		}
		other.MAC = func(data []byte) ([]byte, error) { return append([]byte("other"), data...), nil }
		signed := func(p Payment) Signed {
			return Signed{Payload: []byte(`{}`), Requirement: []byte(`{}`), UniqueKey: p.ID}
		}
		sign := func(i int) func() error {
			return func() error { return s.Submit(t.Context(), list[i], signed(list[i]), k) }
		}
		refused := func(i int, by Keyholder) func() error {
			return func() error {
				if s.Submit(t.Context(), list[i], signed(list[i]), by) == nil {
					return errors.New("it was signed")
				}
				return nil
			}
		}
		finished := func(i int, o Outcome) func() error {
			return func() error { _, err := finish(s, list[i].ID, o); return err }
		}
		stranger := list[7]
		stranger.PayTo = "0xstranger"
		carried := 0
		together(t, s, func(t *testing.T, in *tx) error {
			if in.known.sealed != nil {
				carried++
			}
			return carriesWhatIsSealed(t, in)
		}, []func() error{
			sign(0), sign(1),
			refused(2, refusing), sign(2),
			func() error {
				return s.tx(t.Context(), func(tx *tx) error {
					assert.NotNil(t, tx.known.sealed)
					carried, err := tx.sealedBefore(other, nil)
					assert.Nil(t, carried)
					return err
				})
			}, sign(3), refused(4, other),
			sign(4), finished(0, Outcome{State: Unknown}),
			undone(t, s, func(tx *tx) error {
				return tx.submit(list[5], s.Self(), signed(list[5]), k)
			}), sign(5),
			undone(t, s, func(tx *tx) error {
				return must.Err(tx.outcome(list[1].ID, Outcome{State: Unknown}))
			}),
			sign(6),
			finished(2, Outcome{State: Settled, Proof: Claimed}),
			func() error {
				rules := SealedRules{Version: 1, Config: []byte("c"), Seal: []byte("s")}
				return s.SealRules(t.Context(), rules, "", false, k)
			},
			func() error {
				err := s.Submit(t.Context(), stranger, signed(stranger), k)
				if !x402.HasCode(err, x402.LedgerCorrupt) {
					return fmt.Errorf("another payment than the one that was reserved: %w", err)
				}
				return nil
			},
			sign(7), finished(7, Outcome{State: Settled, Proof: Chain}), sign(8),
		})
		require.Greater(t, carried, 10)
		must.Get(s.VerifySealed(t.Context(), k))(t)
	})
}

// A transaction compares the tables again for a payment that falls into other windows.
func TestOtherWindowsAreCompared(t *testing.T) {
	tree := budget.Teams{"of-a": {Agents: []string{"a"}}, "of-b": {Agents: []string{"b"}}}
	for scope, query := range map[string]func(Payment) budget.Query{
		"host": func(p Payment) budget.Query { return budget.Query{HostEntries: []string{p.Host}} },
		"agent": func(p Payment) budget.Query {
			return budget.Query{Teams: tree.Path(p.Agent), Tree: tree}
		},
	} {
		t.Run(scope, func(t *testing.T) { otherWindowsAreCompared(t, scope, query) })
	}
}

func otherWindowsAreCompared(t *testing.T, scope string, query func(Payment) budget.Query) {
	eachEngine(t, func(t *testing.T, s *Store, _ *clock) {
		k := testKeyholder()
		k.Query = query
		sign := func(name string) func() error {
			h := testHold(1)
			h.Payment.Host, h.Payment.Agent = name, name
			p := pay(t, s, h, Reserved)
			return func() error {
				signed := Signed{Payload: []byte(`{}`), Requirement: []byte(`{}`), UniqueKey: p.ID}
				return s.Submit(t.Context(), p, signed, k)
			}
		}
		first, second, forged := sign("a"), sign("a"), sign("b") // the first of all has nothing to go on from
		together(t, s, func(*testing.T, *tx) error { return nil }, []func() error{
			first, second,
			func() error {
				return s.tx(t.Context(), func(tx *tx) error {
					assert.NotNil(t, tx.known.sealed)
					_, err := tx.Exec(`UPDATE totals SET held = 0 WHERE scope = ? AND key = 'b'`, scope)
					return err
				})
			},
			func() error {
				if err := forged(); !x402.HasCode(err, x402.LedgerCorrupt) {
					return fmt.Errorf("signed: %w", err)
				}
				return nil
			},
		})
	})
}

// carriesWhatIsSealed compares the sums that a transaction carries on, if it does, with those that it reads.
func carriesWhatIsSealed(t *testing.T, in *tx) error {
	carried := in.known.sealed
	if carried == nil {
		return nil
	}
	lastSums.Store(nil)
	fresh := &tx{Tx: in.Tx, known: &known{}, followed: &followed{}, newest: &atomic.Pointer[Head]{}}
	read, err := fresh.lastSealed(testKeyholder(), nil)
	if err != nil {
		return err
	}
	assert.Equal(t, read.seq, carried.seq)
	assert.Equal(t, read.hash, carried.hash)
	assert.Equal(t, read.mac, carried.mac)
	assert.Equal(t, string(read.Encode()), string(carried.Encode()))
	assert.Equal(t, read.memory.Root, carried.memory.Root)
	return read.memory.Verify()
}

// knowsWhatIs compares what a transaction knows with what it reads without knowing anything.
func knowsWhatIs(t *testing.T, in *tx) error {
	other := *in.Tx
	fresh := &tx{Tx: &other, known: &known{}}
	head, err := in.notBeforeLedger()
	isHead, errFresh := fresh.notBeforeLedger()
	assert.Equal(t, isHead, head)
	assert.Equal(t, fresh.Now, in.Now)
	a, errA := in.frozenBy("net", "account")
	b, errB := fresh.frozenBy("net", "account")
	assert.Equal(t, b, a)
	var hash []byte
	errHash := in.Row(`SELECT hash FROM audit ORDER BY seq DESC LIMIT 1`).Scan(&hash)
	if in.known.hash != nil {
		assert.Equal(t, hash, in.known.hash)
	}
	return errors.Join(err, errFresh, errA, errB, errHash)
}
