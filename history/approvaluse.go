package history

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"slices"

	"x402-wallet/history/internal/audit"
	"x402-wallet/history/internal/seals"
	"x402-wallet/history/sqldb"
)

// approvalOf returns a person's approval of a quote that no payment has used up, or nil.
func (t *tx) approvalOf(quote [sha256.Size]byte) (*Approval, error) {
	return sqldb.Find(t.Tx, ScanApproval, SelectApproval+` WHERE quote = ? AND state = 'approved' AND expires_at > ?`,
		quote[:], sqldb.Micros(t.Now))
}

// ApprovalUsedBy returns the approval that a payment in the ledger used up, if it covers it.
func (s *Store) ApprovalUsedBy(ctx context.Context, p Payment) (a Approval, approved bool, err error) {
	err = s.view(ctx, func(t *tx) error {
		a, err = ScanApproval(t.Row(SelectApproval+` WHERE payment = ? AND state = 'used'`, p.ID))
		approved = err == nil && a.Covers(p)
		return sqldb.Otherwise(err, nil)
	})
	return a, approved, err
}

// stillApproved refuses an approval that is no longer as it was read. nil: none is needed.
func (t *tx) stillApproved(read *Approval) error {
	if read == nil {
		return nil
	}
	now, err := t.approvalOf(read.Quote)
	if err == nil && (now == nil || now.ID != read.ID || !now.Expires.Equal(read.Expires) ||
		!bytes.Equal(now.Seal, read.Seal)) {
		err = moved("the approval was used up or taken back")
	}
	return err
}

// useApproval uses an approval up for a payment, in the transaction that holds its money, where it is
// still as it was read: once, whoever else tries. nil: none is needed.
func (t *tx) useApproval(a *Approval, p Payment) error {
	if a == nil {
		return nil
	}
	_, err := t.Exec(`UPDATE approvals SET state = 'used', payment = ? WHERE id = ?`, p.ID, a.ID)
	if err != nil {
		return err
	}
	return t.audit(p.Number, audit.UsedEvent, usedDetail{Quote: hexOf(a.Quote), ID: a.ID, Payment: p.ID})
}

// usedDetail is what the chain says of an approval that was used up.
type usedDetail struct {
	Quote   string `json:"quote"`
	ID      string `json:"id"`
	Payment string `json:"payment"`
}

// UsedBy returns the payments that used an approval of a quote since a row of the audit chain, but
// for those that gave it back. The chain's rows from there on have to hold together, and at must be
// one of them: LEDGER_CORRUPT.
func (s *Store) UsedBy(ctx context.Context, quote [32]byte, since int64, at Head) (payments []string,
	err error) {
	err = s.view(ctx, func(t *tx) (err error) {
		u := uses{quote: hexOf(quote), ids: map[int64]string{}, signed: map[string]bool{}}
		err = t.walk(since, at, u.add)
		payments = u.payments
		return err
	})
	return payments, err
}

// uses are those of a quote's approvals, as events tell of them.
type uses struct {
	quote    string
	payments []string
	ids      map[int64]string
	signed   map[string]bool // by payment: what was signed gives nothing back
}

func (u *uses) add(r audit.Row) error {
	var used usedDetail
	switch {
	case r.Event == audit.SignedEvent:
		// by the id that is sealed, and not by the number of the row
		g, err := seals.Read[seals.Signature](r.Detail)
		if err != nil {
			return audit.Corrupt("event %d (%s) cannot be read", r.Seq, r.Event)
		}
		u.signed[g.ID] = true
	case r.Event == audit.UsedEvent && json.Unmarshal([]byte(r.Detail), &used) == nil &&
		used.Quote == u.quote:
		u.ids[r.Payment] = used.Payment
		u.payments = append(u.payments, used.Payment)
	case r.Event == audit.ReturnedEvent && !u.signed[u.ids[r.Payment]]:
		u.payments = slices.DeleteFunc(u.payments, func(p string) bool { return p == u.ids[r.Payment] })
	}
	return nil
}

// returnApproval takes the use back that a payment made of an approval, if it was never signed and
// nobody was asked again since.
func (t *tx) returnApproval(p Payment) error {
	if p.State != Reserved {
		return nil
	}
	n, err := t.Exec(`UPDATE approvals SET state = 'approved', payment = '' WHERE payment = ? AND state = 'used'
		AND NOT EXISTS (SELECT 1 FROM approvals again WHERE again.quote = approvals.quote
			AND again.state IN ('pending', 'approved', 'denied'))`, p.ID)
	if err != nil || n == 0 {
		return err
	}
	return t.audit(p.Number, audit.ReturnedEvent, map[string]string{})
}
