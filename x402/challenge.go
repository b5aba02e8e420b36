package x402

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"x402-wallet/x402/money"
)

const (
	// defaultTimeout is how long a payment may live when the seller does not say.
	defaultTimeout = 60 * time.Second
	// maxTimeout is more than any seller means: one who asks for more is refused. What
	// is really signed is capped by the owner (max_timeout_seconds).
	maxTimeout = 10 * 365 * 24 * time.Hour
)

// Challenge is a seller's "402 Payment Required", read.
type Challenge struct {
	Version    int
	Dialect    Dialect
	Accepts    []Requirement // the options that could be read, in the seller's order
	Unreadable []Unreadable  // the options that could not, each with its reason
	Ignored    []Ignored     // other places of the answer that should hold a challenge and do not
	Resource   Resource
	Extensions map[string]json.RawMessage // V2: raw, for the echo
	Error      string                     // the seller's own words: untrusted
}

// Resource is what the seller says it sells. All of it is a stranger's text.
type Resource struct {
	URL, Description, MimeType string
	Raw                        json.RawMessage // nil when the seller sent none
}

// Unreadable is an option that breaks the rules of the format.
type Unreadable struct {
	Index int // in the seller's list
	Why   error
}

// Ignored is a place that should hold a challenge, and holds none that can be read.
type Ignored struct {
	In  string // the header's name, or "body"
	Why *Error
}

// dialects maps the protocol version of a challenge to its dialect, in the place it was found.
type dialects map[int]Dialect

func decodeChallenge(data []byte, limit int, known dialects) (*Challenge, error) {
	var top object
	if err := DecodeStrict(data, limit, &top); err != nil {
		return nil, challengeError(err)
	}
	return readChallenge(top, known)
}

// challengeError gives its code to what is well-formed but says two things: an ambiguous key,
// a header twice.
func challengeError(err error) *Error {
	e := AsError(err)
	if errors.Is(err, errAmbiguous) || errors.Is(err, errConflictingHeaders) {
		e.Code = InvalidRequirement
	}
	return e
}

func readChallenge(top object, known dialects) (*Challenge, error) {
	text := string(top["x402Version"])
	version, err := strconv.Atoi(text) // a JSON string or fraction is no int
	dialect, supported := known[version]
	if err != nil || !supported {
		return nil, Errorf(InvalidRequirement, "the challenge's x402Version is missing or not supported").
			WithDetail("x402Version", quote(text)).WithDetail("spoken", slices.Sorted(maps.Keys(known)))
	}
	c := &Challenge{Version: version, Dialect: dialect}
	c.Error, _ = top.text("error") // for people only: not worth a refusal
	if version == 2 {
		c.Extensions, err = top.object("extensions")
		if err != nil {
			return nil, invalid(err)
		}
	}
	if err := c.readAccepts(top["accepts"]); err != nil {
		return nil, err
	}
	if version == 1 {
		return c, nil
	}
	c.Resource, err = readResource(top["resource"])
	if err != nil {
		return nil, invalid(err)
	}
	return c, nil
}

// invalid is the error for a challenge whose own members break the format.
func invalid(why error) *Error {
	return Errorf(InvalidRequirement, "the challenge cannot be read").WithDetail("why", why.Error())
}

func (c *Challenge) readAccepts(raw json.RawMessage) error {
	var entries []json.RawMessage
	isList := json.Unmarshal(raw, &entries) == nil
	if isList && len(entries) == 0 && !isNull(c.Extensions[ExtensionSignIn]) {
		return nil // it sells nothing: see AsksSignInOnly
	}
	if !isList || len(entries) == 0 {
		return Errorf(InvalidRequirement, "the challenge lists no options: accepts is no list, or empty")
	}
	if len(entries) > MaxAccepts {
		return Errorf(ResponseMalformed, "the challenge lists more than %d options", MaxAccepts).
			WithDetail("accepts", len(entries)).WithDetail("limit", MaxAccepts)
	}
	for i, entry := range entries {
		r, err := DecodeRequirement(entry, c.Version)
		if err != nil {
			if words := foreignEntry(entry); words != "" {
				err = errors.New(words)
			}
			c.Unreadable = append(c.Unreadable, Unreadable{Index: i, Why: err})
			continue
		}
		r.Index, r.Dialect = i, c.Dialect
		c.Accepts = append(c.Accepts, r)
	}
	if c.Version == 1 && len(c.Accepts) > 0 {
		c.Resource = resourceV1(c.Accepts[0])
	}
	return nil
}

