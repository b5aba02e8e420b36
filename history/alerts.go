package history

import (
	"context"

	"x402-wallet/budget"
	"x402-wallet/history/sqldb"
	"x402-wallet/x402/money"
)

// Alerts hears of what the owner may have to be told. Its errors undo the transaction that it hears it in.
type Alerts interface {
	// Asked hears of a question that was opened, or of a list of them, which is one question.
	Asked(t *sqldb.Tx, list []Approval) error
	// Frozen hears of a freeze that is not the owner's own, and of its number.
	Frozen(t *sqldb.Tx, number int64, f Freeze) error
	// Held hears of a payment whose money is held, with the caps that it was held under, as they were
	// before it.
	Held(t *sqldb.Tx, p Payment, caps []budget.Cap, low *LowFunds) error

	Overdue(ctx context.Context, s *Store, p Payment) error
	Damaged(ctx context.Context, s *Store, why string) error
}

// nobody is told of nothing.
type nobody struct{}

func (nobody) Asked(*sqldb.Tx, []Approval) error                      { return nil }
func (nobody) Frozen(*sqldb.Tx, int64, Freeze) error                  { return nil }
func (nobody) Held(*sqldb.Tx, Payment, []budget.Cap, *LowFunds) error { return nil }
func (nobody) Overdue(context.Context, *Store, Payment) error         { return nil }
func (nobody) Damaged(context.Context, *Store, string) error          { return nil }

// LowFunds is what is left to pay from after a payment, where that is little.
type LowFunds struct {
	Source string // "delegation", "vault", "allowance" or "balance"
	Left   money.Dollars
	Symbol string
	// what renewing them would let the agent spend, as the command that is told proposes it; 0: nothing
	// renews them
	Renew money.Dollars
}

// AlertOverdue tells the owner, once, that what became of a payment is not known although what was signed for
// it is no longer good.
func (s *Store) AlertOverdue(ctx context.Context, p Payment) error {
	return s.alerts.Overdue(ctx, s, p)
}

// AlertDamage tells the owner that the ledger is damaged or was rolled back.
func (s *Store) AlertDamage(ctx context.Context, why string) error {
	return s.alerts.Damaged(ctx, s, why)
}
