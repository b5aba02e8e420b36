package history

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
	"x402-wallet/history/postgres"
	"x402-wallet/internal/pgtest"
	"x402-wallet/x402/money"
)

// newFleet is a ledger in a database of its own, with budgets that stop nothing.
func newFleet(t *testing.T) (*Store, Fleet) {
	f := Fleet{URL: pgtest.Shared(t).Database(t), Writer: "home_a"}
	_, err := CreateFleet(t.Context(), f)
	require.NoError(t, err)
	s := openFleet(t, f)
	applyRules(t, s, 1, budget.Rules{Day: 1 << 40, Month: 1 << 40, Rate: 1 << 30, PerCall: 1 << 40})
	return s, f
}

func openFleet(t *testing.T, f Fleet) *Store {
	s, err := OpenFleet(f, Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func applyRules(t require.TestingT, s *Store, version int64, r budget.Rules) {
	require.NoError(
		t,
		s.ApplyRules(
			context.Background(),
			SealedRules{Version: version, Config: []byte(fmt.Sprint(version)), Seal: []byte("s")},
			BudgetsOf(r),
		),
	)
}

func TestAFleetPays(t *testing.T) {
	s, f := newFleet(t)
	p, err := reserveBy(
		s,
		budget.Rules{Day: 10, Month: 10, Rate: 10, PerCall: 10, ApproveAbove: 10},
		testHold(3),
	)
	require.NoError(t, err)
	require.Equal(t, Reserved, p.State)
	require.NoError(
		t,
		s.Submit(
			t.Context(),
			p,
			Signed{Payload: []byte(`{"signed":true}`), Requirement: []byte(`{}`), UniqueKey: "a"},
			testKeyholder(),
		),
	)
	p, err = s.Finish(
		t.Context(),
		p.ID,
		Outcome{State: Settled, Proof: Claimed, Content: &Content{Status: 200, Body: []byte("bought")}},
	)
	require.NoError(t, err)
	require.Equal(t, Settled, p.State)
	other := openFleet(t, f)
	c, err := other.Content(t.Context(), p.ID)
	require.NoError(t, err)
	require.Equal(t, "bought", string(c.Body))
	require.NoError(t, other.Deliver(t.Context(), p.ID))
	facts, err := other.Facts(t.Context(), Question{})
	require.NoError(t, err)
	require.Equal(t, money.Dollars(3), facts.Used.Day.Total())
	n, err := other.Verify(t.Context(), Head{})
	require.NoError(t, err)
	require.Positive(t, n)
}

// What a hold is answered with is the payment as the ledger has it: what its caller has not said comes back.
func TestAHoldIsAsTheLedgerHasIt(t *testing.T) {
	s, _ := newFleet(t)
	h := holdOf("research-1", 3)
	h.Payment.IdempotencyKey, h.Payment.Requirement = "k", []byte(`{"é":1}`)
	p, err := reserve(s, h)
	require.NoError(t, err)
	list, err := s.ReserveAll(t.Context(), list(t, s, fleetRules, 2))
	require.NoError(t, err)
	for _, held := range append(list, p) {
		row, err := s.Payment(t.Context(), held.ID)
		require.NoError(t, err)
		require.Equal(t, row, held)
	}
}

// A charge gives back no more than was held, whatever its caller says.
func TestNoMoreIsGivenBackThanWasHeld(t *testing.T) {
	s, f := newFleet(t)
	pay(t, s, testHold(9), Settled)
	p, err := reserve(s, testHold(4))
	require.NoError(t, err)
	require.NoError(t, s.Submit(t.Context(), p, signedOf(p), testKeyholder()))
	finish := func(returned int) error {
		return s.fleet.pool.With(t.Context(), func(c *postgres.Conn) error {
			return c.Run(t.Context(), fmt.Sprintf(`SELECT finish('{"id": "%s", "writer": "home_a", "operation":
				"op_%d", "state": "settled", "proof": "chain", "note": "", "detail": "{}", "charged": "1",
				"returned": %d}', '')`, p.ID, returned, returned))
		})
	}
	require.ErrorContains(t, finish(5), "more is given back than was held")
	require.ErrorContains(t, finish(-1), "more is given back than was held")
	require.NoError(t, finish(3))
	require.Equal(t, "10", pgtest.SQL(t, f.URL, `SELECT used FROM x402.counters WHERE win = 'day'`))
}
