// Package weburl reads addresses as people type them.
package weburl

import (
	"net/netip"
	"net/url"
	"strings"

	"x402-wallet/internal/pattern"
	"x402-wallet/x402"
)

// OfOwnNetwork reports whether a host is an address of this machine or of a private network, written as
// such: what policy.loopback takes.
func OfOwnNetwork(host string) bool {
	ip, err := netip.ParseAddr(host)
	isOurs := err == nil && !ip.Is4In6() && (ip.IsLoopback() || ip.IsPrivate())
	return isOurs || strings.EqualFold(host, "localhost")
}

// Is reports whether a text is written as what can be paid: with https://, or with http:// and an
// address, which policy.loopback may take. Whether it may be asked is another question.
func Is(raw string) bool {
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok || !strings.EqualFold(scheme, "http") {
		return ok && strings.EqualFold(scheme, "https")
	}
	at, err := url.Parse("http://" + rest)
	if err != nil {
		return false
	}
	_, notIP := netip.ParseAddr(at.Hostname())
	return notIP == nil || OfOwnNetwork(at.Hostname())
}

var (
	schemed  = pattern.Lazy(`^([A-Za-z][A-Za-z0-9+.-]*:|https?//)?(/*)(.*)$`)
	hostPort = pattern.Lazy(`^[A-Za-z0-9.-]+:[0-9]`)
	hostLike = pattern.Lazy(`^([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?|[0-9a-f:]+)$`)
)

// Meant is what was probably meant by a text that is no web URL; "" where that cannot be told, or
// where it could repeat a password.
func Meant(raw string) string {
	raw = strings.TrimSpace(raw)
	if Is(raw) {
		return raw
	}
	slashes, rest := "//", raw
	if !hostPort().MatchString(raw) { // example.com:8443/x has no scheme
		m := schemed().FindStringSubmatch(raw)
		if m == nil || (m[1] == "" && m[2] == "/") { // a path alone
			return ""
		}
		slashes, rest = m[2], m[3]
		if m[1] == "" || strings.HasSuffix(m[1], "//") {
			slashes = "//"
		}
	}
	at, err := url.Parse("https://" + rest)
	if err != nil || at.User != nil || !hostLike().MatchString(at.Hostname()) {
		return ""
	}
	isOurs := OfOwnNetwork(at.Hostname())
	if isOurs {
		at.Scheme = "http"
	}
	// unix:/run/x and file:///etc name no host
	namesHost := slashes == "//" || isOurs || strings.Contains(at.Hostname(), ".")
	if meant := at.String(); namesHost && meant == x402.Brief(meant) {
		return meant
	}
	return ""
}
