package paywall

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"

	"x402-wallet/scheme/selling"
	"x402-wallet/x402"
	"x402-wallet/x402/wire"
)

// unpaidMessage is the error of a challenge to a buyer without a payment, as each dialect's own
// servers word it.
func (w *Paywall) unpaidMessage() string {
	switch w.options.Dialect {
	case dialectX402MCP:
		return "_meta.x402.payment is required"
	case dialectCloudflare:
		return "PAYMENT_REQUIRED"
	}
	return "Payment required to access this resource"
}

// declaredExtensions are the extensions of a challenge: payment-identifier, by which a lost answer
// can be asked for again, what the ways to pay need, and the tool's own.
func (w *Paywall) declaredExtensions(t *tool, offers []offer) map[string]json.RawMessage {
	all := map[string]json.RawMessage{extensionIdentifier: declaredIdentifier(t.RequireIdentifier)}
	for _, o := range offers {
		if name, declaration := o.Way.Extension(o.Option); name != "" {
			all[name] = declaration
		}
	}
	if declared := t.declared.Load(); declared != nil {
		all[extensionBazaar] = *declared
	}
	maps.Copy(all, t.Extensions)
	return all
}

// challengeBody is the PaymentRequired of a result, in the version that the buyer used, or else the
// configured one.
func (w *Paywall) challengeBody(t *tool, r result) map[string]any {
	accepts := []json.RawMessage{}
	offers := slices.DeleteFunc(slices.Clone(r.offers), func(o offer) bool { return !o.isX402() })
	for _, o := range offers {
		if terms := o.terms[r.version]; terms.Raw != nil {
			accepts = append(accepts, r.termsOf(o, r.version))
		}
	}
	if len(accepts) == 0 { // a version 1 buyer, and no network here has a name in version 1
		r.version = w.options.Version
		for _, o := range offers {
			accepts = append(accepts, o.terms[r.version].Raw)
		}
	}
	body := errorBody(r)
	body["accepts"] = accepts
	if r.version == 2 {
		body["resource"] = map[string]string{"url": r.sale.Resource, "description": t.Description,
			"mimeType": t.mimeType()}
		extensions := w.declaredExtensions(t, r.offers)
		if w.options.StatementKey != nil {
			extensions[extensionStatements] = w.signOffers(t, offers, r.sale.Resource)
		}
		if t.Access > 0 {
			extensions[x402.ExtensionSignIn] = w.signInChallenge(r.offers, r.sale.Resource)
		}
		body["extensions"] = extensions
	}
	return body
}

// errorBody is a challenge without the ways to pay: for where paying again does not help.
func errorBody(r result) map[string]any {
	body := map[string]any{"x402Version": r.version, "error": r.reason}
	if r.receipt && r.settlement != nil {
		body[wire.MetaReceipt] = r.receiptJSON()
	}
	return body
}

// termsOf are an offer's terms as they stand in a challenge.
func (r result) termsOf(o offer, version int) json.RawMessage {
	if r.tab == nil {
		return o.terms[version].Raw
	}
	return r.tab.Corrected(o.Option, o.terms[version].Raw)
}

// askBy adds a challenge of another protocol for each offer to a 402.
func (w *Paywall) askBy(p selling.Protocol, header http.Header, t *tool, r result, host string) {
	if t.RequireIdentifier { // which other protocols have no place for
		return
	}
	for _, o := range r.offers {
		if o.terms[2].Raw == nil {
			continue
		}
		if asked := p.Ask(o.Option, o.terms[2], host, w.now().Add(t.MaxTimeout)); asked != "" {
			header.Add("WWW-Authenticate", asked)
		}
	}
}
