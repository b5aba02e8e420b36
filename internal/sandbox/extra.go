package sandbox

import (
	"encoding/json"
	"net/http"

	"x402-wallet/chain/evm/message"
	"x402-wallet/x402/money"
)

// Extra is what a test adds to a sandbox by Options.Extend: further ways of paying, and contracts on the EVM
// chain. Each of its members may be nil.
type Extra struct {
	// Seller wraps the seller's handler.
	Seller func(seller http.Handler) http.Handler
	// Kinds are further kinds of payment of the facilitator's GET /supported, and Extensions its extensions.
	Kinds      []any
	Extensions []string
	// Terms is given the terms that the facilitator is asked about, by the path of the call. comesTo is the
	// sum to settle where that is not the sum that was signed for, asked is what the accepted terms have to
	// be, and readable is what is read in place of the terms.
	Terms func(path string, accepted, terms json.RawMessage) (comesTo *money.Amount, asked,
		readable json.RawMessage)
	// Scheme is how the facilitator treats a payment. It returns nil for exact.
	Scheme func(q *Submission) *Scheme
	// Unpaid reports whether a payload shows an older signature again, and is no new payment.
	Unpaid func(payload []byte) bool

	// Methods are further methods of the EVM node.
	Methods map[string]Method
	// View answers the view functions of a contract, and of the token those that the sandbox does not know.
	View func(contract, selector, words string, block uint64, forgets bool) (answer string, known bool)
	// HasCode reports whether an address is a contract's.
	HasCode func(address string) bool
	// Recover reads a payment out of a contract (ERC-1271). isContract is false for other payments.
	Recover func(payload json.RawMessage) (signer string, a message.Authorization3009, isContract bool,
		err error)
	// Faults are the names of further faults.
	Faults []string
}

// Scheme is how the facilitator verifies and settles payments of a further kind. What they return besides
// goes into the facilitator's answer. A settlement without a Payer is not one of the Settlements.
type Scheme struct {
	Verify func(q *Submission) (signer string, extra map[string]any, err error)
	Settle func(q *Submission) (done Settlement, more map[string]any, err error)
}

func (s *Sandbox) Chain() *Chain { return s.evm }
