package history

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/pgtest"
	"x402-wallet/x402"
)

var (
	crashes  = flag.Int("crashes", 1, "how often the server of a fleet's ledger is killed")
	told     = flag.Int("told", 100, "how many payments have left when a primary is killed")
	failover = 10 * time.Minute // how long a test's failovers may take at most
)

// payers are wallets that pay until they are told to stop. Each is a home of its own.
type payers struct {
	fleet Fleet
	all   sync.WaitGroup
	left  atomic.Int64    // payments of which was told that they are submitted
	ctx   context.Context // of holds: ends when they stop
	over  context.CancelFunc

	mu    sync.Mutex
	told  map[string]State
	heads map[*Store]Head // of each wallet, as it was before its last bytes left
	wrong []error
}

func startPayers(t *testing.T, f Fleet, n int) *payers {
	p := &payers{fleet: f, told: map[string]State{}, heads: map[*Store]Head{}}
	p.ctx, p.over = context.WithCancel(context.Background())
	for i := range n {
		f.Writer = fmt.Sprint("home_", i)
		s := openFleet(t, f)
		s.fleet.settle = failover
		p.all.Go(func() {
			for p.ctx.Err() == nil {
				if err := p.pay(s); err != nil {
					p.mu.Lock()
					p.wrong = append(p.wrong, err)
					p.mu.Unlock()
					return
				}
			}
		})
	}
	t.Cleanup(func() {
		p.over()
		p.all.Wait()
	})
	return p
}

func (p *payers) tell(id string, s State) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.told[id] = s
}

// pay makes one payment. Of a server that does not answer a wallet asks again, or drops what it has not heard
// of.
func (p *payers) pay(s *Store) error {
	ctx := context.Background()
	h := testHold(1)
	h.Payment.ID = NewID(time.Now())
	_, err := decide(s, fleetRules, &h)
	if x402.HasCode(err, x402.LedgerUnavailable) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("decide: %w", err)
	}
	held, err := s.Reserve(p.ctx, h)
	if errors.Is(err, ErrMoved) || x402.HasCode(err, x402.LedgerUnavailable) {
		return nil // nothing was signed
	}
	if err != nil {
		return fmt.Errorf("reserve: %w", err)
	}
	err = s.Submit(ctx, held, signedOf(held), testKeyholder())
	switch {
	case errors.Is(err, ErrNotFound): // the server has lost the hold, and the signature is dropped
		p.tell(held.ID, "")
		return nil
	case x402.HasCode(err, x402.LedgerUnavailable), errors.Is(err, ErrSignedBefore):
		return nil // what it is was not told, and nothing leaves
	case err != nil:
		return fmt.Errorf("submit: %w", err)
	}
	if head, err := s.Head(ctx); err == nil { // else nothing leaves
		p.mu.Lock()
		p.heads[s] = head
		p.mu.Unlock()
		p.tell(held.ID, Submitted)
		p.left.Add(1)
	}
	_, err = s.Finish(ctx, held.ID, Outcome{State: Settled, Proof: Claimed, ReleaseLease: true})
	if err == nil {
		p.tell(held.ID, Settled)
	} else if !x402.HasCode(err, x402.LedgerUnavailable) && !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("finish: %w", err)
	}
	return nil
}

// until returns when so many payments have left.
func (p *payers) until(t *testing.T, n int64) {
	t.Helper()
	for late := time.Now().Add(failover); p.left.Load() < n; time.Sleep(5 * time.Millisecond) {
		require.Empty(t, p.failed())
		require.True(t, time.Now().Before(late), "%d of %d payments", p.left.Load(), n)
	}
}

func (p *payers) failed() []error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.wrong
}

// stop ends the wallets and gives what they were told.
func (p *payers) stop(t *testing.T) map[string]State {
	t.Helper()
	p.over()
	p.all.Wait()
	require.Empty(t, p.failed())
	return p.told
}

// lost are the payments that are not what their wallets were told: settled in place of submitted will do.
func lost(t *testing.T, url string, told map[string]State) (ids []string) {
	t.Helper()
	for id, state := range told {
		is := State(pgtest.SQL(t, url, `SELECT state FROM x402.payments WHERE id = '`+id+`'`))
		if is != state && !(state == Submitted && is == Settled) {
			ids = append(ids, id)
		}
	}
	return ids
}

func crashed(t *testing.T, c *pgtest.Cluster) (Fleet, *Store) {
	t.Helper()
	f := Fleet{URL: c.Database(t), Writer: "home_owner"}
	_, err := CreateFleet(t.Context(), f)
	require.NoError(t, err)
	s := openFleet(t, f)
	applyRules(t, s, 1, fleetRules)
	return f, s
}

