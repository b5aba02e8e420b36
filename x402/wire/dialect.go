package wire

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"

	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// The headers a seller asks in.
const (
	HeaderRequired  = "PAYMENT-REQUIRED"
	headerXRequired = "X-PAYMENT-REQUIRED"
	headerAmount    = "X-PAYMENT-AMOUNT"
	headerRecipient = "X-PAYMENT-RECIPIENT"
	headerPayTo     = "X-PAYMENT-PAYTO"
	headerToken     = "X-PAYMENT-TOKEN"
	headerAsset     = "X-PAYMENT-ASSET"
	headerNetwork   = "X-PAYMENT-NETWORK"
)

// places are where a challenge may stand, in the order in which they are looked at.
var places = []struct {
	name string // for details
	read func(http.Header, []byte) (*Challenge, error)
}{
	{HeaderRequired, headerChallenge(HeaderRequired, dialects{1: x402.DialectV1Body,
		2: x402.DialectV2Header})},
	{headerXRequired, xHeaderChallenge},
	{"body", bodyChallenge},
	{headerAmount, plainHeaders},
}

// ReadChallenge reads what a seller asks for in an answer with status 402, or 412
// (permit2_allowance_required). The first of these that can be read, with an option in it, is the
// challenge:
//
//	header PAYMENT-REQUIRED             base64 JSON   version 2, or 1 for a confused V1 seller
//	header X-PAYMENT-REQUIRED           base64 JSON   version 1 or 2; the wallet settles, where it
//	                                                  lacks what a V2 challenge must have
//	body with accepts                   JSON          version 1 or 2
//	header X-PAYMENT-AMOUNT and others  plain         one option; the wallet settles; what it leaves
//	                                                  to the buyer's settings is for [Challenge.Complete]
//
// Challenges of MPP (WWW-Authenticate: Payment) are options behind those, or the only ones.
//
// A header that cannot be read hides nothing that can: it is in Ignored with its reason. What else can be
// read is compared with the challenge: another price for the same token is refused, because then it is
// not clear what the seller asks; the same price is answered in the dialect of the
// first. So is one header with two values. An option that breaks the format is in Unreadable with
// its reason and spoils no other; Accepts may be left empty. What breaks the only challenge that there is
// is an *Error: NO_REQUIREMENTS, INVALID_REQUIREMENT, RESPONSE_MALFORMED, RESPONSE_TOO_LARGE. Of body,
// MaxBody+1 bytes are enough.
func ReadChallenge(status int, header http.Header, body []byte) (*Challenge, error) {
	if status != http.StatusPaymentRequired && status != http.StatusPreconditionFailed {
		return nil, x402.Errorf(x402.NoRequirements, "status %d asks for no payment: 402 and 412 do", status)
	}
	var found []*Challenge
	var ignored []Ignored
	for _, place := range places {
		c, err := place.read(header, body)
		switch {
		case errors.Is(err, errConflictingHeaders):
			return nil, challengeError(err)
		case err != nil:
			ignored = append(ignored, Ignored{In: place.name, Why: challengeError(err)})
		case c != nil:
			found = append(found, c)
		}
	}
	charges := headerCharges(header)
	if len(found) == 0 && charges.isEmpty() {
		return nil, nothingReadable(header, body, ignored)
	}
	if len(found) == 0 {
		alone := charges.joined(nil, dialectMPP)
		alone.Ignored = ignored
		return alone, nil
	}
	chosen := found[max(0, slices.IndexFunc(found, func(c *Challenge) bool { return len(c.Accepts) > 0 }))]
	for _, c := range found {
		if pricesDiffer(chosen, c) {
			return nil, x402.Errorf(x402.InvalidRequirement, "the seller asks twice, at different prices").
				WithDetail("dialects", []x402.Dialect{chosen.Dialect, c.Dialect})
		}
	}
	chosen.Ignored = ignored
	return charges.joined(chosen, dialectMPP), nil
}

// nothingReadable is the error of an answer without a challenge that can be read: of the first that was
// meant to be one, with all of them in the details; or of an answer that is not x402 at all.
func nothingReadable(header http.Header, body []byte, ignored []Ignored) error {
	if len(ignored) == 0 {
		return notX402(header, body)
	}
	e := ignored[0].Why
	if len(ignored) > 1 || e.Code == x402.ResponseMalformed {
		e.WithDetail("unreadable", ignoredDetails(ignored))
	}
	if protocols := otherProtocols(header, body); protocols != nil {
		e.WithDetail("asks", protocols)
	}
	return e
}

