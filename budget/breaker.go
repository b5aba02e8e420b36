package budget

import (
	"errors"
	"time"

	"x402-wallet/x402"
)

// unusualHour is how many full minutes of the owner's rate may fall into one hour before the
// circuit breaker stops payments: the rate is there for bursts, and no honest one lasts half an
// hour.
const unusualHour = 30

// busiestRate is the highest rate per minute that the breaker watches by the hour: who allows more
// than that runs a fleet, whose ordinary hour looks like this.
const busiestRate = 1000

// ErrTripped says that the circuit breaker found something that a person has to look at: payments
// are to be frozen.
var ErrTripped = errors.New("the circuit breaker tripped")

// checkBreaker stops payments when MaxLost of them in a row came to nothing after they were signed,
// or when an hour was busier than a burst can explain; counted from when the owner last looked.
func (r Rules) checkBreaker(now time.Time, l Ledger) error {
	if r.MaxLost == 0 {
		return nil
	}
	looked, err := l.LastUnfreeze()
	if err != nil {
		return err
	}
	lost, err := l.ConsecutiveFailures(looked, r.MaxLost)
	if err != nil {
		return err
	}
	if lost >= r.MaxLost {
		return tripped("the last %d payments were signed and came to nothing", lost).WithDetail("limit",
			r.MaxLost)
	}
	since := now.Add(-time.Hour)
	if looked.After(since) {
		since = looked
	}
	most := unusualHour * r.Rate
	if r.Rate > busiestRate {
		return nil
	}
	n, err := l.Count(since)
	if err == nil && n >= most {
		return tripped("%d payments in one hour", n).WithDetail("limit", most)
	}
	return err
}

func tripped(format string, args ...any) *x402.Error {
	e := x402.Errorf(x402.WalletFrozen, format, args...).WithHint("nothing is paid until the person has "+
		"looked at it").WithDetail("by", "breaker")
	e.Err = ErrTripped
	return e
}
