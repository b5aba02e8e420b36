package sandbox

import (
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"x402-wallet/x402"
)

// The faults are ways in which a party of the sandbox misbehaves. What is on the chain stays true
// all the same.
const (
	// The facilitator's, at /settle (one says otherwise).
	facilitatorRefusesVerify = "facilitator refuses verify" // /verify: isValid false
	facilitatorRefuses       = "facilitator refuses"        // success false, no transaction; nothing settled
	facilitatorFails         = "facilitator fails"          // HTTP 500 that means nothing; nothing settled
	facilitatorCutsBefore    = "facilitator cuts before"    // cuts the connection; nothing settled
	facilitatorCutsAfter     = "facilitator cuts after"     // settles, then cuts the connection
	facilitatorLies          = "facilitator lies"           // invents a transaction; nothing settled
	facilitatorPending       = "facilitator pending"        // settles, but answers settlement_pending
	facilitatorNeverLands    = "facilitator never lands"    // the same, nothing settled
	facilitatorDown          = "facilitator down"           // every path: cuts the connection unread

	// The seller's, when a payment is presented.
	sellerAsksAgain    = "seller asks again"    // 402 as if no payment had come; nothing settled
	sellerRaises       = "seller raises"        // 402 asking twice the price; nothing settled
	sellerFailsBefore  = "seller fails before"  // 500; nothing settled
	sellerFails        = "seller fails"         // settles, then 500 with the receipt: paid and not served
	sellerFailsMute    = "seller fails mute"    // settles, then 500 without a receipt
	sellerFalseReceipt = "seller false receipt" // serves with an invented receipt; nothing settled
	sellerRedirects    = "seller redirects"     // 307 to another origin, which would take the payment
	sellerHangsBefore  = "seller hangs before"  // never answers; nothing settled
	sellerHangs        = "seller hangs"         // settles, then never answers
	sellerCutsBefore   = "seller cuts before"   // cuts the connection; nothing settled
	sellerCuts         = "seller cuts"          // settles, then cuts the answer in its middle
	sellerSlow         = "seller slow"          // settles and serves, after Options.Delay

	// Likewise; it settles and serves, but its receipt is wrong.
	sellerOmitsReceipt   = "seller omits receipt"   // none
	sellerGarblesReceipt = "seller garbles receipt" // no JSON
	sellerWrongReceipt   = "seller wrong receipt"   // of a transaction that is not there

	// The nodes'.
	evmNodeDown      = "evm node down"      // HTTP 503
	evmNodeElsewhere = "evm node elsewhere" // says that it serves another chain
	evmNodeForgets   = "evm node forgets"   // knows no payment: every nonce unused, no logs, no receipts
	solanaNodeDown   = "solana node down"   // HTTP 503
)

// The faults by the moment at which they strike.
var (
	whenSettling = []string{facilitatorRefuses, facilitatorFails, facilitatorCutsBefore, facilitatorCutsAfter,
		facilitatorLies, facilitatorPending, facilitatorNeverLands}
	// of the seller
	beforeSettled = []string{sellerAsksAgain, sellerRaises, sellerFalseReceipt, sellerRedirects,
		sellerFailsBefore, sellerHangsBefore, sellerCutsBefore}
	afterSettled = []string{sellerFails, sellerFailsMute, sellerHangs, sellerCuts, sellerSlow,
		sellerOmitsReceipt, sellerGarblesReceipt, sellerWrongReceipt}

	allFaults = slices.Concat(whenSettling, beforeSettled, afterSettled, []string{facilitatorRefusesVerify,
		facilitatorDown, evmNodeDown, solanaNodeDown, evmNodeElsewhere, evmNodeForgets})
)

// faultAt is a fault at a path of the seller. With an empty path it happens at every path, and at the nodes.
type faultAt struct{ fault, path string }

// Faults are the names of all faults.
func (s *Sandbox) Faults() []string { return slices.Concat(allFaults, s.extra.Faults) }

// Inject makes a fault happen the next n times that it can; math.MaxInt is until Heal. It panics
// where there is no fault of that name.
func (s *Sandbox) Inject(fault string, n int) {
	if err := s.InjectAt(fault, "", n); err != nil {
		panic(err)
	}
}

// InjectAt is Inject for what is sold at a path of the seller, or for everything if the path is empty. The
// nodes' faults are at no path. It returns INVALID_ARGUMENT if there is no such fault.
func (s *Sandbox) InjectAt(fault, path string, n int) error {
	if err := s.checkFault(fault, path, n); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults[faultAt{fault, path}] = n
	return nil
}

func (s *Sandbox) checkFault(fault, path string, n int) error {
	switch {
	case !slices.Contains(s.Faults(), fault):
		return x402.Errorf(x402.InvalidArgument, "there is no fault %q", fault).
			WithHint("one of: %s", strings.Join(s.Faults(), ", "))
	case path != "" && strings.Contains(fault, "node "):
		return x402.Errorf(x402.InvalidArgument, "%q happens at no path: a node does not know what is bought",
			fault)
	case n < 0:
		return x402.Errorf(x402.InvalidArgument, "a fault cannot happen %d times", n)
	}
	return nil
}

// Heal ends all faults.
func (s *Sandbox) Heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.faults)
}

// strikeAt uses up one of the first of these faults that is injected at a path; "" when none is.
func (s *Sandbox) strikeAt(path string, among ...string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, fault := range among {
		for _, at := range []faultAt{{fault, path}, {fault, ""}} {
			if n := s.faults[at]; n > 0 {
				if n != math.MaxInt {
					s.faults[at]--
				}
				return fault
			}
		}
	}
	return ""
}

// Strike is strikeAt for faults that happen at no path.
func (s *Sandbox) Strike(among ...string) string { return s.strikeAt("", among...) }

// Cut ends the connection without an answer.
func Cut() { panic(http.ErrAbortHandler) }

// wait waits until a time, or for the client or the sandbox to go away.
func (s *Sandbox) wait(r *http.Request, until <-chan time.Time) {
	select {
	case <-until:
	case <-s.closed:
	case <-r.Context().Done():
	}
}

func (s *Sandbox) hang(r *http.Request) {
	s.wait(r, nil)
	Cut()
}
