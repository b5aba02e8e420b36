package config

import (
	"maps"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"x402-wallet/internal/pattern"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

func (c *Checker) dollars(key string, written *string, preset string) money.Dollars {
	if written == nil {
		written = &preset
	}
	d, err := money.ParseDollars(*written)
	c.Refuse(err != nil, key, "%v", err)
	return d
}

func (c *Checker) cap(key string, written *string) *money.Dollars {
	if written == nil {
		return nil
	}
	return new(c.dollars(key, written, ""))
}

// Whole checks a whole number; a preset outside the range means that the key is required.
func (c *Checker) Whole(key string, written *int, preset, least, most int) int {
	n := preset
	switch {
	case written == nil && preset < least:
		c.Fail(key, "is missing: a number from %d to %d", least, most)
	case written != nil:
		n = *written
		c.Refuse(n < least || n > most, key, "is %d; it must be from %d to %d", n, least, most)
	}
	return min(max(n, least), most)
}

func (c *Checker) Duration(key string, written *string, preset, least, most time.Duration) time.Duration {
	if written == nil {
		return preset
	}
	d, err := time.ParseDuration(*written)
	c.Refuse(err != nil || d < least || d > most, key,
		`is %q; it must be a time from "%s" to "%s"`, *written, short(least), short(most))
	return d
}

// Size is a number of bytes, written like "512MiB".
type Size int64

var units = []struct {
	name  string
	bytes Size
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

// String is the size as the file has it: in the largest unit of which it is a whole number.
func (s Size) String() string {
	for _, u := range units {
		if s > 0 && s%u.bytes == 0 {
			return strconv.FormatInt(int64(s/u.bytes), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10) + "B"
}

// What of content may be stored: two of the largest bodies at least, or there would be no room for the
// next beside the last.
const leastQuota, mostQuota Size = 64 << 20, 1 << 40

var sizeForm = pattern.Lazy(`^([1-9][0-9]{0,6})(KiB|MiB|GiB|TiB)$`)

func (c *Checker) size(key string, written *string, preset, least, most Size) Size {
	if written == nil {
		return preset
	}
	s := Size(0)
	if parts := sizeForm().FindStringSubmatch(*written); parts != nil {
		n, _ := strconv.ParseInt(parts[1], 10, 64) // seven digits
		for _, u := range units {
			if u.name == parts[2] {
				s = Size(n) * u.bytes
			}
		}
	}
	c.Refuse(s < least || s > most, key, `is %q; it must be a size from "%s" to "%s", like "1GiB"`, *written,
		least, most)
	return s
}

// short is 10m, not 10m0s.
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// OneOf checks a word; the first is the preset.
func (c *Checker) OneOf(key string, written *string, words ...string) string {
	if written == nil {
		return words[0]
	}
	c.Refuse(!slices.Contains(words, *written), key,
		"is %q; it must be %s", *written, strings.Join(quoted(words), " or "))
	return *written
}

func quoted(words []string) (q []string) {
	for _, w := range words {
		q = append(q, strconv.Quote(w))
	}
	return q
}

func (c *Checker) Chain(key, name string) string {
	id, ok := x402.Network(name)
	isKnown := ok && slices.Contains([]string{"eip155", "solana"}, x402.Namespace(id))
	if !isKnown {
		c.Fail(key, `%q is no network we know; it is written like "eip155:8453", %q or "base"`, name,
			SolanaMainnet)
		return name
	}
	return id
}

// OwnerURL checks an address the owner chose for a node or service: https anywhere, http on
// this machine only.
func (c *Checker) OwnerURL(key, raw, example string) *url.URL {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" || u.Hostname() == "" {
		c.Fail(key, "is not a URL like %s", example)
		return nil
	}
	switch {
	case u.Scheme == "https":
	case u.Scheme == "http" && IsLoopback(u.Hostname()):
	case u.Scheme == "http":
		c.Fail(key, "must be https://; plain http:// is for this machine only (127.0.0.1, [::1], localhost)")
	default:
		c.Fail(key, "must begin with https://")
	}
	return u
}

func IsLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	isIP := err == nil && ip.Unmap().IsLoopback()
	return isIP || host == "localhost"
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

var dnsName = pattern.Lazy(`^[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*$`)

// dottedNumber finds what other programs read as an IPv4 address, and no seller is known by: 127.1,
// 010.0.0.1, 0x7f.0.0.1. A number without a dot may be the name of a server that is a command.
var dottedNumber = pattern.Lazy(`\.(0x[0-9a-f]*|[0-9]+)$`)

// host checks the name of one host, "api.example.com" or "api.example.com:8443" (without a port:
// any port), and folds it to the form in which hosts are compared.
func (c *Checker) host(key, written string) (string, bool) {
	host, problem := foldHost(written)
	if problem != "" {
		c.Fail(key, "%q %s", written, problem)
		return strings.ToLower(written), false
	}
	return host, true
}

func (c *Checker) patterns(key string, written []string) []string {
	folded := []string{}
	for _, pattern := range written {
		below, isWild := strings.CutPrefix(pattern, "*.")
		host, ok := c.host(key, below)
		if ok && isWild {
			host = "*." + host
		}
		folded = append(folded, host)
	}
	return folded
}

// foldHost lower-cases a host; problem says what is wrong with it.
func foldHost(written string) (host, problem string) {
	host = strings.ToLower(written)
	if strings.Contains(host, "/") {
		return host, "is a URL; only the host is written here, like api.example.com"
	}
	name, port := splitHost(host)
	if name != host && !isPort(port) {
		return host, "has a port that is not from 1 to 65535"
	}
	if port == "443" || port == "80" { // sellers are known without them, so the entry would cover nobody
		return host, "has the port that goes without saying; write the host alone"
	}
	if inner, isV6 := strings.CutPrefix(name, "["); isV6 {
		inner = strings.TrimSuffix(inner, "]")
		ip, err := netip.ParseAddr(inner)
		isShortest := err == nil && ip.Is6() && !ip.Is4In6() && ip.Zone() == "" && ip.String() == inner
		if !isShortest {
			return host, "is not an IPv6 address in its shortest form, like [2001:db8::1]"
		}
		return host, ""
	}
	for _, r := range name {
		if r > 127 {
			return host, "must be written in its ASCII form, xn--…"
		}
	}
	if len(name) > 253 || !dnsName().MatchString(name) {
		return host, "is not a host like api.example.com"
	}
	if _, err := netip.ParseAddr(name); err != nil && dottedNumber().MatchString(name) {
		// the entry would cover nobody
		return host, "is not an IPv4 address like 192.0.2.1"
	}
	return host, ""
}

// isPort reports whether text is a port's number in its one spelling.
func isPort(text string) bool {
	number, err := strconv.ParseUint(text, 10, 16)
	return err == nil && number > 0 && strconv.FormatUint(number, 10) == text
}

// splitHost parts a host from its port; IPv6 keeps its brackets, as in a URL.
func splitHost(hostport string) (host, port string) {
	if at := strings.LastIndexByte(hostport, ':'); at >= 0 && !strings.HasSuffix(hostport, "]") {
		return hostport[:at], hostport[at+1:]
	}
	return hostport, ""
}

// loopback checks the exact "127.0.0.1:4021" entries. Only addresses are taken, and localhost: any
// other name means what some resolver says today.
func (c *Checker) loopback(written []string) []string {
	entries := []string{}
	for _, entry := range written {
		host, port, err := net.SplitHostPort(strings.ToLower(entry))
		n, portErr := strconv.ParseUint(port, 10, 16)
		if err != nil || portErr != nil || n == 0 {
			c.Fail("policy.loopback", `%q must be an address with its port, like "127.0.0.1:4021"`, entry)
			continue
		}
		ip, err := netip.ParseAddr(host)
		switch {
		case host == "localhost":
		case err != nil || ip.Zone() != "" || ip.Is4In6():
			c.Fail("policy.loopback",
				`%q must be an address like "127.0.0.1:%d" or "[::1]:%d", or "localhost:%d"`, entry, n, n, n)
			continue
		case !ip.IsLoopback() && !ip.IsPrivate():
			c.Fail("policy.loopback", "%q is neither on this machine nor in a private network; only those "+
				"have an entry here", entry)
			continue
		default:
			host = ip.String()
		}
		entries = append(entries, net.JoinHostPort(host, strconv.FormatUint(n, 10)))
	}
	return entries
}

// isSolanaAddress reports whether s is base58 of exactly 32 bytes.
func isSolanaAddress(s string) bool { return x402.DecodeBase58(s, 32) != nil }

// payees checks a list of those who may be paid: "0x…" on every EVM network, "eip155:8453:0x…" or "base:0x…"
// on one; likewise of Solana; or the DID of a Nuwa service. EVM addresses are folded to lower case.
func (c *Checker) payees(key string, written []string) (list []string) {
	for _, entry := range written {
		network, address := "", entry
		at := strings.LastIndex(entry, ":")
		isDID := didForm().MatchString(entry)
		if at >= 0 && !isDID {
			network, address = c.Chain(key, entry[:at]), entry[at+1:]
		}
		isEVM, isSolana := evmAddress().MatchString(address), isSolanaAddress(address)
		wrongChain := (isEVM && x402.IsSolana(network)) || (isSolana && x402.Namespace(network) == "eip155")
		switch {
		case !isEVM && !isSolana && !isDID:
			c.Fail(key, `%q is no address; it is written like "0x…", "base:0x…" or a Solana address`, entry)
		case wrongChain:
			c.Fail(key, "%q is an address of another chain than its network", entry)
		}
		if isEVM {
			address = strings.ToLower(address)
		}
		if network != "" {
			address = network + ":" + address
		}
		list = append(list, address)
	}
	return list
}
