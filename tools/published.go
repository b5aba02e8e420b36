package tools

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"x402-wallet/facilitator"
	"x402-wallet/pay"
	"x402-wallet/seller"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/weburl"
	"x402-wallet/x402/wire"
)

// Sellers publish what they sell at their origin: /openapi.json says in x-payment-info of an operation that
// it is paid, and by which offers of MPP (draft-payment-discovery-00). /.well-known/x402 lists URLs. Both are
// a stranger's words, which lead to no other origin.

// isBare reports whether a URL is an origin alone.
func isBare(raw string) bool {
	at, err := url.Parse(weburl.Fold(raw))
	return err == nil && strings.Trim(at.Path, "/") == "" && at.RawQuery == ""
}

// published takes in what the seller at a URL's origin publishes; false: nothing.
func (s *search) published(ctx context.Context, raw string) bool {
	at, err := url.Parse(weburl.Fold(raw))
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	origin := &url.URL{Scheme: at.Scheme, Host: at.Host}
	s.operations(ctx, origin, s.document(ctx, origin, "/openapi.json"))
	s.resources(ctx, origin, s.document(ctx, origin, "/.well-known/x402"))
	return len(s.payable)+len(s.others) > 0
}

// document is a JSON object that is published at a path; nil: there is none that can be read.
func (s *search) document(ctx context.Context, origin *url.URL, path string) json.RawMessage {
	text, err := s.Engine.Read(ctx, origin.String()+path)
	if err != nil || x402.DecodeStrict(text, x402.MaxBody, nil) != nil {
		return nil
	}
	return text
}

// operations takes in the operations of an OpenAPI document that say what they cost.
func (s *search) operations(ctx context.Context, origin *url.URL, document json.RawMessage) {
	var api struct {
		Servers []struct{ URL string }
		Paths   map[string]json.RawMessage
	}
	if json.Unmarshal(document, &api) != nil {
		return
	}
	base := origin
	if len(api.Servers) > 0 {
		at, err := origin.Parse(api.Servers[0].URL)
		if err != nil || !sameOrigin(origin, at.String()) {
			return // what is sold there has to be asked for there
		}
		base = at
	}
	for _, path := range slices.Sorted(maps.Keys(api.Paths)) {
		var operations map[string]json.RawMessage
		where := strings.TrimSuffix(base.String(), "/") + path
		isUsable := strings.HasPrefix(path, "/") && len(where) <= maxOperationURL && isPrintable(where)
		if json.Unmarshal(api.Paths[path], &operations) != nil || !isUsable {
			continue
		}
		for _, method := range slices.Sorted(maps.Keys(operations)) {
			s.operation(ctx, strings.ToUpper(method), where, operations[method])
		}
	}
}

// maxOperationURL bounds what is shown of an address: a real one has a hundred characters.
const maxOperationURL = 2 << 10

func isPrintable(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' })
}

func (s *search) operation(ctx context.Context, method, where string, raw json.RawMessage) {
	var is struct {
		Summary, Description string
		Parameters           json.RawMessage
		RequestBody          json.RawMessage
		Payment              json.RawMessage `json:"x-payment-info"`
	}
	var asked struct{ Price, MinPrice json.RawMessage }
	if json.Unmarshal(raw, &is) != nil || json.Unmarshal(is.Payment, &asked) != nil ||
		x402.IsNull(is.Payment) || !seller.IsMethod(method) {
		return
	}
	call := map[string]any{"method": method}
	for name, said := range map[string]json.RawMessage{"parameters": is.Parameters,
		"requestBody": is.RequestBody} {
		if !x402.IsNull(said) {
			call[name] = said
		}
	}
	l := facilitator.Listing{URL: where, Type: "http", Method: method,
		Description: cmp.Or(is.Summary, is.Description), InputSchema: sure(encode(call)),
		Offers: wire.ReadOffers(is.Payment)}
	if len(l.Offers) > 0 {
		s.readOffers(&l)
		s.weigh(ctx, requestFor(l), l)
		return
	}
	price := cmp.Or(publishedPrice(asked.Price), publishedPrice(asked.MinPrice))
	s.addUnpriced(l, price, untoldTerms)
}

const untoldTerms = "its terms are shown when it is called: x402_estimate_cost with its method and body " +
	"asks for them"

// publishedPrice reads a price in dollars: a text, a number, or an object with an amount or a least one; "":
// none that can be understood.
func publishedPrice(raw json.RawMessage) string {
	var of struct {
		Currency    string
		Amount, Min json.RawMessage
	}
	if json.Unmarshal(raw, &of) == nil && isJSON(raw, '{') {
		if of.Currency != "" && !slices.Contains([]string{"USD", "USDC"}, strings.ToUpper(of.Currency)) {
			return ""
		}
		raw = of.Amount
		if x402.IsNull(raw) {
			raw = of.Min
		}
	}
	var text string
	if json.Unmarshal(raw, &text) != nil {
		text = string(raw)
	}
	d, err := money.ParseDollars(strings.TrimPrefix(text, "$"))
	if err != nil {
		return ""
	}
	return d.Price()
}

// resources takes in the list of /.well-known/x402: URLs, or what a challenge says of them. Of those that are
// URLs alone some are asked, by GET, which is made to change nothing.
func (s *search) resources(ctx context.Context, origin *url.URL, document json.RawMessage) {
	var list struct{ Resources []json.RawMessage }
	if json.Unmarshal(document, &list) != nil {
		return
	}
	asked := 0
	for _, raw := range list.Resources {
		var text string
		if l, isListing := facilitator.ReadListing(raw); isListing && sameOrigin(origin, l.URL) {
			s.weigh(ctx, requestFor(l), l)
			continue
		}
		if json.Unmarshal(raw, &text) != nil || asked == mostAsked {
			continue
		}
		method, where, named := strings.Cut(text, " ")
		if !named {
			method, where = http.MethodGet, text
		}
		at, err := origin.Parse(where)
		if err != nil || !sameOrigin(origin, at.String()) || method != http.MethodGet {
			continue
		}
		asked++
		q := pay.Request{Request: seller.Request{Method: method, URL: at.String()}}
		s.bound(&q)
		if e, err := s.Engine.Offers(ctx, q); err == nil && e.PaymentRequired {
			s.add(e, e.URL, facilitator.Asked(e.Challenge))
		}
	}
}

// sameOrigin refuses a user in a URL, too, which a reader may take for its host.
func sameOrigin(origin *url.URL, raw string) bool {
	at, err := url.Parse(weburl.Fold(raw))
	return err == nil && at.Scheme == origin.Scheme && at.Host == origin.Host && at.User == nil
}
