package seller

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"time"
)

// lookupTime is how long a name is looked up here when a proxy is used. A machine that must use one may have
// no name server that answers.
const lookupTime = 2 * time.Second

// proxy is the owner's (network.proxy); the environment's are ignored. A host is sent to it by name, because
// many proxies decide by names, and TLS goes through it to whoever has the certificate of that name.
type proxy struct {
	url     *url.URL
	address string // host:port to dial
}

// newProxy reads an address that the rules have checked; "" is none.
func newProxy(text string) (*proxy, error) {
	if text == "" {
		return nil, nil
	}
	at, err := url.Parse(text)
	if err != nil {
		return nil, err
	}
	port := at.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443", "socks5": "1080", "socks5h": "1080"}[at.Scheme]
	}
	return &proxy{url: at, address: net.JoinHostPort(at.Hostname(), port)}, nil
}

// through says of a request to a seller that it goes through the proxy: not to what policy.loopback lists. A
// host that leads to a private address here is refused as without a proxy, even if it has other addresses:
// the proxy chooses among them. What cannot be resolved here the proxy resolves; a private host that it then
// leads to sees the beginning of a TLS handshake, and no request unless it has that name's certificate.
func (h *httpClient) through(r *http.Request) (*url.URL, error) {
	if h.loopback[hostPort(r.URL)] {
		return nil, nil
	}
	host := r.URL.Hostname()
	found := []netip.Addr{}
	if ip, err := netip.ParseAddr(host); err == nil {
		found = append(found, ip)
	} else {
		ctx, cancel := context.WithTimeout(r.Context(), lookupTime)
		defer cancel()
		found, _ = h.resolver.LookupNetIP(ctx, "ip", host)
	}
	for _, ip := range found {
		if !public(ip) {
			return nil, &blockedError{host: host}
		}
	}
	return h.proxy.url, r.Context().Err()
}

// Through is for http.Transport.Proxy: requests to an address that the owner chose go through the owner's
// proxy, except those to this machine and to the host:port pairs of allow. It is nil where there is no proxy.
func Through(allow []string, address string) func(*http.Request) (*url.URL, error) {
	p, err := newProxy(address)
	if p == nil && err == nil {
		return nil
	}
	direct := setOf(allow)
	return func(r *http.Request) (*url.URL, error) {
		if err != nil { // the rules were not checked
			return nil, err
		}
		if isThisMachine(r.URL.Hostname()) || direct[hostPort(r.URL)] {
			return nil, nil
		}
		return p.url, nil
	}
}

func setOf(list []string) map[string]bool {
	set := map[string]bool{}
	for _, entry := range list {
		set[entry] = true
	}
	return set
}
