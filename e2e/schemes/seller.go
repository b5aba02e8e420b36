package schemes

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"strconv"
	"strings"

	"x402-wallet/internal/sandbox"
	"x402-wallet/x402"
	"x402-wallet/x402/wire"
)

// way is how the seller sells something that is not paid by exact, or that is delivered again to its buyer.
type way struct {
	sandbox.Product
	scheme string // as x402.Requirement.Way has it
	used   uint64 // at upto: what a call comes to, in atomic units
	signIn bool   // who paid gets it again by signing in
}

// ways are what is sold so, by path.
var ways = map[string]way{
	"/archive": {scheme: x402.Exact, signIn: true, Product: sandbox.Product{Price: "0.001",
		Description: "Temperatures of a year in Lisbon",
		Content:     `{"city":"Lisbon","warmest":38,"coldest":4}`}},
	"/permit2": {scheme: x402.Permit2, Product: sandbox.Product{Price: "0.001",
		Description: "Wind in Lisbon", Content: `{"city":"Lisbon","knots":12,"from":"north-west"}`}},
	"/upto": {scheme: x402.Upto, used: 4 * mill, Product: sandbox.Product{Price: "0.02",
		Description: "Questions about Lisbon's climate",
		Content:     `{"city":"Lisbon","answer":"mild","words":4}`}},
	"/batch": {scheme: x402.BatchSettlement, Product: sandbox.Product{Price: "0.001",
		Description: "Waves off Lisbon", Content: `{"city":"Lisbon","waves":2.1,"seconds":11}`}},
}

// Price is what the seller asks for a path, in atomic units.
func Price(path string) uint64 {
	if w, known := ways[path]; known {
		return units(w.Product.Price)
	}
	return sandbox.Price(withoutForm(path))
}

// Content is what the seller delivers for a path.
func Content(path string) string {
	if w, known := ways[path]; known {
		return w.Product.Content
	}
	return sandbox.Content(withoutForm(path))
}

// withoutForm is a path without the form of asking in front of it.
func withoutForm(path string) string {
	form, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	switch form {
	case inMPP, settleFirst, settlePlain, ignoresPayment:
		return "/" + rest
	}
	return path
}

// sale is a request to the seller at one of the ways' paths, or in MPP.
type sale struct {
	*sandbox.Sale
	world *World
	way   way

	correction map[string]any // of batch-settlement: what else a challenge says of the channel
}

// seller answers at the ways' paths and in MPP. What it does not know goes to the sandbox's seller.
func (s *World) seller(others http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rest, isMPP := strings.CutPrefix(r.URL.Path, "/"+inMPP+"/")
		sold, known := ways[r.URL.Path]
		switch {
		case isMPP:
			s.sellInMPP(w, r, "/"+rest)
		case known:
			one := &sale{Sale: s.NewSale(w, r, "v2", r.URL.Path), world: s, way: sold}
			one.answer()
		default:
			others.ServeHTTP(w, r)
		}
	})
}

func (s *sale) answer() {
	offers := s.Offers
	s.Offers = func(version int, times uint64) []any {
		list := offers(version, times)
		s.reword(list[0].(map[string]any))
		return list
	}
	switch s.way.scheme {
	case x402.Permit2, x402.Upto:
		s.Refuse = s.refuseByPermit2
		s.Extensions = map[string]any{x402.EIP2612Sponsoring: map[string]any{"info": map[string]any{
			"version": "1", "description": "The facilitator brings an approval of Permit2 to the chain."}}}
	case x402.BatchSettlement:
		s.Collect = s.collectBatch
		s.Note = func(payload []byte) {
			s.Present(payload)
			s.world.noteVoucher(payload)
		}
	}
	if s.way.scheme == x402.Upto {
		s.Settling = s.comesTo
	}
	if s.way.signIn {
		s.Extensions = map[string]any{x402.ExtensionSignIn: s.declareSignIn()}
		header := s.R.Header.Get(wire.HeaderSignIn)
		if s.R.Header.Get("PAYMENT-SIGNATURE") == "" && header != "" {
			s.signedIn(header)
			return
		}
	}
	s.Answer()
}

// reword makes an offer by exact one of the way's.
func (s *sale) reword(offer map[string]any) {
	extra := offer["extra"].(map[string]any)
	switch s.way.scheme {
	case x402.Permit2:
		extra["assetTransferMethod"] = x402.Permit2
	case x402.Upto:
		offer["scheme"], extra["facilitatorAddress"] = x402.Upto, s.Settler
	case x402.BatchSettlement:
		offer["scheme"] = x402.BatchSettlement
		extra["receiverAuthorizer"], extra["withdrawDelay"] = s.world.authorizer.Address, leastDelay
		extra["minDeposit"] = strconv.Itoa(leastDeposit)
		maps.Copy(extra, s.correction)
	}
}

// refuseByPermit2 answers 412 where the approval is missing, as the reference server does.
func (s *sale) refuseByPermit2(why string, times uint64) {
	if why == string(refusesAllowance) {
		s.Status = http.StatusPreconditionFailed
	}
	s.Ask(why, times)
}

// comesTo is what the facilitator is asked to settle at upto: what the call came to.
func (s *sale) comesTo(submission []byte) []byte {
	offer := s.Offers(2, 1)[0].(map[string]any)
	asked, _ := json.Marshal(offer)
	offer["amount"] = strconv.FormatUint(s.way.used, 10)
	used, _ := json.Marshal(offer)
	const key = `"paymentRequirements":`
	return bytes.Replace(submission, append([]byte(key), asked...), append([]byte(key), used...), 1)
}
