package report

import (
	"context"

	"x402-wallet/history"
	"x402-wallet/history/sqldb"
)

// OpenApprovals returns the approvals that are open, oldest first.
func OpenApprovals(ctx context.Context, s *history.Store) (list []history.Approval, err error) {
	err = s.View(ctx, func(t *sqldb.Tx) error {
		list, err = sqldb.Collect(t, history.ScanApproval, history.SelectApproval+`
			WHERE state IN ('pending', 'approved', 'denied') AND expires_at > ?
			AND expires_at > coalesce((SELECT created_at FROM payments ORDER BY seq DESC LIMIT 1), 0)
			ORDER BY created_at, id`, sqldb.Micros(t.Now))
		return err
	})
	return list, err
}

// Questions are OpenApprovals as a person is shown them: each list as one.
func Questions(ctx context.Context, s *history.Store) (questions []history.Approval, err error) {
	all, err := OpenApprovals(ctx, s)
	at := map[string]int{} // of a list
	var lists [][]history.Approval
	for _, a := range all {
		list := history.ListOf(a.ID)
		i, known := at[list]
		if !known {
			i, at[list] = len(lists), len(lists)
			lists = append(lists, nil)
		}
		lists[i] = append(lists[i], a)
	}
	for _, list := range lists {
		questions = append(questions, history.Together(list))
	}
	return questions, err
}
