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

	"x402-wallet/budget"
	"x402-wallet/history/sqldb/postgres"
	"x402-wallet/internal/must"
	"x402-wallet/internal/pgtest"
	"x402-wallet/x402"
)

var (
	crashes = flag.Int("crashes", 1, "how often the ledger's server is killed")
	told    = flag.Int("told", 100, "how many payments have left when a primary is killed")
)

// failoverTime bounds the wait for payments.
const failoverTime = 5 * time.Minute

// payers are replicas that pay until they are told to stop.
type payers struct {
	all  sync.WaitGroup
	left atomic.Int64 // payments that were submitted, as their replicas heard
	ctx  context.Context
	stop context.CancelFunc

	mu    sync.Mutex
	told  map[string]State
	heads map[*Store]Head // of each replica, after its last payment left
	wrong []error
}

func startPayers(t *testing.T, url string, n int) *payers {
	t.Helper()
	p := &payers{told: map[string]State{}, heads: map[*Store]Head{}}
	p.ctx, p.stop = context.WithCancel(context.Background())
	for range n {
		s, err := OpenPostgres(t.Context(), t.TempDir(), postgres.Server{URL: url}, Options{Contents: Keeper})
		require.NoError(t, err)
		t.Cleanup(func() { s.Close() })
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
	t.Cleanup(func() { p.stop(); p.all.Wait() })
	return p
}

func (p *payers) tell(id string, state State) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.told[id] = state
}

// pay makes one payment, unless the server does not answer.
func (p *payers) pay(s *Store) error {
	ctx := context.Background()
	isAway := func(err error) bool { return x402.HasCode(err, x402.LedgerUnavailable) }
	h := testHold(1)
	h.Payment.ID = NewID(time.Now())
	_, err := decide(s, budget.Rules{PerCall: 1 << 40, ApproveAbove: 1 << 40, Day: 1 << 40, Month: 1 << 40,
		Rate: 1 << 30}, &h)
	if isAway(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("decide: %w", err)
	}
	held, err := s.Reserve(p.ctx, h)
	if errors.Is(err, ErrMoved) || isAway(err) {
		return nil // nothing was signed
	}
	if err != nil {
		return fmt.Errorf("reserve: %w", err)
	}
	err = s.Submit(ctx, held, Signed{Payload: []byte(`{}`), Requirement: []byte(`{}`), UniqueKey: held.ID},
		testKeyholder())
	switch {
	case errors.Is(err, ErrNotFound), isAway(err): // the signature is dropped, and nothing leaves
		return nil
	case err != nil:
		return fmt.Errorf("submit: %w", err)
	}
	head, err := s.Head(ctx)
	if err != nil {
		return nil //nolint:nilerr // without a checkpoint nothing leaves
	}
	p.mu.Lock()
	p.heads[s] = head
	p.mu.Unlock()
	p.tell(held.ID, Submitted)
	p.left.Add(1)
	_, err = s.Finish(ctx, held.ID, Outcome{State: Settled, Proof: Claimed, ReleaseLease: true})
	if err == nil {
		p.tell(held.ID, Settled)
	} else if !isAway(err) && !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("finish: %w", err)
	}
	return nil
}

// until returns when so many payments have left.
func (p *payers) until(t *testing.T, n int64) {
	t.Helper()
	for late := time.Now().Add(failoverTime); p.left.Load() < n; time.Sleep(5 * time.Millisecond) {
		p.mu.Lock()
		wrong := p.wrong
		p.mu.Unlock()
		require.Empty(t, wrong)
		require.True(t, time.Now().Before(late), "%d of %d payments", p.left.Load(), n)
	}
}

// end stops the replicas, and returns the states of payments that they heard.
func (p *payers) end(t *testing.T) map[string]State {
	t.Helper()
	p.stop()
	p.all.Wait()
	require.Empty(t, p.wrong)
	return p.told
}

// lostOf compares a ledger with what the processes heard, and with its audit chain. A
// payment may be settled whose process heard only that it was submitted.
func lostOf(t *testing.T, ledger string, told map[string]State) (lost []string) {
	t.Helper()
	s := must.Get(openNamed(t.Context(), ledger, Options{}))(t)
	defer s.Close()
	must.Get(s.VerifySealed(t.Context(), testKeyholder()))(t)
	for id, state := range told {
		p, err := s.Payment(t.Context(), id)
		if err != nil || (p.State != state && !(state == Submitted && p.State == Settled)) {
			lost = append(lost, id)
		}
	}
	return lost
}

// The server is killed under load and started again: every payment that left is there.
func TestServerIsKilled(t *testing.T) {
	c := pgtest.Start(t)
	url := c.Database(t)
	makePostgres(t, url)
	p := startPayers(t, url, 4)
	for range *crashes {
		p.until(t, p.left.Load()+20)
		c.Kill(t)
		c.Restart(t)
	}
	p.until(t, p.left.Load()+10)
	require.Empty(t, lostOf(t, t.TempDir()+" "+url, p.end(t)))
	t.Logf("%d payments left", p.left.Load())
}

// either is a database at two servers.
func either(t *testing.T, a, b *pgtest.Cluster, database string) string {
	t.Helper()
	one := must.Get(url.Parse(database))(t)
	q := one.Query()
	q.Set("host", a.Dir()+","+b.Dir())
	q.Set("port", q.Get("port")+","+q.Get("port"))
	one.RawQuery = q.Encode()
	return one.String()
}

// The primary is killed under load, and its synchronous standby is promoted: no payment that left is lost.
func TestPromotion_SynchronousLosesNothing(t *testing.T) {
	c := pgtest.Start(t)
	url := c.Database(t)
	makePostgres(t, url)
	replica := c.Replica(t)
	c.Quorum(t, replica)
	p := startPayers(t, either(t, c, replica, url), 4)
	p.until(t, int64(*told))
	c.Kill(t)
	replica.Promote(t)
	p.until(t, p.left.Load()+10)
	require.Empty(t, lostOf(t, t.TempDir()+" "+replica.Same(t, url), p.end(t)))
	t.Logf("%d payments left", p.left.Load())
}

// A standby that was behind is promoted: each replica that has lost a payment notices, because the ledger
// lacks the head that it remembers.
func TestPromotion_LaggingStandbyIsNoticed(t *testing.T) {
	c := pgtest.Start(t)
	url := c.Database(t)
	makePostgres(t, url)
	replica := c.Replica(t)
	c.CaughtUp(t, replica)
	replica.StopReceiver(t, failoverTime)
	p := startPayers(t, either(t, c, replica, url), 4)
	p.until(t, 40)
	told := p.end(t)
	c.Kill(t)
	replica.Promote(t)
	require.NotEmpty(t, lostOf(t, t.TempDir()+" "+replica.Same(t, url), told))
	require.Len(t, p.heads, 4)
	for s, head := range p.heads {
		require.False(t, must.Get(s.Has(t.Context(), head))(t))
	}
}
