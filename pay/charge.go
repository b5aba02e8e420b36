package pay

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net"
	"net/url"
	"strings"
	"time"

	"x402-wallet/seller"
	"x402-wallet/x402"
)

// What a challenge of MPP has to be beside what every option has to be.

// leastCharge is how long a challenge has to be good for still: asking the chain, signing and the way to the
// seller take their time.
const leastCharge = 5 * time.Second

// whyNotCharge says why a challenge of MPP cannot be answered for a request; nil: it can. host is whose
// answer it came in.
func whyNotCharge(c *x402.Charge, q intent, host string, now time.Time) error {
	if !c.Expires.IsZero() && c.Expires.Before(now.Add(leastCharge)) {
		return x402.Errorf(x402.InvalidRequirement, "the seller's challenge (MPP) ended at %s",
			c.Expires.UTC().Format(time.RFC3339)).
			WithHint("make the same call again: the seller makes a new one for each question")
	}
	if !speaksFor(c.Realm, host) {
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
func whyNotDigest(digest string, q intent) error {
	if digest == "" {
		return nil
	}
	text, isKnown := strings.CutPrefix(digest, "sha-256=")
	said, err := base64.StdEncoding.DecodeString(strings.Trim(text, ":"))
	sum := sha256.Sum256(q.Body)
	if !isKnown || err != nil || seller.IsMCP(q.Method) || subtle.ConstantTimeCompare(said, sum[:]) != 1 {
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

// hostOf is the host, with its port, of where an answer came from; "" where that is no URL.
func hostOf(address string) string {
	at, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return at.Host
}
