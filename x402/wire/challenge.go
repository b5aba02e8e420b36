package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"x402-wallet/x402"
)

// Challenge is a seller's "402 Payment Required", read.
type Challenge struct {
	Version    int
	Dialect    x402.Dialect
	Accepts    []x402.Requirement // the options that could be read, in the seller's order
	Unreadable []Unreadable       // the options that could not, each with its reason
	Ignored    []Ignored          // other places of the answer that should hold a challenge and do not
	Resource   Resource
	Extensions map[string]json.RawMessage // V2: raw, for the echo
	Error      string                     // the seller's own words: untrusted

	lacking plainOption // nil: see Complete
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
	Why *x402.Error
}

// dialects maps the protocol version of a challenge to its dialect, in the place it was found.
type dialects map[int]x402.Dialect

func decodeChallenge(data []byte, limit int, known dialects) (*Challenge, error) {
	var top x402.Object
	if err := x402.DecodeStrict(data, limit, &top); err != nil {
		return nil, challengeError(err)
	}
	return readChallenge(top, known)
}

// challengeError gives its code to what is well-formed but says two things: an ambiguous key,
// a header twice.
func challengeError(err error) *x402.Error {
	e := x402.AsError(err)
	if errors.Is(err, x402.ErrAmbiguous) || errors.Is(err, errConflictingHeaders) {
		e.Code = x402.InvalidRequirement
	}
	return e
}

func readChallenge(top x402.Object, known dialects) (*Challenge, error) {
	text := string(top["x402Version"])
	version, err := strconv.Atoi(text) // a JSON string or fraction is no int
	dialect, supported := known[version]
	if err != nil || !supported {
		return nil, x402.Errorf(x402.InvalidRequirement,
			"the challenge's x402Version is missing or not supported").
			WithDetail("x402Version", x402.QuoteName(text)).WithDetail("spoken",
			slices.Sorted(maps.Keys(known)))
	}
	c := &Challenge{Version: version, Dialect: dialect}
	c.Error, _ = top.Text("error") // for people only: not worth a refusal
	if version == 2 {
		c.Extensions, err = top.Object("extensions")
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
func invalid(why error) *x402.Error {
	return x402.Errorf(x402.InvalidRequirement, "the challenge cannot be read").WithDetail("why", why.Error())
}

func (c *Challenge) readAccepts(raw json.RawMessage) error {
	var entries []json.RawMessage
	isList := json.Unmarshal(raw, &entries) == nil
	if isList && len(entries) == 0 && !x402.IsNull(c.Extensions[x402.ExtensionSignIn]) {
		return nil // it sells nothing: see AsksSignInOnly
	}
	if !isList || len(entries) == 0 {
		return x402.Errorf(x402.InvalidRequirement,
			"the challenge lists no options: accepts is no list, or empty")
	}
	if len(entries) > x402.MaxAccepts {
		return x402.Errorf(x402.ResponseMalformed, "the challenge lists more than %d options",
			x402.MaxAccepts).
			WithDetail("accepts", len(entries)).WithDetail("limit", x402.MaxAccepts)
	}
	for i, entry := range entries {
		r, err := x402.DecodeRequirement(entry, c.Version)
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
	if x402.IsNull(raw) {
		return res, nil
	}
	res.Raw = raw
	if json.Unmarshal(raw, &res.URL) == nil {
		return res, nil
	}
	var members x402.Object
	if json.Unmarshal(raw, &members) != nil {
		return res, errors.New("resource is not a JSON object")
	}
	for _, member := range []struct {
		key  string
		into *string
	}{{"url", &res.URL}, {"description", &res.Description}, {"mimeType", &res.MimeType}} {
		text, err := members.Text(member.key)
		if err != nil {
			return res, fmt.Errorf("resource.%w", err)
		}
		*member.into = text
	}
	return res, nil
}

// resourceV1 is what V1 says per option, taken from the first.
func resourceV1(first x402.Requirement) Resource {
	var entry x402.Object
	if json.Unmarshal(first.Raw, &entry) != nil {
		return Resource{}
	}
	res := Resource{URL: first.ResourceURL}
	res.Description, _ = entry.Text("description") // for people only: not worth a refusal
	res.MimeType, _ = entry.Text("mimeType")
	return res
}
