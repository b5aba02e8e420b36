package content_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/history"
	"x402-wallet/history/content"
	"x402-wallet/history/historytest"
	"x402-wallet/history/ledgers"
	"x402-wallet/history/report"
	"x402-wallet/history/sqldb"
	"x402-wallet/history/verify"
	"x402-wallet/internal/must"
	"x402-wallet/x402"
)

const kib = 1 << 10

// eachQuota is historytest.EachEngine for ledgers with a quota for content.
func eachQuota(t *testing.T, quota int64, test func(t *testing.T, s *history.Store, k content.Keeper)) {
	t.Helper()
	k := content.Keeper{Quota: quota}
	historytest.EachEngine(t, history.Options{Contents: k},
		func(t *testing.T, s *history.Store, _ *historytest.Clock) { test(t, s, k) })
}

// quotaStore is a ledger with a quota for content.
func quotaStore(t *testing.T, quota int64) (*history.Store, string) {
	t.Helper()
	s, _, home := historytest.SQLite(t, history.Options{Contents: content.Keeper{Quota: quota}})
	return s, home
}

// buy pays for a body of so many bytes; deliver says that the client got it.
func buy(t *testing.T, s *history.Store, size int, deliver bool) string {
	t.Helper()
	p := historytest.Pay(t, s, historytest.Hold(1), history.Submitted)
	o := settled(goods(p.ID, size))
	o.Transaction = "0xtx"
	must.Get(s.Finish(t.Context(), p.ID, o))(t)
	if deliver {
		require.NoError(t, s.Deliver(t.Context(), p.ID))
	}
	return p.ID
}

// settled is the outcome of a payment that bought a content.
func settled(c history.Content) history.Outcome {
	return history.Outcome{State: history.Settled, Proof: history.Claimed, Content: &c}
}

// goods are a good answer of so many bytes.
func goods(id string, size int) history.Content {
	return history.Content{Status: 200, Type: "text/plain", Body: body(id, size)}
}

func body(id string, size int) []byte { return bytes.Repeat([]byte(id[len(id)-8:]), size/8+1)[:size] }

// has checks that a content is there, or is gone and said so.
func has(t *testing.T, s *history.Store, id string, size int, removed string) {
	t.Helper()
	c, err := s.Content(t.Context(), id)
	digest := sha256.Sum256(body(id, size))
	require.Equal(t, hex.EncodeToString(digest[:]), c.SHA256)
	require.EqualValues(t, size, c.Size)
	require.Equal(t, 200, c.Status)
	require.Equal(t, removed, c.Removed)
	if removed == "" {
		require.NoError(t, err)
		require.Equal(t, body(id, size), c.Body)
		return
	}
	require.ErrorIs(t, err, history.ErrContentRemoved)
	require.ErrorIs(t, err, history.ErrNotFound)
	require.Nil(t, c.Body)
}

func sound(t *testing.T, s *history.Store) {
	t.Helper()
	must.Get(verify.Ledger(t.Context(), s, history.Head{}))(t)
	must.Get(verify.Content(t.Context(), s))(t)
}

// The oldest that a client has goes first, and nothing else of its payment.
func TestTheQuotaTakesTheOldestDelivered(t *testing.T) {
	eachQuota(t, 100*kib, func(t *testing.T, s *history.Store, k content.Keeper) {
		owed := buy(t, s, 30*kib, false)
		first, second := buy(t, s, 30*kib, true), buy(t, s, 30*kib, true)
		before := must.Get(s.Payment(t.Context(), first))(t)
		third := buy(t, s, 30*kib, true)
		has(t, s, owed, 30*kib, "")
		has(t, s, first, 30*kib, content.RemovedByQuota)
		has(t, s, second, 30*kib, "")
		has(t, s, third, 30*kib, "")
		require.Equal(t, before, must.Get(s.Payment(t.Context(), first))(t))
		events := must.Get(report.Events(t.Context(), s, first))(t)
		require.Equal(t, "settled", events[len(events)-1].Event)
		use := must.Get(k.Use(t.Context(), s))(t)
		require.Equal(t, content.Use{Stored: 90 * kib, Owed: 30 * kib, Quota: 100 * kib}, use)
		sound(t, s)

		require.NoError(t, s.Deliver(t.Context(), owed)) // the oldest of all, now that somebody has it
		buy(t, s, 30*kib, true)
		has(t, s, owed, 30*kib, content.RemovedByQuota)
		has(t, s, second, 30*kib, "")
		sound(t, s)
	})
}

