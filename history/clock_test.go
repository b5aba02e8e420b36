package history

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// A clock that was years ahead for one call stops the windows there: what is refused for it says so,
// and the owner's word that the clock is right now makes all of it count now, no more and no less.
func TestAClockThatWasAhead(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *Store, c *clock) {
		right := c.now()
		day := money.Dollars(10)
		rules := budget.Rules{PerCall: 100, Day: day, Month: 1000, ApproveAbove: 100, Rate: 100,
			MaxFailures: 3}
		reserve := func(price uint64) (now time.Time, session string, err error) {
			h := testHold(price)
			f, err := decide(s, rules, &h)
			if err != nil {
				return f.Now, "", err
			}
			p, err := s.Reserve(t.Context(), h)
			return f.Now, p.Session, err
		}
		before := pay(t, s, testHold(1), Settled)

		wrong := right.AddDate(10, 0, 0)
		c.set(wrong)
		must.Get(s.NewSession(t.Context(), nil, func(budget.Session) ([]byte, error) {
			return []byte("owner"), nil
		}))(t)
		ahead := pay(t, s, testHold(2), Settled)
		require.NoError(t, s.Freeze(t.Context(), Freeze{By: "owner"}))
		must.Get(s.Unfreeze(t.Context(), nil))(t)

		c.set(right.Add(time.Minute))
		now, session, err := reserve(7)
		require.NoError(t, err)
		require.Equal(t, ahead.Created, now)
		require.Equal(t, ahead.Session, session)
		asked := must.Get(s.AskApproval(t.Context(), Approval{Quote: [32]byte{1}}))(t)
		must.Get(s.Approve(t.Context(), asked.ID, "owner", nil))(t)
		_, _, err = reserve(2)
		e := x402.AsError(err)
		require.Equal(t, []any{x402.BudgetExceeded, x402.ByPerson}, []any{e.Code, e.FixedBy})
		require.Contains(t, e.Hint, "2036-11-21T12:00:00Z")
		require.Contains(t, e.Hint, "policy seal")
		_, _, err = reserve(101)
		require.NotContains(t, x402.AsError(err).Hint, "policy seal",
			"more than one call may cost, whatever the time")
		latest := must.Get(Ahead(t.Context(), s))(t)
		require.WithinDuration(t, wrong, latest, time.Second)

		require.NoError(t, s.Redate(t.Context()))
		latest = must.Get(Ahead(t.Context(), s))(t)
		require.Zero(t, latest)
		must.Get(s.Verify(t.Context(), Head{}))(t)
		require.Equal(t, before.Created, must.Get(s.Payment(t.Context(), before.ID))(t).Created)
		for _, more := range []uint64{1, 0} { // 1, 2 and 7 are used of 10, today
			now, _, err = reserve(more)
			require.WithinDuration(t, c.now(), now, time.Second)
			if more == 1 {
				e = x402.AsError(err)
				require.Equal(t, []any{x402.BudgetExceeded, "2026-11-22T00:00:00Z"},
					[]any{e.Code, e.Details["resetsAt"]})
				require.NotContains(t, e.Hint, "policy seal")
			} else {
				require.NoError(t, err)
			}
		}
		facts := must.Get(s.Facts(t.Context(), Question{Quotes: [][32]byte{{1}}}))(t)
		require.Equal(t, ahead.Session, facts.Session.ID, "it goes on")
		require.WithinDuration(t, c.now(), facts.Session.Last, time.Second)
		var seal []byte
		require.NoError(t, s.view(t.Context(), func(t *tx) error {
			return t.Row(`SELECT seal FROM sessions WHERE id = ?`, ahead.Session).Scan(&seal)
		}))
		require.Empty(t, seal, "and is not the owner's, who began one of another time")
		require.Zero(t, facts.LastUnfreeze, "the breaker counts")
		require.Empty(t, facts.Approvals, "no approval is good for ten years")
		c.set(c.now().Add(time.Minute))
		h := testHold(1)
		// 7 are held; what settled was in the reading
		h.Funds.Free, h.Funds.ReadAt = money.NewAmount(8), c.now()
		pay(t, s, h, Failed)
		c.set(right.AddDate(0, 0, 1))
		_, session, err = reserve(10)
		require.NoError(t, err, "another day, and another session")
		require.NotEqual(t, ahead.Session, session)

		require.NoError(t, s.tx(t.Context(), func(tx *tx) error {
			return must.Err(tx.Exec(`UPDATE payments SET created_at = created_at - 1 WHERE id = ?`, ahead.ID))
		}))
		_, err = s.Verify(t.Context(), Head{})
		require.True(t, x402.HasCode(err, x402.LedgerCorrupt), "redated is not undated")
	})
}
