package paywall

import "x402-wallet/history"

// What is known of a request when it ends: facts, in the order in which they become known. The zero
// value of each is "not yet".
type (
	shown  uint8 // what the buyer showed
	used   uint8 // whether that payment had its run
	check  uint8 // what the facilitator said of it
	run    uint8 // what became of the tool
	settle uint8 // what became of the settlement
)

const (
	nothing  shown = iota // no payment
	garbled               // something that cannot be read
	other                 // a payment for something else, or one that expires before it could be settled
	readable              // a payment for this
)

const (
	fresh  used = iota
	kept        // it had its run, and who shows it now is told the answer again: same call, same identifier
	before      // it had its run
)

const (
	unchecked check = iota
	invalid
	silent // nobody answered
	valid
)

const (
	notRun   run = iota
	ran          // and gave something
	asksMore     // it wants an answer of the client's first
	failed       // the tool says so, or panicked
	stopped      // a hook, or the book of sales, said no
	late         // the payment would expire before it could be settled
	gone         // the buyer cancelled or left
)

const (
	unsettled settle = iota
	done
	refused
	unknown // perhaps
	unsent  // no facilitator was reached
)

type facts struct {
	shown   shown
	used    used
	check   check
	run     run
	settle  settle
	upfront bool // settle, then run
	dry     bool // verify only
}

// answer is how a request is answered.
type answer uint8

const (
	asks     answer = iota + 1 // the challenge: paying (again) is a way on
	refuses                    // the payment is of no use; no challenge, so that nobody pays again by reflex
	regrets                    // something of ours failed, or is open; likewise no challenge
	fails                      // the tool's own failure
	passes                     // what the tool wants to know first
	delivers                   // what was bought
)

// verdict is a row of the table.
type verdict struct {
	answer  answer
	receipt bool              // what the facilitator said goes with it, good or bad
	state   history.SaleState // "" where no sale was opened
	err     error             // nil: sold
}

// judge is the table of outcomes. Nothing is given away: "delivers" stands only where it is settled
// (or nobody wanted it to be). Nothing is taken for nothing: "settled" stands only where something
// is delivered, or the buyer agreed to pay for the try.
//
//	#   shown     used    checked  tool     settled   the buyer gets                       the sale
//	1   nothing                                       asks                                 –
//	2   garbled                                       refuses                              –
//	3   other                                         asks, with why                       –
//	4   readable  kept                                delivers, the receipt: once more     as it was
//	5   readable  before                              refuses                              as it was
//	6   readable  fresh   invalid                     asks, with why                       –
//	7   readable  fresh   silent                      regrets                              –
//	8   readable  fresh   valid    asks more          passes; its payment is good again    forgotten
//	9   readable  fresh   valid    failed             fails                                failed
//	10  readable  fresh   valid    stopped            regrets                              failed
//	11  readable  fresh   valid    late               regrets                              failed
//	12  readable  fresh   valid    gone               regrets (nobody hears it)            failed
//	13  readable  fresh   valid    ran      (dry)     delivers                             verified
//	14  readable  fresh   valid    ran      done      delivers, the receipt                settled
//	15  readable  fresh   valid    ran      refused   asks, the receipt of failure         failed
//	16  readable  fresh   valid    ran      unknown   regrets, the receipt of failure      unknown, what was made is kept
//	17  readable  fresh   valid    ran      unsent    regrets, the receipt of failure      failed
//	    upfront:
//	18  readable  fresh   valid    –        refused   asks, the receipt of failure         failed
//	19  readable  fresh   valid    –        unknown   regrets, the receipt of failure      unknown
//	20  readable  fresh   valid    –        unsent    regrets, the receipt of failure      failed
//	21  readable  fresh   valid    ran      done      delivers, the receipt                settled
//	22  readable  fresh   valid    failed   done      fails, the receipt                   settled: it was for the try
//	23  readable  fresh   valid    stopped, gone, asks more: as 22, without the tool's words where it has none
func judge(f facts) verdict {
	switch f.shown {
	case nothing:
		return verdict{answer: asks, err: ErrPaymentRequired} // 1
	case garbled:
		return verdict{answer: refuses, err: ErrInvalidRequest} // 2
	case other:
		return verdict{answer: asks, err: ErrPaymentRejected} // 3
	}
	switch f.used {
	case kept:
		return verdict{answer: delivers, receipt: true, state: history.Sold} // 4
	case before:
		return verdict{answer: refuses, err: ErrPaymentUsed} // 5
	}
	switch f.check {
	case invalid:
		return verdict{answer: asks, err: ErrPaymentRejected} // 6
	case silent, unchecked:
		return verdict{answer: regrets, err: ErrVerifyUnavailable} // 7
	}
	if f.settle == unsettled || f.settle == done && f.upfront {
		return judgeRun(f)
	}
	return judgeSettle(f)
}

// judgeRun is what the tool decides: rows 8 to 13, and 21 to 23, where it is settled already.
func judgeRun(f facts) verdict {
	settled := f.settle == done
	v := verdict{receipt: settled, state: history.Unsold}
	if settled {
		v.state = history.Sold
	}
	switch {
	case f.run == ran && settled: // 21
		v.answer = delivers
	case f.run == ran && f.dry: // 13
		v.answer, v.state = delivers, history.Verified
	case f.run == ran: // and nobody tried to settle: cannot happen
		v.answer, v.err = regrets, ErrSettlementFailed
	case f.run == asksMore && settled: // 23
		v.answer = passes
	case f.run == asksMore: // 8
		v.answer, v.state = passes, ""
	case f.run == failed: // 9, 22
		v.answer, v.err = fails, ErrToolExecutionFailed
	case f.run == late: // 11
		v.answer, v.err = regrets, ErrTooLate
	case f.run == gone: // 12, 23
		v.answer, v.err = regrets, ErrGone
	default: // 10, 23
		v.answer, v.err = regrets, ErrAborted
	}
	return v
}

// judgeSettle is what the settlement decides: rows 14 to 20.
func judgeSettle(f facts) verdict {
	switch f.settle {
	case done:
		return verdict{answer: delivers, receipt: true, state: history.Sold} // 14
	case refused:
		return verdict{answer: asks, receipt: true, state: history.Unsold, err: ErrSettlementFailed} // 15, 18
	case unknown:
		// 16, 19
		return verdict{answer: regrets, receipt: true, state: history.InDoubt, err: ErrSettlementUnknown}
	default:
		// 17, 20
		return verdict{answer: regrets, receipt: true, state: history.Unsold, err: ErrSettlementFailed}
	}
}
