package wire

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"x402-wallet/x402"
)

// The headers a buyer answers in.
const (
	headerPayment   = "PAYMENT-SIGNATURE"
	headerPaymentV1 = "X-PAYMENT"
	headerProof     = "X-PAYMENT-SIGNATURE"
)

// PaymentHeaders are the headers a server looks for a payment in, version 2's first.
func PaymentHeaders() []string { return []string{headerPayment, headerPaymentV1} }

// maxEcho is the longest payment header (MCP has none) that extensions are echoed in: nginx takes 8
// KiB of headers and a server refuses the whole request above it, while an echo left out costs
// nothing.
const maxEcho = 6 << 10

// Attachment is what pays a seller: a header of the HTTP request, or members of the MCP request's
// params._meta.
type Attachment struct {
	Header, Value string
	Meta          map[string]json.RawMessage
}

// Attach puts a payment where a seller that asked in dialect d looks for it:
//
//	asked in                                    paid in
//	PAYMENT-REQUIRED, body version 2,           header PAYMENT-SIGNATURE, base64
//	X-PAYMENT-REQUIRED version 2
//	body or X-PAYMENT-REQUIRED version 1        header X-PAYMENT, base64
//	mcp, mcp-error, mcp-extension               _meta["x402/payment"], an object
//	mcp-v1                                      that, and _meta["x402.payment"], base64: two kinds
//	                                            of server ask the same way
//	mcp-cloudflare                              _meta["x402/payment"], base64; it refuses an object
//	mpp                                         header Authorization: Payment, base64url, or the header
//	                                            that the challenge names
//	mcp-mpp                                     _meta["org.paymentauth/credential"], an object
func Attach(d x402.Dialect, payload json.RawMessage) Attachment {
	encoded := base64.StdEncoding.EncodeToString(payload)
	switch d {
	case dialectMPP, dialectMCPMPP:
		return attachCredential(d, payload)
	case dialectMCP, dialectMCPError, dialectMCPExtension:
		return Attachment{Meta: map[string]json.RawMessage{metaPayment: payload}}
	case dialectMCPV1:
		return Attachment{Meta: map[string]json.RawMessage{metaPayment: payload,
			metaPaymentMCPV1: jsonString(encoded)}}
	case dialectMCPCloudflare:
		return Attachment{Meta: map[string]json.RawMessage{metaPayment: jsonString(encoded)}}
	case x402.DialectV1Body, x402.DialectXV1:
		return Attachment{Header: headerPaymentV1, Value: encoded}
	default:
		return Attachment{Header: headerPayment, Value: encoded}
	}
}

// AttachProof shows a seller of the X-PAYMENT-REQUIRED dialects a payment the wallet has settled itself.
func AttachProof(transaction string) Attachment {
	return Attachment{Header: headerProof, Value: transaction}
}

// EncodePayload wraps a scheme's signed payload into the PaymentPayload of the challenge's version,
// for the option r. ext is what we add to the extensions the seller declared, by their keys:
// {"info":{…}}. What the seller said there stays and ours is added, because it compares
// (extension_echo_mismatch).
//
// The seller's own bytes are kept to the letter, its option above all: V2 servers compare
// `accepted` with what they asked, letter case included. So put the result on the wire as it is:
// json.Marshal would rewrite it, though to the same meaning.
func EncodePayload(c *Challenge, r x402.Requirement, payload json.RawMessage,
	ext map[string]json.RawMessage) (
	json.RawMessage, error) {
	if !json.Valid(payload) || x402.IsNull(payload) {
		return nil, errors.New("encode payment: the scheme's payload is not JSON")
	}
	if r.Charge != nil {
		return encodeCredential(r, payload)
	}
	if r.Version == 1 {
		return members{
			{key: "x402Version", value: json.RawMessage("1")},
			{key: "scheme", value: jsonString(r.Scheme)},
			{key: "network", value: jsonString(r.NetworkName)},
			{key: "payload", value: payload},
		}.object(), nil
	}
	var encoded json.RawMessage
	for _, echo := range []echo{echoAll, echoInfo, echoOffer, echoOurs} {
		declared, ours := c.Extensions, ext
		if echo == echoOffer {
			declared, ours = c.withOffer(r, ext)
		}
		encoded = encodeV2(c, r, payload, extensions(declared, ours, min(echo, echoOurs)))
		if c.Dialect.MCP() || base64.StdEncoding.EncodedLen(len(encoded)) <= maxEcho {
			break
		}
	}
	return encoded, nil
}

func encodeV2(c *Challenge, r x402.Requirement, payload, extensions json.RawMessage) json.RawMessage {
	all := members{{key: "x402Version", value: json.RawMessage("2")}, {key: "payload", value: payload}}
	if extensions != nil {
		all = append(all, member{key: "extensions", value: extensions})
	}
	if isObject(c.Resource.Raw) {
		all = append(all, member{key: "resource", value: echoedResource(c.Resource.Raw)})
	}
	return append(all, member{key: "accepted", value: RequirementJSON(r)}).object()
}

// maxDescription is the longest resource.description, in code points, that CDP takes in a payment
// (x402-foundation/x402#2993).
const maxDescription = 500

// echoedResource is the seller's own bytes, unless its description has to be cut.
func echoedResource(raw json.RawMessage) json.RawMessage {
	var resource x402.Object
	err := json.Unmarshal(raw, &resource)
	description, _ := x402.Text(resource["description"])
	if err != nil || utf8.RuneCountInString(description) <= maxDescription {
		return raw
	}
	resource["description"] = jsonString(string([]rune(description)[:maxDescription]))
	return sorted(resource).object()
}

