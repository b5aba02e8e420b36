package x402

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"x402-wallet/x402/money"
)

// The headers a seller asks in.
const (
	HeaderRequired     = "PAYMENT-REQUIRED"
	headerSeedRequired = "X-PAYMENT-REQUIRED"
	headerAmount       = "X-PAYMENT-AMOUNT"
	headerRecipient    = "X-PAYMENT-RECIPIENT"
	headerPayTo        = "X-PAYMENT-PAYTO"
	headerToken        = "X-PAYMENT-TOKEN"
	headerAsset        = "X-PAYMENT-ASSET"
	headerNetwork      = "X-PAYMENT-NETWORK"
)

// ReadChallenge reads what a seller asks for in an answer with status 402, or 412
// (permit2_allowance_required, x402-protocol.md fact 9). The first of these that is there is the
// challenge, and is read or refused:
//
//	header PAYMENT-REQUIRED             base64 JSON   version 2, or 1 for a confused V1 seller
//	header X-PAYMENT-REQUIRED           base64 JSON   the seed's V2
//	body with accepts                   JSON          version 1 or 2
//	header X-PAYMENT-AMOUNT and others  plain         the seed's V1
//
// What comes after the first is only compared with it: another price for the same token is refused,
// because then it is not clear what the seller asks (security.md A16); the same price is answered
// in the dialect of the first. An option that breaks the format is in Unreadable with its reason
// and spoils no other; Accepts may be left empty. What breaks the challenge itself is an *Error:
// NO_REQUIREMENTS, INVALID_REQUIREMENT, RESPONSE_MALFORMED, RESPONSE_TOO_LARGE. Of body, MaxBody+1
// bytes are enough.
func ReadChallenge(status int, header http.Header, body []byte) (*Challenge, error) {
	if status != http.StatusPaymentRequired && status != http.StatusPreconditionFailed {
		return nil, Errorf(noRequirements, "status %d asks for no payment: 402 and 412 do", status)
	}
	var chosen *Challenge
	for _, read := range []func(http.Header, []byte) (*Challenge, error){
		headerChallenge(HeaderRequired, dialects{1: DialectV1Body, 2: DialectV2Header}),
		headerChallenge(headerSeedRequired, dialects{2: dialectSeedV2}), bodyChallenge, plainHeaders,
	} {
		c, err := read(header, body)
		switch {
		case err != nil && (chosen == nil || errors.Is(err, errConflictingHeaders)):
			return nil, challengeError(err)
		case c == nil:
		case chosen == nil:
			chosen = c
		case pricesDiffer(chosen, c):
			return nil, Errorf(InvalidRequirement, "the seller asks twice, at different prices").
				WithDetail("dialects", []Dialect{chosen.Dialect, c.Dialect})
		}
	}
	if chosen == nil {
		return nil, notX402(header)
	}
	return chosen, nil
}

// headerChallenge reads a challenge out of one header.
func headerChallenge(name string, known dialects) func(http.Header, []byte) (*Challenge, error) {
	return func(header http.Header, _ []byte) (*Challenge, error) {
		value, err := singleHeader(header, name)
		if value == "" || err != nil {
			return nil, err
		}
		data, err := Unwrap(name, value)
		if err != nil {
			return nil, err
		}
		return decodeChallenge(data, MaxHeader, known)
	}
}

// bodyChallenge takes a body for a challenge when it is a JSON object with accepts: V2 sellers put
// anything there, HTML paywalls and samples included. What looks like JSON has to be JSON all the
// same.
func bodyChallenge(_ http.Header, body []byte) (*Challenge, error) {
	start := bytes.TrimLeft(bytes.TrimPrefix(body, []byte("\ufeff")), " \t\r\n")
	if len(start) == 0 || (start[0] != '{' && start[0] != '[') {
		return nil, nil
	}
	if err := DecodeStrict(body, MaxBody, nil); err != nil {
		return nil, err
	}
	var top object
	if json.Unmarshal(body, &top) != nil || !top.has("accepts") {
		return nil, nil //nolint:nilerr // JSON of another kind asks for nothing
	}
	return readChallenge(top, dialects{1: DialectV1Body, 2: dialectV2Body})
}

