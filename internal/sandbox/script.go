package sandbox

import (
	"errors"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"x402-wallet/x402"
	"x402-wallet/x402/wire"
)

// Script is what a sandbox is told to do, at its start or while it runs, in this order.
type Script struct {
	// Remove are paths at which nothing is sold any more; "*" is all.
	Remove []string `json:"remove,omitempty"`
	// Products are sold from now on, by path.
	Products map[string]Product `json:"products,omitempty"`
	// Heal ends all faults first.
	Heal   bool          `json:"heal,omitempty"`
	Faults []ScriptFault `json:"faults,omitempty"`
	// Fund gives play dollars to addresses.
	Fund []Gift `json:"fund,omitempty"`
	// Delegate lets an agent spend from the owner's token account on Solana (Sandbox.OwnerAccount).
	Delegate *Gift `json:"delegate,omitempty"`
	// Advance puts the clock of the chains forward, as in "90s".
	Advance string `json:"advance,omitempty"`
}

type ScriptFault struct {
	Fault  string `json:"fault"`
	Path   string `json:"path,omitempty"`   // of the seller; every path if empty
	Times  *int   `json:"times,omitempty"`  // none: once; 0 ends it
	Always bool   `json:"always,omitempty"` // until Heal
}

type Gift struct {
	Address string `json:"address"`
	Amount  string `json:"amount"` // dollars, as in "10.00"
}

const (
	maxScript  = 4 << 20 // bytes
	maxAdvance = 366 * 24 * time.Hour
	maxGift    = uint64(1_000_000_000 * USDC)
)

// ReadScript reads a script as JSON, strictly: a name that it does not know is an error. Errors are
// INVALID_ARGUMENT.
func ReadScript(text []byte) (script Script, err error) {
	if err := wire.DecodeExact(text, maxScript, &script); err != nil {
		return script, x402.Errorf(x402.InvalidArgument, "this is no script: %s", x402.AsError(err).Message)
	}
	return script, nil
}

// Run does what a script says: all of it, or, with an error (INVALID_ARGUMENT), nothing.
func (s *Sandbox) Run(script Script) error {
	made, err := s.makeAll(script.Products)
	if err != nil {
		return err
	}
	var ahead time.Duration
	if script.Advance != "" {
		ahead, err = time.ParseDuration(script.Advance)
		if err != nil || ahead < 0 || ahead > maxAdvance {
			return x402.Errorf(x402.InvalidArgument, "advance: %q is no time like 90s", script.Advance)
		}
	}
	faults, err := s.times(script)
	if err != nil {
		return err
	}
	gifts, err := s.readGifts(script)
	if err != nil {
		return err
	}
	s.stock(script.Remove, made)
	if script.Heal {
		s.Heal()
	}
	s.mu.Lock()
	maps.Copy(s.faults, faults)
	s.mu.Unlock()
	for _, give := range gifts {
		give()
	}
	s.Advance(ahead)
	return nil
}

func (s *Sandbox) makeAll(products map[string]Product) (map[string]product, error) {
	made := map[string]product{}
	for _, path := range slices.Sorted(maps.Keys(products)) {
		p, err := s.productOf(path, products[path])
		if err != nil {
			return nil, err
		}
		made[path] = p
	}
	return made, nil
}

// stock changes what the seller sells, at once.
func (s *Sandbox) stock(remove []string, add map[string]product) {
	s.mu.Lock()
	defer s.mu.Unlock()
	goods := maps.Clone(s.goods)
	for _, path := range remove {
		if path == "*" {
			clear(goods)
		}
		delete(goods, path)
	}
	maps.Copy(goods, add)
	isGone := func(path string, _ int) bool {
		_, known := goods[path]
		return !known
	}
	maps.DeleteFunc(s.asked, isGone)
	maps.DeleteFunc(s.served, isGone)
	maps.DeleteFunc(s.faults, func(at faultAt, _ int) bool { return at.path != "" && isGone(at.path, 0) })
	s.goods = goods
}

// times is how often each fault is to happen.
func (s *Sandbox) times(script Script) (map[faultAt]int, error) {
	faults := map[faultAt]int{}
	for _, f := range script.Faults {
		n := 1
		switch {
		case f.Always && f.Times != nil:
			return nil, x402.Errorf(x402.InvalidArgument, "%q: times and always exclude each other", f.Fault)
		case f.Always:
			n = math.MaxInt
		case f.Times != nil:
			n = *f.Times
		}
		if err := s.checkFault(f.Fault, f.Path, n); err != nil {
			return nil, err
		}
		faults[faultAt{f.Fault, f.Path}] = n
	}
	return faults, nil
}

// readGifts makes functions of what a script gives.
func (s *Sandbox) readGifts(script Script) (gifts []func(), err error) {
	for _, g := range script.Fund {
		amount, err := g.read("")
		if err != nil {
			return nil, err
		}
		gifts = append(gifts, func() { s.Fund(g.Address, amount) })
	}
	if g := script.Delegate; g != nil {
		amount, err := g.read(Solana)
		if err != nil {
			return nil, err
		}
		gifts = append(gifts, func() { s.Delegate(g.Address, amount) })
	}
	return gifts, nil
}

// read is a gift's amount. The address has to be one, and of that chain unless chain is empty.
func (g Gift) read(chain string) (amount uint64, err error) {
	amount, err = unitsOf(g.Amount)
	own := Solana
	if strings.HasPrefix(g.Address, "0x") {
		own = EVM
	}
	switch {
	case err != nil:
	case amount > maxGift:
		err = errors.New("nobody has so much")
	case chain != "" && chain != own:
		err = errors.New("the address is of the other chain")
	default:
		err = checkAddress(g.Address, own)
	}
	if err != nil {
		return 0, x402.Errorf(x402.InvalidArgument, "%q for %q: %w", g.Amount, g.Address, err)
	}
	return amount, nil
}
