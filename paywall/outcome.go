package paywall

import "x402-wallet/paywall/book"

// What is known of a request when it ends: facts, in the order in which they become known. The zero
// value of each is "not yet".
type (
	presented     uint8 // the payment that the buyer presented
	priorUse      uint8 // whether that payment has had its run
	verification  uint8 // what the facilitator said of it
	runOutcome    uint8 // how the tool's run ended
	settleOutcome uint8 // how the settlement ended
)

const (
	noPayment  presented = iota
	unreadable           // it cannot be parsed
	mismatched           // it is for something else, or expires before it could be settled
	matching             // it is for this
)

const (
	unused      priorUse = iota
	replayable           // it had its run; the same call with the same identifier gets the stored answer
	alreadyUsed          // it had its run
)

const (
	notVerified verification = iota
	invalid
	noAnswer // no facilitator answered
	valid
)

const (
	notRun     runOutcome = iota
	succeeded             // and returned something
	needsInput            // it asks the client something first
	failed                // the tool says so, or panicked
	stopped               // a hook or the sale store refused
	tooLate               // the payment would expire before it could be settled
	cancelled             // the buyer cancelled or disconnected
)

const (
	notSettled settleOutcome = iota
	settled
	refused
	unknown   // it may have been settled
	notSent   // no facilitator was reached
	elsewhere // the payment was used before a facilitator was asked to settle it for this sale
)

type facts struct {
	presented    presented
	priorUse     priorUse
	verification verification
	run          runOutcome
	settlement   settleOutcome
	upfront      bool // settle, then run
	isSignedIn   bool // without a payment, as who bought it before
	verifyOnly   bool // never settle
}

// answer is how a request is answered.
type answer uint8

const (
	challenge answer = iota + 1 // the ways to pay: paying (again) helps
	// reject: this payment cannot be used; without ways to pay, so that no client pays again by reflex
	reject
	// unavailable: a failure on our side, or an open settlement; likewise without ways to pay
	unavailable
	toolFailed    // the tool's own failure
	inputRequired // what the tool asks the client first
	deliver       // what was bought
)

// verdict is a row of the table.
type verdict struct {
	answer  answer
	receipt bool           // the facilitator's settlement goes with it, successful or not
	state   book.SaleState // "" where no sale was opened
	err     error          // nil: sold
}