// plainHeaders reads the seed's V1: one option, spread over headers with two names each for the
// payee and the token.
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
	entry := object{}
	for key, value := range map[string]string{"scheme": "exact", "network": network, "amount": amount,
		"asset": asset, "payTo": payTo} {
		if value != "" {
			entry[key], _ = json.Marshal(value)
		}
	}
	c := &Challenge{Version: 2, Dialect: dialectSeedPlain}
	r, err := readRequirement(entry, 2)
	r.Dialect = dialectSeedPlain
	if err != nil {
		c.Unreadable = []Unreadable{{Index: 0, Why: err}}
	} else {
		c.Accepts = []Requirement{r}
	}
	return c, nil
}

// errConflictingHeaders marks a header that came with two different values: refused wherever it
// stands, never "the first wins" (security.md A17).
var errConflictingHeaders = errors.New("a header twice")

// singleHeader is a header's only value, "" when it is not there. The header may go by several
// names.
func singleHeader(header http.Header, names ...string) (string, error) {
	var value string
	for _, name := range names {
		for _, v := range header.Values(name) {
			switch v = strings.TrimSpace(v); {
			case v == "":
			case len(v) > MaxHeader:
				return "", Errorf(ResponseTooLarge, "the header %s is longer than %d bytes", name, MaxHeader).
					WithDetail("limit", MaxHeader)
			case value != "" && v != value:
				return "", &Error{Code: ResponseMalformed, Err: errConflictingHeaders,
					Message: "the header " + strings.Join(names, " or ") +
						" came twice with different values"}
			default:
				value = v
			}
		}
	}
	return value, nil
}

// Unwrap decodes a header's base64. We send standard and padded (x402-protocol.md §1.1), but take
// url-safe, unpadded and plain JSON too: they cannot be confused.
func Unwrap(name, value string) ([]byte, error) {
	if strings.HasPrefix(value, "{") {
		return []byte(value), nil
	}
	text := strings.TrimRight(value, "=")
	padding := len(value) - len(text)
	data, err := base64.RawStdEncoding.Strict().
		DecodeString(strings.NewReplacer("-", "+", "_", "/").Replace(text))
	badPadding := padding > 2 || (padding > 0 && len(value)%4 != 0)
	if err != nil || strings.ContainsAny(value, "\r\n") || badPadding {
		return nil, Errorf(ResponseMalformed, "the header %s is not base64", name)
	}
	return data, nil
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

// notX402 is the error of a 402 without x402 in it. Other protocols are named, so that a
// person knows what the seller wants: those we know by their name, any other quoted.
func notX402(header http.Header) *Error {
	e := Errorf(noRequirements, "the answer asks for nothing this wallet can pay").
		WithHint("the seller does not speak x402 here; nothing was paid")
	var protocols []string
	for _, scheme := range authSchemes(header.Values("WWW-Authenticate")) {
		switch strings.ToUpper(scheme) {
		case "L402", "LSAT":
			protocols = append(protocols, "L402 (Lightning)")
		case "PAYMENT":
			protocols = append(protocols, "MPP (WWW-Authenticate: Payment)")
		default:
			protocols = append(protocols, quote(scheme))
		}
	}
	if protocols != nil {
		e.WithDetail("asks", protocols)
	}
	return e
}

// authSchemes lists the schemes of WWW-Authenticate (RFC 9110 §11.6.1), in which commas part
// challenges and parameters alike: a part that does not begin with name= begins a challenge. Eight
// are enough to name.
func authSchemes(values []string) (schemes []string) {
	for _, value := range values {
		quoted := false
		parts := strings.FieldsFunc(value[:min(len(value), MaxHeader)], func(r rune) bool {
			if r == '"' {
				quoted = !quoted
			}
			return r == ',' && !quoted
		})
		for _, part := range parts {
			scheme, rest, _ := strings.Cut(strings.TrimSpace(part), " ")
			isParameter := strings.Contains(scheme, "=") || strings.HasPrefix(strings.TrimSpace(rest), "=")
			if scheme != "" && !isParameter && len(schemes) < 8 {
				schemes = append(schemes, scheme)
			}
		}
	}
	return schemes
}
