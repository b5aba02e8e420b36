package report

import (
	"context"

	"x402-wallet/history"
	"x402-wallet/history/sqldb"
)

// EveryRules returns all rules that were ever sealed, the oldest first.
func EveryRules(ctx context.Context, s *history.Store) (list []history.SealedRules, err error) {
	err = s.View(ctx, func(t *sqldb.Tx) error {
		list, err = sqldb.Collect(t, history.ScanRules, history.SelectRules+` ORDER BY version`)
		return err
	})
	return list, err
}
