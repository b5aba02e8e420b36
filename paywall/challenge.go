package paywall

import (
	"encoding/json"
	"maps"

	"x402-wallet/x402"
)

// unpaid is the error of a challenge to who shows nothing, as each dialect's own servers word it.
func (w *Wall) unpaid() string {
	switch w.options.Dialect {
	case X402MCP:
		return "_meta.x402.payment is required"
	case Cloudflare:
		return "PAYMENT_REQUIRED"
	}
	return "Payment required to access this resource"
}

// declared is the extensions of a challenge: the wall's payment-identifier, by which an answer that
// got lost can be asked for again, and the tool's own.
func (w *Wall) declared(t *tool) map[string]json.RawMessage {
	all := map[string]json.RawMessage{extensionIdentifier: json.RawMessage(`{"info":{"required":false}}`)}
	maps.Copy(all, t.Extensions)
	return all
}

// challenge is the PaymentRequired of a result, in the version that the buyer spoke or is spoken
// to.
func (w *Wall) challenge(t *tool, r result, resource string) map[string]any {
	version := r.version
	accepts := []json.RawMessage{}
	for _, o := range r.offers {
		if words := o.in(version); words.Raw != nil {
			accepts = append(accepts, words.Raw)
		}
	}
	if len(accepts) == 0 { // a version 1 buyer where there are no names for version 1
		version = w.options.Version
		for _, o := range r.offers {
			accepts = append(accepts, o.in(version).Raw)
		}
	}
	c := map[string]any{"x402Version": version, "error": r.why, "accepts": accepts}
	if version == 2 {
		c["resource"] = map[string]string{"url": resource, "description": t.Description,
			"mimeType": t.mimeType()}
		c["extensions"] = w.declared(t)
	}
	if r.receipt && r.settlement != nil {
		c[x402.MetaReceipt] = receiptJSON(r.settlement)
	}
	return c
}

// regret is what is said where paying again is no way on: what a challenge says, without the ways
// to pay.
func (w *Wall) regret(r result) map[string]any {
	said := map[string]any{"x402Version": r.version, "error": r.why}
	if r.receipt && r.settlement != nil {
		said[x402.MetaReceipt] = receiptJSON(r.settlement)
	}
	return said
}
