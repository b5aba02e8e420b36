package pay

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"x402-wallet/facilitator"
	"x402-wallet/history"
	"x402-wallet/scheme"
	"x402-wallet/seller"
	"x402-wallet/x402"
	"x402-wallet/x402/wire"
)

// facts are what is known after the signed bytes went to the seller.
type facts struct {
	sent    bool // false: provably not one byte left
	again   bool // these bytes may have been out before
	settled bool // it was known to be settled before this answer
	answer  *seller.Answer
	cut     bool   // the answer's content broke off
	gaveUp  string // that the wallet ended the exchange, and why; "": it did not
	paid    history.Payment
	way     scheme.Way // that it was paid by
}

// served reports whether the answer is what was bought.
func (f facts) served() bool { return f.answer != nil && isOK(f.answer.Status) && !f.cut }

// verdict is what the facts mean.
type verdict struct {
	state       history.State
	proof       history.Proof
	code        x402.Code // "": the caller gets a result
	served      bool      // the answer is what was bought
	transaction string
	settling    history.Settling // where the wallet has it settled
	receipt     []byte
	note        string
	again       bool // these bytes were brought before, in vain
}

// judge is the outcome table. It is pure. A "no" of the seller's releases nothing: the signed
// payment stays good until it expires, so the hold stays until the chain says that it has expired.
//
//	 #  what came back                                        state      code              served
//	 1  nothing left the process, ever                        unknown    PAY_FAILED        –
//	 2  nothing left this time, but perhaps before            unknown    OUTCOME_UNKNOWN   –
//	 3  no answer: cut, reset, timed out; or 2xx without a
//	    receipt, and its content broke off                    unknown    OUTCOME_UNKNOWN   –
//	 4  receipt success, status < 300                         settled    –                 yes
//	 5  receipt success, and status ≥ 300 or content cut      settled    –                 no
//	                                                                               (paid_not_served)
//	 6  receipt failure naming a transaction, or one of the
//	    reasons that leave it open (settlement_pending, …)    unknown    OUTCOME_UNKNOWN   –
//	 7  receipt failure without a transaction                 unknown    SETTLEMENT_FAILED –
//	 8  2xx, no receipt                                       unknown    –                 yes
//	 9  3xx                                                   unknown    REDIRECT_REFUSED  –
//	10  402/412 asking again on the same terms                unknown    PAYMENT_REJECTED  –
//	11  402/412 asking on other terms                         unknown    PRICE_CHANGED     –
//	12  other 4xx (also 400 and 409 about the purchase's id,
//	    402 and 412 that ask for nothing)                     unknown    PAYMENT_REJECTED  –
//	13  5xx, no receipt                                       unknown    OUTCOME_UNKNOWN   –
//	14  an MCP tool that failed, no receipt: honest servers
//	    do not settle then, others could                      unknown    TOOL_EXECUTION_FAILED  –
//
// An upto payment whose receipt says that nothing was charged, without a transaction, is not settled: it may
// be charged until it expires. One that says that more was charged than was signed for says what cannot be,
// and counts as none (8).
//
// Where the payment was known to be settled before (the wallet settled, or the chain said so), it stays
// settled, and the answer only decides whether it was served: 2xx is, everything else is paid_not_served.
func judge(f facts) verdict {
	if f.settled {
		v := verdict{state: history.Settled, proof: f.paid.Proof, transaction: f.paid.Transaction}
		v.served = f.served()
		return v
	}
	if !f.sent {
		if f.again {
			return unknown(x402.OutcomeUnknown, "the seller could not be reached again")
		}
		// The bytes are on disk and good: whoever reads them could bring them to a facilitator.
		return unknown(x402.PayFailed, "the seller could not be reached; nothing was sent")
	}
	if f.answer == nil {
		return unknown(x402.OutcomeUnknown, cmp.Or(f.gaveUp, "the connection ended without an answer"))
	}
	if r := f.answer.Settlement; r != nil {
		v := judgeReceipt(*r, f.served())
		if note := f.openDespite(*r); note != "" {
			return stillOpen(v, note)
		}
		return v
	}
	return judgeStatus(f)
}

// openDespite says why a payment is open although its receipt says that it was settled.
func (f facts) openDespite(r wire.Settlement) string {
	if !r.Success {
		return ""
	}
	return plainIfNil(f.way).OpenDespite(r, f.paid)
}

// stillOpen is the verdict of such a payment.
func stillOpen(v verdict, note string) verdict {
	v.state, v.proof, v.transaction, v.note = history.Unknown, "", "", note
	if !v.served {
		v.code = x402.OutcomeUnknown
	}
	return v
}

func judgeReceipt(r wire.Settlement, served bool) verdict {
	v := verdict{transaction: r.Transaction, receipt: r.Raw}
	switch {
	case r.Success:
		v.state, v.proof, v.served = history.Settled, history.Claimed, served
	case r.Transaction != "" || leavesOpen(r.ErrorReason):
		v.state, v.code, v.note = history.Unknown, x402.OutcomeUnknown, "the settlement is not final: "+
			x402.Quote(r.ErrorReason)
	default:
		v.state, v.code, v.note = history.Unknown, x402.SettlementFailed, "the settlement was refused: "+
			x402.Quote(r.ErrorReason)
	}
	return v
}

