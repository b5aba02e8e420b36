//go:build crash && linux

package crash

import (
	"bytes"

	"x402-wallet/internal/sandbox"
)

// What the other ways of paying promise besides: their judges.

// approvals: what Permit2 may move is never more than one payment needs, and is used by it.
func (r *run) approvals(who string) {
	price := sandbox.Price(r.scenario.path)
	if left := r.Approved(template.evm); left >= price {
		r.violation("%s: Permit2 may move %d more, the price is %d", who, left, price)
	}
}

// signIns: each text of the seller's is shown once at most.
func (r *run) signIns(who string) {
	shown := map[string]int{}
	for _, nonce := range r.SignInsShown() {
		shown[nonce]++
		if n := shown[nonce]; n > 1 {
			r.violation("%s: the sign-in %s was shown %d times", who, nonce, n)
		}
	}
}

// signedIn is the judgement of a sign-in: nothing is paid again, what was bought is got all the same, and
// no text was shown that the ledger does not know.
func (r *run) signedIn() {
	r.payment()
	if r.SignIns() == 0 {
		r.violation("nobody was let in")
	}
	payments, err := r.payments()
	if err != nil {
		return // payment said so
	}
	for _, nonce := range r.SignInsShown() {
		known := 0
		for _, p := range payments {
			if p.IsSignIn() && bytes.Contains(p.Payload, []byte(nonce)) {
				known++
			}
		}
		if known != 1 {
			r.violation("%d rows of the ledger are the sign-in %s", known, nonce)
		}
	}
}