// ignoredDetails are the places whose challenge could not be read, by name.
func ignoredDetails(ignored []Ignored) (list []map[string]any) {
	for _, i := range ignored {
		list = append(list, map[string]any{"in": i.In, "why": i.Why.Message})
	}
	return list
}

// IgnoredDetails are the places of a seller's answer that should hold a challenge and cannot be read, for
// the details of an error; nil: there are none.
func (c *Challenge) IgnoredDetails() []map[string]any { return ignoredDetails(c.Ignored) }

// headerChallenge reads a challenge out of one header.
func headerChallenge(name string, known dialects) func(http.Header, []byte) (*Challenge, error) {
	return func(header http.Header, _ []byte) (*Challenge, error) {
		top, _, err := headerObject(header, name)
		if top == nil || err != nil {
			return nil, err
		}
		return readChallenge(top, known)
	}
}

// headerObject is the JSON object in a header; nil: there is none. Where it is one option instead of a
// challenge, as some sellers write their only one, it is wrapped into a challenge, and isLone.
func headerObject(header http.Header, name string) (top x402.Object, isLone bool, err error) {
	value, err := singleHeader(header, name)
	if value == "" || err != nil {
		return nil, false, err
	}
	data, err := Unwrap(name, value)
	if err != nil {
		return nil, false, err
	}
	if err := x402.DecodeStrict(data, x402.MaxHeader, &top); err != nil {
		return nil, false, inHeader(name, err)
	}
	isLone = top.Has("scheme") && top.Has("payTo") && !top.Has("accepts") && !top.Has("x402Version")
	if isLone {
		version := "2"
		if top.Has("maxAmountRequired") && !top.Has("amount") {
			version = "1"
		}
		top = x402.Object{"x402Version": json.RawMessage(version),
			"accepts": slices.Concat([]byte("["), data, []byte("]"))}
	}
	return top, isLone, nil
}

// inHeader says of an error of JSON in which header it stands.
func inHeader(name string, err error) error {
	e := *x402.AsError(err)
	e.Message = "the header " + name + " holds no challenge: " + e.Message
	return &e
}

// xHeaderChallenge reads X-PAYMENT-REQUIRED, the name that sellers of the ozskr wallet use, and a tenth of
// those that are listed. Who settles is told by what is written there. A challenge for the ozskr wallet has
// neither a resource nor extra, which nobody who settles himself leaves out, and no version 1; where it has
// one of them the payment is shown to the seller. But for a Solana option without a fee payer the wallet
// always settles: nobody else could be paid by it.
func xHeaderChallenge(header http.Header, _ []byte) (*Challenge, error) {
	top, isLone, err := headerObject(header, headerXRequired)
	if top == nil || err != nil {
		return nil, err
	}
	c, err := readChallenge(top, dialects{1: x402.DialectXV1, 2: x402.DialectXV2})
	if err != nil || isLone || c.Version == 1 {
		return c, err
	}
	c.Dialect = x402.DialectXProof
	for i := range c.Accepts {
		r := &c.Accepts[i]
		isBare := c.Resource.URL == "" && len(r.Extra) == 0
		if isBare || (x402.IsSolana(r.Network) && r.ExtraString("feePayer") == "") {
			r.Dialect = x402.DialectXProof
			continue
		}
		c.Dialect = x402.DialectXV2
	}
	return c, nil
}

// bodyChallenge takes a body for a challenge when it is a JSON object with accepts: V2 sellers put
// anything there, HTML paywalls and samples included. What looks like JSON has to be JSON all the
// same.
func bodyChallenge(_ http.Header, body []byte) (*Challenge, error) {
	start := bytes.TrimLeft(bytes.TrimPrefix(body, []byte("\ufeff")), " \t\r\n")
	if len(start) == 0 || (start[0] != '{' && start[0] != '[') {
		return nil, nil
	}
	if err := x402.DecodeStrict(body, x402.MaxBody, nil); err != nil {
		return nil, err
	}
	var top x402.Object
	if json.Unmarshal(body, &top) != nil || !top.Has("accepts") {
		return nil, nil //nolint:nilerr // JSON of another kind asks for nothing
	}
	return readChallenge(top, dialects{1: x402.DialectV1Body, 2: x402.DialectV2Body})
}

