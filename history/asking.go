package history

import (
	"context"

	"x402-wallet/history/internal/audit"
	"x402-wallet/history/sqldb"
)

// Asking is a transaction in which questions to a person are opened: see package asking.
type Asking struct {
	*sqldb.Tx
	Process string // whose client asks

	t *tx
}

// Ask runs f in a durable transaction, in which no approval is open that is over. f may be called more than
// once.
func (s *Store) Ask(ctx context.Context, f func(*Asking) error) error {
	process, err := s.process.Join()
	if err != nil {
		return err
	}
	return s.tx(ctx, func(t *tx) error {
		if err := t.beginDeciding(); err != nil {
			return err
		}
		return f(&Asking{Tx: t.Tx, Process: process, t: t})
	})
}

// Question returns the open approval of a quote, whatever was decided on it, or nil.
func (q *Asking) Question(quote [32]byte) (*Approval, error) {
	return sqldb.Find(q.Tx, ScanApproval, SelectApproval+` WHERE quote = ? AND`+isOpen, quote[:])
}

// List returns the approvals of a list, in its order.
func (q *Asking) List(list string) ([]Approval, error) { return q.t.listOf(list) }

// Record is what the chain says of an approval that is asked for.
func (q *Asking) Record(a Approval) ApprovalRecord {
	r := a.Record(SaidAsked, "")
	r.Session, r.PayTo, r.Network = q.Process, a.PayTo, a.Network
	return r
}

// Open writes a question that has its id and all that it is for.
func (q *Asking) Open(a *Approval) error {
	a.State, a.Created, a.Expires = Pending, q.Now, q.Now.Add(AnswerTime)
	_, err := q.Exec(`INSERT INTO approvals (id, quote, state, created_at, expires_at, host, method, url,
			network, asset, symbol, amount, usd, pay_to, why, agent)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		a.ID, a.Quote[:], a.State, sqldb.Micros(a.Created), sqldb.Micros(a.Expires), a.Host, a.Method, a.URL,
		a.Network, a.Asset, a.Symbol, a.Amount, int64(a.Price), a.PayTo, a.Why, a.Agent)
	if err != nil {
		return err
	}
	r := q.Record(*a)
	r.Row, r.Expires = a.digest(), sqldb.Micros(a.Expires)
	return q.t.audit(0, pendingEvent, r)
}

// Close ends open questions, because a list takes their place.
func (q *Asking) Close(open []Approval) error {
	if len(open) == 0 {
		return nil
	}
	ids := make([]string, len(open))
	for i, a := range open {
		ids[i] = a.ID
		if _, err := q.Exec(`UPDATE approvals SET state = 'expired' WHERE id = ?`, a.ID); err != nil {
			return err
		}
	}
	return q.t.audit(0, audit.ApprovalEvent+string(Expired), map[string]any{"ids": ids})
}

// Tell tells the owner of questions that were opened.
func (q *Asking) Tell(list []Approval) error { return q.t.alerts.Asked(q.Tx, list) }
