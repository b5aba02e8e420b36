package paywall

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"x402-wallet/scheme/selling"
	"x402-wallet/x402"
)

// payment is a parsed PaymentPayload.
type payment struct {
	raw        json.RawMessage
	Version    int                        `json:"x402Version"`
	Scheme     string                     `json:"scheme"`   // V1
	Network    string                     `json:"network"`  // V1
	Accepted   json.RawMessage            `json:"accepted"` // V2
	Payload    json.RawMessage            `json:"payload"`  // the scheme's own
	Extensions map[string]json.RawMessage `json:"extensions"`

	answer *selling.Answer // nil where it came in x402
	name   string          // the buyer's, once readIdentifier has read it
}

// decodePayment reads a PaymentPayload of either version, strictly.
func decodePayment(raw []byte) (*payment, error) {
	p := &payment{}
	if err := x402.DecodeStrict(raw, selling.MaxPayment, p); err != nil {
		if !json.Valid(raw) {
			err = selling.ErrNotJSON
		}
		return nil, fmt.Errorf("%w: %w", ErrInvalidRequest, err)
	}
	p.raw = raw
	isObject := func(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] == '{' }
	switch {
	case p.Version != 1 && p.Version != 2:
		return nil, fmt.Errorf("%w: its x402Version is neither 1 nor 2", ErrInvalidRequest)
	case !isObject(p.Payload):
		return nil, fmt.Errorf("%w: it has no payload", ErrInvalidRequest)
	case p.Version == 2 && !isObject(p.Accepted):
		return nil, fmt.Errorf("%w: it does not say what it accepted", ErrInvalidRequest)
	case p.Version == 1 && (p.Scheme == "" || p.Network == ""):
		return nil, fmt.Errorf("%w: it names no scheme or network", ErrInvalidRequest)
	}
	return p, nil
}

// add takes one more payment of the same request. Two that differ are an error.
func (p *payment) add(raw []byte, err error) (*payment, error) {
	if err != nil {
		return nil, err
	}
	more, err := decodePayment(raw)
	if err == nil && p != nil && !sameJSON(p.raw, more.raw) {
		err = fmt.Errorf("%w: there are two, and they differ", ErrInvalidRequest)
	}
	return more, err
}

// isSignedAs reports whether another PaymentPayload has the very same signed part. With one nonce a
// buyer can sign many payments: what the chain says of this one counts for a sale of this one only.
func (p *payment) isSignedAs(taken json.RawMessage) bool {
	other, err := decodePayment(taken)
	return err == nil && sameJSON(p.Payload, other.Payload)
}

func sameJSON(a, b json.RawMessage) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}

// Why a payment is not what was asked for, in the reference server's words where it has any.
var (
	errNoMatch    = fmt.Errorf("%w: no matching payment requirements", ErrPaymentRejected)
	errExtensions = fmt.Errorf("%w: extension_echo_mismatch", ErrPaymentRejected)
)

// match finds the offer that a payment was made for, and reads what it signs. In version 2 the payment
// names its offer, and every member of the offer has to be in it; in version 1 only what is signed can
// tell two tokens of one network apart. In both, what is signed has to be what was asked for.
func (w *Paywall) match(p *payment, offers []offer) (offer, selling.Signed, error) {
	refusal := errNoMatch
	for _, o := range offers {
		if p.Version == 2 {
			o.terms[2] = o.Way.Accepted(o.terms[2], p.Accepted)
		}
		r := o.terms[p.Version]
		if r.Version == 0 || !p.names(o, r) {
			continue
		}
		p.accept(r)
		s, err := o.Way.Read(p.shown(o, r), w.shop())
		if err == nil || errors.Is(err, selling.ErrExpired) {
			return o, s, err
		}
		if errors.Is(refusal, errNoMatch) || !errors.Is(err, selling.ErrPayee) {
			refusal = err
		}
	}
	return offer{}, selling.Signed{}, refusal
}

// accept makes another protocol's payment one of version 2, for the offer that it answers.
func (p *payment) accept(r x402.Requirement) {
	if p.answer == nil {
		return
	}
	p.Accepted = r.Raw
	p.raw = jsonOf(map[string]any{"x402Version": 2, "accepted": p.Accepted, "payload": p.Payload})
}

// shown is the payment as its way reads it, for an offer of which r are the terms in its version.
func (p *payment) shown(o offer, r x402.Requirement) selling.Shown {
	s := selling.Shown{Option: o.Option, Asked: r, Version: p.Version, Raw: p.raw, Payload: p.Payload}
	if p.answer != nil {
		s.Nonce = &p.answer.Nonce
	}
	return s
}

// names reports whether the payment says that it is for this offer, of which r are the terms in its version.
func (p *payment) names(o offer, r x402.Requirement) bool {
	if p.answer != nil {
		return p.answer.IsFor(o.Option, r)
	}
	if p.Version == 2 {
		return o.isX402() && matchesOffer(p.Accepted, r.Raw)
	}
	return p.Scheme == r.Scheme && p.Network == r.NetworkName
}

// matchesOffer reports whether a buyer's `accepted` is our offer: the same members with the same
// values, letter case included, and of extra at least what we said (x402 2.27 core/server).
func matchesOffer(accepted, ours json.RawMessage) bool {
	if bytes.Equal(accepted, ours) { // most buyers send back what they got
		return true
	}
	var theirs, own map[string]any
	if json.Unmarshal(accepted, &theirs) != nil || json.Unmarshal(ours, &own) != nil {
		return false
	}
	extra, _ := own["extra"].(map[string]any)
	theirExtra, _ := theirs["extra"].(map[string]any)
	delete(own, "extra")
	delete(theirs, "extra")
	return reflect.DeepEqual(theirs, own) && containsAll(extra, theirExtra)
}

// containsAll reports whether every member of a is in b with the same value; nested objects likewise.
func containsAll(a, b map[string]any) bool {
	for key, value := range a {
		other, there := b[key]
		inner, isObject := value.(map[string]any)
		otherInner, otherIsObject := other.(map[string]any)
		switch {
		case !there || isObject != otherIsObject:
			return false
		case isObject && !containsAll(inner, otherInner):
			return false
		case !isObject && !reflect.DeepEqual(value, other):
			return false
		}
	}
	return true
}

// checkExtensions compares the extensions that come back with those that were declared: what is echoed
// has to contain at least the declared info (x402 2.27 validateExtensions). Echoing none is fine.
func (p *payment) checkExtensions(declared map[string]json.RawMessage) error {
	for key, ours := range declared {
		theirs, there := p.Extensions[key]
		if !there || bytes.Equal(theirs, []byte("null")) || bytes.Equal(theirs, ours) {
			continue
		}
		var own, other struct {
			Info map[string]any `json:"info"`
		}
		if json.Unmarshal(ours, &own) != nil {
			continue
		}
		if json.Unmarshal(theirs, &other) != nil || !containsAll(own.Info, other.Info) {
			return errExtensions
		}
	}
	return nil
}
