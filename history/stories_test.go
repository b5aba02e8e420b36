package history

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
	"x402-wallet/x402"
)

// However few payments are kept while the chain is read, and however few are told again at a time: the
// same is found.
func TestStoriesOfASmallWindow(t *testing.T) {
	s, _, _ := fullLedger(t)
	for _, size := range []int{0, 1, 3, 1000} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			compare := func(edit string) (found error) {
				err := s.tx(t.Context(), func(t *tx) error {
					_, err := t.exec(edit)
					if err != nil {
						return err
					}
					r, err := t.newReplay(Keyholder{})
					if err == nil {
						err = r.readRedates()
					}
					if err == nil {
						again := &stories{replay: r, window: size, most: max(1, size),
							open: map[int64]*story{}, late: map[int64]struct{}{},
							sums: map[paidFor]budget.Use{}}
						_, found = again.compareAll()
					}
					if err == nil && found == nil {
						found = r.tables()
					}
					if err != nil {
						return err
					}
					return errRollBack
				})
				require.ErrorIs(t, err, errRollBack)
				return found
			}
			require.NoError(t, compare(`DELETE FROM sales WHERE seq < 0`))
			for _, edit := range []string{
				`UPDATE payments SET note = 'x' WHERE seq = 1`,
				`UPDATE payments SET delivered = 1 - delivered WHERE seq = 5`,
				`DELETE FROM payments WHERE seq = (SELECT max(seq) FROM payments)`,
				`INSERT INTO payment_search VALUES (-1, '', 0, '', '', 0, '')`,
				`UPDATE payment_search SET usd = usd + 1 WHERE seq = 2`,
				`DELETE FROM bodies WHERE payment = (SELECT min(payment) FROM bodies)`,
				`INSERT INTO bodies VALUES (999, x'00')`,
				`DELETE FROM contents WHERE payment = (SELECT max(payment) FROM contents)`,
				`UPDATE contents SET spare = 1 - spare WHERE payment = (SELECT min(payment) FROM contents)`,
				`UPDATE contents SET type = 'x' WHERE payment = (SELECT min(payment) FROM contents)`,
				`UPDATE content_use SET owed = owed + 1`,
				`UPDATE totals SET held = held + 1 WHERE scope = 'prefix ever'`,
				`UPDATE payments SET lease_owner = x'00' WHERE seq = 1`,
			} {
				found := compare(edit)
				require.True(t, x402.HasCode(found, x402.LedgerCorrupt), "%s: %v", edit, found)
			}
		})
	}
}
