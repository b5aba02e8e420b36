package pay

import (
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
	"net/url"
	"slices"
	"sort"
	"strings"

	"x402-wallet/budget"
	"x402-wallet/history"
	"x402-wallet/seller"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/weburl"
)

// Request is what an agent or a person asks for.
type Request struct {
	seller.Request
	MaxAmount      string // atomic units, or dollars as "$0.05"; "": the owner's limits alone
	Network        string // only this network: CAIP-2 or a V1 name; "": any
	Asset          string // only this asset: address or symbol; "": any
	IdempotencyKey string // the same key is the same purchase, for ever; "": the request itself is
	// OfSubscription says that the key is that of a slot of the owner's subscription: no caller may choose
	// such a key.
	OfSubscription bool
}

// Row is the part of a payment's row that names an agent's request. The owner's rules know a subscription by
// the same.
func (q Request) Row(agent string) (history.Payment, error) {
	in, err := q.parse(agent)
	return in.row(), err
}

// maxKey bounds an idempotency key; longer is no name any more.
const maxKey = 128

// limit is MaxAmount, read, and what a batch's ceiling leaves for one of its payments.
type limit struct {
	atomic  *money.Amount
	dollars *money.Dollars
	ceiling *money.Dollars // nil: it is made by itself
}

// allows reports whether a price is within the limit; asked is the price in the limit's own unit.
func (l limit) allows(amount money.Amount, price money.Dollars) (asked, most string, ok bool) {
	switch {
	case l.atomic != nil && amount.Cmp(*l.atomic) > 0:
		return amount.String(), l.atomic.String(), false
	case l.dollars != nil && price > *l.dollars:
		return price.Price(), l.dollars.Price(), false
	case l.ceiling != nil && price > *l.ceiling:
		return price.Price(), l.ceiling.Price(), false
	}
	return "", "", true
}

// units is the limit in an asset's atomic units; nil: there is none.
func (l limit) units(asset x402.AssetInfo) *money.Amount {
	most := l.atomic
	for _, d := range []*money.Dollars{l.dollars, l.ceiling} {
		if d == nil {
			continue
		}
		if a := asset.Units(*d); most == nil || a.Cmp(*most) < 0 {
			most = &a
		}
	}
	return most
}

// intent is a Request, read once. It flows down through all steps of a purchase; nothing behind
// parse reads or derives any of it again.
type intent struct {
	Request                       // with method and network in their one spelling
	agent       string            // whose call it is; "": a caller without a name
	limit       limit             // MaxAmount
	fingerprint [sha256.Size]byte // two calls with the same one are the same request
	host        string            // as the owner's rules and the ledger name it
	shownURL    string            // as the ledger keeps it: without secrets
	many        *many             // that it is one of; nil: it is made by itself
	anyPayee    bool              // of an estimate: an option may not say who is paid
}

// row is the part of a payment's row that names the request.
func (q intent) row() history.Payment {
	return history.Payment{Agent: q.agent, Fingerprint: q.fingerprint, IdempotencyKey: q.IdempotencyKey,
		Method: q.Method, URL: q.shownURL, Host: q.host}
}

