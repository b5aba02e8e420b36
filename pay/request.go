package pay

import (
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
	"net/url"
	"slices"
	"sort"
	"strings"

	"x402-wallet/seller"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// Request is what an agent or a person asks for.
type Request struct {
	seller.Request
	MaxAmount      string // atomic units, or dollars as "$0.05"; "": the owner's limits alone
	Network        string // only this network: CAIP-2 or a V1 name; "": any
	Asset          string // only this asset: address or symbol; "": any
	IdempotencyKey string // the same key is the same purchase, for ever; "": the request itself is
}

// maxKey bounds an idempotency key; longer is no name any more.
const maxKey = 128

// limit is MaxAmount, read.
type limit struct {
	atomic  *money.Amount
	dollars *money.Dollars
}

// allows reports whether a price is within the limit; asked is the price in the limit's own unit.
func (l limit) allows(amount money.Amount, price money.Dollars) (asked, most string, ok bool) {
	switch {
	case l.atomic != nil && amount.Cmp(*l.atomic) > 0:
		return amount.String(), l.atomic.String(), false
	case l.dollars != nil && price > *l.dollars:
		return price.Price(), l.dollars.Price(), false
	}
	return "", "", true
}

// check reads the arguments and spells method and network in their one way; everything wrong with
// them is INVALID_ARGUMENT with what would have been right.
func (q *Request) check() (limit, error) {
	var l limit
	if q.Method == "" {
		q.Method = "GET"
	}
	if !seller.IsMCP(q.Method) {
		q.Method = strings.ToUpper(q.Method)
	}
	if len(q.IdempotencyKey) > maxKey || strings.ContainsFunc(q.IdempotencyKey, func(r rune) bool {
		return r < ' ' || r == 0x7f
	}) {
		return l, x402.Errorf(x402.InvalidArgument, "idempotencyKey must be at most %d printable characters",
			maxKey)
	}
	if q.Network != "" {
		network, ok := x402.Network(q.Network)
		if !ok {
			return l, x402.Errorf(x402.InvalidArgument, "network %q is not known", x402.Brief(q.Network)).
				WithHint(`name it like "eip155:8453", "base" or "solana"`)
		}
		q.Network = network
	}
	if q.MaxAmount == "" {
		return l, nil
	}
	if text, isDollars := strings.CutPrefix(q.MaxAmount, "$"); isDollars {
		d, err := money.ParseDollars(text)
		if err != nil {
			return l, maxAmountError(q.MaxAmount)
		}
		l.dollars = &d
		return l, nil
	}
	a, err := money.ParseAmount(q.MaxAmount)
	if err != nil {
		return l, maxAmountError(q.MaxAmount)
	}
	l.atomic = &a
	return l, nil
}

func maxAmountError(given string) error {
	return x402.Errorf(x402.InvalidArgument, "maxAmount %q is neither atomic units nor dollars",
		x402.Brief(given)).
		WithHint(`write atomic units like "10000", or dollars like "$0.01"`)
}

// fingerprint names the purchase: method, URL in its one spelling, body and the headers the caller
// set. Two calls with the same one are the same request.
func (q Request) fingerprint() [sha256.Size]byte {
	h := sha256.New()
	part := func(b []byte) {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(b))))
		h.Write(b)
	}
	part([]byte(q.Method))
	part([]byte(spelled(q.URL)))
	part(q.Body)
	names := make([]string, 0, len(q.Header))
	for name := range q.Header {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		for _, value := range q.Header[name] {
			part([]byte(strings.ToLower(name) + ":" + value))
		}
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// spelled is a URL in the one spelling of those that ask the same of a seller: scheme and host in
// small letters, without the scheme's own port, the root as a slash. Path and query are the
// seller's own, and stay as they are.
func spelled(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" {
		return rawURL
	}
	if u.Host = host(rawURL); u.Path == "" {
		u.Path = "/"
	}
	return u.String()
}

// secretNames are names under which a URL's query carries what opens something.
var secretNames = []string{"key", "apikey", "accesskey", "token", "accesstoken", "authtoken", "auth",
	"authorization", "secret", "clientsecret",
	"password", "passwd", "pwd", "pass", "passphrase", "signature", "sig", "jwt", "credential", "credentials",
	"session", "sessionid"}

// redacted is a URL as the ledger keeps it: without the secrets of its query (security.md C19).
// What it was is in the fingerprint.
func redacted(rawURL string) string {
	before, query, has := strings.Cut(rawURL, "?")
	if !has {
		return rawURL
	}
	query, fragment, _ := strings.Cut(query, "#")
	parts := strings.Split(query, "&")
	for i, part := range parts {
		name, value, _ := strings.Cut(part, "=")
		plain, err := url.QueryUnescape(name)
		plain = strings.NewReplacer("_", "", "-", "", ".", "").Replace(strings.ToLower(plain))
		if value != "" && (err != nil || slices.Contains(secretNames, plain) ||
			strings.HasSuffix(plain, "apikey") || strings.HasSuffix(plain, "token") ||
			strings.HasSuffix(plain, "secret") || strings.HasSuffix(plain, "signature")) {
			parts[i] = name + "=***"
		}
	}
	out := before + "?" + strings.Join(parts, "&")
	if fragment != "" {
		out += "#" + fragment
	}
	return out
}

// host is the seller's host as rules and history name it: lower case, an address in its one
// spelling, its port unless it is the scheme's own.
func host(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		return ""
	}
	name := strings.ToLower(u.Hostname())
	if ip, err := netip.ParseAddr(name); err == nil {
		name = ip.Unmap().String()
	}
	if strings.Contains(name, ":") {
		name = "[" + name + "]"
	}
	if p := u.Port(); p != "" && !(u.Scheme == "https" && p == "443" || u.Scheme == "http" && p == "80") {
		name += ":" + p
	}
	return name
}