// What was paid for and nobody got yet is never lost for something newer, however much junk is bought;
// when it fills the quota, nothing more is bought, and what was under way is kept all the same.
func TestWhatIsOwedIsNeverEvicted(t *testing.T) {
	eachQuota(t, 100*kib, func(t *testing.T, s *history.Store, k content.Keeper) {
		owed := []string{buy(t, s, 30*kib, false), buy(t, s, 30*kib, false)}
		for range 20 { // junk
			buy(t, s, 25*kib, true)
		}
		refusal := func() error {
			f := must.Get(s.Facts(t.Context(), history.Question{Payment: historytest.Hold(1).Payment}))(t)
			return f.Refusal()
		}
		require.NoError(t, refusal())
		under := historytest.Pay(t, s, historytest.Hold(1), history.Submitted)
		owed = append(owed, buy(t, s, 39*kib, false))
		require.NoError(t, refusal(), "not full yet")
		_, err := s.Finish(t.Context(), under.ID, settled(goods(under.ID, 70*kib)))
		require.NoError(t, err, "what was under way is stored")
		for i, size := range []int{30, 30, 39} {
			has(t, s, owed[i], size*kib, "")
		}
		has(t, s, under.ID, 70*kib, "")
		err = refusal()
		require.True(t, x402.HasCode(err, x402.LedgerUnavailable), "%v", err)
		require.ErrorContains(t, err, "173056 bytes of content were paid for and not fetched yet")
		require.Contains(t, x402.AsError(err).Hint, "repeat the calls")
		require.EqualValues(t, 100*kib, x402.AsError(err).Details["limit"])
		sound(t, s)
		require.NoError(t, s.Deliver(t.Context(), under.ID))
		require.NoError(t, refusal(), "one was fetched")
		has(t, s, under.ID, 70*kib, "")
	})
}

// What came instead of the goods is not owed to anybody: a seller that answers with large errors
// fills nothing.
func TestErrorBodiesAreSpare(t *testing.T) {
	eachQuota(t, 100*kib, func(t *testing.T, s *history.Store, k content.Keeper) {
		for range 5 {
			p := historytest.Pay(t, s, historytest.Hold(1), history.Submitted)
			must.Get(s.Finish(t.Context(), p.ID,
				settled(history.Content{Status: 500, Body: make([]byte, 60*kib)})))(t)
			use := must.Get(k.Use(t.Context(), s))(t)
			require.Zero(t, use.Owed)
			require.LessOrEqual(t, use.Stored, int64(120*kib))
		}
		sound(t, s)
	})
}

// Without a quota all is kept; a body larger than the quota is kept until it was delivered, and goes
// with the next one.
func TestQuotasThatAreNone(t *testing.T) {
	eachQuota(t, 0, func(t *testing.T, s *history.Store, k content.Keeper) {
		for range 5 {
			has(t, s, buy(t, s, 50*kib, true), 50*kib, "")
		}
		use := must.Get(k.Use(t.Context(), s))(t)
		require.EqualValues(t, 250*kib, use.Stored)
		require.NoError(t, use.Refusal())
	})
	eachQuota(t, 10*kib, func(t *testing.T, s *history.Store, k content.Keeper) {
		large := buy(t, s, 50*kib, false)
		has(t, s, large, 50*kib, "")
		require.NoError(t, s.Deliver(t.Context(), large))
		has(t, s, large, 50*kib, "")
		next := buy(t, s, 1, true)
		has(t, s, large, 50*kib, content.RemovedByQuota)
		has(t, s, next, 1, "")
		sound(t, s)
	})
}

// A content that was removed is stored again where the seller gives it again.
func TestRemovedContentComesBack(t *testing.T) {
	eachQuota(t, 10*kib, func(t *testing.T, s *history.Store, k content.Keeper) {
		id := buy(t, s, 8*kib, true)
		buy(t, s, 8*kib, true)
		has(t, s, id, 8*kib, content.RemovedByQuota)
		must.Get(s.Finish(t.Context(), id, settled(history.Content{Status: 402, Body: []byte("no")})))(t)
		has(t, s, id, 8*kib, content.RemovedByQuota)
		must.Get(s.Finish(t.Context(), id, settled(goods(id, 8*kib))))(t)
		has(t, s, id, 8*kib, "")
		sound(t, s)
	})
}

// A content is held against the last that its payment's chain says of it, whatever the clock did between.
func TestContentAfterTheClockWasSetBack(t *testing.T) {
	historytest.EachEngine(t, history.Options{}, func(t *testing.T, s *history.Store, c *historytest.Clock) {
		id := historytest.Pay(t, s, historytest.Hold(1), history.Submitted).ID
		for _, size := range []int{1 * kib, 2 * kib} {
			must.Get(s.Finish(t.Context(), id, settled(goods(id, size))))(t)
			has(t, s, id, size, "")
			c.Set(c.Now().Add(-48 * time.Hour))
		}
		sound(t, s)
	})
}

