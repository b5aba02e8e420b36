package history

import (
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
	"x402-wallet/internal/pgtest"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

var cutCalls = flag.Int("cuts", 75,
	"how many calls to a fleet's ledger are cut, with room under the cap and without")

// Whatever happens to a call to the ledger, before it, while it runs, or after it was done: who goes on until
// there is an answer believes what is so, and nothing is counted or told twice.
func TestEveryFaultAtEveryStep(t *testing.T) {
	for name, day := range map[string]money.Dollars{"with room": 1 << 40, "without room": 20} {
		t.Run(name, func(t *testing.T) {
			w := newFaulty(t, day)
			var all sync.WaitGroup
			for i := range 8 {
				all.Go(func() { w.wallet(i) })
			}
			for all, done := waiting(&all), false; !done; {
				pgtest.EndRandom(t, w.fleet.URL)
				select {
				case <-all:
					done = true
				case <-time.After(100 * time.Millisecond):
				}
			}
			requireBelieved(t, w.fleet.URL, w.told)
			requireSound(t, w.fleet.URL)
			require.Equal(t, "0", pgtest.SQL(t, w.fleet.URL, `SELECT deadlocks FROM pg_stat_database
				WHERE datname = current_database()`))
			_, err := openFleet(t, w.fleet).Verify(t.Context(), Head{})
			require.NoError(t, err)
			refused := 0
			for _, b := range w.told {
				if b.state == "" {
					refused++
				}
			}
			t.Logf("%d calls cut, %d payments, %d of them refused", w.cuts.Load(), len(w.told), refused)
			require.Equal(t, day < 1<<40, refused > 0)
		})
	}
}

func waiting(all *sync.WaitGroup) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		all.Wait()
		close(done)
	}()
	return done
}

// atFacts is in the question that each purchase begins with.
const atFacts = `counters WHERE budget IN`

// faulty is a fleet whose every call may fail.
type faulty struct {
	t     *testing.T
	fleet Fleet
	rules budget.Rules
	cuts  atomic.Int64
	// isFull: somebody was refused, and hardly anybody holds money any more
	isFull atomic.Bool

	mu   sync.Mutex
	told map[string]belief
}

func newFaulty(t *testing.T, day money.Dollars) *faulty {
	f := Fleet{URL: pgtest.Shared(t).Database(t), Writer: "home_owner"}
	_, err := CreateFleet(t.Context(), f)
	require.NoError(t, err)
	limit := money.Dollars(1 << 40)
	rules := budget.Rules{Day: day, Month: limit, Rate: 1 << 20, PerCall: limit, ApproveAbove: limit,
		HostDay: map[string]money.Dollars{"api.example": limit},
		Agents: map[string]budget.Agent{"agent-0": {}, "agent-1": {Day: &limit}, "agent-2": {},
			"agent-3": {}},
		Teams: budget.Teams{"all": {Day: &limit},
			"some": {Agents: []string{"agent-*"}, Parent: "all", Month: &limit},
			"one":  {Agents: []string{"agent-2"}, Parent: "all", Day: &limit}}}
	applyRules(t, openFleet(t, f), 1, rules)
	return &faulty{t: t, fleet: f, rules: rules, told: map[string]belief{}}
}

// tell notes what a wallet was told.
func (w *faulty) tell(id string, b belief) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.told[id] = b
}

// wallet pays until enough calls were cut. Two wallets each are of one home.
func (w *faulty) wallet(i int) {
	wire := pgtest.NewProxy(w.t, w.fleet.URL)
	f := w.fleet
	f.URL, f.Writer = wire.URL(), fmt.Sprint("home_", i/2)
	s, err := OpenFleet(f, Options{})
	if !no(w.t, err) {
		return
	}
	defer s.Close()
	random := rand.New(rand.NewPCG(1, uint64(i)))
	var met <-chan struct{} // of the fault that is set; nil: none is
	failing := func(part string) {
		select {
		case <-met:
			w.cuts.Add(1)
			met = nil
		default:
		}
		if part == atFacts { // what waits for a step that is taken no more is not met
			met = nil
		}
		n := random.IntN(len(pgtest.Faults))
		if pgtest.Faults[n].Name == "silence" && random.IntN(4) > 0 { // takes long
			n = 1
		}
		if n > 0 && met == nil {
			met = wire.At(part, pgtest.Faults[n].Do)
		}
	}
	for w.cuts.Load() < int64(*cutCalls) && !w.t.Failed() {
		if !no(w.t, w.purchase(s, fmt.Sprint("agent-", i%4), random, failing)) {
			return
		}
	}
}

