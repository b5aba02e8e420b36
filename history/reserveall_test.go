package history

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
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
		_, err := decide(s, rules, &h)
		require.NoError(t, err)
		holds = append(holds, h)
	}
	return holds
}

func held(t *testing.T, s *Store) int {
	t.Helper()
	all, err := s.Unfinished(t.Context(), "", 1000)
	require.NoError(t, err)
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

				rows, err := s.ReserveAll(t.Context(), list(t, s, c.rules, c.at))
				require.NoError(t, err)
				require.Len(t, rows, c.at)
				require.Equal(t, c.at, held(t, s))
				for _, p := range rows {
					require.Equal(t, Reserved, p.State)
					require.Equal(t, rows[0].Session, p.Session)
				}
				_, err = s.Verify(t.Context(), Head{})
				require.NoError(t, err)
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
		made, err := reserveBy(s, rules, first)
		require.NoError(t, err)
		holds := list(t, s, rules, 3)
		holds[1].Payment.IdempotencyKey = "one"
		_, err = s.ReserveAll(t.Context(), holds)
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
		_, err := reserve(s, testHold(0)) // a session has begun
		require.NoError(t, err)
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

// asks are n questions to be asked together.
func asks(n int) (all []Approval) {
	p := testHold(250_000).Payment
	for i := range n {
		all = append(all, Approval{Quote: quoteOf(byte(100 + i)), Host: fmt.Sprintf("shop%d.example", i%3),
			Method: p.Method, URL: fmt.Sprint(p.URL, "/", i), Network: p.Network, Asset: p.Asset,
			Amount: p.Amount, Price: p.Price, PayTo: p.PayTo, Why: OnTheList})
	}
	return all
}

func askedTogether(t *testing.T, s *Store, n int) []Approval {
	t.Helper()
	all, err := s.AskApprovals(t.Context(), asks(n))
	require.NoError(t, err)
	return all
}

// What was asked together is answered together, by the list's id or by any of its approvals'.
func TestAListIsDecidedTogether(t *testing.T) {
	seal := func(Approval) ([]byte, error) { return []byte("owner"), nil }
	for name, c := range map[string]struct {
		decide func(s *Store, id string) error
		want   Decision
	}{
		"approve": {func(s *Store, id string) error {
			_, err := s.Approve(context.Background(), id, byOwner, seal)
			return err
		}, Approved},
		"accept": {func(s *Store, id string) error {
			_, err := s.Accept(context.Background(), id, "client")
			return err
		}, Approved},
		"deny": {func(s *Store, id string) error {
			_, err := s.Deny(context.Background(), id, byOwner)
			return err
		}, Denied},
	} {
		t.Run(name, func(t *testing.T) {
			eachEngine(t, func(t *testing.T, s *Store, _ *clock) {
				all := askedTogether(t, s, 12)
				require.Equal(t, all, askedTogether(t, s, 12), "the same list is the same question")
				id := ListOf(all[0].ID)
				shown, err := s.Asked(t.Context(), all[7].ID)
				require.NoError(t, err)
				require.Equal(t, id, shown.ID)
				require.Equal(t, money.Dollars(12*250_000), shown.Price)
				require.Equal(t, "3 hosts", shown.Host)
				require.Len(t, shown.Together, 12)

				require.NoError(t, c.decide(s, id))
				now, err := s.Asked(t.Context(), id)
				require.NoError(t, err)
				for _, a := range now.Together {
					require.Equal(t, c.want, a.State)
				}
				require.NotEqual(t, shown.ShownDigest(), now.ShownDigest())
				_, err = s.Verify(t.Context(), Head{})
				require.NoError(t, err)
			})
		})
	}
}

// A list takes the place of the questions that were open about single ones of its payments, and is one
// question in everything that bounds questions.
func TestAListIsOneQuestion(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *Store, _ *clock) {
		single := asks(1)[0]
		single, err := s.AskApproval(t.Context(), single)
		require.NoError(t, err)
		small := askedTogether(t, s, 2)
		now, err := s.Approval(t.Context(), single.ID)
		require.NoError(t, err)
		require.Equal(t, Expired, now.State)
		all := askedTogether(t, s, 50) // more than the questions that one process or host may have
		waiting, err := OpenApprovals(t.Context(), s)
		require.NoError(t, err)
		require.Len(t, waiting, 50)
		for _, a := range waiting {
			require.Equal(t, ListOf(all[0].ID), ListOf(a.ID))
		}
		require.NotEqual(t, ListOf(small[0].ID), ListOf(all[0].ID))

		for range maxDeclined - 1 {
			_, err = s.Decline(t.Context(), all[0].ID, "client")
			require.NoError(t, err)
		}
		_, err = s.AskApprovals(t.Context(), asks(50))
		var no *Declined
		require.ErrorAs(t, err, &no)
		require.Equal(t, "this", no.About, "and not as one who said no 100 times")
		require.Equal(t, 2, no.Times)

		free := asks(60)[55:] // others are asked about: two noes are two, whatever the list
		_, err = s.AskApprovals(t.Context(), free)
		require.NoError(t, err)
	})
}

func TestListsAreBounded(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *Store, _ *clock) {
		for _, n := range []int{0, maxList + 1} {
			_, err := s.AskApprovals(t.Context(), asks(n))
			require.ErrorIs(t, err, errListTooLong)
		}
		_, err := s.AskedTogether(t.Context(), "apr_none")
		require.ErrorIs(t, err, ErrNotFound)
	})
}
