package seller

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"x402-wallet/internal/pattern"
	"x402-wallet/x402"
	"x402-wallet/x402/weburl"
)

// Limits on what an agent may ask for. They are far above what any API needs.
const (
	maxURL          = 8 << 10 // what common servers take as a request line
	maxRequestField = 64
	maxRequestHead  = 32 << 10
	maxRequestBody  = 8 << 20
)

var methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}

// IsMethod reports whether a request over HTTP can be made by it.
func IsMethod(method string) bool { return slices.Contains(methods, method) }

// check is Check over HTTP: URL_BLOCKED or INVALID_ARGUMENT. What a name resolves to is checked
// when it is dialled.
func (h *httpClient) check(r Request) (*url.URL, error) {
	if !IsMethod(methodOf(r)) {
		return nil, invalid("the method %s is not one of %s",
			x402.Quote(r.Method), strings.Join(methods, ", "))
	}
	if len(r.Body) > maxRequestBody {
		return nil, invalid("the body is %d bytes long; at most %d are sent", len(r.Body), maxRequestBody)
	}
	if err := checkHeader(r.Header); err != nil {
		return nil, err
	}
	return h.checkURL(r.URL)
}

func invalid(format string, args ...any) *x402.Error {
	return x402.Errorf(x402.InvalidArgument, format, args...)
}

func blocked(format string, args ...any) *x402.Error {
	return x402.Errorf(x402.URLBlocked, format, args...)
}

// checkURL reads a URL as the wire would and folds it to one spelling.
func (h *httpClient) checkURL(raw string) (*url.URL, error) {
	if raw == "" || len(raw) > maxURL {
		return nil, invalid("the URL must have 1 to %d characters, not %d", maxURL, len(raw))
	}
	if strings.ContainsFunc(raw, func(r rune) bool {
		return r <= ' ' || r == 0x7f || r == '\\' || r == 0xfffd
	}) {
		return nil, blocked("the URL holds blanks, control characters or a backslash")
	}
	at, err := url.Parse(raw)
	switch {
	case err != nil:
		return nil, meant(invalid("the URL cannot be read"), raw)
	case at.Scheme != "https" && at.Scheme != "http":
		return nil, meant(blocked("only https:// URLs are asked"), raw)
	case at.User != nil:
		return nil, blocked("the URL holds a user name or password").
			WithHint("credentials belong into headers")
	case strings.Contains(raw, "#"):
		return nil, blocked("the URL has a fragment, which is never sent").
			WithHint("leave out what follows the #")
	case at.Host == "" || at.Opaque != "":
		return nil, invalid("the URL has no host")
	}
	if err := h.checkHost(at); err != nil {
		return nil, err
	}
	return at, nil
}

var dnsName = pattern.Lazy(
	`^[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*$`)

// numeric finds what the C library, but not we, would read as an IPv4 address: 2130706433,
// 0177.0.0.1, 127.1, 0x7f.1 (WHATWG URL: a host whose last label is a number is an IPv4 address).
var numeric = pattern.Lazy(`(^|\.)(0x[0-9a-f]*|[0-9]+)$`)

func (h *httpClient) checkHost(at *url.URL) error {
	at.Host = strings.ToLower(at.Host)
	host, port := at.Hostname(), at.Port()
	if strings.HasSuffix(at.Host, ":") || (port != "" && !isPort(port)) {
		return blocked("the URL's port is not from 1 to 65535")
	}
	if strings.ContainsFunc(host, func(r rune) bool { return r > 126 }) {
		e := blocked("the host is not written in ASCII, and could look like another")
		if ascii := x402.Brief(weburl.Punycode(host)); ascii != "" {
			return e.WithHint("if it is meant, write it as %s", ascii).WithDetail("host", ascii)
		}
		return e
	}
	listed := h.loopback[hostPort(at)]
	if ip, err := netip.ParseAddr(host); err == nil {
		if ip.Zone() != "" {
			return blocked("the URL's address names a network interface")
		}
		if !listed && !public(ip) {
			return private(at, ip.String())
		}
	} else if problem := nameProblem(host, at.Host); problem != "" {
		return blocked("%s", problem)
	} else if !listed && isLocalName(host) {
		return private(at, host)
	}
	if at.Scheme == "http" && !listed {
		e := blocked("plain http:// could be read and changed on the way")
		if weburl.OfOwnNetwork(host) {
			return e.WithHint("%s", allowed(at))
		}
		return meant(e, at.String())
	}
	return nil
}

