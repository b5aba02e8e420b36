package paywall

import (
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/paywall/book"
)

// One row per line of judge's table.
func TestOutcomes(t *testing.T) {
	paid := func(f facts) facts { // a payment that a facilitator verified
		f.presented, f.verification = matching, valid
		return f
	}
	upfront := func(f facts) facts {
		f.upfront = true
		return paid(f)
	}
	for name, row := range map[string]struct {
		facts facts
		want  verdict
	}{
		"1": {facts{presented: noPayment}, verdict{answer: challenge, err: ErrPaymentRequired}},
		"2": {facts{presented: unreadable}, verdict{answer: reject, err: ErrInvalidRequest}},
		"3": {facts{presented: mismatched}, verdict{answer: challenge, err: ErrPaymentRejected}},
		"4": {facts{presented: matching, priorUse: replayable},
			verdict{answer: deliver, receipt: true, state: book.SaleSettled}},
		"5": {facts{presented: matching, priorUse: alreadyUsed},
			verdict{answer: reject, err: ErrPaymentUsed}},
		"5, a race": {paid(facts{priorUse: alreadyUsed}), verdict{answer: reject, err: ErrPaymentUsed}},
		"6": {facts{presented: matching, verification: invalid},
			verdict{answer: challenge, err: ErrPaymentRejected}},
		"7": {facts{presented: matching, verification: noAnswer},
			verdict{answer: unavailable, err: ErrVerifyUnavailable}},
		"8": {paid(facts{run: needsInput}), verdict{answer: inputRequired}},
		"9": {paid(facts{run: failed}),
			verdict{answer: toolFailed, state: book.SaleFailed, err: ErrToolExecutionFailed}},
		"10": {paid(facts{run: stopped}),
			verdict{answer: unavailable, state: book.SaleFailed, err: ErrAborted}},
		"11": {paid(facts{run: tooLate}),
			verdict{answer: unavailable, state: book.SaleFailed, err: ErrTooLate}},
		"12": {paid(facts{run: cancelled}),
			verdict{answer: unavailable, state: book.SaleFailed, err: ErrGone}},
		"13": {paid(facts{run: succeeded, verifyOnly: true}),
			verdict{answer: deliver, state: book.SaleVerified}},
		"14": {paid(facts{run: succeeded, settlement: settled}),
			verdict{answer: deliver, receipt: true, state: book.SaleSettled}},
		"15": {paid(facts{run: succeeded, settlement: refused}),
			verdict{answer: challenge, receipt: true, state: book.SaleFailed, err: ErrSettlementFailed}},
		"16": {paid(facts{run: succeeded, settlement: unknown}),
			verdict{answer: unavailable, receipt: true, state: book.SaleUnknown,
				err: ErrSettlementUnknown}},
		"17": {paid(facts{run: succeeded, settlement: notSent}),
			verdict{answer: unavailable, receipt: true, state: book.SaleFailed, err: ErrSettlementFailed}},
		"18": {upfront(facts{settlement: refused}),
			verdict{answer: challenge, receipt: true, state: book.SaleFailed, err: ErrSettlementFailed}},
		"19": {upfront(facts{settlement: unknown}),
			verdict{answer: unavailable, receipt: true, state: book.SaleUnknown,
				err: ErrSettlementUnknown}},
		"20": {upfront(facts{settlement: notSent}),
			verdict{answer: unavailable, receipt: true, state: book.SaleFailed, err: ErrSettlementFailed}},
		"21": {upfront(facts{settlement: settled, run: succeeded}),
			verdict{answer: deliver, receipt: true, state: book.SaleSettled}},
		"22": {upfront(facts{settlement: settled, run: failed}),
			verdict{answer: toolFailed, receipt: true, state: book.SaleSettled,
				err: ErrToolExecutionFailed}},
		"23 stopped": {upfront(facts{settlement: settled, run: stopped}),
			verdict{answer: unavailable, receipt: true, state: book.SaleSettled, err: ErrAborted}},
		"23 cancelled": {upfront(facts{settlement: settled, run: cancelled}),
			verdict{answer: unavailable, receipt: true, state: book.SaleSettled, err: ErrGone}},
		"23 needs input": {upfront(facts{settlement: settled, run: needsInput}),
			verdict{answer: inputRequired, receipt: true, state: book.SaleSettled}},
		"24": {paid(facts{run: succeeded, settlement: elsewhere}),
			verdict{answer: reject, receipt: true, state: book.SaleFailed, err: ErrPaymentUsed}},
		"25": {upfront(facts{settlement: elsewhere}),
			verdict{answer: reject, receipt: true, state: book.SaleFailed, err: ErrPaymentUsed}},
		"nobody tried to settle": {paid(facts{run: succeeded}),
			verdict{answer: unavailable, state: book.SaleFailed, err: ErrSettlementFailed}},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, row.want, judge(row.facts)) })
	}
}

// Over all combinations of facts: what is delivered is paid, or its owner only verifies; what may
// be paid is delivered, or kept in doubt.
func TestOutcomesGiveNothingAway(t *testing.T) {
	everyCombination(func(f facts) {
		v := judge(f)
		require.NotZero(t, v.answer, "%+v", f)
		isVerified := f.presented == matching && f.priorUse == unused && f.verification == valid
		isSettled := f.settlement == settled
		if v.answer == deliver && f.priorUse != replayable {
			require.True(t, f.presented == matching && f.verification == valid, "%+v", f)
			require.True(t, f.run == succeeded || isSettled, "%+v", f)
			require.True(t, isSettled || f.verifyOnly, "%+v", f)
		}
		if isVerified && f.settlement == unknown {
			require.Equal(t, book.SaleUnknown, v.state, "%+v", f)
			require.Equal(t, unavailable, v.answer, "never a challenge: %+v", f)
		}
		if v.state == book.SaleSettled && f.priorUse != replayable {
			require.True(t, isSettled, "%+v", f)
		}
	})
}

func everyCombination(see func(facts)) {
	flags := []bool{false, true}
	for p := noPayment; p <= matching; p++ {
		for u := unused; u <= alreadyUsed; u++ {
			for v := notVerified; v <= valid; v++ {
				for r := notRun; r <= cancelled; r++ {
					for s := notSettled; s <= elsewhere; s++ {
						for _, upfront := range flags {
							for _, verifyOnly := range flags {
								see(facts{
									presented: p, priorUse: u, verification: v, run: r, settlement: s,
									upfront: upfront, verifyOnly: verifyOnly,
								})
							}
						}
					}
				}
			}
		}
	}
}
