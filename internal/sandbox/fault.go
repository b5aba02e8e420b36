package sandbox

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Fault is the name of one way in which a party of the sandbox misbehaves. What is on the chain
// stays true all the same.
type Fault string

// The facilitator's faults, at /settle (those of verify say so).
const (
	facilitatorRefusesVerify Fault = "facilitator refuses verify" // /verify: isValid false
	// success false, no transaction; nothing settled
	facilitatorRefuses Fault = "facilitator refuses"
	// HTTP 500 without a body that means anything; nothing settled
	facilitatorFails      Fault = "facilitator fails"
	facilitatorCutsBefore Fault = "facilitator cuts before" // cuts the connection; nothing settled
	facilitatorCutsAfter  Fault = "facilitator cuts after"  // settles, then cuts the connection
	facilitatorFailsAfter Fault = "facilitator fails after" // settles, then HTTP 500
	facilitatorSlow       Fault = "facilitator slow"        // settles, and answers after Options.Delay
	// success true with an invented transaction; nothing settled
	facilitatorLies Fault = "facilitator lies"
	// settles, but answers success false, settlement_pending, with the transaction
	facilitatorPending Fault = "facilitator pending"
	// the same answer with an invented transaction; nothing settled
	facilitatorNeverLands Fault = "facilitator never lands"
	// HTTP 429 with Retry-After: 1; nothing settled
	facilitatorBusy Fault = "facilitator busy"
	facilitatorDown Fault = "facilitator down" // every path: cuts the connection unread
)

// The seller's faults, when a payment is presented.
const (
	sellerAsksAgain Fault = "seller asks again" // 402 as if no payment had come; nothing settled
	sellerRaises    Fault = "seller raises"     // 402 asking twice the price; nothing settled
	// settles, then 500 with the receipt: paid and not served
	sellerFails        Fault = "seller fails"
	sellerFailsMute    Fault = "seller fails mute"    // settles, then 500 without a receipt
	sellerNoReceipt    Fault = "seller no receipt"    // settles and serves, without a receipt
	sellerFalseReceipt Fault = "seller false receipt" // serves with an invented receipt; nothing settled
	sellerGarbles      Fault = "seller garbles"       // settles and serves, with a receipt that is no base64
	// 307 to another origin, which would take the payment; nothing settled
	sellerRedirects   Fault = "seller redirects"
	sellerHangsBefore Fault = "seller hangs before" // never answers; nothing settled
	sellerHangs       Fault = "seller hangs"        // settles, then never answers
	sellerCutsBefore  Fault = "seller cuts before"  // cuts the connection; nothing settled
	// settles, then cuts the connection in the middle of the answer
	sellerCuts Fault = "seller cuts"
	sellerSlow Fault = "seller slow" // settles and serves, after Options.Delay
)

// The nodes' faults.
const (
	evmNodeDown      Fault = "evm node down"      // HTTP 503
	evmNodeSlow      Fault = "evm node slow"      // answers after Options.Delay
	evmNodeElsewhere Fault = "evm node elsewhere" // says that it serves another chain
	// knows no payment: every nonce unused, no logs, no receipts
	evmNodeForgets      Fault = "evm node forgets"
	solanaNodeDown      Fault = "solana node down"      // HTTP 503
	solanaNodeSlow      Fault = "solana node slow"      // answers after Options.Delay
	solanaNodeElsewhere Fault = "solana node elsewhere" // the same
	solanaNodeForgets   Fault = "solana node forgets"   // knows no transaction
)

// The faults by the moment at which they strike.
var (
	whenSettling = []Fault{facilitatorRefuses, facilitatorFails, facilitatorCutsBefore, facilitatorCutsAfter,
		facilitatorFailsAfter, facilitatorSlow, facilitatorLies, facilitatorPending, facilitatorNeverLands,
		facilitatorBusy}
	// of the seller
	beforeSettled = []Fault{sellerAsksAgain, sellerRaises, sellerFalseReceipt, sellerRedirects,
		sellerHangsBefore, sellerCutsBefore}
	// of the seller
	afterSettled = []Fault{sellerFails, sellerFailsMute, sellerNoReceipt, sellerGarbles, sellerHangs,
		sellerCuts, sellerSlow}
	otherwise = []Fault{facilitatorRefusesVerify, facilitatorDown, evmNodeDown, solanaNodeDown,
		evmNodeSlow, solanaNodeSlow, evmNodeElsewhere, solanaNodeElsewhere, evmNodeForgets, solanaNodeForgets}

	allFaults = slices.Concat(whenSettling, beforeSettled, afterSettled, otherwise)
)

// Always is for Inject: until Heal.
const Always = -1

type faults struct {
	mu   sync.Mutex
	left map[Fault]int
}

// Inject makes a fault happen the next n times that it can, or Always. It panics where there is no
// fault of that name.
func (s *Sandbox) Inject(f Fault, n int) {
	if !slices.Contains(allFaults, f) {
		panic(fmt.Sprintf("sandbox: there is no fault %q; there are %q", f, allFaults))
	}
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	if s.faults.left == nil {
		s.faults.left = map[Fault]int{}
	}
	s.faults.left[f] = n
}

// Heal ends all faults.
func (s *Sandbox) Heal() {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	s.faults.left = nil
}

// strike uses up one of the first of these faults that is injected; "" when none is.
func (s *Sandbox) strike(among ...Fault) Fault {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	for _, f := range among {
		switch n := s.faults.left[f]; {
		case n == Always:
			return f
		case n > 0:
			s.faults.left[f]--
			return f
		}
	}
	return ""
}

// strikes is strike of a single one.
func (s *Sandbox) strikes(f Fault) bool { return s.strike(f) != "" }

// cut ends the connection without an answer.
func cut() { panic(http.ErrAbortHandler) }

// linger waits for Options.Delay, or the sandbox's or the client's end.
func (s *Sandbox) linger(r *http.Request) {
	select {
	case <-time.After(s.options.Delay):
	case <-s.closed:
	case <-r.Context().Done():
	}
}

// hang waits for the client or the sandbox to go away.
func (s *Sandbox) hang(r *http.Request) {
	select {
	case <-s.closed:
	case <-r.Context().Done():
	}
	cut()
}
