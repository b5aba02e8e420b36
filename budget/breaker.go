package budget

import (
	"errors"
	"time"

	"x402-wallet/x402"
)

// BusyWindow is the window in which the circuit breaker counts payments.
const BusyWindow = time.Hour

// busyMinutes is how many full minutes of the owner's rate may fall into one hour before the
// circuit breaker stops payments: the rate is there for bursts, and no honest one lasts half an
// hour.
const busyMinutes = 30

// busiestRate is the highest rate per minute that the breaker watches by the hour: who allows more
// than that runs many agents, whose ordinary hour looks like this.
const busiestRate = 1000

// ErrTripped says that the circuit breaker found something that a person has to look at: payments
// are to be frozen.
var ErrTripped = errors.New("the circuit breaker tripped")

// checkBreaker stops payments when MaxFailures of them in a row came to nothing after they were
// signed, or when an hour was busier than a burst can explain; counted from when the owner last
// lifted a freeze.
func (r Rules) checkBreaker(facts Facts) error {
	if r.MaxFailures == 0 {
		return nil
	}
	if facts.ConsecutiveFailures >= r.MaxFailures {
		return tripped("the last %d payments were signed and came to nothing", facts.ConsecutiveFailures).
			WithDetail("limit", r.MaxFailures)
	}
	if r.watchesHour() && facts.LastHour >= r.busyHour() {
		return tripped("%d payments in one hour", facts.LastHour).WithDetail("limit", r.busyHour())
	}
	return nil
}

func (r Rules) watchesHour() bool { return r.MaxFailures != 0 && r.Rate <= busiestRate }

func (r Rules) busyHour() int { return busyMinutes * r.Rate }

func tripped(format string, args ...any) *x402.Error {
	e := x402.Errorf(x402.WalletFrozen, format, args...).
		WithHint("nothing is paid until the person has looked at it").WithDetail("by", "breaker")
	e.WithCommand(x402.Command("unfreeze"), "The wallet stopped all payments because of "+e.Message+
		": please look at its history, and unfreeze it if that was right.")
	e.Err = ErrTripped
	return e
}