// RequirementJSON is r as a facilitator gets it (paymentRequirements) and as `accepted` says it:
// the seller's own bytes. Where the wallet settles, sellers leave out what a facilitator
// needs; then it is a complete V2 entry made from r, with r.Extra as it is now (its feePayer comes
// from the facilitator's /supported).
func RequirementJSON(r x402.Requirement) json.RawMessage {
	if r.Raw != nil && (!r.Dialect.WalletSettles() || isComplete(r)) {
		return r.Raw
	}
	entry := members{
		{key: "scheme", value: jsonString(r.Scheme)},
		{key: "network", value: jsonString(r.Network)},
		{key: "amount", value: jsonString(r.Amount.String())},
		{key: "asset", value: jsonString(r.Asset)},
		{key: "payTo", value: jsonString(r.PayTo)},
		{key: "maxTimeoutSeconds", value: strconv.AppendInt(nil, int64(r.MaxTimeout/time.Second), 10)},
	}
	if len(r.Extra) > 0 {
		entry = append(entry, member{key: "extra", value: sorted(r.Extra).object()})
	}
	return entry.object()
}

// isComplete reports whether the seller's own entry is all a facilitator needs, and has nothing
// added to it since.
func isComplete(r x402.Requirement) bool {
	var entry x402.Object
	if json.Unmarshal(r.Raw, &entry) != nil {
		return false
	}
	extra, err := entry.Object("extra")
	return err == nil && entry.Has("maxTimeoutSeconds") && r.NetworkName == r.Network &&
		maps.EqualFunc(extra, r.Extra, func(a, b json.RawMessage) bool { return bytes.Equal(a, b) })
}

// echo is how much of the declared extensions is echoed. Servers compare only info, but CDP's
// index of services reads the schema too, so it goes only when it does not fit.
type echo int

const (
	echoAll   echo = iota
	echoInfo       // info alone, without schema; but of what pays for an approval
	echoOurs       // only the extensions that we add to
	echoOffer      // those, and the seller's signed offer for the option that is paid: it is evidence
)

// withOffer are the extensions of echoOffer, in which the offer counts as ours.
func (c *Challenge) withOffer(r x402.Requirement, ours map[string]json.RawMessage) (declared,
	all map[string]json.RawMessage) {
	declared, all = maps.Clone(c.Extensions), maps.Clone(ours)
	delete(declared, ExtensionOffers)
	if offer := c.kept(r); offer != nil {
		if all == nil {
			all = map[string]json.RawMessage{}
		}
		all[ExtensionOffers] = offer
	}
	return declared, all
}

// extensions is the payload's extensions; nil when there is nothing to say.
func extensions(declared, ours map[string]json.RawMessage, how echo) json.RawMessage {
	echoed := map[string]json.RawMessage{}
	for key, theirs := range declared {
		add, adds := ours[key]
		if x402.IsNull(theirs) || (how == echoOurs && !adds) {
			continue
		}
		var extension x402.Object
		isWhole := how == echoAll || (adds && isSponsoring(key))
		unchanged := isWhole && !adds
		if unchanged || json.Unmarshal(theirs, &extension) != nil {
			echoed[key] = theirs
			continue
		}
		if !isWhole {
			extension = x402.Object{"info": extension["info"]}
		}
		extension = mergeExtension(extension, add)
		if extension.Has("info") {
			echoed[key] = sorted(extension).object()
		}
	}
	for key, add := range ours {
		if x402.IsNull(declared[key]) {
			echoed[key] = add
		}
	}
	if len(echoed) == 0 {
		return nil
	}
	return sorted(echoed).object()
}

// isSponsoring reports whether an extension of ours has to carry all that the seller declared of it: the
// reference server 2.27 compares that (extension_echo_mismatch).
func isSponsoring(key string) bool {
	return key == x402.EIP2612Sponsoring || key == x402.ERC20Sponsoring
}

// mergeExtension adds our members to an extension of the seller's, and our members of info to its
// info. Theirs win.
func mergeExtension(theirs x402.Object, add json.RawMessage) x402.Object {
	var ours, info, ourInfo x402.Object
	if json.Unmarshal(add, &ours) != nil || ours == nil {
		return theirs
	}
	merged := maps.Clone(ours)
	maps.Copy(merged, theirs)
	infoIsOpen := !theirs.Has("info") || json.Unmarshal(theirs["info"], &info) == nil
	if infoIsOpen && ours.Has("info") && json.Unmarshal(ours["info"], &ourInfo) == nil {
		maps.Copy(ourInfo, info)
		merged["info"] = sorted(ourInfo).object()
	}
	return merged
}

// member and members write JSON objects around bytes that must not change: encoding/json compacts
// and escapes what it is given raw.
type member struct {
	key   string
	value json.RawMessage
}

type members []member

func sorted(object map[string]json.RawMessage) (all members) {
	for _, key := range slices.Sorted(maps.Keys(object)) {
		all = append(all, member{key: key, value: object[key]})
	}
	return all
}

func (all members) object() json.RawMessage {
	var out bytes.Buffer
	out.WriteByte('{')
	for i, m := range all {
		if i > 0 {
			out.WriteByte(',')
		}
		out.Write(jsonString(m.key))
		out.WriteByte(':')
		out.Write(m.value)
	}
	out.WriteByte('}')
	return out.Bytes()
}

func jsonString(s string) json.RawMessage {
	text, _ := json.Marshal(s) // of a string: cannot fail
	return text
}

func isObject(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] == '{' }
