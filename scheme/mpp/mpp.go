// Package mpp is the way to pay the challenges of the Machine Payments Protocol (draft-evm-charge,
// draft-solana-charge). What is signed is what the scheme exact signs, and read by package exact/check.
//
// What must stay true: a challenge is answered only for the request, and the host, that it was made for.
package mpp

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net"
	"strings"
	"time"

	"x402-wallet/scheme"
	"x402-wallet/x402"
)

// Way is a scheme.Way.
type Way struct{ scheme.Plain }

func (Way) Name() string { return x402.MPP }

// SellerSettles implements scheme.Way: the challenge is the seller's.
func (Way) SellerSettles() bool { return true }

// leastCharge is how long a challenge has to be good for still: asking the chain, signing and the way to the
// seller take their time.
const leastCharge = 5 * time.Second

func (Way) WhyNot(q scheme.Call, o scheme.Option) error {
	c := o.Charge
	if c == nil {
		return nil
	}
	if !c.Expires.IsZero() && c.Expires.Before(q.Now.Add(leastCharge)) {
		return x402.Errorf(x402.InvalidRequirement, "the seller's challenge (MPP) ended at %s",
			c.Expires.UTC().Format(time.RFC3339)).
			WithHint("make the same call again: the seller makes a new one for each question")
	}
	if !speaksFor(c.Realm, q.Host) {
		return x402.Errorf(x402.InvalidRequirement, "the seller's challenge (MPP) is for the realm %s, "+
			"which is not the host that was asked", x402.Quote(c.Realm))
	}
	if own := q.Header.Get(c.Header); c.Header != "" && own != "" {
		return x402.Errorf(x402.InvalidRequirement, "the seller (MPP) wants to be paid in the header %s, in "+
			"which the call sends something of its own", x402.Quote(c.Header)).
			WithHint("the call can be made without that header")
	}
	return whyNotDigest(c.Digest, q)
}

// whyNotDigest compares the digest of a body (RFC 9530, or without its colons as mppx writes it) with the
// body that would be paid for.
func whyNotDigest(digest string, q scheme.Call) error {
	if digest == "" {
		return nil
	}
	text, isKnown := strings.CutPrefix(digest, "sha-256=")
	said, err := base64.StdEncoding.DecodeString(strings.Trim(text, ":"))
	sum := sha256.Sum256(q.Body)
	if !isKnown || err != nil || q.IsMCP || subtle.ConstantTimeCompare(said, sum[:]) != 1 {
		return x402.Errorf(x402.InvalidRequirement,
			"the seller's challenge (MPP) is for a request with another body than this one")
	}
	return nil
}

// speaksFor reports whether a host may ask in the name of a realm: of itself, of a domain it belongs to, or
// of a word that is no host's name. A server that this machine started has no host.
func speaksFor(realm, host string) bool {
	if bare, _, err := net.SplitHostPort(host); err == nil && !strings.Contains(realm, ":") {
		host = bare
	}
	realm, host = strings.ToLower(realm), strings.ToLower(host)
	isWord := !strings.ContainsAny(realm, ".:")
	isWord = isWord || strings.Contains(realm, " ")
	return isWord || host == "" || realm == host || strings.HasSuffix(host, "."+realm)
}
