package seller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
)

// resolver finds the addresses of a name. *net.Resolver is one.
type resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// special are the IPv4 networks that are not somebody's host on the Internet: the IANA
// special-purpose registry, multicast, and Azure's metadata address, which lies in public space.
// The other clouds' lie in link-local space, Alibaba's in the carriers'.
var special = prefixes(
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
	"192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16",
	"192.175.48.0/24",
	"198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4", "168.63.129.16/32",
	// IPv6 inside of global unicast: protocol assignments with Teredo and ORCHID, documentation,
	// 6to4, AS112.
	"2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20",
)

// globalUnicast is the only part of IPv6 that IANA gives to hosts. All else is refused with it:
// loopback, unspecified, link-local, unique-local, multicast, IPv4-compatible, NAT64 (64:ff9b::/96
// leads to any IPv4 address, private ones too).
var globalUnicast = netip.MustParsePrefix("2000::/3")

func prefixes(texts ...string) (all []netip.Prefix) {
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

// public reports whether an address is one of the public Internet.
func public(ip netip.Addr) bool {
	ip = ip.Unmap() // ::ffff:127.0.0.1 is 127.0.0.1
	isOtherIPv6 := ip.Is6() && !globalUnicast.Contains(ip)
	if !ip.IsValid() || ip.Zone() != "" || isOtherIPv6 {
		return false
	}
	return !slices.ContainsFunc(special, func(p netip.Prefix) bool { return p.Contains(ip) })
}

// blockedError is a dial that was refused because of where it would have gone.
type blockedError struct{ host string }

func (e *blockedError) Error() string {
	return fmt.Sprintf("%s leads to an address that is not of the public Internet", e.host)
}

// dialContext resolves once, and connects to one of exactly those addresses, each of which was checked. An
// entry of the loopback list counts for the host as the URL writes it, never for another name that leads to
// the same place.
func (h *httpClient) dialContext(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if h.proxy != nil && address == h.proxy.address { // the owner's choice, wherever it is
		dialer := net.Dialer{Timeout: connectTime, KeepAliveConfig: net.KeepAliveConfig{Enable: true}}
		return dialer.DialContext(ctx, network, address)
	}
	listed := h.loopback[address]
	candidates, err := h.resolve(ctx, host, listed)
	if err != nil {
		return nil, err
	}
	return dialAny(candidates, port, func(at string) (net.Conn, error) {
		return h.dialOne(ctx, network, at, listed)
	})
}

// dialAny connects to the first of the addresses that answers.
func dialAny(candidates []netip.Addr, port string, dial func(at string) (net.Conn, error)) (net.Conn, error) {
	var failures []error
	for _, ip := range candidates {
		conn, err := dial(net.JoinHostPort(ip.String(), port))
		if err == nil {
			return conn, nil
		}
		failures = append(failures, err)
	}
	return nil, errors.Join(failures...)
}

// inOrder is what of addresses is dialled, and in which order. IPv4 first: a host without it is rare, a
// machine with broken IPv6 is not, and each try may take seconds.
func inOrder(found []netip.Addr) []netip.Addr {
	found = slices.Clone(found)
	for i := range found {
		found[i] = found[i].Unmap()
	}
	slices.SortStableFunc(found, func(a, b netip.Addr) int { return cmp.Compare(a.BitLen(), b.BitLen()) })
	return found[:min(len(found), 4)]
}

// resolve finds the addresses that may be dialled; it is an error when there is none.
func (h *httpClient) resolve(ctx context.Context, host string, listed bool) ([]netip.Addr, error) {
	if listed && host == "localhost" { // by definition, whatever a resolver says (RFC 6761)
		return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}, nil
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		if !listed && !public(ip) {
			return nil, &blockedError{host: host}
		}
		return []netip.Addr{ip}, nil
	}
	found, err := h.resolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	allowed := slices.DeleteFunc(slices.Clone(found), func(ip netip.Addr) bool { return !public(ip) })
	if len(allowed) == 0 {
		return nil, &blockedError{host: host}
	}
	return inOrder(allowed), nil
}

func (h *httpClient) dialOne(ctx context.Context, network, address string, listed bool) (net.Conn, error) {
	if h.options.dial != nil {
		return h.options.dial(ctx, network, address)
	}
	// Control sees the address that the socket really connects to. It repeats the check of resolve,
	// so that no mistake above it can get past it.
	dialer := net.Dialer{Timeout: connectTime, KeepAliveConfig: net.KeepAliveConfig{Enable: true},
		Control: func(_, dialled string, _ syscall.RawConn) error {
			at, err := netip.ParseAddrPort(dialled)
			if err != nil || (!listed && !public(at.Addr())) {
				return &blockedError{host: dialled}
			}
			return nil
		}}
	return dialer.DialContext(ctx, network, address)
}
