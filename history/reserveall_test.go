package history

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
	"x402-wallet/internal/must"
	"x402-wallet/x402/money"
)

// sumRules have one limit that the tests of sums come to.
func sumRules(day money.Dollars) budget.Rules {
	return budget.Rules{PerCall: 1000, ApproveAbove: 1000, Rate: 1000, Day: day, Month: 1000}
}

// list are n holds of one unit each, of different requests, each decided on as if it were alone.
func list(t *testing.T, s *Store, rules budget.Rules, n int) (holds []Hold) {
	t.Helper()
	for i := range n {
		h := testHold(1)
		h.Payment.Fingerprint[0] = byte(i + 1)
		must.Get(decide(s, rules, &h))(t)
		holds = append(holds, h)
	}
	return holds
}

func held(t *testing.T, s *Store) int {
	t.Helper()
	all := must.Get(s.Unfinished(t.Context(), "", 1000))(t)
	return len(all)
}

// A sum is held whole or not at all, whatever refuses one of its payments, and says which; also where the
// first of them begins a session.
func TestASumIsHeldWholeOrNotAtAll(t *testing.T) {
	session := money.Dollars(3)
	for name, c := range map[string]struct {
		rules budget.Rules
		with  func(holds []Hold)
		at    int
		says  func(t *testing.T, err error)
	}{
		"the day": {rules: sumRules(3), at: 3},
		"the session that it begins": {rules: func() budget.Rules {
			r := sumRules(1000)
			r.Session = &session
			return r
		}(), at: 3},
		"the rate": {rules: func() budget.Rules {
			r := sumRules(1000)
			r.Rate = 2
			return r
		}(), at: 2},
		"the chain": {rules: sumRules(1000), at: 4, with: func(holds []Hold) {
			for i := range holds {
				holds[i].Funds.Free = money.NewAmount(4)
			}
		}, says: func(t *testing.T, err error) {
			var lack *ShortOfFunds
			require.ErrorAs(t, err, &lack)
			require.Equal(t, "4", lack.Held.String())
		}},
	} {
		t.Run(name, func(t *testing.T) {
			eachEngine(t, func(t *testing.T, s *Store, _ *clock) {
				holds := list(t, s, c.rules, 5)
				if c.with != nil {
					c.with(holds)
				}
				_, err := s.ReserveAll(t.Context(), holds)
				var not *NotHeld
				require.ErrorAs(t, err, &not)
				require.Equal(t, c.at, not.At, "%v", err)
				if c.says != nil {
					c.says(t, err)
				} else {
					require.ErrorIs(t, err, ErrMoved)
				}
				require.Zero(t, held(t, s))

				rows := must.Get(s.ReserveAll(t.Context(), list(t, s, c.rules, c.at)))(t)
				require.Len(t, rows, c.at)
				require.Equal(t, c.at, held(t, s))
				for _, p := range rows {
					require.Equal(t, Reserved, p.State)
					require.Equal(t, rows[0].Session, p.Session)
				}
				must.Get(s.Verify(t.Context(), Head{}))(t)
			})
		})
	}
}

// A purchase that is made already is named, and nothing is held beside it.
func TestASumWithAPurchaseThatIsMadeAlready(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *Store, _ *clock) {
		rules := sumRules(1000)
		first := testHold(1)
		first.Payment.IdempotencyKey = "one"
		made := must.Get(reserveBy(s, rules, first))(t)
		holds := list(t, s, rules, 3)
		holds[1].Payment.IdempotencyKey = "one"
		_, err := s.ReserveAll(t.Context(), holds)
		var taken *AlreadyPaying
		require.ErrorAs(t, err, &taken)
		require.Equal(t, made.ID, taken.Payment.ID)
		require.Equal(t, 1, held(t, s))
	})
}

// Of lists in parallel, which all pass by the facts that they were decided on, only as many are held as fit
// whole.
func TestParallelSumsNeverHoldTooMuch(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *Store, _ *clock) {
		rules := sumRules(10)
		must.Get(reserve(s, testHold(0)))(t) // a session has begun
		other := besides(t, s)
		var lists [6][]Hold
		for i := range lists {
			lists[i] = list(t, s, rules, 4)
			for n := range lists[i] {
				lists[i][n].Payment.Fingerprint[1] = byte(i + 1)
			}
		}
		var working sync.WaitGroup
		var whole atomic.Int64
		for i, holds := range lists {
			working.Go(func() {
				rows, err := []*Store{s, other}[i%2].ReserveAll(context.Background(), holds)
				if err == nil && len(rows) == 4 {
					whole.Add(1)
				}
			})
		}
		working.Wait()
		require.EqualValues(t, 2, whole.Load())
		require.Equal(t, 1+8, held(t, s))
	})
}
