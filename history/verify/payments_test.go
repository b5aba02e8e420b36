package verify

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/history"
	"x402-wallet/history/historytest"
	"x402-wallet/history/sqldb"
	"x402-wallet/internal/must"
	"x402-wallet/x402"
)

// However few payments are compared at a time: the same is found.
func TestStoriesPageByPage(t *testing.T) {
	historytest.EachEngine(t, history.Options{}, func(t *testing.T, s *history.Store, c *historytest.Clock) {
		fullLedger(t, s, c)
		for _, size := range []int64{1, 3, 1000} {
			t.Run(fmt.Sprint(size), func(t *testing.T) {
				compare := func(edit string) (found error) {
					onTrial(t, s, func(tx *sqldb.Tx) {
						must.Get(tx.Exec(literals(s, edit)))(t)
						r := newReplay(tx, history.Keyholder{})
						r.page = size
						_, found = r.run()
					})
					return found
				}
				require.NoError(t, compare(`DELETE FROM alerts WHERE at < 0`))
				edits := []string{
					`UPDATE payments SET note = 'x' WHERE seq = 1`,
					`UPDATE payments SET delivered = 1 - delivered WHERE seq = 5`,
					`DELETE FROM payments WHERE seq = (SELECT max(seq) FROM payments)`,
					`DELETE FROM bodies WHERE payment = (SELECT min(payment) FROM bodies)`,
					`INSERT INTO bodies VALUES (999, x'00')`,
					`DELETE FROM contents WHERE payment = (SELECT max(payment) FROM contents)`,
					`UPDATE contents SET spare = 1 - spare WHERE payment = (SELECT min(payment) FROM contents)`,
					`UPDATE contents SET type = 'x' WHERE payment = (SELECT min(payment) FROM contents)`,
					`UPDATE content_use SET owed = owed + 1`,
					`UPDATE totals SET held = held + 1 WHERE scope = 'all'`,
				}
				if !s.Shared() { // PostgreSQL keeps the types of columns
					edits = append(edits, `UPDATE payments SET lease_owner = x'00' WHERE seq = 1`)
				}
				for _, edit := range edits {
					found := compare(edit)
					require.True(t, x402.HasCode(found, x402.LedgerCorrupt), "%s: %v", edit, found)
				}
			})
		}
	})
}
