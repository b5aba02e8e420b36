package asking

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"x402-wallet/history"
	"x402-wallet/history/internal/audit"
	"x402-wallet/history/sqldb"
)

// Approver is who approved a payment and when: the owner, or a person at a client.
type Approver struct {
	At time.Time
	By string
}

// ApprovedBy says who approved a payment and when, by the audit chain. It is nil if the payment used no
// approval up.
func (k Asker) ApprovedBy(ctx context.Context, p history.Payment) (by *Approver, err error) {
	err = k.Store.View(ctx, func(t *sqldb.Tx) error {
		by = nil
		a, err := sqldb.Find(t, history.ScanApproval, history.SelectApproval+` WHERE payment = ? AND state = 'used'`,
			p.ID)
		if err != nil || a == nil || !a.Covers(p) {
			return err
		}
		return eachYes(t, func(q history.ApprovalRecord, at time.Time) {
			if q.ID == a.ID {
				by = &Approver{At: at, By: q.By}
			}
		})
	})
	return by, err
}

// Given returns every approval that is good or was used and should be the owner's: not those without a seal
// of which the audit chain says that they came from a client.
func Given(ctx context.Context, s *history.Store) (list []history.Approval, err error) {
	err = s.View(ctx, func(t *sqldb.Tx) error {
		list, err = sqldb.Collect(t, history.ScanApproval, history.SelectApproval+
			` WHERE state IN ('approved', 'used')`)
		if err != nil {
			return err
		}
		byClient := map[string]bool{}
		err = eachYes(t, func(q history.ApprovalRecord, _ time.Time) {
			byClient[q.ID] = byClient[q.ID] || q.By == "client"
		})
		isClients := func(a history.Approval) bool { return len(a.Seal) == 0 && byClient[a.ID] }
		list = slices.DeleteFunc(list, isClients)
		return err
	})
	return list, err
}

// eachYes calls f with every approval that the audit chain has, oldest first.
func eachYes(t *sqldb.Tx, f func(q history.ApprovalRecord, at time.Time)) error {
	return t.Each(func(row sqldb.Row) error {
		var at int64
		var detail string
		if err := row.Scan(&at, &detail); err != nil {
			return err
		}
		var q history.ApprovalRecord
		if json.Unmarshal([]byte(detail), &q) == nil {
			f(q, sqldb.FromMicros(at))
		}
		return nil
	}, `SELECT at, detail FROM audit WHERE payment = 0 AND event = ? ORDER BY seq`,
		audit.ApprovalEvent+string(history.Approved))
}
