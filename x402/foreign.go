package x402

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"x402-wallet/internal/pattern"
)

// What sellers ask for that this wallet does not speak, each in words by which a person can act. One
// text for one reason, wherever it is said.

// gatewayName is the EIP-712 domain of Circle Gateway. Its options look like "exact" with another domain,
// and a signature in it is worth a week or more: it is never made.
const gatewayName = "GatewayWalletBatched"

// IsGateway reports whether an option is Circle Gateway's.
func (r Requirement) IsGateway() bool {
	return strings.EqualFold(strings.TrimSpace(r.ExtraString("name")), gatewayName)
}

// NotSpoken is the refusal of an option that asks for something else than this wallet speaks.
func NotSpoken(words string) *Error {
	return Errorf(InvalidRequirement, "%s", words).
		WithHint("nothing was signed; take another seller, or ask this one to take plain \"exact\" too")
}

// foreignSchemes are schemes that other wallets pay by, by name; of those that end in a colon all that
// begin so.
var foreignSchemes = map[string]string{
	"permit2": "permit2: x402 calls this the scheme exact with extra.assetTransferMethod permit2, and this " +
		"wallet pays that",
	"deferred": "deferred: the seller adds calls up and bills an account that the buyer has there",
	BatchSettlement: "batch-settlement: the seller is paid out of a channel with a deposit, which this " +
		"wallet opens on EVM networks alone",
	"auth-capture": "auth-capture: the money goes into escrow and the seller takes it later, as with a card",
	"escrow":       "escrow: the money goes into a contract that pays the seller later",
	"erc7710":      "ERC-7710: the seller is paid by a smart account's delegation, and this wallet is none",
	"nvm:": "Nevermined: the seller sells plans at nevermined.app, and takes a token of its own instead of " +
		"a payment",
	"credit": "credit: the seller is paid from prepaid credit that the buyer has there",
}

// foreignMethods are other ways of paying under the scheme "exact" (extra.assetTransferMethod).
var foreignMethods = map[string]string{
	"erc7710": foreignSchemes["erc7710"],
}

// foreignChains are networks that other wallets pay on, by their CAIP-2 namespace or the name they go by.
var foreignChains = map[string]string{
	"algorand": "Algorand", "aptos": "Aptos", "bip122": "Bitcoin", "bitcoin": "Bitcoin", "cardano": "Cardano",
	"cosmos": "Cosmos", "hedera": "Hedera", "keeta": "Keeta", "lightning": "Lightning", "lnbc": "Lightning",
	"near": "NEAR", "stacks": "Stacks", "starknet": "Starknet", "stellar": "Stellar", "sui": "Sui",
	"ton": "TON", "tron": "TRON", "tvm": "TON", "xrpl": "the XRP Ledger",
	"cloudflare": "Cloudflare's own account", "stripe": "Stripe (cards)", "braintree": "Braintree (cards)",
	"visa": "Visa (cards)", "fiat": "a card or bank",
}

// Foreign says what an option asks for that this wallet does not speak; "": nothing of that kind.
func (r Requirement) Foreign() string {
	if r.IsGateway() {
		return "Circle Gateway (" + gatewayName + "): it is paid from a balance that was deposited with " +
			"Circle's Gateway contract before, and this wallet keeps none there"
	}
	if r.Scheme == BatchSettlement && Namespace(r.NetworkName) == "eip155" {
		return foreignMethods[r.ExtraString("assetTransferMethod")]
	}
	for name, words := range foreignSchemes {
		if r.Scheme == name || (strings.HasSuffix(name, ":") && strings.HasPrefix(r.Scheme, name)) {
			return words
		}
	}
	if words := r.foreignPermit2(); words != "" {
		return words
	}
	if words := foreignMethods[r.ExtraString("assetTransferMethod")]; words != "" {
		return words
	}
	return foreignNetwork(r.NetworkName)
}

// foreignPermit2 says what is asked for by Permit2 where there is none.
func (r Requirement) foreignPermit2() string {
	way, isEVM := r.Way(), Namespace(r.Network) == "eip155"
	switch {
	case way == Upto && IsSolana(r.Network):
		return "upto on Solana: the seller is paid out of a channel with a deposit, which this wallet does " +
			"not open"
	case (way == Permit2 || way == Upto) && isEVM && r.Version == 1:
		return way + ": in version 1 of x402 there is no payment by Permit2"
	}
	return ""
}

func foreignNetwork(name string) string {
	chain, _, _ := strings.Cut(name, ":")
	chain, _, _ = strings.Cut(chain, "-") // stellar-testnet
	if title := foreignChains[chain]; title != "" {
		return OtherNetwork(title)
	}
	return ""
}

// OtherNetwork says that a network is of a kind that this wallet does not pay on.
func OtherNetwork(title string) string {
	return fmt.Sprintf("the network %s is not one this wallet pays on: it pays on EVM networks and Solana",
		title)
}

// foreignEntry is Foreign of an option that cannot be read: most foreign ones lack what x402 has.
func foreignEntry(raw json.RawMessage) string {
	var entry object
	if json.Unmarshal(raw, &entry) != nil {
		return ""
	}
	var r Requirement
	r.Scheme, _ = entry.text("scheme")
	r.NetworkName, _ = entry.text("network")
	r.Extra, _ = entry.object("extra")
	return r.Foreign()
}

// foreignCharge says what a challenge of MPP asks for that this wallet does not pay; "": nothing of that
// kind.
func foreignCharge(method, intent string) string {
	name := "MPP " + Brief(method) + "/" + Brief(intent)
	ways := map[string]string{
		"card": "it is paid by a card's network token", "stripe": "it is paid by a token of Stripe's",
		"lightning": "it is paid over Lightning", "tempo": "it is paid from an account on Tempo",
	}
	isPaid := (method == "evm" || method == "solana") && intent == "charge"
	switch {
	case isPaid:
		return ""
	case ways[method] != "":
		return name + ": " + ways[method] + ", and this wallet has none"
	case intent == "session":
		return name + ": it is paid from a channel with a deposit, which this wallet does not open"
	}
	return name + ": this wallet pays evm/charge and solana/charge"
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
			protocols = append(protocols, quote(c.scheme))
		}
	}
	if header.Get("Crawler-Price") != "" {
		protocols = append(protocols, "Cloudflare pay per crawl")
	}
	var top object
	isObject := len(body) <= MaxBody && json.Unmarshal(body, &top) == nil
	if protocols == nil && isObject && top.has("offers") && top.has("payment_context_token") {
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
