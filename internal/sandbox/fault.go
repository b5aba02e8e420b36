package sandbox

import (
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"x402-wallet/x402"
	"x402-wallet/x402test/fault"
)

// The faults by the moment at which they strike.
var (
	whenSettling = []string{fault.FacilitatorRefuses, fault.FacilitatorFails, fault.FacilitatorCutsBefore,
		fault.FacilitatorCutsAfter, fault.FacilitatorLies, fault.FacilitatorPending,
		fault.FacilitatorNeverLands}
	// of the seller
	beforeSettled = []string{fault.SellerAsksAgain, fault.SellerRaises, fault.SellerFalseReceipt,
		fault.SellerRedirects, fault.SellerFailsBefore, fault.SellerHangsBefore, fault.SellerCutsBefore}
	afterSettled = []string{fault.SellerFails, fault.SellerFailsMute, fault.SellerHangs, fault.SellerCuts,
		fault.SellerSlow, fault.SellerOmitsReceipt, fault.SellerGarblesReceipt, fault.SellerWrongReceipt}

	allFaults = slices.Concat(whenSettling, beforeSettled, afterSettled, []string{
		fault.FacilitatorRefusesVerify, fault.FacilitatorDown, fault.EVMNodeDown, fault.SolanaNodeDown,
		fault.EVMNodeElsewhere, fault.EVMNodeForgets})
)

// faultAt is a fault at a path of the seller. With an empty path it happens at every path, and at the nodes.
type faultAt struct{ fault, path string }

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
