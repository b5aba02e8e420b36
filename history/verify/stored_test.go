package verify

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/history"
	"x402-wallet/history/historytest"
	"x402-wallet/history/sqldb"
	"x402-wallet/x402"
)

// Rows beside the payments that are of none of them are found, before, between and behind.
func TestRowsOfNoPayment(t *testing.T) {
	historytest.EachEngine(t, history.Options{}, func(t *testing.T, s *history.Store, c *historytest.Clock) {
		k := fullLedger(t, s, c)
		for _, edit := range []string{
			`INSERT INTO bodies VALUES (?, x'00')`,
			`INSERT INTO contents VALUES (?, 200, '', 0, 0, x'00', 1, 'quota')`,
		} {
			for _, number := range []int64{math.MinInt64, -1, 0, 1, 2, 1000, math.MaxInt64} {
				onTrial(t, s, func(tx *sqldb.Tx) {
					_, err := tx.Exec(literals(s, edit), number)
					if err != nil { // there is one of that payment
						return
					}
					_, err = newReplay(tx, k).run()
					require.True(t, x402.HasCode(err, x402.LedgerCorrupt), "%s, %d: %v", edit, number, err)
				})
			}
		}
	})
}