// meant adds what a caller probably meant to the refusal of what is no https URL. That a rule could be
// loosened is no advice here: nothing has to be.
func meant(e *x402.Error, raw string) *x402.Error {
	if meant := weburl.Meant(raw); meant != "" && meant != raw {
		return e.WithHint("did you mean: %s", meant)
	}
	return e.WithHint("write the whole URL, with https://")
}

// isPort reports whether a text is a port as it is usually written.
func isPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && n > 0 && strconv.FormatUint(n, 10) == text
}

func nameProblem(host, hostport string) string {
	switch {
	case strings.HasSuffix(host, "."):
		return "the host ends with a dot"
	case strings.HasPrefix(hostport, "["):
		return "the URL's address is not one"
	case numeric().MatchString(host):
		return "the host is a number that is not an IPv4 address like 192.0.2.1"
	case len(host) > 253 || !dnsName().MatchString(host):
		return "the host is not a name"
	}
	return ""
}

// isLocalName finds the names that mean this machine, its network or a cloud's metadata service by
// definition (RFC 6761, RFC 6762, and the top-level domain that ICANN reserved for private use).
func isLocalName(host string) bool {
	for _, domain := range []string{"localhost", "local", "internal", "home.arpa"} {
		if host == domain || strings.HasSuffix(host, "."+domain) {
			return true
		}
	}
	return false
}

func private(at *url.URL, what string) *x402.Error {
	e := blocked("%s is not an address of the public Internet", x402.Brief(what))
	if weburl.OfOwnNetwork(at.Hostname()) {
		e.WithCommand(x402.Command("policy", "seal"), fmt.Sprintf("%s is no address of the public "+
			"Internet: if it is a server of yours, please add %q to policy.loopback in config.toml, and "+
			"seal that.",
			x402.Brief(what), hostPort(at)))
	}
	return e.WithHint("%s", allowed(at))
}

// allowed is what the owner can do so that a URL is asked.
func allowed(at *url.URL) string {
	if weburl.OfOwnNetwork(at.Hostname()) {
		return fmt.Sprintf("the owner can allow exactly %q under policy.loopback in config.toml",
			hostPort(at))
	}
	return "the owner can allow addresses of this machine and of private networks, written as such, under " +
		"policy.loopback in config.toml, and no others"
}

// hostPort is the form of policy.loopback's entries: the port is always there.
func hostPort(at *url.URL) string {
	port := at.Port()
	if port == "" {
		port = map[string]string{"https": "443", "http": "80"}[at.Scheme]
	}
	return net.JoinHostPort(strings.ToLower(at.Hostname()), port)
}

// origin is what a payment is bound to: scheme, host and port.
func origin(at *url.URL) string { return strings.ToLower(at.Scheme) + "://" + hostPort(at) }

// ours are the headers that an agent must not set: they frame the message, or belong to the payment.
var reservedHeaders = []string{"Host", "Content-Length", "Transfer-Encoding", "Connection", "Keep-Alive",
	"Te",
	"Trailer", "Upgrade",
	"Expect", "Http2-Settings", "Sign-In-With-X", "Settlement-Overrides", "Extension-Responses"}

var reservedPrefixes = []string{"Proxy-", "Payment-", "X-Payment"}

func checkHeader(header http.Header) error {
	fields, size := 0, 0
	for name, values := range header {
		canonical := http.CanonicalHeaderKey(name)
		isOurs := slices.Contains(reservedHeaders, canonical) ||
			slices.ContainsFunc(reservedPrefixes, func(p string) bool {
				return strings.HasPrefix(canonical, p)
			})
		if isOurs {
			return invalid("the header %s is set by the wallet, not by its caller", x402.Quote(name))
		}
		for _, value := range values {
			fields, size = fields+1, size+len(name)+len(value)
			if !validField(name, value) {
				return invalid("the header %s is not one line of text", x402.Quote(name))
			}
			if canonical == "User-Agent" && strings.Contains(value, "Mozilla") {
				return invalid("a User-Agent with Mozilla in it is answered with a paywall page for people")
			}
		}
	}
	if fields > maxRequestField || size > maxRequestHead {
		return invalid("%d headers of %d bytes; at most %d of %d bytes are sent", fields, size,
			maxRequestField, maxRequestHead)
	}
	return nil
}

var token = pattern.Lazy("^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}$")

func validField(name, value string) bool {
	isControl := func(r rune) bool { return (r < ' ' && r != '\t') || r == 0x7f }
	return token().MatchString(name) && !strings.ContainsFunc(value, isControl)
}

// canonical copies headers. Two spellings of one name become one, all values kept.
func canonical(header http.Header) http.Header {
	copied := make(http.Header, len(header)+4)
	for name, values := range header {
		for _, value := range values {
			copied.Add(name, value)
		}
	}
	return copied
}
