package x402

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"x402-wallet/x402/money"
)

const (
	// defaultTimeout is how long a payment may live when the seller does not say.
	defaultTimeout = 60 * time.Second
	// maxTimeout is more than any seller means: one who asks for more is refused. What
	// is really signed is capped by the owner (max_timeout_seconds).
	maxTimeout = 10 * 365 * 24 * time.Hour
)

// Requirement is one way to pay: an entry of accepts[].
type Requirement struct {
	Index       int // in the seller's list
	Version     int // 1 or 2
	Dialect     Dialect
	Scheme      string
	Network     string       // CAIP-2, whatever the seller called it
	NetworkName string       // as the seller called it
	Amount      money.Amount // atomic units, > 0
	Asset       string       // the token's address, the seller's spelling
	PayTo       string       // the seller's spelling
	MaxTimeout  time.Duration
	Extra       map[string]json.RawMessage
	// the entry as it came: echoed as `accepted`; nil where the seller sent no JSON
	Raw         json.RawMessage
	ResourceURL string  // V1 carries it per option
	Charge      *Charge // of MPP; nil: it came as x402
	// Fee is the most that the network's fee may take (scheme Tempo). It is a part of Amount.
	Fee money.Amount
}

// Charge is what a requirement that came as MPP says beside what x402 says too. What is echoed is
// Requirement.Raw.
type Charge struct {
	ID, Realm, Method, Intent string
	Expires                   time.Time // zero: the challenge does not say
	Digest                    string    // of the body of the request that is paid; "": of any
	Header                    string    // in which the credential is wanted; "": over MCP

	// What follows is of the method "tempo" alone (draft-tempo-charge-00).

	SellerPaysFee bool // the network's fee
	// Pull says that the seller takes a signed transaction and sends it. Push says that the seller takes the
	// hash of one that the buyer has sent.
	Pull, Push bool
	Memo       string // that the transfer has to have, 0x and 64 hex digits; mppx's sellers name none
}

// Way is how an option is paid, as policy.schemes, the ledger and the schemes of package pay name it: its
// scheme, but for "exact" by Permit2, which is signed, asked for and looked up otherwise.
func (r Requirement) Way() string {
	if r.Scheme == Exact && r.Charge == nil && r.ByPermit2() {
		return Permit2
	}
	return r.Scheme
}

// ByPermit2 reports whether the seller asks for Permit2 as what moves the token.
func (r Requirement) ByPermit2() bool { return r.ExtraString("assetTransferMethod") == Permit2 }

// AssetKey is the requirement's asset as a map key.
func (r Requirement) AssetKey() money.Asset { return money.NewAsset(r.Network, r.Asset) }

// ExtraString returns extra[key] when it is a JSON string, and "" otherwise.
func (r Requirement) ExtraString(key string) string {
	s, _ := Text(r.Extra[key])
	return s
}

// DecodeRequirement reads one entry of accepts, of JSON that DecodeStrict has accepted. The error
// says what breaks the format; whether the option can be paid is for others to say.
func DecodeRequirement(raw json.RawMessage, version int) (Requirement, error) {
	var entry Object
	if json.Unmarshal(raw, &entry) != nil || entry == nil {
		return Requirement{}, errors.New("the option is not a JSON object")
	}
	r, err := ReadRequirement(entry, version)
	r.Raw = raw
	return r, err
}

// ReadRequirement reads an entry of which DecodeRequirement has the bytes.
func ReadRequirement(entry Object, version int) (Requirement, error) {
	amountKey := "amount"
	if version == 1 || (!entry.Has("amount") && entry.Has("maxAmountRequired")) {
		amountKey = "maxAmountRequired" // of version 1: some say 2 and keep it
	}
	r := Requirement{Version: version}
	var err error
	for _, field := range []struct {
		key  string
		into *string
	}{{"scheme", &r.Scheme}, {"network", &r.NetworkName}, {"asset", &r.Asset}, {"payTo", &r.PayTo}} {
		*field.into, err = entry.Identifier(field.key)
		if err != nil {
			return r, err
		}
	}
	var ok bool
	r.Network, ok = Network(r.NetworkName)
	if !ok {
		return r, fmt.Errorf("network %s is neither a CAIP-2 name nor a known one",
			QuoteName(r.NetworkName))
	}
	r.Amount, err = entry.amount(amountKey, r.Network)
	if err != nil {
		return r, err
	}
	if version == 2 && !entry.sameText("amount", "maxAmountRequired") {
		return r, errors.New("amount and maxAmountRequired differ")
	}
	r.MaxTimeout, err = entry.seconds("maxTimeoutSeconds")
	if err != nil {
		return r, err
	}
	r.Extra, err = entry.Object("extra")
	if err != nil {
		return r, err
	}
	if version == 1 {
		r.ResourceURL, err = entry.Text("resource")
	}
	return r, err
}

// sameText reports whether two strings are the same, where both are there.
func (o Object) sameText(a, b string) bool {
	return !o.Has(a) || !o.Has(b) || string(o[a]) == string(o[b])
}

// amount is a required number of atomic units in a JSON string: JSON numbers are floats to
// most readers.
func (o Object) amount(key, network string) (a money.Amount, err error) {
	if !o.Has(key) {
		return a, fmt.Errorf("%s is missing", key)
	}
	text, err := o.Text(key)
	if err != nil {
		return a, err
	}
	if a, err = money.ParseAmount(text); err != nil {
		return a, fmt.Errorf("%s: %w", key, err)
	}
	if a.IsZero() {
		return a, fmt.Errorf("%s is 0: it must be at least 1", key)
	}
	if _, fits := a.Uint64(); IsSolana(network) && !fits {
		return a, fmt.Errorf("%s is more than 18446744073709551615, the most a Solana token can count", key)
	}
	return a, nil
}

// seconds is an optional whole number of seconds.
func (o Object) seconds(key string) (time.Duration, error) {
	if !o.Has(key) {
		return defaultTimeout, nil
	}
	const most = int64(maxTimeout / time.Second)
	n, err := strconv.ParseInt(string(o[key]), 10, 64) // a JSON string, fraction or exponent is no int
	if err != nil || n < 1 || n > most {
		return 0, fmt.Errorf("%s is not a whole number from 1 to %d", key, most)
	}
	return time.Duration(n) * time.Second, nil
}
