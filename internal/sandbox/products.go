package sandbox

import (
	"cmp"
	"strconv"

	"x402-wallet/x402"
)

// What the seller sells, and how it is asked for.

// product is something the seller sells.
type product struct {
	price    uint64 // atomic units of the play dollar; 0 is free
	networks []string
	about    string
	content  string // JSON
	mime     string // of content; "": application/json
	asset    string // the token that is asked for, by its address; "": the play dollar of the network
	payTo    string // who is paid, where it is not the seller: an address of the only network
	validity int    // seconds: maxTimeoutSeconds; 0: the default
}

// products are the seller's paths as a sandbox starts.
var products = map[string]product{
	"/free": {about: "Opening hours",
		content: `{"open":"always","hint":"/weather costs a tenth of a cent"}`},
	"/weather": {price: mill, networks: []string{EVM}, about: "Weather in Lisbon",
		content: `{"city":"Lisbon","celsius":21,"sky":"clear"}`},
	"/solana": {price: mill, networks: []string{Solana}, about: "Tides in Lisbon",
		content: `{"city":"Lisbon","highTide":"14:05","metres":3.4}`},
	"/either": {price: mill, networks: []string{EVM, Solana}, about: "Air in Lisbon",
		content: `{"city":"Lisbon","airQuality":"good"}`},
	"/atlas": {price: 2 * cent, networks: []string{Solana}, about: "Sea chart of Lisbon",
		content: `{"city":"Lisbon","chart":"a sea chart"}`},
	"/report": {price: 50 * cent, networks: []string{EVM}, about: "Climate report",
		content: `{"city":"Lisbon","report":"warmer than it was"}`},
	"/expensive": {price: 50 * USDC, networks: []string{EVM},
		about:   "The same climate report, bound in leather",
		content: `{"city":"Lisbon","report":"warmer than it was"}`},
}

// Price is what the seller asks for a path as a sandbox starts, in atomic units; 0 when it is free or not
// there.
func Price(path string) uint64 {
	_, path = dialectOf(path)
	return products[path].price
}

// Content is what the seller delivers for a path as a sandbox starts.
func Content(path string) string {
	_, path = dialectOf(path)
	return products[path].content
}

// offers are the ways to pay for a product.
func (s *Sandbox) offers(path string, p product, version int, times uint64) (list []any) {
	for _, network := range p.networks {
		offer := map[string]any{"scheme": x402.Exact, "network": nameOf(s.named(network), version),
			"maxTimeoutSeconds": cmp.Or(p.validity, validity)}
		amount := strconv.FormatUint(p.price*times, 10)
		if network == EVM {
			a := s.evm.Asset
			offer["asset"], offer["payTo"], offer["extra"] = a.Address, s.PayToEVM,
				map[string]any{"name": a.Name, "version": a.Version}
		} else {
			offer["asset"], offer["payTo"], offer["extra"] = s.solana.asset.Address, s.PayToSolana,
				map[string]any{"feePayer": s.FeePayer}
		}
		if p.asset != "" {
			offer["asset"] = p.asset
		}
		if p.payTo != "" {
			offer["payTo"] = p.payTo
		}
		if version == 1 {
			offer["maxAmountRequired"], offer["resource"], offer["description"], offer["mimeType"] = amount,
				s.SellerURL+path, p.about, p.mimeType()
		} else {
			offer["amount"] = amount
		}
		list = append(list, offer)
	}
	return list
}

// named is the name that the chain of a product has here.
func (s *Sandbox) named(network string) string {
	if network == EVM {
		return s.evm.Asset.Network
	}
	return s.solana.asset.Network
}

func (p product) mimeType() string { return cmp.Or(p.mime, "application/json") }
