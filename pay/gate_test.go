package pay

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
	"x402-wallet/seller"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/wire"
)

// full is a gate all of whose places are taken, by calls that leave one after the other.
func full(t *testing.T) (g *gate, leaveOne func()) {
	t.Helper()
	g = &gate{}
	var leave []func()
	for range maxInside {
		_, out, err := g.enter(t.Context(), "first.example")
		require.NoError(t, err)
		leave = append(leave, out)
	}
	return g, func() {
		leave[0]()
		leave = leave[1:]
		synctest.Wait()
	}
}

// queue is calls that wait at a gate, in the order in which they were admitted.
type queue struct {
	g        *gate
	mu       sync.Mutex
	admitted []string
	errs     []error
}

func (q *queue) in() []string     { q.mu.Lock(); defer q.mu.Unlock(); return slices.Clone(q.admitted) }
func (q *queue) refused() []error { q.mu.Lock(); defer q.mu.Unlock(); return slices.Clone(q.errs) }

func (q *queue) wait(ctx context.Context, host string, n int) {
	go func() {
		_, _, err := q.g.enter(ctx, host)
		q.mu.Lock()
		defer q.mu.Unlock()
		if err != nil {
			q.errs = append(q.errs, err)
			return
		}
		q.admitted = append(q.admitted, fmt.Sprint(host, n))
	}()
	synctest.Wait()
}

// Hosts have turns, and a host's calls are admitted in order, so that a crowd at one holds up no other.
func TestHostsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, leaveOne := full(t)
		q := &queue{g: g}
		for n := range 4 {
			q.wait(t.Context(), "a", n)
		}
		q.wait(t.Context(), "b", 0)
		q.wait(t.Context(), "b", 1)
		q.wait(t.Context(), "c", 0)
		require.Empty(t, q.in())
		for n := range 7 {
			leaveOne()
			require.Len(t, q.in(), n+1)
		}
		require.Equal(t, []string{"a0", "b0", "c0", "a1", "b1", "a2", "a3"}, q.in())
		require.Empty(t, g.waiting)
	})
}

// A call that is cancelled leaves at once, and one whose time is over is told so, with what helps.
func TestACallLeavesTheGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, leaveOne := full(t)
		q := &queue{g: g}
		cancelled, cancel := context.WithCancel(t.Context())
		short, end := context.WithTimeout(t.Context(), time.Minute)
		defer end()
		q.wait(cancelled, "a", 0)
		q.wait(short, "b", 0)
		q.wait(t.Context(), "a", 1)
		cancel()
		synctest.Wait()
		require.Len(t, q.refused(), 1)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Len(t, q.refused(), 2)
		for _, err := range q.refused() {
			require.NotEmpty(t, code(t, x402.Timeout, err).Hint)
		}
		leaveOne()
		require.Equal(t, []string{"a1"}, q.in())
		require.Empty(t, g.turns)
		require.Empty(t, g.waiting)
		require.Equal(t, maxInside, g.taken)
	})
}

// Whoever waits for somebody slow has no place meanwhile, and comes back before newcomers; a call whose time
// is over goes on without.
func TestWhoWaitsForSomebodySlowComesBackFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, leaveOne := full(t)
		leaveOne()
		inside, leave, err := g.enter(t.Context(), "slow")
		require.NoError(t, err)
		again, _, err := g.enter(inside, "slow")
		require.NoError(t, err, "one place for a call, whatever it makes")
		require.Equal(t, inside, again)

		q := &queue{g: g}
		q.wait(t.Context(), "a", 0)
		q.wait(t.Context(), "a", 1)
		over := awaiting(inside)
		time.Sleep(tooSlow - 1)
		synctest.Wait()
		require.Empty(t, q.in())
		over()

		over = awaiting(inside)
		time.Sleep(tooSlow)
		synctest.Wait()
		require.Equal(t, []string{"a0"}, q.in())
		back := make(chan struct{})
		go func() { over(); close(back) }()
		synctest.Wait()
		select {
		case <-back:
			t.Error("it is back without a place")
		default:
		}
		leaveOne()
		<-back
		require.Equal(t, []string{"a0"}, q.in())
		leave()
		leave()
		synctest.Wait()
		require.Equal(t, []string{"a0", "a1"}, q.in())

		ended, end := context.WithCancel(inside)
		end()
		over = awaiting(ended)
		over()
		require.ErrorIs(t, pause(ended, time.Hour), context.Canceled)
		require.Equal(t, maxInside, g.taken)
	})
}

type slowSeller struct {
	*scriptedSeller
	answer chan struct{}
}

func (s slowSeller) Present(ctx context.Context, r seller.Request, with wire.Attachment) (*seller.Answer,
	error) {
	if HostOf(r.URL) == "slow.example" {
		<-s.answer
	}
	return s.scriptedSeller.Present(ctx, r, with)
}

// A crowd at a seller that does not answer holds up nobody else.
func TestACrowdAtASlowSeller(t *testing.T) {
	answer := make(chan struct{})
	var crowd sync.WaitGroup
	b := newBench(t, "1", honest)
	b.Policy.Deadline = 10 * time.Minute
	b.Transport = slowSeller{b.seller, answer}
	for n := range 2 * maxInside {
		crowd.Go(func() {
			_, err := b.Pay(t.Context(), get(fmt.Sprint("https://slow.example/", n)))
			if err != nil {
				t.Error(err)
			}
		})
	}
	_, err := b.Pay(t.Context(), get("https://quick.example/"))
	close(answer)
	require.NoError(t, err)
	crowd.Wait()
}

// However many calls there are at once, all of them are paid, and not one more than the owner's limit allows.
func TestTenThousandCallsAtOnce(t *testing.T) {
	calls := 10_000
	if testing.Short() || isRace {
		calls = 2_000
	}
	b := crowdBench(t, calls)
	b.payAll(t, calls)
	require.Equal(t, calls, b.chain.settlements())
	facts := b.facts(t)
	require.Equal(t, budget.Use{Spent: money.Dollars(calls)}, facts.Used.Session)
	b.mustRefuse(t, x402.BudgetExceeded, testURL)
}

// crowdBench has money and budget for so many calls, and time for all of them on a slow machine.
func crowdBench(t testing.TB, calls int) *bench {
	b := newBench(t, "1", honest)
	b.chain.balance = uint64(calls) + 1
	limit := money.Dollars(calls)
	b.Rules.Session, b.Rules.Day, b.Rules.Month, b.Rules.Rate = &limit, 1<<60, 1<<60, 1<<40
	b.Policy.Deadline = 10 * time.Minute
	return b
}

// payAll makes that many calls at once, at ten sellers.
func (b *bench) payAll(t testing.TB, calls int) {
	var all sync.WaitGroup
	for n := range calls {
		all.Go(func() {
			r, err := b.Pay(t.Context(), get(fmt.Sprintf("https://%d.example/%d", n%10, n)))
			if err != nil {
				t.Error(err)
				return
			}
			b.Delivered(t.Context(), r.Status, r.PaymentID)
		})
	}
	all.Wait()
}
