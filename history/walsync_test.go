package history

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"x402-wallet/x402"
)

// countFlushes has a store's flushes counted.
func countFlushes(s *Store) *atomic.Int64 {
	var n atomic.Int64
	s.wal.flush = func(file *os.File) error {
		n.Add(1)
		return file.Sync()
	}
	return &n
}

// A payment waits for the disk twice: before it leaves, and before its outcome is told. Whatever else is
// written needs not outlive a power cut by itself, and SQLite never waits for the disk where that would
// make no commit durable.
func TestWhatWaitsForTheDisk(t *testing.T) {
	s, _, _ := newStore(t)
	n := countFlushes(s)
	var synchronous int
	var mode string
	require.NoError(t, s.write.QueryRow(`PRAGMA synchronous`).Scan(&synchronous))
	require.NoError(t, s.write.QueryRow(`PRAGMA journal_mode`).Scan(&mode))
	require.Equal(t, 1, synchronous, "NORMAL: the log is flushed before it is copied, the ledger after")
	require.Equal(t, "wal", mode)

	p := pay(t, s, testHold(1), Reserved)
	require.Zero(t, n.Load(), "nothing may leave yet")
	require.NoError(t, s.Submit(t.Context(), p, Signed{Payload: []byte(`{}`), Requirement: []byte(`{}`),
		UniqueKey: "one"}, testKeyholder()))
	require.EqualValues(t, 1, n.Load(), "submitted")
	_, err := finish(s, p.ID, Outcome{State: Settled, Proof: Claimed})
	require.NoError(t, err)
	require.EqualValues(t, 2, n.Load(), "settled")
	require.NoError(t, s.Deliver(t.Context(), p.ID))
	require.EqualValues(t, 2, n.Load(), "delivered")
}

// A disk in a power cut: it has what was in the files when the last flush that succeeded began.
type disk struct {
	home string
	mu   sync.Mutex
	last map[string][]byte
}

func (d *disk) flush(file *os.File) error {
	now, err := d.files()
	for err == nil && now == nil {
		now, err = d.files()
	}
	if err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last = now
	return nil
}

// files are the ledger's files of one moment, or nil when its log began anew between one and the other:
// what was copied out of the log meanwhile would be in neither.
func (d *disk) files() (map[string][]byte, error) {
	const log, header = FileName + "-wal", 32
	before, err := os.ReadFile(filepath.Join(d.home, log))
	if err != nil {
		return nil, err
	}
	ledger, err := os.ReadFile(filepath.Join(d.home, FileName))
	if err != nil {
		return nil, err
	}
	after, err := os.ReadFile(filepath.Join(d.home, log))
	if err != nil {
		return nil, err
	}
	if len(before) < header || !bytes.HasPrefix(after, before[:header]) {
		return nil, nil
	}
	return map[string][]byte{FileName: ledger, log: after}, nil
}

// powerCut is a home as it is found after a power cut now.
func (d *disk) powerCut(t *testing.T) string {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	home := t.TempDir()
	for name, data := range d.last {
		require.NoError(t, os.WriteFile(filepath.Join(home, name), data, 0o600))
	}
	return home
}

