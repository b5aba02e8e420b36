package sqldb

import (
	"flag"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/internal/pgtest"
	"x402-wallet/x402"
)

var cuts = flag.Int("cuts", 150, "how many changes to PostgreSQL are disturbed")

// emptyPostgres is a database with the engine's own tables.
func emptyPostgres(t *testing.T) (url string) {
	t.Helper()
	url = pgtest.Shared(t).Database(t)
	require.NoError(t, Engines.MakeServer(t.Context(), url))
	return url
}

func openPostgres(t *testing.T, url string) *DB {
	t.Helper()
	db := must.Get(Engines.OpenServer(url))(t)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// Before any message of a change, and behind it, the connection is cut or the server's process is ended. The
// change is made once, and its caller hears that it was. A plain insert finds one that is made twice, because
// of its primary key.
func TestAChangeIsMadeOnce(t *testing.T) {
	url := emptyPostgres(t)
	proxy := pgtest.NewProxy(t, url)
	direct := openPostgres(t, url)
	require.NoError(t, direct.Write(t.Context(), func(tx *Tx) error { return tx.ExecAll(table) }))
	actions := []pgtest.Action{pgtest.CutBefore, pgtest.CutWhile, pgtest.CutAfter, pgtest.EndBackend}
	const writers = 4
	var all sync.WaitGroup
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // no secret
	disturbed := 0
	proxy.Next(func(message byte) pgtest.Action {
		mu.Lock()
		defer mu.Unlock()
		chance := 12
		if message == 'Q' { // BEGIN and COMMIT
			chance = 4
		}
		if random.IntN(chance) > 0 || disturbed == *cuts {
			return pgtest.Pass
		}
		disturbed++
		return actions[random.IntN(len(actions))]
	})
	isOver := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return disturbed >= *cuts
	}
	made := make([]int, writers)
	for i := range writers {
		db := openPostgres(t, proxy.URL())
		db.wait = time.Minute // a slow machine takes seconds to end a process
		all.Go(func() {
			for end := time.Now().Add(5 * time.Minute); !isOver() && time.Now().Before(end); {
				err := db.Write(t.Context(), put(string(rune('a'+i))+time.Now().String()))
				if err == nil {
					made[i]++
				} else if !x402.HasCode(err, x402.LedgerUnavailable) {
					t.Errorf("%v", err)
					return
				}
			}
		})
	}
	all.Wait()
	total := 0
	for _, n := range made {
		total += n
	}
	require.Equal(t, *cuts, disturbed)
	require.Equal(t, total, count(t, direct), "each change is made once, and said so")
}

// A server that is away is LEDGER_UNAVAILABLE, for the moment; when it is back, the next change is made.
func TestAServerThatIsAway(t *testing.T) {
	url := emptyPostgres(t)
	proxy := pgtest.NewProxy(t, url)
	db := openPostgres(t, proxy.URL())
	require.NoError(t, db.Write(t.Context(), func(tx *Tx) error { return tx.ExecAll(table) }))
	proxy.Down()
	err := db.Write(t.Context(), put("lost"))
	require.True(t, x402.HasCode(err, x402.LedgerUnavailable), "%v", err)
	require.Equal(t, x402.ByTime, x402.AsError(err).FixedBy)
	_, err = Read(t.Context(), db, words)
	require.True(t, x402.HasCode(err, x402.LedgerUnavailable), "%v", err)
	proxy.Up()
	require.NoError(t, db.Write(t.Context(), put("kept")))
	require.Equal(t, 1, count(t, db))
}

// A standby takes no writes.
func TestAStandbyIsRefused(t *testing.T) {
	c := pgtest.Start(t)
	url := c.Database(t)
	require.NoError(t, Engines.MakeServer(t.Context(), url))
	replica := c.Replica(t)
	c.CaughtUp(t, replica)
	db := openPostgres(t, replica.Same(t, url))
	_, err := Read(t.Context(), db, func(tx *Tx) (bool, error) { return tx.HasTable("x402.writer") })
	require.True(t, x402.HasCode(err, x402.LedgerUnavailable), "%v", err)
	require.ErrorContains(t, err, "standby")
}
