package history

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"

	"x402-wallet/budget"
)

// testKeyholder seals with a key that everybody knows, and lets everything pass: package
// historytest's, which this package's own tests cannot import.
func testKeyholder() Keyholder {
	return Keyholder{
		MAC: func(data []byte) ([]byte, error) {
			mac := hmac.New(sha256.New, []byte("of tests"))
			mac.Write(data)
			return mac.Sum(nil), nil
		},
		Query:      func(Payment) budget.Query { return budget.Query{} },
		Permit:     func(Payment, budget.Facts, Sealed) (*Fact, error) { return nil, nil },
		OwnSession: func(budget.Session, []byte) (bool, error) { return false, nil },
		OwnLift:    func(Lift) (bool, error) { return true, nil },
	}
}

// finish records an outcome as a holder of the key does: also that what was signed expired.
func finish(s *Store, id string, o Outcome) (Payment, error) {
	if o.State != Failed {
		return s.Finish(context.Background(), id, o)
	}
	p, err := s.Payment(context.Background(), id)
	if err != nil {
		return p, err
	}
	return s.Expire(context.Background(), p, o, testKeyholder())
}