// Of payments that are made side by side nothing that the ledger has answered for is lost in a power cut at
// any moment: neither a signature nor an outcome; and the ledger is whole, up to the checkpoint.
func TestPowerCut(t *testing.T) {
	s, _, home := newStore(t)
	d := &disk{home: home}
	s.wal.flush = d.flush
	_, err := s.write.Exec(`PRAGMA wal_autocheckpoint = 40`) // the log begins anew many times
	require.NoError(t, err)

	pay(t, s, testHold(1), Settled) // begins the session

	type cut struct {
		home  string
		state map[string]State // that was answered for before
		head  Head
	}
	var mu sync.Mutex
	answered, cuts := map[string]State{}, []cut{}
	say := func(id string, state State) {
		mu.Lock()
		defer mu.Unlock()
		answered[id] = state
		if len(answered)%4 != 0 {
			return
		}
		c := cut{state: map[string]State{}}
		for id, state := range answered {
			c.state[id] = state
		}
		if err := s.AtHead(context.Background(), func(h Head) error { c.head = h; return nil }); err != nil {
			t.Error(err)
		}
		c.home = d.powerCut(t)
		cuts = append(cuts, c)
	}
	payOnce := func() error {
		p, err := reserve(s, testHold(1))
		if err == nil {
			err = s.Submit(context.Background(), p, Signed{Payload: []byte(`{}`), Requirement: []byte(`{}`),
				UniqueKey: p.ID}, testKeyholder())
		}
		if err != nil {
			return err
		}
		say(p.ID, Submitted)
		_, err = finish(s, p.ID, Outcome{State: Settled, Proof: Claimed,
			Content: &Content{Status: 200, Body: []byte("content of " + p.ID)}})
		if err != nil {
			return err
		}
		say(p.ID, Settled)
		return s.Deliver(context.Background(), p.ID)
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 8 {
				if err := payOnce(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	require.NotEmpty(t, cuts)
	for _, c := range cuts {
		after, err := Open(t.Context(), c.home, Options{})
		require.NoError(t, err)
		for id, state := range c.state {
			p, err := after.Payment(t.Context(), id)
			require.NoError(t, err, "%s is %s, and lost", id, state)
			require.Contains(t, []State{state, Settled}, p.State, id)
		}
		_, err = after.Verify(t.Context(), c.head)
		require.NoError(t, err)
		require.NoError(t, after.Close())
	}
}

// slowDisk has a store's first flush last until end; begun is closed when it has begun.
func slowDisk(s *Store) (n *atomic.Int64, begun, end chan struct{}) {
	n, begun, end = &atomic.Int64{}, make(chan struct{}), make(chan struct{})
	s.wal.flush = func(*os.File) error {
		if n.Add(1) == 1 {
			close(begun)
			<-end
		}
		return nil
	}
	return n, begun, end
}

// While a flush runs all who need one gather for the next, which is one for all of them, as their transaction
// is: what was written after it began it may have missed.
func TestFlushesAreShared(t *testing.T) {
	s, _, _ := newStore(t)
	n, begun, end := slowDisk(s)
	nothing := func(*tx) error { return nil }
	var all sync.WaitGroup
	write := func() {
		all.Go(func() {
			if err := s.tx(context.Background(), nothing); err != nil {
				t.Error(err)
			}
		})
	}
	write()
	<-begun
	const more = 9
	for range more {
		write()
	}
	waiting := func() bool {
		s.queue.mu.Lock()
		defer s.queue.mu.Unlock()
		return len(s.queue.waiting) == more && s.queue.gathers != nil
	}
	require.Eventually(t, waiting, time.Minute, time.Millisecond)
	close(end)
	all.Wait()
	require.EqualValues(t, 2, n.Load())
}

// What need not be durable waits for no flush, and neither does a transaction that is full: what gathers is
// written then, and answered when a flush that began later has ended.
func TestAFlushHoldsUpNobodyElse(t *testing.T) {
	s, _, _ := newStore(t)
	_, begun, end := slowDisk(s)
	var all sync.WaitGroup
	var answered atomic.Int64
	write := func(key string) {
		all.Go(func() {
			err := s.tx(context.Background(), func(tx *tx) error {
				_, err := tx.exec(`INSERT INTO meta VALUES (?, 'x')`, key)
				return err
			})
			answered.Add(1)
			if err != nil {
				t.Error(err)
			}
		})
	}
	written := func() (n int) {
		require.NoError(t, s.read.QueryRow(`SELECT count(*) FROM meta WHERE value = 'x'`).Scan(&n))
		return n
	}
	write("first")
	<-begun
	write("second")
	gathers := func() bool {
		s.queue.mu.Lock()
		defer s.queue.mu.Unlock()
		return s.queue.gathers != nil
	}
	require.Eventually(t, gathers, time.Minute, time.Millisecond)
	require.Equal(t, 1, written())
	require.NoError(t, s.commitNoSync(t.Context(), func(*tx) error { return nil }))
	require.Equal(t, 2, written())
	for i := range maxBatch {
		write(fmt.Sprint("more ", i))
	}
	require.Eventually(t, func() bool { return written() == 2+maxBatch }, time.Minute, time.Millisecond)
	require.Zero(t, answered.Load())
	close(end)
	all.Wait()
}

// A row that was undone with its change is not taken for one that the disk has: the next one has its number.
func TestAnUndoneRowIsNotDurable(t *testing.T) {
	s, _, _ := newStore(t)
	release := occupy(t, s)
	refusal := errors.New("no")
	var all sync.WaitGroup
	all.Go(func() {
		assert.ErrorIs(t, s.tx(context.Background(), func(tx *tx) error {
			return errors.Join(tx.audit(0, frozenEvent, map[string]any{}), refusal)
		}), refusal)
	})
	all.Go(func() { assert.NoError(t, s.tx(context.Background(), func(*tx) error { return nil })) })
	gathered := func() bool {
		s.queue.mu.Lock()
		defer s.queue.mu.Unlock()
		return len(s.queue.waiting) == 2
	}
	require.Eventually(t, gathered, time.Minute, time.Millisecond)
	release()
	all.Wait()
	n := countFlushes(s)
	require.NoError(t, s.commitNoSync(t.Context(), func(tx *tx) error {
		return tx.audit(0, frozenEvent, map[string]any{})
	}))
	require.NoError(t, s.AtHead(t.Context(), func(Head) error { return nil }))
	require.EqualValues(t, 1, n.Load())
}

// Who leaves while the disk is busy is not written any more.
func TestLeavingWhileTheDiskIsBusy(t *testing.T) {
	s, _, _ := newStore(t)
	_, begun, end := slowDisk(s)
	first := make(chan error)
	go func() { first <- s.tx(context.Background(), func(*tx) error { return nil }) }()
	<-begun
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	err := s.tx(ctx, func(*tx) error { t.Error("it was written"); return nil })
	require.True(t, x402.HasCode(err, x402.LedgerUnavailable), err)
	close(end)
	require.NoError(t, <-first)
}

// After a flush that failed nothing is durable any more in this process: the kernel forgets what it could
// not write. What was to be durable is refused, and what is written all the same is in the ledger.
func TestAFailedFlush(t *testing.T) {
	s, _, _ := newStore(t)
	p := pay(t, s, testHold(1), Reserved)
	broken := errors.New("the disk is broken")
	s.wal.flush = func(*os.File) error { return broken }
	submit := func() error {
		return s.Submit(t.Context(), p, Signed{Payload: []byte(`{}`), Requirement: []byte(`{}`), UniqueKey: "one"},
			testKeyholder())
	}
	err := submit()
	require.ErrorIs(t, err, broken)
	require.True(t, x402.HasCode(err, x402.LedgerUnavailable))
	is, err := s.Payment(t.Context(), p.ID)
	require.NoError(t, err)
	require.Equal(t, Submitted, is.State, "it counts")
	require.ErrorIs(t, s.Release(t.Context(), p.ID, "not sent"), ErrTransition)

	s.wal.flush = func(*os.File) error { return nil }
	_, err = finish(s, p.ID, Outcome{State: Settled, Proof: Claimed})
	require.ErrorIs(t, err, broken)
	err = s.AtHead(t.Context(), func(Head) error { return nil })
	require.ErrorIs(t, err, broken)
}

// A checkpoint waits for what another process wrote and did not flush yet, or it would name what a power cut
// takes back.
func TestACheckpointWaitsForTheDisk(t *testing.T) {
	s, _, home := newStore(t)
	d := &disk{home: home}
	s.wal.flush = d.flush
	other, err := Open(t.Context(), home, Options{})
	require.NoError(t, err)
	defer other.Close()
	require.NoError(t, other.commitNoSync(t.Context(), func(t *tx) error {
		return t.audit(0, frozenEvent, map[string]any{})
	}))
	var head Head
	require.NoError(t, s.AtHead(t.Context(), func(h Head) error { head = h; return nil }))
	after, err := Open(t.Context(), d.powerCut(t), Options{})
	require.NoError(t, err)
	defer after.Close()
	has, err := after.Has(t.Context(), head)
	require.NoError(t, err)
	require.True(t, has)

	n := countFlushes(s)
	require.NoError(t, s.AtHead(t.Context(), func(Head) error { return nil }))
	require.Zero(t, n.Load(), "the disk has it")
}