// readResource reads V2's resource. It may be missing (in X-PAYMENT-REQUIRED), and some write the URL alone.
func readResource(raw json.RawMessage) (Resource, error) {
	var res Resource
	if isNull(raw) {
		return res, nil
	}
	res.Raw = raw
	if json.Unmarshal(raw, &res.URL) == nil {
		return res, nil
	}
	var members object
	if json.Unmarshal(raw, &members) != nil {
		return res, errors.New("resource is not a JSON object")
	}
	for _, member := range []struct {
		key  string
		into *string
	}{{"url", &res.URL}, {"description", &res.Description}, {"mimeType", &res.MimeType}} {
		text, err := members.text(member.key)
		if err != nil {
			return res, fmt.Errorf("resource.%w", err)
		}
		*member.into = text
	}
	return res, nil
}

// resourceV1 is what V1 says per option, taken from the first.
func resourceV1(first Requirement) Resource {
	var entry object
	if json.Unmarshal(first.Raw, &entry) != nil {
		return Resource{}
	}
	res := Resource{URL: first.ResourceURL}
	res.Description, _ = entry.text("description") // for people only: not worth a refusal
	res.MimeType, _ = entry.text("mimeType")
	return res
}

// DecodeRequirement reads one entry of accepts, of JSON that DecodeStrict has accepted. The error
// says what breaks the format; whether the option can be paid is for others to say.
func DecodeRequirement(raw json.RawMessage, version int) (Requirement, error) {
	var entry object
	if json.Unmarshal(raw, &entry) != nil || entry == nil {
		return Requirement{}, errors.New("the option is not a JSON object")
	}
	r, err := readRequirement(entry, version)
	r.Raw = raw
	return r, err
}

func readRequirement(entry object, version int) (Requirement, error) {
	amountKey := "amount"
	if version == 1 || (!entry.has("amount") && entry.has("maxAmountRequired")) {
		amountKey = "maxAmountRequired" // of version 1: some say 2 and keep it
	}
	r := Requirement{Version: version}
	var err error
	for _, field := range []struct {
		key  string
		into *string
	}{{"scheme", &r.Scheme}, {"network", &r.NetworkName}, {"asset", &r.Asset}, {"payTo", &r.PayTo}} {
		*field.into, err = entry.identifier(field.key)
		if err != nil {
			return r, err
		}
	}
	var ok bool
	r.Network, ok = Network(r.NetworkName)
	if !ok {
		return r, fmt.Errorf("network %s is neither a CAIP-2 name nor a known one", quote(r.NetworkName))
	}
	r.Amount, err = entry.amount(amountKey, r.Network)
	if err != nil {
		return r, err
	}
	if version == 2 && !entry.sameText("amount", "maxAmountRequired") {
		return r, errors.New("amount and maxAmountRequired differ")
	}
	r.MaxTimeout, err = entry.seconds("maxTimeoutSeconds")
	if err != nil {
		return r, err
	}
	r.Extra, err = entry.object("extra")
	if err != nil {
		return r, err
	}
	if version == 1 {
		r.ResourceURL, err = entry.text("resource")
	}
	return r, err
}

// sameText reports whether two strings are the same, where both are there.
func (o object) sameText(a, b string) bool {
	return !o.has(a) || !o.has(b) || string(o[a]) == string(o[b])
}

// amount is a required number of atomic units in a JSON string: JSON numbers are floats to
// most readers.
func (o object) amount(key, network string) (a money.Amount, err error) {
	if !o.has(key) {
		return a, fmt.Errorf("%s is missing", key)
	}
	text, err := o.text(key)
	if err != nil {
		return a, err
	}
	if a, err = money.ParseAmount(text); err != nil {
		return a, fmt.Errorf("%s: %w", key, err)
	}
	if a.IsZero() {
		return a, fmt.Errorf("%s is 0: it must be at least 1", key)
	}
	if _, fits := a.Uint64(); IsSolana(network) && !fits {
		return a, fmt.Errorf("%s is more than 18446744073709551615, the most a Solana token can count", key)
	}
	return a, nil
}

// seconds is an optional whole number of seconds.
func (o object) seconds(key string) (time.Duration, error) {
	if !o.has(key) {
		return defaultTimeout, nil
	}
	const most = int64(maxTimeout / time.Second)
	n, err := strconv.ParseInt(string(o[key]), 10, 64) // a JSON string, fraction or exponent is no int
	if err != nil || n < 1 || n > most {
		return 0, fmt.Errorf("%s is not a whole number from 1 to %d", key, most)
	}
	return time.Duration(n) * time.Second, nil
}
