package sandbox

import (
	"fmt"
	"net/http"
	"sync"
	"time"
)

// Fault is one way in which a party of the sandbox misbehaves. What is on the chain stays true all
// the same.
type Fault uint8

// The facilitator's faults, at /settle (those of verify say so).
const (
	FacilitatorRefusesVerify Fault = iota + 1 // /verify: isValid false
	FacilitatorRefuses                        // success false, no transaction; nothing settled
	FacilitatorFails                          // HTTP 500 without a body that means anything; nothing settled
	FacilitatorCutsBefore                     // cuts the connection; nothing settled
	FacilitatorCutsAfter                      // settles, then cuts the connection
	FacilitatorFailsAfter                     // settles, then HTTP 500
	FacilitatorSlow                           // settles, and answers after Options.Delay
	FacilitatorLies                           // success true with an invented transaction; nothing settled
	// settles, but answers success false, settlement_pending, with the transaction
	FacilitatorPending
	FacilitatorNeverLands // the same answer with an invented transaction; nothing settled
	FacilitatorBusy       // HTTP 429 with Retry-After: 1; nothing settled
	FacilitatorDown       // every path: cuts the connection unread

	// The seller's faults, when a payment is presented.

	SellerAsksAgain    // 402 as if no payment had come; nothing settled
	SellerRaises       // 402 asking twice the price; nothing settled
	SellerFails        // settles, then 500 with the receipt: paid and not served
	SellerFailsMute    // settles, then 500 without a receipt
	SellerNoReceipt    // settles and serves, without a receipt
	SellerFalseReceipt // serves with an invented receipt; nothing settled
	SellerGarbles      // settles and serves, with a receipt that is no base64
	SellerRedirects    // 307 to another origin, which would take the payment; nothing settled
	SellerHangsBefore  // never answers; nothing settled
	SellerHangs        // settles, then never answers
	SellerCutsBefore   // cuts the connection; nothing settled
	SellerCuts         // settles, then cuts the connection in the middle of the answer
	SellerSlow         // settles and serves, after Options.Delay

	// The nodes' faults.

	EVMNodeDown      // HTTP 503
	SolanaNodeDown   // HTTP 503
	EVMNodeSlow      // answers after Options.Delay
	SolanaNodeSlow   // answers after Options.Delay
	EVMNodeElsewhere // says that it serves another chain
	SolanaNodeElsewhere
	EVMNodeForgets    // knows no payment: every nonce unused, no logs, no receipts
	SolanaNodeForgets // knows no transaction

	lastFault
)

var faultNames = [...]string{"", "facilitator refuses verify", "facilitator refuses", "facilitator fails",
	"facilitator cuts before",
	"facilitator cuts after", "facilitator fails after", "facilitator slow", "facilitator lies",
	"facilitator pending",
	"facilitator never lands", "facilitator busy", "facilitator down", "seller asks again", "seller raises",
	"seller fails", "seller fails mute",
	"seller no receipt", "seller false receipt", "seller garbles", "seller redirects", "seller hangs before",
	"seller hangs",
	"seller cuts before", "seller cuts", "seller slow", "evm node down", "solana node down", "evm node slow",
	"solana node slow",
	"evm node elsewhere", "solana node elsewhere", "evm node forgets", "solana node forgets"}

// String is the fault's name, for test names.
func (f Fault) String() string {
	if f == 0 || f >= lastFault {
		return fmt.Sprintf("fault %d", uint8(f))
	}
	return faultNames[f]
}

// Always is for Inject: until Heal.
const Always = -1

type faults struct {
	mu   sync.Mutex
	left map[Fault]int
}

// Inject makes a fault happen the next n times that it can, or Always.
func (s *Sandbox) Inject(f Fault, n int) {
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

// strike uses up one of the first of these faults that is injected; 0 when none is.
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
	return 0
}

// strikes is strike of a single one.
func (s *Sandbox) strikes(f Fault) bool { return s.strike(f) != 0 }

// between lists the faults from … to.
func between(from, to Fault) (all []Fault) {
	for f := from; f <= to; f++ {
		all = append(all, f)
	}
	return all
}

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
