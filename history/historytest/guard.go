package historytest

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"

	"x402-wallet/budget"
	"x402-wallet/history"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// Keyholder seals with a key that everybody knows, and lets everything pass.
func Keyholder() history.Keyholder {
	return history.Keyholder{
		MAC: func(data []byte) ([]byte, error) {
			mac := hmac.New(sha256.New, []byte("of tests"))
			mac.Write(data)
			return mac.Sum(nil), nil
		},
		Query: func(history.Payment) budget.Query { return budget.Query{} },
		Permit: func(history.Payment, budget.Facts, history.Sealed) (*history.Fact, error) {
			return nil, nil
		},
		OwnSession: func(budget.Session, []byte) (bool, error) { return false, nil },
		OwnLift:    func(history.Lift) (bool, error) { return true, nil },
	}
}

// Guard is a pay.Guard that lets everything pass: rules and ledgers of tests are nobody's. What it
// records is sealed all the same.
type Guard struct{ Store *history.Store }

func (Guard) CheckConfig(context.Context) error { return nil }

func (Guard) VerifySeals(context.Context) error { return nil }

func (Guard) Checkpoint(context.Context) error { return nil }

func (Guard) CheckpointIfUnlocked(context.Context) error { return nil }

func (Guard) LocalApprovals(context.Context) bool { return true }

func (g Guard) Submit(ctx context.Context, p history.Payment, signed history.Signed, _ bool) error {
	return g.Store.Submit(ctx, p, signed, Keyholder())
}

func (g Guard) RecordVoucher(ctx context.Context, p history.Payment, signed history.Signed,
	c history.Channel, o history.Outcome, _ bool) (history.Payment, error) {
	return g.Store.RecordVoucher(ctx, p, signed, c, o, Keyholder())
}

// Charge implements pay.Guard, for assets of which a unit is worth a millionth of a dollar.
func (g Guard) Charge(ctx context.Context, p history.Payment, status x402.Status) (history.Payment, error) {
	units, _ := status.Amount.Uint64()
	c := history.Charge{Amount: *status.Amount, Worth: min(money.Dollars(units), p.Price)}
	return g.Store.Charge(ctx, p, c, history.Settlement(status), Keyholder())
}

func (g Guard) Expire(ctx context.Context, p history.Payment, status x402.Status) (history.Payment, error) {
	return g.Store.Expire(ctx, p, history.Expiry(p, status), Keyholder())
}
