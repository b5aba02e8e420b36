package config

import (
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

func (c *checker) dollars(key string, written *string, preset string) money.Dollars {
	if written == nil {
		written = &preset
	}
	d, err := money.ParseDollars(*written)
	if err != nil {
		c.fail(key, "%v", err)
	}
	return d
}

func (c *checker) cap(key string, written *string) *money.Dollars {
	if written == nil {
		return nil
	}
	return new(c.dollars(key, written, ""))
}

// whole checks a whole number; a preset outside the range means that the key is required.
func (c *checker) whole(key string, written *int, preset, least, most int) int {
	n := preset
	switch {
	case written == nil && preset < least:
		c.fail(key, "is missing: a number from %d to %d", least, most)
	case written != nil:
		n = *written
		if n < least || n > most {
			c.fail(key, "is %d; it must be from %d to %d", n, least, most)
		}
	}
	return min(max(n, least), most)
}

func (c *checker) duration(key string, written *string, preset, least, most time.Duration) time.Duration {
	if written == nil {
		return preset
	}
	d, err := time.ParseDuration(*written)
	if err != nil || d < least || d > most {
		c.fail(key, `is %q; it must be a time from "%s" to "%s"`, *written, short(least), short(most))
	}
	return d
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

// oneOf checks a word; the first is the preset.
func (c *checker) oneOf(key string, written *string, words ...string) string {
	if written == nil {
		return words[0]
	}
	if !slices.Contains(words, *written) {
		c.fail(key, "is %q; it must be %s", *written, strings.Join(quoted(words), " or "))
	}
	return *written
}

func quoted(words []string) (q []string) {
	for _, w := range words {
		q = append(q, strconv.Quote(w))
	}
	return q
}

func (c *checker) chain(key, name string) string {
	id, ok := x402.Network(name)
	isKnown := ok && slices.Contains([]string{"eip155", "solana"}, x402.Namespace(id))
	if !isKnown {
		c.fail(key, `%q is no network we know; it is written like "eip155:8453", %q or "base"`, name,
			solanaMainnet)
		return name
	}
	return id
}

// ownerURL checks an address the owner chose for a node or service: https anywhere, http on this
// machine only.
func (c *checker) ownerURL(key, raw, example string) *url.URL {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" || u.Hostname() == "" {
		c.fail(key, "is not a URL like %s", example)
		return nil
	}
	switch {
	case u.Scheme == "https":
	case u.Scheme == "http" && isLoopback(u.Hostname()):
	case u.Scheme == "http":
		c.fail(key, "must be https://; plain http:// is for this machine only (127.0.0.1, [::1], localhost)")
	default:
		c.fail(key, "must begin with https://")
	}
	return u
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	isIP := err == nil && ip.Unmap().IsLoopback()
	return isIP || host == "localhost"
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
