package sandbox

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"x402-wallet/chain/evm/message"
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

type product struct {
	Product
	price    uint64 // atomic units of the play dollar; 0 is free
	networks []string
}

var products = map[string]Product{
	"/free": {Description: "Opening hours",
		Content: `{"open":"always","hint":"/weather costs a tenth of a cent"}`},
	"/weather": {Price: "0.001", Description: "Weather in Lisbon",
		Content: `{"city":"Lisbon","celsius":21,"sky":"clear"}`},
	"/solana": {Price: "0.001", Networks: []string{"solana"}, Description: "Tides in Lisbon",
		Content: `{"city":"Lisbon","highTide":"14:05","metres":3.4}`},
	"/either": {Price: "0.001", Networks: []string{"evm", "solana"}, Description: "Air in Lisbon",
		Content: `{"city":"Lisbon","airQuality":"good"}`},
	"/atlas": {Price: "0.02", Networks: []string{"solana"}, Description: "Sea chart of Lisbon",
		Content: `{"city":"Lisbon","chart":"a sea chart"}`},
	"/report": {Price: "0.50", Description: "Climate report",
		Content: `{"city":"Lisbon","report":"warmer than it was"}`},
	"/expensive": {Price: "50.00", Description: "The same climate report, bound in leather",
		Content: `{"city":"Lisbon","report":"warmer than it was"}`},
}

// Price is what the seller asks for a path as a sandbox starts, in atomic units; 0 when it is free or not
// there.
func Price(path string) uint64 {
	_, path = dialectOf(path)
	price, _ := unitsOf(products[path].Price) // of this package's own: cannot fail
	return price
}

// Content is what the seller delivers for a path as a sandbox starts.
func Content(path string) string {
	_, path = dialectOf(path)
	return products[path].Content
}

// Sell sells something at a path, in place of what was sold there. A path begins with a slash, and not with
// the name of a dialect. Errors are INVALID_ARGUMENT.
func (s *Sandbox) Sell(path string, p Product) error {
	made, err := s.productOf(path, p)
	if err != nil {
		return err
	}
	s.stock(nil, map[string]product{path: made})
	return nil
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

func (s *Sandbox) productOf(path string, p Product) (made product, err error) {
	refuse := func(format string, args ...any) (product, error) {
		return product{}, x402.Errorf(x402.InvalidArgument, "%s: %s", path, fmt.Sprintf(format, args...))
	}
	made = product{Product: p}
	dialect, rest := dialectOf(path)
	switch {
	case !strings.HasPrefix(path, "/") || strings.ContainsAny(path, "?# \t\r\n"):
		return refuse("a path begins with / and has neither blanks nor a query")
	case rest != path:
		return refuse("/%s/ stands in front of a path of the seller's to ask in that dialect", dialect)
	case p.MaxTimeoutSeconds < 0 || p.MaxTimeoutSeconds > 86_400:
		return refuse("maxTimeoutSeconds is 1 to 86400")
	}
	made.price, err = unitsOf(p.Price)
	if err != nil {
		return refuse("price: %v", err)
	}
	for _, name := range p.Networks {
		network, known := s.networkOf(name)
		if !known || slices.Contains(made.networks, network) {
			return refuse("networks are evm and solana, each once, and not %q", name)
		}
		made.networks = append(made.networks, network)
	}
	if len(made.networks) == 0 {
		made.networks = []string{s.evm.Asset.Network}
	}
	if err := s.checkPayee(made); err != nil {
		return refuse("%v", err)
	}
	return made, nil
}

// checkPayee makes sure that whoever is to be paid can be.
func (s *Sandbox) checkPayee(p product) error {
	if p.PayTo == "" && p.Asset == "" {
		return nil
	}
	if len(p.networks) != 1 {
		return fmt.Errorf("payTo and asset are for what is sold by one payment on one network")
	}
	for _, address := range []string{p.PayTo, p.Asset} {
		if address != "" && checkAddress(address, p.networks[0]) != nil {
			return fmt.Errorf("%q is no address on this network", address)
		}
	}
	if p.PayTo != "" && p.networks[0] == s.solana.asset.Network {
		s.Fund(p.PayTo, 0) // its token account has to be there
	}
	return nil
}

// networkOf is the CAIP-2 name of one of the two chains.
func (s *Sandbox) networkOf(name string) (network string, known bool) {
	switch onEVM, onSolana := s.Networks(); name {
	case "evm", onEVM:
		return onEVM, true
	case "solana", onSolana:
		return onSolana, true
	}
	return "", false
}

func checkAddress(text, network string) error {
	_, err := parseKey(text)
	if strings.HasPrefix(network, "eip155:") {
		_, err = message.Address(text)
	}
	return err
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

func (s *Sandbox) offers(path string, p product, version int, times uint64) (list []any) {
	for _, network := range p.networks {
		offer := map[string]any{"scheme": x402.Exact, "network": nameOf(network, version),
			"maxTimeoutSeconds": cmp.Or(p.MaxTimeoutSeconds, validity)}
		amount := strconv.FormatUint(p.price*times, 10)
		if network == s.evm.Asset.Network {
			a := s.evm.Asset
			offer["asset"], offer["payTo"], offer["extra"] = a.Address, s.PayToEVM,
				map[string]any{"name": a.Name, "version": a.Version}
		} else {
			offer["asset"], offer["payTo"], offer["extra"] = s.solana.asset.Address, s.PayToSolana,
				map[string]any{"feePayer": s.FeePayer}
		}
		if p.Asset != "" {
			offer["asset"] = p.Asset
		}
		if p.PayTo != "" {
			offer["payTo"] = p.PayTo
		}
		if version == 1 {
			offer["maxAmountRequired"], offer["resource"], offer["description"], offer["mimeType"] = amount,
				s.SellerURL+path, p.Description, p.mimeType()
		} else {
			offer["amount"] = amount
		}
		list = append(list, offer)
	}
	return list
}

func (p product) mimeType() string { return cmp.Or(p.MimeType, "application/json") }