// Pruning and a lowered quota give the space back to the disk, with other processes at the ledger and
// one of them reading.
func TestSpaceGoesBackToTheDisk(t *testing.T) {
	s, home := quotaStore(t, 1<<40)
	other := must.Get(ledgers.Open(t.Context(), home, historytest.Options()))(t)
	defer other.Close()
	size := func() int64 {
		info := must.Get(os.Stat(filepath.Join(home, history.FileName)))(t)
		return info.Size()
	}
	var ids []string
	for range 12 {
		ids = append(ids, buy(t, s, 1<<20, true))
	}
	kept := buy(t, s, 1<<20, false)
	require.NoError(t, s.CutLog(t.Context()))
	require.Greater(t, size(), int64(12<<20))
	require.NoError(t, other.View(t.Context(), func(tx *sqldb.Tx) error { // who reads sees what was there
		var n int
		require.NoError(t, tx.Row(`SELECT count(*) FROM bodies`).Scan(&n))
		rows, freed, err := content.Prune(t.Context(), s, time.Now().Add(24*time.Hour*365), false)
		require.NoError(t, err)
		require.EqualValues(t, 12, rows)
		require.EqualValues(t, 12<<20, freed)
		require.NoError(t, tx.Row(`SELECT count(*) FROM bodies`).Scan(&n))
		require.Equal(t, 13, n)
		return nil
	}))
	require.NoError(t, content.GiveBack(t.Context(), s, 0)) // the reader was in the way of cutting the file
	require.Less(t, size(), int64(3<<20))
	has(t, s, kept, 1<<20, "")
	has(t, s, ids[0], 1<<20, content.RemovedByOwner)
	sound(t, other)

	for range 80 { // more than is left for the next content
		buy(t, s, 1<<20, true)
	}
	k := content.Keeper{Quota: 2 << 20}
	lowered := must.Get(ledgers.Open(t.Context(), home, history.Options{Contents: k}))(t)
	defer lowered.Close()
	require.NoError(t, k.Tidy(t.Context(), lowered))
	require.EqualValues(t, 2<<20, must.Get(k.Use(t.Context(), lowered))(t).Stored)
	require.Less(t, size(), int64(content.KeptFree+(4<<20)))
	has(t, lowered, kept, 1<<20, "")
	sound(t, lowered)
}

