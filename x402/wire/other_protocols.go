package wire

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"x402-wallet/internal/pattern"
	"x402-wallet/x402"
	"x402-wallet/x402/foreign"
)

// foreignEntry is Foreign of an option that cannot be read: most foreign ones lack what x402 has.
func foreignEntry(raw json.RawMessage) string {
	var entry x402.Object
	if json.Unmarshal(raw, &entry) != nil {
		return ""
	}
	var r x402.Requirement
	r.Scheme, _ = entry.Text("scheme")
	r.NetworkName, _ = entry.Text("network")
	r.Extra, _ = entry.Object("extra")
	return foreign.Of(r)
}

// foreignCharge says what a challenge of MPP asks for that this wallet does not pay; "": nothing of that
// kind.
func foreignCharge(method, intent string) string {
	name := "MPP " + x402.Brief(method) + "/" + x402.Brief(intent)
	ways := map[string]string{
		"card": "it is paid by a card's network token", "stripe": "it is paid by a token of Stripe's",
		"lightning": "it is paid over Lightning",
	}
	isPaid := (method == "evm" || method == "solana" || method == methodTempo) && intent == "charge"
	switch {
	case isPaid:
		return ""
	case ways[method] != "":
		return name + ": " + ways[method] + ", and this wallet has none"
	case intent == "session":
		return name + ": it is paid by vouchers from a channel with a deposit, and this wallet opens none; " +
			"it would pay the same seller's " + x402.Brief(method) + "/charge"
	}
	return name + ": this wallet pays evm/charge, solana/charge and tempo/charge"
}

// otherProtocols are the other protocols that an answer asks to be paid in: those we know by their name,
// any other quoted, so that a person knows what the seller wants.
func otherProtocols(header http.Header, body []byte) (protocols []string) {
	for _, c := range authChallenges(header.Values(headerAuthenticate)) {
		switch {
		case strings.EqualFold(c.scheme, "L402"), strings.EqualFold(c.scheme, "LSAT"):
			protocols = append(protocols, "L402 (Lightning"+lightningPrice(c.parameters["invoice"])+")")
		case strings.EqualFold(c.scheme, authScheme): // an option by itself
		default:
			protocols = append(protocols, x402.QuoteName(c.scheme))
		}
	}
	if header.Get("Crawler-Price") != "" {
		protocols = append(protocols, "Cloudflare pay per crawl")
	}
	var top x402.Object
	isObject := len(body) <= x402.MaxBody && json.Unmarshal(body, &top) == nil
	if protocols == nil && isObject && top.Has("offers") && top.Has("payment_context_token") {
		protocols = append(protocols, "L402 (offers)")
	}
	return protocols
}

// lightningInvoice is the part of a Lightning invoice that people can read (BOLT 11): the network, and the
// amount of bitcoin with its multiplier.
var lightningInvoice = pattern.Lazy(`^(?i)ln(?:bcrt|bc|tbs|tb)([0-9]{1,12})([munp])1`)

// lightningPrice is ", N sats" of an invoice; "" where it names no price.
func lightningPrice(invoice string) string {
	parts := lightningInvoice().FindStringSubmatch(invoice)
	if parts == nil {
		return ""
	}
	amount, err := strconv.ParseUint(parts[1], 10, 64)
	if err != nil {
		return ""
	}
	// of a satoshi, 1e-8 of a bitcoin: milli 1e5, micro 100, nano 0.1, pico 0.0001
	switch strings.ToLower(parts[2]) {
	case "m":
		return fmt.Sprintf(", %d sats", amount*100_000)
	case "u":
		return fmt.Sprintf(", %d sats", amount*100)
	case "n":
		return fmt.Sprintf(", %s sats", strconv.FormatFloat(float64(amount)/10, 'f', -1, 64))
	}
	return fmt.Sprintf(", %s sats", strconv.FormatFloat(float64(amount)/10_000, 'f', -1, 64))
}