// plainHeaders reads X-PAYMENT-AMOUNT and its like: one option, spread over headers with two names each
// for the payee and the token.
func plainHeaders(header http.Header, _ []byte) (*Challenge, error) {
	amount, err := singleHeader(header, headerAmount)
	if amount == "" || err != nil {
		return nil, err
	}
	payTo, errPayee := singleHeader(header, headerRecipient, headerPayTo)
	asset, errAsset := singleHeader(header, headerToken, headerAsset)
	network, errNetwork := singleHeader(header, headerNetwork)
	for _, err := range []error{errPayee, errAsset, errNetwork} {
		if err != nil {
			return nil, err
		}
	}
	entry := x402.Object{}
	for key, value := range map[string]string{"scheme": "exact", "network": network, "amount": amount,
		"asset": asset, "payTo": payTo} {
		if value != "" {
			entry[key], _ = json.Marshal(value)
		}
	}
	c := &Challenge{Version: 2, Dialect: x402.DialectPlainProof}
	r, err := x402.ReadRequirement(entry, 2)
	r.Dialect = x402.DialectPlainProof
	if err != nil {
		c.Unreadable = []Unreadable{{Index: 0, Why: err}}
		if payTo != "" && (network == "" || asset == "") {
			c.lacking = plainOption(entry)
		}
	} else {
		c.Accepts = []x402.Requirement{r}
	}
	return c, nil
}

// errConflictingHeaders marks a header that came with two different values: refused wherever it
// stands, never "the first wins".
var errConflictingHeaders = errors.New("a header twice")

// singleHeader is a header's only value, "" when it is not there. The header may go by several
// names.
func singleHeader(header http.Header, names ...string) (string, error) {
	var value string
	for _, name := range names {
		for _, v := range header.Values(name) {
			switch v = strings.TrimSpace(v); {
			case v == "":
			case len(v) > x402.MaxHeader:
				return "", x402.Errorf(x402.ResponseTooLarge, "the header %s is longer than %d bytes", name,
					x402.MaxHeader).
					WithDetail("limit", x402.MaxHeader)
			case value != "" && v != value:
				return "", &x402.Error{Code: x402.ResponseMalformed, Err: errConflictingHeaders,
					Message: "the header " + strings.Join(names, " or ") +
						" came twice with different values"}
			default:
				value = v
			}
		}
	}
	return value, nil
}

// pricesDiffer reports whether two challenges ask different amounts for the same scheme and token.
// Options that only one of them has are no contradiction: V1 cannot say everything V2 can.
func pricesDiffer(a, b *Challenge) bool {
	type what struct {
		scheme string
		asset  money.Asset
	}
	prices := func(c *Challenge) map[what]map[money.Amount]bool {
		all := map[what]map[money.Amount]bool{}
		for _, r := range c.Accepts {
			key := what{scheme: r.Scheme, asset: r.AssetKey()}
			if all[key] == nil {
				all[key] = map[money.Amount]bool{}
			}
			all[key][r.Amount] = true
		}
		return all
	}
	inB := prices(b)
	for key, amounts := range prices(a) {
		others, both := inB[key]
		if !both {
			continue
		}
		for amount := range amounts {
			if !others[amount] {
				return true
			}
		}
		if len(others) != len(amounts) {
			return true
		}
	}
	return false
}

// notX402 is the error of a 402 without x402 in it.
func notX402(header http.Header, body []byte) *x402.Error {
	e := x402.Errorf(x402.NoRequirements, "the answer asks for nothing this wallet can pay").
		WithHint("the seller does not speak x402 here; nothing was paid")
	if protocols := otherProtocols(header, body); protocols != nil {
		e.Message += ": it asks for " + strings.Join(protocols, ", ")
		e.WithDetail("asks", protocols)
	}
	return e
}

// Unwrap decodes a header's base64. We send standard and padded, but take url-safe, unpadded and
// plain JSON too: they cannot be confused.
func Unwrap(name, value string) ([]byte, error) {
	if strings.HasPrefix(value, "{") {
		return []byte(value), nil
	}
	text := strings.TrimRight(value, "=")
	padding := len(value) - len(text)
	if strings.ContainsAny(text, "-_") {
		text = strings.NewReplacer("-", "+", "_", "/").Replace(text)
	}
	data, err := base64.RawStdEncoding.Strict().DecodeString(text)
	badPadding := padding > 2 || (padding > 0 && len(value)%4 != 0)
	if err != nil || strings.ContainsAny(value, "\r\n") || badPadding {
		return nil, x402.Errorf(x402.ResponseMalformed, "the header %s is not base64", name)
	}
	return data, nil
}