// parse reads the arguments of an agent's call; everything wrong with them is INVALID_ARGUMENT with what
// would have been right.
func (q Request) parse(agent string) (intent, error) {
	if q.Method == "" {
		q.Method = "GET"
	}
	if !seller.IsMCP(q.Method) {
		q.Method = strings.ToUpper(q.Method)
		q.URL, q.Cookies = weburl.Fold(q.URL), &seller.Cookies{}
	}
	unprintable := func(r rune) bool { return r < ' ' || r == 0x7f }
	if len(q.IdempotencyKey) > maxKey || strings.ContainsFunc(q.IdempotencyKey, unprintable) {
		return intent{}, x402.Errorf(x402.InvalidArgument,
			"idempotencyKey must be at most %d printable characters", maxKey)
	}
	if budget.IsSubscriptionKey(q.IdempotencyKey) != q.OfSubscription {
		return intent{}, x402.Errorf(x402.InvalidArgument,
			"idempotencyKey begins as those of subscriptions do, which the wallet alone makes").
			WithHint("take another word")
	}
	if q.Network != "" {
		network, ok := x402.Network(q.Network)
		if !ok {
			return intent{}, x402.Errorf(x402.InvalidArgument, "network %s is not known",
				x402.Quote(q.Network)).
				WithHint(`name it like "eip155:8453", "base" or "solana"`)
		}
		q.Network = network
	}
	most, err := parseLimit(q.MaxAmount)
	if err != nil {
		return intent{}, err
	}
	return intent{Request: q, agent: agent, limit: most, fingerprint: q.fingerprint(agent, ""),
		host: HostOf(q.URL), shownURL: WithoutSecrets(q.URL)}, nil
}

func parseLimit(maxAmount string) (limit, error) {
	if maxAmount == "" {
		return limit{}, nil
	}
	if text, isDollars := strings.CutPrefix(maxAmount, "$"); isDollars {
		d, err := money.ParseDollars(text)
		if err != nil {
			return limit{}, maxAmountError(maxAmount)
		}
		return limit{dollars: &d}, nil
	}
	a, err := money.ParseAmount(maxAmount)
	if err != nil {
		return limit{}, maxAmountError(maxAmount)
	}
	return limit{atomic: &a}, nil
}

func maxAmountError(given string) error {
	return x402.Errorf(x402.InvalidArgument, "maxAmount %s is neither atomic units nor dollars",
		x402.Quote(given)).
		WithHint(`write atomic units like "10000", or dollars like "$0.01"`)
}

// fingerprint names the purchase: the agent, method, URL in its one spelling, body and the headers the caller
// set. Two calls with the same one are the same request: what one agent asks for is never another's. account
// keeps what is bought through an account with the seller, a payment channel, apart from the same request
// paid in another way; "": none.
func (q Request) fingerprint(agent, account string) [sha256.Size]byte {
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
	for _, of := range []struct{ what, name string }{{"account", account}, {"agent", agent}} {
		if of.name != "" {
			part([]byte("\x00" + of.what)) // no header is called so
			part([]byte(of.name))
		}
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// spelled is a URL in the one spelling of those that ask the same of a seller: scheme and host in
// small letters, without the scheme's own port, the root as a slash. Path and query are the
// seller's own, and stay as they are.
func spelled(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil || (u.Scheme != "https" && u.Scheme != "http") {
		return rawURL
	}
	u.Host = HostOf(rawURL)
	if u.Path == "" {
		u.Path = "/"
	}
	return u.String()
}

// secretNames are names under which a URL's query carries what opens something.
var secretNames = []string{"key", "apikey", "accesskey", "token", "accesstoken", "authtoken", "auth",
	"authorization", "secret", "clientsecret",
	"password", "passwd", "pwd", "pass", "passphrase", "signature", "sig", "jwt", "credential", "credentials",
	"session", "sessionid"}

var withoutMarks = strings.NewReplacer("_", "", "-", "", ".", "")

// redacted is a URL as the ledger keeps it: without the secrets of its query. What it was is in the
// fingerprint.
func WithoutSecrets(rawURL string) string {
	before, query, has := strings.Cut(rawURL, "?")
	if !has {
		return rawURL
	}
	query, fragment, _ := strings.Cut(query, "#")
	parts := strings.Split(query, "&")
	for i, part := range parts {
		name, value, _ := strings.Cut(part, "=")
		plain, err := url.QueryUnescape(name)
		plain = withoutMarks.Replace(strings.ToLower(plain))
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
func HostOf(rawURL string) string {
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
	port := u.Port()
	standard := (u.Scheme == "https" && port == "443") || (u.Scheme == "http" && port == "80")
	if port != "" && !standard {
		name += ":" + port
	}
	return name
}
