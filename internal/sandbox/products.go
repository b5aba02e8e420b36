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
	signIn   bool   // who paid gets it again by signing in
	way      string // what it is paid by, as x402.Requirement.Way has it; "": exact
	used     uint64 // at upto: what a call comes to, in atomic units
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
	"/archive": {price: mill, networks: []string{EVM}, signIn: true,
		about:   "Temperatures of a year in Lisbon",
		content: `{"city":"Lisbon","warmest":38,"coldest":4}`},
	"/permit2": {price: mill, networks: []string{EVM}, way: x402.Permit2, about: "Wind in Lisbon",
		content: `{"city":"Lisbon","knots":12,"from":"north-west"}`},
	"/upto": {price: 2 * cent, networks: []string{EVM}, way: x402.Upto, used: 4 * mill,
		about: "Questions about Lisbon's climate", content: `{"city":"Lisbon","answer":"mild","words":4}`},
	"/batch": {price: mill, networks: []string{EVM}, way: x402.BatchSettlement, about: "Waves off Lisbon",
		content: `{"city":"Lisbon","waves":2.1,"seconds":11}`},
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

// accepts are the ways to pay for what this request asks for.
func (s *sale) accepts(version int, times uint64) []any {
	return s.offers(s.path, s.product, version, times)
}

// offers are the ways to pay for a product.
func (s *Sandbox) offers(path string, p product, version int, times uint64) (list []any) {
	for _, network := range p.networks {
		offer := map[string]any{"scheme": p.scheme(), "network": nameOf(s.named(network), version),
			"maxTimeoutSeconds": cmp.Or(p.validity, validity)}
		amount := strconv.FormatUint(p.price*times, 10)
		if network == EVM {
			offer["asset"], offer["payTo"], offer["extra"] = s.evm.asset.Address, s.PayToEVM,
				s.extraOnEVM(p.way)
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

// extensions are those of a challenge.
func (s *sale) extensions() map[string]any {
	all := map[string]any{}
	if s.product.signIn {
		all[x402.ExtensionSignIn] = s.declareSignIn()
	}
	if s.product.way == x402.Permit2 || s.product.way == x402.Upto {
		all[x402.EIP2612Sponsoring] = map[string]any{"info": map[string]any{"version": "1",
			"description": "The facilitator brings an approval of Permit2 to the chain."}}
	}
	return all
}

// named is the name that the chain of a product has here.
func (s *Sandbox) named(network string) string {
	if network == EVM {
		return s.evm.asset.Network
	}
	return s.solana.asset.Network
}

func (p product) mimeType() string { return cmp.Or(p.mime, "application/json") }

func (p product) scheme() string {
	if p.way == "" || p.way == x402.Permit2 {
		return x402.Exact
	}
	return p.way
}

// extraOnEVM is what else a way of paying has to be told.
func (s *Sandbox) extraOnEVM(way string) map[string]any {
	a := s.evm.asset
	extra := map[string]any{"name": a.Name, "version": a.Version}
	switch way {
	case x402.Permit2:
		extra["assetTransferMethod"] = x402.Permit2
	case x402.Upto:
		extra["facilitatorAddress"] = s.Settler
	case x402.BatchSettlement:
		extra["receiverAuthorizer"], extra["withdrawDelay"] = s.authorizer.address, leastDelay
		extra["minDeposit"] = strconv.Itoa(leastDeposit)
	}
	return extra
}
