package seller

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"syscall"
	"time"

	"x402-wallet/x402"
)

const (
	// maxNodeBody bounds what a node or facilitator may answer: a page of token accounts is some
	// 100 KiB.
	maxNodeBody = 8 << 20
	// nodeConnect is how long connecting to a node or facilitator may take.
	nodeConnect = 5 * time.Second
	// maxIdleNode is how many connections to a node are kept: calls that come together ask it together.
	maxIdleNode = 64
)

// NodeClient is the client for addresses the owner chose: RPC nodes and facilitators. https goes
// anywhere, the owner's own network too; http goes to this machine, and to the exact host:port of
// allow; what is elsewhere is reached through proxy, if there is one. No redirects, no proxy from the
// environment, no cookies; bodies end at 8 MiB. Connections and TLS sessions are kept. The time for an
// exchange is its context's.
func NodeClient(allow []string, proxy string) *http.Client {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	n := &node{allow: setOf(allow), resolver: net.DefaultResolver}
	n.transport = &http.Transport{
		DialContext: n.dial,
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12,
			ClientSessionCache: tls.NewLRUClientSessionCache(maxTLSSessions)},
		TLSHandshakeTimeout: nodeConnect,
		Protocols:           protocols,
		MaxIdleConnsPerHost: maxIdleNode,
		// before the server's own, or a request meets a dying connection
		IdleConnTimeout:        30 * time.Second,
		MaxResponseHeaderBytes: maxHeaders,
	}
	n.transport.Proxy = Through(allow, proxy)
	return &http.Client{Transport: n, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
}

// node adds to a transport what it lacks: which schemes go where, and an end to bodies.
type node struct {
	transport *http.Transport
	allow     map[string]bool
	resolver  resolver
}

func (n *node) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := n.check(r.URL); err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, err
	}
	response, err := n.transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	// it fails, rather than ends, at the limit: a cut-off answer must not look like a whole one
	response.Body = http.MaxBytesReader(nil, response.Body, maxNodeBody)
	return response, nil
}

// CloseIdleConnections lets http.Client.CloseIdleConnections through.
func (n *node) CloseIdleConnections() { n.transport.CloseIdleConnections() }

func (n *node) check(at *url.URL) error {
	isAllowed := isThisMachine(at.Hostname()) || n.allow[hostPort(at)]
	if at.Scheme == "https" || (at.Scheme == "http" && isAllowed) {
		return nil
	}
	// no path: it may hold a key
	return fmt.Errorf("%s is neither https:// nor on this machine", x402.Quote(at.Scheme+"://"+at.Host))
}

func isThisMachine(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || (err == nil && ip.Unmap().IsLoopback())
}

// dial connects; localhost is this machine, whatever a resolver says.
func (n *node) dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: nodeConnect}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return dialer.DialContext(ctx, network, address)
	}
	if host == "localhost" {
		dialer.Control = func(_, dialled string, _ syscall.RawConn) error {
			if at, err := netip.ParseAddrPort(dialled); err != nil || !at.Addr().Unmap().IsLoopback() {
				return &blockedError{host: dialled}
			}
			return nil
		}
		return dialer.DialContext(ctx, network, address)
	}
	found, err := n.resolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	return dialAny(inOrder(found), port, func(at string) (net.Conn, error) {
		return dialer.DialContext(ctx, network, at)
	})
}