func judgeStatus(f facts) verdict {
	switch status := f.answer.Status; {
	case isOK(status) && f.cut:
		return unknown(x402.OutcomeUnknown,
			cmp.Or(f.gaveUp, "the answer broke off")+", and there is no receipt")
	case isOK(status):
		v := unknown("", "served without a receipt")
		v.served = true
		return v
	case status < 400:
		return unknown(x402.RedirectRefused, "the seller answered the payment with a redirect, which leads "+
			"to nothing that may be asked for with GET at the same origin")
	case f.answer.Challenge != nil && !asksTheSame(*f.answer.Challenge, f.paid):
		return unknown(x402.PriceChanged, "the seller now asks for something else")
	case status < 500:
		note := fmt.Sprintf("the seller refused the payment with status %d", status)
		if c := f.answer.Challenge; c != nil && c.Error != "" {
			note += ": " + x402.Quote(c.Error)
		}
		return unknown(x402.PaymentRejected, note)
	case f.answer.ToolFailed:
		return unknown(x402.ToolExecutionFailed,
			"the tool failed, and its server says nothing of the payment")
	default:
		return unknown(x402.OutcomeUnknown, fmt.Sprintf("the seller failed with status %d", status))
	}
}

func unknown(code x402.Code, note string) verdict {
	return verdict{state: history.Unknown, code: code, note: note}
}

func isOK(status int) bool { return status >= 200 && status < 300 }

// asksTheSame reports whether the terms that were paid are still among those asked for.
func asksTheSame(c wire.Challenge, p history.Payment) bool {
	amount := p.Amount
	asked, err := wire.ReadTerms(p.Requirement)
	if err == nil {
		amount = asked.Amount // of a deposit, or with a network's fee, it is less than what was paid
	}
	return slices.ContainsFunc(c.Accepts, func(r x402.Requirement) bool {
		return r.AssetKey().Address == p.Asset && r.Network == p.Network && r.Amount == amount &&
			r.PayTo == p.PayTo
	})
}

// isUnheard reports whether an answer is what a seller gives that looks for proof alone, though it asked as
// one that settles itself: it used the header X-PAYMENT-REQUIRED, and asks again on the same terms, with no
// word about the payment. Only on EVM are the same bytes good at any facilitator. It is pure; what else has
// to be known before anything is done about it is in Engine.wasIgnored.
func (f facts) isUnheard() bool {
	a := f.answer
	mayWantProof := f.paid.Dialect.MayWantProof() && x402.Namespace(f.paid.Network) == "eip155" &&
		!plainIfNil(f.way).SellerSettles() // settled by us it would cost all that was allowed
	if !mayWantProof || a == nil || f.cut {
		return false
	}
	saysNothing := a.Settlement == nil && a.SettlementErr == nil
	return a.Status == http.StatusPaymentRequired && saysNothing && a.Challenge != nil &&
		asksTheSame(*a.Challenge, f.paid)
}

// leavesOpen names the reasons of a failed settlement after which the money may have moved or may
// still move: the nonce is used (by whom?), the same payment is being settled, a confirmation did
// not come in time. Here they are a seller's receipt's, by the protocol's names; package
// facilitator has its own, wider list, because facilitators also pass on a chain's words.
func leavesOpen(reason string) bool {
	for _, part := range []string{"nonce_already_used", "duplicate_settlement", "settlement_pending",
		"confirmation_timed_out", "post_settlement", "transfer_event_mismatch"} {
		if strings.Contains(reason, part) {
			return true
		}
	}
	return false
}

// judgeSettling is the table for the wallet's own settling. The money stays held until
// the chain shows that the payment has expired, even where no facilitator took it: whether all of
// them are honest about that is not for us to know.
//
//	settled        settled (claimed)   –
//	refused        unknown             SETTLEMENT_FAILED
//	unknown        unknown             OUTCOME_UNKNOWN
//	nobody took it unknown             FACILITATOR_ERROR
func judgeSettling(r facilitator.Result, network string) verdict {
	v := verdict{state: history.Unknown, settling: history.Settling{Facilitator: r.Facilitator,
		Status: r.Status, Tries: r.Said()}}
	if s := r.Settlement; s != nil {
		v.transaction, v.receipt = s.Transaction, s.Raw
	}
	switch r.Outcome {
	case facilitator.Settled:
		v.state, v.proof = history.Settled, history.Claimed
	case facilitator.Refused:
		v.code, v.note = x402.SettlementFailed, "the facilitator refused to settle"
	case facilitator.NotSent:
		v.code, v.note = x402.FacilitatorError, "no facilitator could be reached"
	default:
		v.code, v.note = x402.OutcomeUnknown, "the facilitators left the outcome open"
		if x402.IsSolana(network) {
			v.note = "the facilitator left the outcome open; it pays the fee of this transaction, so " +
				"another gets a new one only when the chain has proven that this one expired"
		}
	}
	if s := r.Settlement; s != nil && v.code != "" && s.ErrorReason != "" {
		v.note += ": " + x402.Quote(s.ErrorReason)
	}
	return v
}

// keeps reports whether an answer's content is stored. A part of what was bought is not: the same
// call would get it for the whole. Nor is what came with status 2xx and a refusal of the payment;
// where that leaves the settlement open it may be what was bought. Where that was given out before,
// it stays: only what an answer cannot carry takes its place.
func (v verdict) keeps(a *seller.Answer, p history.Payment) bool {
	switch {
	case a == nil:
		return false
	case v.served && p.Delivered:
		var r Result
		r.show(contentOf(a), "")
		return r.ContentTruncated
	case v.served:
		return true
	case a.Truncated:
		return false
	}
	return !isOK(a.Status) || (v.code == x402.OutcomeUnknown && !p.Delivered)
}

func (v verdict) outcome() history.Outcome {
	return history.Outcome{State: v.state, Proof: v.proof, Transaction: v.transaction,
		Settling: v.settling, Receipt: v.receipt, Note: v.note}
}
