package verify

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/history"
	"x402-wallet/history/historytest"
	"x402-wallet/history/sqldb"
	"x402-wallet/internal/must"
	"x402-wallet/x402"
)

// What a sample looks at it compares as Verify does; here that is everything.
func TestSample(t *testing.T) {
	historytest.EachEngine(t, history.Options{}, func(t *testing.T, s *history.Store, c *historytest.Clock) {
		fullLedger(t, s, c)
		whole, err := Sample(t.Context(), s)
		require.NoError(t, err)
		require.True(t, whole.Whole())
		var part Sampled
		require.NoError(t, s.View(t.Context(), func(tx *sqldb.Tx) error {
			part, err = sample(tx, 0)
			return err
		}))
		require.Equal(t, whole, part, "so short a ledger is all of it newest")
		fires := `CREATE TRIGGER theirs AFTER INSERT ON payments BEGIN DELETE FROM totals; END`
		if s.Shared() {
			fires = `CREATE RULE theirs AS ON INSERT TO payments DO ALSO DELETE FROM totals`
		}
		for _, edit := range []string{
			fires,
			`UPDATE audit SET detail = '{"n":1}' WHERE event = 'unknown'`,
			`UPDATE audit SET hash = x'00' WHERE seq = 2`,
			`DELETE FROM audit WHERE seq = 9`,
			`UPDATE payments SET pay_to = 'thief' WHERE seq = 1`,
			`UPDATE payments SET note = 'x' WHERE seq = (SELECT max(seq) FROM payments)`,
			`DELETE FROM payments WHERE seq = 2`,
			`UPDATE sealed_sums SET sums = replace(sums, '"sum":', '"sum":1')`,
		} {
			t.Run(edit, func(t *testing.T) {
				var found error
				require.ErrorIs(t, s.Write(t.Context(), func(tx *sqldb.Tx) error {
					if _, err := tx.Exec(literals(s, edit)); err != nil {
						return err
					}
					_, found = sample(tx, 0)
					return errRollBack
				}), errRollBack)
				require.True(t, x402.HasCode(found, x402.LedgerCorrupt), "%v", found)
			})
		}
	})
}

// The stretches are in order, inside, and apart, and the newest are always among them.
func TestInStretches(t *testing.T) {
	for _, all := range []int64{0, 1, 9, 10, 11, 41, 42, 43, 100, 1_000, 123_456} {
		var covered int64
		at := map[int64]bool{}
		require.NoError(t, inStretches(all, 10, 7, func(first, last int64) error {
			require.LessOrEqual(t, int64(1), first)
			require.LessOrEqual(t, first, last)
			require.LessOrEqual(t, last, all)
			covered += last - first + 1
			for n := first; n <= last; n++ {
				require.False(t, at[n])
				at[n] = true
			}
			return nil
		}))
		for n := max(1, all-9); n <= all; n++ {
			require.True(t, at[n])
		}
		require.LessOrEqual(t, covered, int64(10+7*stretches))
	}
}

// A clock that was set back changed the times of payments: a sample knows of it, wherever it begins.
func TestSampleOfARedatedLedger(t *testing.T) {
	historytest.EachEngine(t, history.Options{}, func(t *testing.T, s *history.Store, c *historytest.Clock) {
		c.Set(c.Now().Add(400 * 24 * time.Hour))
		historytest.Pay(t, s, historytest.Hold(1), history.Settled)
		c.Set(c.Now().Add(-399 * 24 * time.Hour))
		require.NoError(t, s.Redate(t.Context()))
		require.NoError(t, s.View(t.Context(), func(tx *sqldb.Tx) error {
			return must.Err(sample(tx, 0))
		}))
		must.Get(Ledger(t.Context(), s, history.Head{}))(t)
	})
}
