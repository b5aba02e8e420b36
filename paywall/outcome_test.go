package paywall

import (
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/history"
)

// One row per line of judge's table.
func TestOutcomes(t *testing.T) {
	for name, row := range map[string]struct {
		facts facts
		want  verdict
	}{
		"1": {facts{shown: nothing}, verdict{asks, false, "", ErrPaymentRequired}},
		"2": {facts{shown: garbled}, verdict{refuses, false, "", ErrInvalidRequest}},
		"3": {facts{shown: other}, verdict{asks, false, "", ErrPaymentRejected}},
		"4": {facts{shown: readable, used: kept}, verdict{delivers, true, history.Sold, nil}},
		"5": {facts{shown: readable, used: before}, verdict{refuses, false, "", ErrPaymentUsed}},
		"5, a race": {facts{shown: readable, used: before, check: valid},
			verdict{refuses, false, "", ErrPaymentUsed}},
		"6": {facts{shown: readable, check: invalid},
			verdict{asks, false, "", ErrPaymentRejected}},
		"7": {facts{shown: readable, check: silent},
			verdict{regrets, false, "", ErrVerifyUnavailable}},
		"8": {facts{shown: readable, check: valid, run: asksMore},
			verdict{passes, false, "", nil}},
		"9": {facts{shown: readable, check: valid, run: failed},
			verdict{fails, false, history.Unsold, ErrToolExecutionFailed}},
		"10": {facts{shown: readable, check: valid, run: stopped},
			verdict{regrets, false, history.Unsold, ErrAborted}},
		"11": {facts{shown: readable, check: valid, run: late},
			verdict{regrets, false, history.Unsold, ErrTooLate}},
		"12": {facts{shown: readable, check: valid, run: gone},
			verdict{regrets, false, history.Unsold, ErrGone}},
		"13": {facts{shown: readable, check: valid, run: ran, dry: true},
			verdict{delivers, false, history.Verified, nil}},
		"14": {facts{shown: readable, check: valid, run: ran, settle: done},
			verdict{delivers, true, history.Sold, nil}},
		"15": {facts{shown: readable, check: valid, run: ran, settle: refused},
			verdict{asks, true, history.Unsold, ErrSettlementFailed}},
		"16": {facts{shown: readable, check: valid, run: ran, settle: unknown},
			verdict{regrets, true, history.InDoubt, ErrSettlementUnknown}},
		"17": {facts{shown: readable, check: valid, run: ran, settle: unsent},
			verdict{regrets, true, history.Unsold, ErrSettlementFailed}},
		"18": {facts{shown: readable, check: valid, upfront: true, settle: refused},
			verdict{asks, true, history.Unsold, ErrSettlementFailed}},
		"19": {facts{shown: readable, check: valid, upfront: true, settle: unknown},
			verdict{regrets, true, history.InDoubt, ErrSettlementUnknown}},
		"20": {facts{shown: readable, check: valid, upfront: true, settle: unsent},
			verdict{regrets, true, history.Unsold, ErrSettlementFailed}},
		"21": {facts{shown: readable, check: valid, upfront: true, settle: done, run: ran},
			verdict{delivers, true, history.Sold, nil}},
		"22": {facts{shown: readable, check: valid, upfront: true, settle: done, run: failed},
			verdict{fails, true, history.Sold, ErrToolExecutionFailed}},
		"23 stopped": {facts{shown: readable, check: valid, upfront: true, settle: done, run: stopped},
			verdict{regrets, true, history.Sold, ErrAborted}},
		"23 gone": {facts{shown: readable, check: valid, upfront: true, settle: done, run: gone},
			verdict{regrets, true, history.Sold, ErrGone}},
		"23 asks more": {facts{shown: readable, check: valid, upfront: true, settle: done, run: asksMore},
			verdict{passes, true, history.Sold, nil}},
		"never settled?": {facts{shown: readable, check: valid, run: ran},
			verdict{regrets, false, history.Unsold, ErrSettlementFailed}},
	} {
		require.Equal(t, row.want, judge(row.facts), name)
	}
}

// Over all facts that can be thought of: what is given is paid, or nobody wanted it to be; what may
// be paid is given, or kept open.
func TestOutcomesGiveNothingAway(t *testing.T) {
	for s := nothing; s <= readable; s++ {
		for u := fresh; u <= before; u++ {
			for c := unchecked; c <= valid; c++ {
				for r := notRun; r <= gone; r++ {
					for k := unsettled; k <= unsent; k++ {
						for _, upfront := range []bool{false, true} {
							for _, dry := range []bool{false, true} {
								f := facts{s, u, c, r, k, upfront, dry}
								v := judge(f)
								require.NotZero(t, v.answer, "%+v", f)
								if v.answer == delivers && u != kept {
									require.True(t, s == readable && c == valid && (r == ran || k == done) &&
										(k == done || dry), "%+v", f)
								}
								if k == unknown && s == readable && u == fresh && c == valid {
									require.Equal(t, history.InDoubt, v.state, "%+v", f)
									require.Equal(t, regrets, v.answer, "never a challenge: %+v", f)
								}
								if v.state == history.Sold && u != kept {
									require.Equal(t, done, k, "%+v", f)
								}
							}
						}
					}
				}
			}
		}
	}
}
