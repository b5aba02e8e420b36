package history

import (
	"context"
	"fmt"

	"x402-wallet/history/internal/audit"
	"x402-wallet/history/internal/memory"
	"x402-wallet/history/internal/seals"
	"x402-wallet/history/sqldb"
	"x402-wallet/x402/money"
)

// A payment by "upto" is signed for a ceiling and settled for less. Its row keeps the ceiling, which is what
// was asked for, approved and held; what the chain showed to have moved stands beside it, and is what the
// sums count from then on. As with an expiry, only who holds the key records it, once, in a sealed row.

func (p *Payment) setCharged(text string) error {
	amount, err := money.ParseAmount(text)
	if err != nil {
		return sqldb.Damaged("read what "+p.ID+" was charged", err)
	}
	p.Charged = &amount
	return nil
}

// Charge is what a payment came to.
type Charge struct {
	Amount money.Amount  // atomic units, less than was signed for
	Worth  money.Dollars // of it
}

// Charge records that the chain showed a payment to have settled for less than was signed for: the rest is
// free again. o is the outcome, Settled by the chain. read is the payment as the caller read it before it
// asked the chain, which has to be what was signed. Errors are Expire's.
func (s *Store) Charge(ctx context.Context, read Payment, c Charge, o Outcome, k Keyholder) (p Payment,
	err error) {
	id := read.ID
	err = s.tx(ctx, func(t *tx) error {
		before, g, err := t.signedAs(read, k)
		if err != nil {
			return err
		}
		isLess := c.Amount.Cmp(before.Amount) < 0 && c.Worth >= 0 && c.Worth <= before.Price
		if !isLess || o.State != Settled || o.Proof != Chain {
			return fmt.Errorf("%w: %s was not proven to be charged less", ErrTransition, id)
		}
		last, err := t.lastSealed(k, nil)
		if err != nil {
			return err
		}
		if err := before.chargedOnce(last.memory); err != nil {
			return err
		}
		last.Lower(g, g.Price-c.Worth)
		err = t.seal(k, last, before.Number, audit.ChargedEvent, seals.GivenBack{Unique: g.Unique,
			Charged: c.Amount.String(), Returned: int64(g.Price - c.Worth), Signature: g})
		if err != nil {
			return err
		}
		_, err = t.Exec(`UPDATE payments SET charged = ?, returned = ? WHERE seq = ?`, c.Amount.String(),
			int64(g.Price-c.Worth), before.Number)
		if err != nil {
			return err
		}
		err = t.recount(before, before.State.counts(before.Price), before.State.counts(c.Worth))
		if err != nil {
			return err
		}
		p, err = t.outcome(id, o)
		return err
	})
	return p, err
}

// chargedOnce remembers that a part of a signature was given back: once, as with what expired.
func (p Payment) chargedOnce(m *memory.Memory) error {
	if p.Charged != nil || p.State == Failed || p.Proof == Chain { // another process was faster
		return fmt.Errorf("%w: %s is %s", ErrTransition, p.ID, p.State)
	}
	for _, key := range [][]byte{seals.ExpiredKey(p.ID), seals.ChargedKey(p.ID)} {
		before, err := m.Get(key)
		if err != nil {
			return err
		}
		if before != nil {
			return audit.Corrupt("what was signed for payment %s was given back already, and it is %s", p.ID,
				p.State)
		}
	}
	return m.Put(seals.ChargedKey(p.ID), []byte{1})
}