// judge is the table of outcomes. Nothing is given away: "deliver" stands only where the payment is
// settled, or was (or the seller only verifies). Nothing is taken for nothing: "settled" stands only where
// something is delivered, or where the buyer agreed to pay for the attempt.
//
//	#   payment     prior use    verified   tool         settled   answer                    the sale
//	1   none                                                       challenge                 –
//	2   unreadable                                                 reject                    –
//	3   mismatched                                                 challenge, with reason    –
//	4   matching    replayable                                     deliver (again), receipt  as it was
//	5   matching    alreadyUsed                                    reject                    as it was
//	6   matching    unused       invalid                           challenge, with reason    –
//	7   matching    unused       no answer                         unavailable               –
//	8   matching    unused       valid      needs input            inputRequired             deleted
//	9   matching    unused       valid      failed                 toolFailed                failed
//	10  matching    unused       valid      stopped                unavailable               failed
//	11  matching    unused       valid      too late               unavailable               failed
//	12  matching    unused       valid      cancelled              unavailable               failed
//	13  matching    unused       valid      succeeded    never     deliver                   verified
//	14  matching    unused       valid      succeeded    settled   deliver, receipt          settled
//	15  matching    unused       valid      succeeded    refused   challenge, receipt        failed
//	16  matching    unused       valid      succeeded    unknown   unavailable, receipt      unknown
//	17  matching    unused       valid      succeeded    not sent  unavailable, receipt      failed
//
//	24  matching    unused       valid      succeeded    elsewhere reject, receipt           failed
//
//	upfront, that is settled before the run:
//	18  matching    unused       valid      –            refused   challenge, receipt        failed
//	19  matching    unused       valid      –            unknown   unavailable, receipt      unknown
//	20  matching    unused       valid      –            not sent  unavailable, receipt      failed
//	21  matching    unused       valid      succeeded    settled   deliver, receipt          settled
//	22  matching    unused       valid      failed       settled   toolFailed, receipt       settled
//	23  matching    unused       valid      other        settled   as 10, 12, 8, receipt     settled
//	25  matching    unused       valid      –            elsewhere reject, receipt           failed
//
//	signed in as who bought it; who only says so is 3:
//	26  none                                succeeded    never     deliver                   verified
//	27  none                                other        never     as 8 to 12                as 8 to 12
func judge(f facts) verdict {
	switch f.presented {
	case noPayment:
		if f.isSignedIn { // 26, 27
			return judgeRun(facts{run: f.run, verifyOnly: true})
		}
		return verdict{answer: challenge, err: ErrPaymentRequired} // 1
	case unreadable:
		return verdict{answer: reject, err: ErrInvalidRequest} // 2
	case mismatched:
		return verdict{answer: challenge, err: ErrPaymentRejected} // 3
	}
	switch f.priorUse {
	case replayable:
		return verdict{answer: deliver, receipt: true, state: book.SaleSettled} // 4
	case alreadyUsed:
		return verdict{answer: reject, err: ErrPaymentUsed} // 5
	}
	switch f.verification {
	case invalid:
		return verdict{answer: challenge, err: ErrPaymentRejected} // 6
	case noAnswer, notVerified:
		return verdict{answer: unavailable, err: ErrVerifyUnavailable} // 7
	}
	if f.settlement == notSettled || (f.settlement == settled && f.upfront) {
		return judgeRun(f)
	}
	return judgeSettlement(f)
}

// judgeRun is what the tool decides: rows 8 to 13, and 21 to 23, where it is settled already.
func judgeRun(f facts) verdict {
	isSettled := f.settlement == settled
	v := verdict{receipt: isSettled, state: book.SaleFailed}
	if isSettled {
		v.state = book.SaleSettled
	}
	switch {
	case f.run == succeeded && isSettled: // 21
		v.answer = deliver
	case f.run == succeeded && f.verifyOnly: // 13
		v.answer = deliver
		v.state = book.SaleVerified
	case f.run == succeeded: // and nobody tried to settle: cannot happen
		v.answer, v.err = unavailable, ErrSettlementFailed
	case f.run == needsInput && isSettled: // 23
		v.answer = inputRequired
	case f.run == needsInput: // 8
		v.answer = inputRequired
		v.state = ""
	case f.run == failed: // 9, 22
		v.answer, v.err = toolFailed, ErrToolExecutionFailed
	case f.run == tooLate: // 11
		v.answer, v.err = unavailable, ErrTooLate
	case f.run == cancelled: // 12, 23
		v.answer, v.err = unavailable, ErrGone
	default: // 10, 23
		v.answer, v.err = unavailable, ErrAborted
	}
	return v
}

// judgeSettlement is what the settlement decides: rows 14 to 20, 24 and 25.
func judgeSettlement(f facts) verdict {
	v := verdict{receipt: true}
	switch f.settlement {
	case settled: // 14
		v.answer, v.state = deliver, book.SaleSettled
	case refused: // 15, 18
		v.answer, v.state, v.err = challenge, book.SaleFailed, ErrSettlementFailed
	case unknown: // 16, 19
		v.answer, v.state, v.err = unavailable, book.SaleUnknown, ErrSettlementUnknown
	case elsewhere: // 24, 25
		v.answer, v.state, v.err = reject, book.SaleFailed, ErrPaymentUsed
	default: // 17, 20
		v.answer, v.state, v.err = unavailable, book.SaleFailed, ErrSettlementFailed
	}
	return v
}