// no is require.NoError where another goroutine than the test's may not end it.
func no(t testing.TB, err error) bool {
	if err != nil {
		t.Errorf("%+v", err)
	}
	return err == nil
}

// purchase is one payment, in one of the ways that it may go.
func (w *faulty) purchase(s *Store, agent string, random *rand.Rand, failing func(part string)) error {
	ctx := context.Background()
	h := holdOf(agent, 1+random.Uint64N(4))
	id := NewID(time.Now())
	h.Payment.ID, h.Payment.Fingerprint = id, sha256.Sum256([]byte(id))
	if random.IntN(2) == 0 {
		h.Payment.IdempotencyKey = id
	}
	if w.isFull.Load() {
		failing(atFacts)
	} else {
		failing(`FROM reserve(`)
	}
	p, err := reserveBy(s, w.rules, h)
	for x402.HasCode(err, x402.LedgerUnavailable) { // nothing was sent: it could not say that it lives
		p, err = reserveBy(s, w.rules, h)
	}
	if x402.HasCode(err, x402.BudgetExceeded) {
		w.isFull.Store(true)
		w.tell(id, belief{})
		return nil
	}
	if err != nil {
		return fmt.Errorf("reserve: %w", err)
	}
	w.tell(id, belief{state: Reserved})
	if random.IntN(5) == 0 {
		failing(`FROM finish(`)
		if err := s.Release(ctx, id, "for a test"); err != nil {
			return fmt.Errorf("release: %w", err)
		}
		w.tell(id, belief{state: Failed})
		return nil
	}
	failing(`SELECT submit(`)
	signed := Signed{Payload: []byte(`{"signed":true}`), Requirement: []byte(`{}`), UniqueKey: id}
	if err := s.Submit(ctx, p, signed, testKeyholder()); err != nil {
		return fmt.Errorf("submit: %w", err)
	}
	w.tell(id, belief{state: Submitted})
	return w.ending(s, id, random, failing)
}

func (w *faulty) ending(s *Store, id string, random *rand.Rand, failing func(part string)) error {
	ctx := context.Background()
	o := Outcome{State: Settled, Proof: Claimed, Transaction: "0x" + id, ReleaseLease: true}
	if random.IntN(2) == 0 {
		o = Outcome{State: Unknown, ReleaseLease: true}
	} else {
		o.Content = &Content{Status: 200, Body: []byte(id)}
	}
	failing(`FROM finish(`)
	p, err := s.Finish(ctx, id, o)
	if err != nil {
		return fmt.Errorf("finish: %w", err)
	}
	w.tell(id, belief{state: o.State})
	if o.State == Settled {
		failing(`SELECT lease(`)
		if err := s.Deliver(ctx, id); err != nil {
			return fmt.Errorf("deliver: %w", err)
		}
		w.tell(id, belief{state: Settled, delivered: true})
		return nil
	}
	failing(`SELECT lease(`)
	if got, err := s.AcquireLease(ctx, id, ""); err != nil || !got {
		return fmt.Errorf("lease: %v, %w", got, err)
	}
	failing(`FROM finish(`)
	_, err = s.Expire(ctx, id, p.Evidence, Outcome{State: Failed, ReleaseLease: true}, testKeyholder())
	if err != nil {
		return fmt.Errorf("expire: %w", err)
	}
	w.tell(id, belief{state: Failed})
	return nil
}
