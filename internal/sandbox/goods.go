package sandbox

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"x402-wallet/chain/evm"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// Product is something that the seller sells at a path, as scripts write it.
type Product struct {
	// Price in dollars, as in "0.05"; "" is free.
	Price string `json:"price,omitempty"`
	// Networks on which it can be paid: "evm", "solana", or their CAIP-2 names; none is "evm".
	Networks []string `json:"networks,omitempty"`
	// Asset is the address of another token, which nobody here has; "" is the play dollar.
	Asset string `json:"asset,omitempty"`
	// PayTo is another payee, where it is sold on one network; "" is the seller.
	PayTo string `json:"payTo,omitempty"`
	// MaxTimeoutSeconds is how long a payment may be valid; 0 is 60.
	MaxTimeoutSeconds int `json:"maxTimeoutSeconds,omitempty"`
	// Description stands in the challenge, and is searched by discovery.
	Description string `json:"description,omitempty"`
	// Content is what is delivered, and MimeType what it is; "" is JSON.
	Content  string `json:"content,omitempty"`
	MimeType string `json:"mimeType,omitempty"`
}

// bounds of what scripts may make the seller keep.
const (
	maxGoods   = 1_000
	maxContent = 1 << 20 // bytes
	maxPath    = 256
)

// Sell sells something at a path, in place of what was sold there. A path begins with a slash, and not with
// the name of a dialect. Errors are INVALID_ARGUMENT.
func (s *Sandbox) Sell(path string, p Product) error {
	made, err := s.productOf(path, p)
	if err != nil {
		return err
	}
	return s.stock(nil, map[string]product{path: made})
}

// Paths are those at which something is sold or given, sorted.
func (s *Sandbox) Paths() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.goods))
}

func (s *Sandbox) sold(path string) (p product, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, known = s.goods[path]
	return p, known
}

func (s *Sandbox) goodsNow() map[string]product {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.goods)
}

// isPayee reports whether who was paid is who is to be paid for a product.
func (s *Sandbox) isPayee(p product, payTo string) bool {
	if p.payTo == "" {
		return payTo == s.PayToEVM || payTo == s.solana.associated(mustKey(s.PayToSolana)).String()
	}
	if strings.HasPrefix(p.payTo, "0x") {
		return strings.EqualFold(p.payTo, payTo)
	}
	return payTo == s.solana.associated(mustKey(p.payTo)).String()
}

// productOf reads what is to be sold at a path.
func (s *Sandbox) productOf(path string, p Product) (product, error) {
	refuse := func(format string, args ...any) (product, error) {
		return product{}, x402.Errorf(x402.InvalidArgument, "%s: %s", path, fmt.Sprintf(format, args...))
	}
	made := product{about: p.Description, content: p.Content, mime: p.MimeType, asset: p.Asset,
		payTo: p.PayTo, validity: p.MaxTimeoutSeconds}
	dialect, rest := dialectOf(path)
	switch {
	case !strings.HasPrefix(path, "/") || len(path) > maxPath || strings.ContainsAny(path, "?# \t\r\n"):
		return refuse("a path begins with / and has neither blanks nor a query")
	case rest != path:
		return refuse("/%s/ stands in front of a path of the seller's to ask in that dialect", dialect)
	case len(p.Content) > maxContent:
		return refuse("content has %d bytes at most", maxContent)
	case p.MaxTimeoutSeconds < 0 || p.MaxTimeoutSeconds > 86_400:
		return refuse("maxTimeoutSeconds is 1 to 86400")
	}
	price, err := unitsOf(p.Price)
	if err != nil {
		return refuse("price: %v", err)
	}
	made.price = price
	for _, name := range p.Networks {
		network, known := s.networkOf(name)
		if !known || slices.Contains(made.networks, network) {
			return refuse("networks are evm and solana, each once, and not %q", name)
		}
		made.networks = append(made.networks, network)
	}
	if len(made.networks) == 0 {
		made.networks = []string{EVM}
	}
	if err := s.checkPayee(made); err != nil {
		return refuse("%v", err)
	}
	return made, nil
}

// checkPayee makes sure that whoever is to be paid can be.
func (s *Sandbox) checkPayee(p product) error {
	if p.payTo == "" && p.asset == "" {
		return nil
	}
	if len(p.networks) != 1 {
		return fmt.Errorf("payTo and asset are for what is sold by one payment on one network")
	}
	for _, address := range []string{p.payTo, p.asset} {
		if address == "" {
			continue
		}
		var err error
		if p.networks[0] == EVM {
			_, err = evm.Address(address)
		} else {
			_, err = parseKey(address)
		}
		if err != nil {
			return fmt.Errorf("%q is no address on this network", address)
		}
	}
	if p.payTo != "" && p.networks[0] == Solana {
		s.Fund(p.payTo, 0) // its token account has to be there
	}
	return nil
}

// networkOf reads the name of one of the two chains.
func (s *Sandbox) networkOf(name string) (network string, known bool) {
	switch onEVM, onSolana := s.options.networks(); name {
	case "evm", onEVM:
		return EVM, true
	case "solana", onSolana:
		return Solana, true
	}
	return "", false
}

// unitsOf reads dollars as atomic units of the play dollar; "" is 0.
func unitsOf(dollars string) (uint64, error) {
	if dollars == "" {
		return 0, nil
	}
	d, err := money.ParseDollars(dollars)
	if err != nil {
		return 0, err
	}
	return uint64(d), nil
}

// Networks are the CAIP-2 names of the two chains.
func (s *Sandbox) Networks() (onEVM, onSolana string) { return s.options.networks() }