// The server is killed under load, and started again: what left is there, nothing is submitted that was not
// held, and the counters are what the payments come to, though nobody waited for a hold.
func TestTheServerIsKilled(t *testing.T) {
	c := pgtest.Start(t)
	f, _ := crashed(t, c)
	p := startPayers(t, f, 4)
	for range *crashes {
		p.until(t, p.left.Load()+20)
		c.Kill(t)
		c.Restart(t)
	}
	p.until(t, p.left.Load()+10)
	told := p.stop(t)
	require.Empty(t, lost(t, f.URL, told))
	requireSound(t, f.URL)
	require.Equal(t, "1", pgtest.SQL(t, f.URL, `SELECT count(*) FROM
		x402.epochs`), "the same server is no epoch")
	t.Logf("%d payments left", p.left.Load())
}

// either leads to a database at two servers.
func either(t *testing.T, a, b *pgtest.Cluster, database string) string {
	t.Helper()
	one, err := url.Parse(database)
	require.NoError(t, err)
	q := one.Query()
	q.Set("host", a.Dir()+","+b.Dir())
	q.Set("port", q.Get("port")+","+q.Get("port"))
	one.RawQuery = q.Encode()
	return one.String()
}

// The primary is killed under load, and its replica goes on: of a quorum's commits none is lost. What goes on
// alone is no quorum any more, and is refused where the owner demands one.
func TestAQuorumLosesNothing(t *testing.T) {
	c := pgtest.Start(t)
	f, _ := crashed(t, c)
	replica := c.Replica(t)
	c.Quorum(t, replica)
	f.URL, f.Replication = either(t, c, replica, f.URL), quorum
	p := startPayers(t, f, 4)
	p.until(t, int64(*told))
	c.Kill(t)
	replica.Promote(t)
	f.Writer = "home_late"
	late := openFleet(t, f)
	_, err := late.Facts(t.Context(), Question{})
	require.True(t, x402.HasCode(err, x402.LedgerUnavailable), "%v", err)
	require.ErrorContains(t, err, "synchronous_standby_names = ''")
	said := p.stop(t)
	at := replica.Same(t, f.URL)
	require.Empty(t, lost(t, at, said))
	requireSound(t, at)

	late.Demand("none") // as the owner may seal
	held, err := reserveBy(late, fleetRules, testHold(1))
	require.NoError(t, err)
	require.NoError(t, late.Submit(t.Context(), held, signedOf(held), testKeyholder()))
	require.Equal(t, "00000001\n00000002", pgtest.SQL(t, at, `SELECT timeline FROM x402.epochs ORDER BY
		since`))
	t.Logf("%d payments left", p.left.Load())
}

// A replica that was behind goes on: who has lost a payment knows by the end of its own chain. For a while
// nobody holds money there, and nobody is taken for dead.
func TestAReplicaThatWasBehind(t *testing.T) {
	c := pgtest.Start(t)
	f, _ := crashed(t, c)
	replica := c.Replica(t)
	f.URL, f.Replication = either(t, c, replica, f.URL), asynchronous
	settled := openFleet(t, f)
	settled.fleet.settle = time.Hour
	_, err := reserveBy(settled, fleetRules, testHold(1))
	require.NoError(t, err, "there is one epoch")
	require.False(t, settled.Alive("run_nobody"))
	c.CaughtUp(t, replica)
	replica.StopReceiver(t, failover)
	p := startPayers(t, f, 4)
	p.until(t, 20)
	c.Kill(t)
	replica.Promote(t)
	said := p.stop(t)

	at := replica.Same(t, f.URL)
	require.NotEmpty(t, lost(t, at, said))
	noticed := 0
	for s, head := range p.heads {
		has, err := s.Has(t.Context(), head)
		require.NoError(t, err)
		if !has {
			noticed++
		}
	}
	require.Len(t, p.heads, 4)
	require.Equal(t, 4, noticed, "each of them paid behind what the replica has")
	requireSound(t, at)

	brief, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	h := testHold(1)
	_, err = decide(settled, fleetRules, &h)
	require.NoError(t, err)
	_, err = settled.Reserve(brief, h)
	require.True(t, x402.HasCode(err, x402.LedgerUnavailable), "%v", err)
	require.ErrorContains(t, err, "failed over")
	require.True(t, settled.Alive("run_nobody"), "nobody could say so in this epoch")
	settled.fleet.settle, settled.fleet.aliveFor = 0, 0
	_, err = reserveBy(settled, fleetRules, h)
	require.NoError(t, err)
	require.False(t, settled.Alive("run_nobody"))
}