// Several processes that buy and evict at once, and readers: the sums are true, and what is
// given out is whole.
func TestProcessesEvictAtOnce(t *testing.T) {
	eachQuota(t, 200*kib, func(t *testing.T, s *history.Store, k content.Keeper) {
		stores := []*history.Store{s}
		for range 2 {
			stores = append(stores, historytest.Besides(t, s))
		}
		var payments [3][15]string
		for n := range payments {
			for i := range payments[n] {
				payments[n][i] = historytest.Pay(t, stores[n], historytest.Hold(1), history.Submitted).ID
			}
		}
		buys := func(each *history.Store, id string, size int, deliver bool) error {
			ctx := context.Background()
			_, err := each.Finish(ctx, id, settled(goods(id, size)))
			if deliver {
				err = errors.Join(err, each.Deliver(ctx, id))
			}
			c, gone := s.Content(ctx, id)
			if gone == nil && !bytes.Equal(c.Body, body(id, size)) {
				err = errors.Join(err, fmt.Errorf("the content of %s is another one", id))
			}
			return errors.Join(err, k.Tidy(ctx, each))
		}
		var wait sync.WaitGroup
		for n, list := range payments {
			wait.Go(func() {
				for i, id := range list {
					if err := buys(stores[n], id, (20+i)*kib, n != 1 || i%2 == 0); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wait.Wait()
		use := must.Get(k.Use(t.Context(), s))(t)
		require.EqualValues(t, (21+23+25+27+29+31+33)*kib, use.Owed)
		require.LessOrEqual(t, use.Stored, use.Owed+200*kib)
		sound(t, s)
	})
}

// What is being read while it is evicted is read to its end; whoever comes later is told.
func TestEvictedWhileItIsRead(t *testing.T) {
	s, _ := quotaStore(t, 300*kib)
	id := buy(t, s, 200*kib, true)
	require.NoError(t, s.View(t.Context(), func(tx *sqldb.Tx) error {
		var before, after []byte
		require.NoError(t, tx.Row(`SELECT substr(body, 1, 100) FROM bodies`).Scan(&before))
		buy(t, s, 200*kib, true)
		require.NoError(t, tx.Row(`SELECT body FROM bodies`).Scan(&after))
		require.Equal(t, body(id, 200*kib), after)
		return nil
	}))
	has(t, s, id, 200*kib, content.RemovedByQuota)
	sound(t, s)
}

// Whatever cell of content is changed by another hand is found: when it is given out, and by verify.
func TestContentChangedByAnotherHand(t *testing.T) {
	for _, edit := range []string{
		`UPDATE bodies SET body = x'00'`, `UPDATE bodies SET body = zeroblob(length(body))`,
		`UPDATE contents SET sha256 = x'00'`, `UPDATE contents SET size = size + 1`,
		`UPDATE contents SET http_status = 201`, `UPDATE contents SET type = 'text/html'`,
		`UPDATE contents SET truncated = 1`, `UPDATE contents SET removed = 'quota'`,
		`UPDATE contents SET spare = 1 - spare`, `DELETE FROM bodies`, `DELETE FROM contents`,
		`UPDATE contents SET payment = payment + 10`, `UPDATE bodies SET payment = payment + 10`,
		`INSERT INTO bodies VALUES (99, x'00')`,
		`UPDATE content_use SET stored = 0`, `UPDATE content_use SET owed = 0`, `DELETE FROM content_use`,
	} {
		t.Run(edit, func(t *testing.T) {
			s, home := quotaStore(t, 100*kib)
			id := buy(t, s, 10*kib, false)
			past, err := historytest.Forge(home)
			require.NoError(t, err)
			defer past.Close()
			_, err = past.Exec(edit)
			require.NoError(t, err)
			c, given := s.Content(t.Context(), id)
			if given == nil { // what is given out is what was bought
				require.Equal(t, history.Content{Status: 200, Type: "text/plain", Body: body(id, 10*kib),
					Size: 10 * kib, SHA256: c.SHA256}, c)
			}
			_, err = verify.Ledger(t.Context(), s, history.Head{})
			if err == nil {
				_, err = verify.Content(t.Context(), s)
			}
			require.True(t, x402.HasCode(err, x402.LedgerCorrupt), "%v", err)
		})
	}
}

func TestPruneDeletesOnlyOldDeliveredContent(t *testing.T) {
	historytest.EachEngine(t, history.Options{}, func(t *testing.T, s *history.Store, c *historytest.Clock) {
		var ids []string
		for i := range 3 {
			p := historytest.Pay(t, s, historytest.Hold(1), history.Submitted)
			must.Get(s.Finish(t.Context(), p.ID, settled(history.Content{Status: 200, Body: []byte("x")})))(t)
			if i != 1 {
				require.NoError(t, s.Deliver(t.Context(), p.ID))
			}
			ids = append(ids, p.ID)
			c.Set(c.Now().Add(time.Hour))
		}
		third := must.Get(s.Payment(t.Context(), ids[2]))(t)
		n, freed, err := content.Prune(t.Context(), s, third.Created, false)
		require.NoError(t, err)
		require.EqualValues(t, 1, n)
		require.EqualValues(t, 1, freed)
		require.ErrorIs(t, must.Err(s.Content(t.Context(), ids[0])), history.ErrNotFound)
		for _, id := range ids[1:] {
			require.NoError(t, must.Err(s.Content(t.Context(), id)), "not delivered yet, or not old")
		}
		must.Get(verify.Ledger(t.Context(), s, history.Head{}))(t)

		n, _, err = content.Prune(t.Context(), s, third.Created, true)
		require.NoError(t, err)
		require.EqualValues(t, 1, n, "what the owner gives up")
		c2, err := s.Content(t.Context(), ids[1])
		require.ErrorIs(t, err, history.ErrContentRemoved)
		require.Equal(t, content.RemovedByOwner, c2.Removed)
		must.Get(verify.Ledger(t.Context(), s, history.Head{}))(t)
	})
}

// A Store that was opened without a keeper of content holds no money, and what was bought by another one it
// neither loses nor calls delivered.
func TestAStoreWithoutAKeeperLosesNothing(t *testing.T) {
	s, _, home := historytest.SQLite(t, history.Options{})
	p := historytest.Pay(t, s, historytest.Hold(1), history.Submitted)
	without := must.Get(ledgers.Open(t.Context(), home, history.Options{}))(t)
	defer without.Close()
	_, err := without.Facts(t.Context(), history.Question{Payment: historytest.Hold(1).Payment})
	require.ErrorContains(t, err, "without a keeper of content")
	_, err = without.Finish(t.Context(), p.ID, settled(history.Content{Status: 200, Body: body(p.ID, 8)}))
	require.ErrorContains(t, err, "without a keeper of content")
	require.ErrorContains(t, without.Deliver(t.Context(), p.ID), "without a keeper of content")
	after := must.Get(s.Payment(t.Context(), p.ID))(t)
	require.Equal(t, p.ID, after.ID)
	require.Equal(t, history.Submitted, after.State)
	require.False(t, after.Delivered)
}
