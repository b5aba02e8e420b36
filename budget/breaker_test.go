package budget

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/x402"
)

// watched is a ledger whose newest payments came to nothing, as many as failures.
type watched struct {
	fake
	failures int
	looked   time.Time
}

func (w watched) facts(q Query) Facts {
	f := w.fake.facts(q, noon, current)
	f.ConsecutiveFailures, f.LastUnfreeze = min(w.failures, q.MaxFailures), w.looked
	f.LastHour = w.count(RateLimit{Per: BusyWindow, NotBefore: w.looked}.Since(noon))
	return f
}

func busy(n int) (f fake) {
	for i := range n {
		f = append(f, row{at: noon.Add(-time.Hour + time.Duration(i+1)*time.Millisecond)})
	}
	return f
}

func TestTheBreaker(t *testing.T) {
	for _, c := range []struct {
		name    string
		ledger  watched
		rate    int
		most    int
		tripped bool
	}{
		{"one before the last", watched{failures: 19}, 3, 20, false},
		{"as many as the owner says", watched{failures: 20}, 3, 20, true},
		{"the owner looked, and it went on", watched{failures: 20, looked: noon.Add(-time.Hour)}, 3, 20,
			true},
		{"no breaker", watched{failures: 100, fake: busy(90)}, 3, 0, false},
		{"a busy hour", watched{fake: busy(89)}, 3, 20, false},
		{"an unusual hour", watched{fake: busy(90)}, 3, 20, true},
		{"an hour ago is over", watched{fake: append(fake{{at: noon.Add(-time.Hour)}}, busy(89)...)}, 3, 20,
			false},
		{"the owner looked since", watched{fake: busy(90), looked: noon.Add(-time.Minute)}, 3, 20, false},
		{"many agents", watched{fake: busy(40_000)}, busiestRate + 1, 20, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := rules(t)
			r.Rate, r.MaxFailures = c.rate, c.most
			a := ask(t, "0.01")
			_, err := r.Decide(a, c.ledger.facts(r.Query(a)))
			if !c.tripped {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, ErrTripped)
			require.True(t, x402.HasCode(err, x402.WalletFrozen))
			require.Equal(t, "breaker", x402.AsError(err).Details["by"])
		})
	}
}
