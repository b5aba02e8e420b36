package x402

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// What sellers ask for that this wallet does not speak, each in words by which a person can act. One
// text for one reason, wherever it is said.

// gatewayName is the EIP-712 domain of Circle Gateway. Its options look like "exact" with another domain,
// and a signature in it is worth a week or more: it is never made (schemes.md §3.5).
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
	"upto": "upto: the seller takes up to the amount after it has served, by Permit2; this wallet pays " +
		"exact amounts",
	"permit2":  "permit2: the seller is paid by a Permit2 signature, which this wallet does not make",
	"deferred": "deferred: the seller adds calls up and bills an account that the buyer has there",
	"batch-settlement": "batch-settlement: the seller is paid out of a channel with a deposit, which this " +
		"wallet does not open",
	"auth-capture": "auth-capture: the money goes into escrow and the seller takes it later, as with a card",
	"escrow":       "escrow: the money goes into a contract that pays the seller later",
	"erc7710":      "ERC-7710: the seller is paid by a smart account's delegation, and this wallet is none",
	"nvm:": "Nevermined: the seller sells plans at nevermined.app, and takes a token of its own instead of " +
		"a payment",
	"credit": "credit: the seller is paid from prepaid credit that the buyer has there",
}

// foreignMethods are other ways of paying under the scheme "exact" (extra.assetTransferMethod).
var foreignMethods = map[string]string{
	"permit2": foreignSchemes["permit2"],
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
	for name, words := range foreignSchemes {
		if r.Scheme == name || (strings.HasSuffix(name, ":") && strings.HasPrefix(r.Scheme, name)) {
			return words
		}
	}
	if words := foreignMethods[r.ExtraString("assetTransferMethod")]; words != "" {
		return words
	}
	return foreignNetwork(r.NetworkName)
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

// signIn is the error of a challenge that sells nothing and wants to know who asks.
func signIn() *Error {
	return Errorf(noRequirements,
		"the answer asks to sign in with a wallet (sign-in-with-x), and sells nothing").
		WithHint("this wallet pays, and signs in nowhere; nothing was signed").
		WithDetail("asks", []string{"sign-in-with-x"})
}

// otherProtocols are the other protocols that an answer asks to be paid in: those we know by their name,
// any other quoted, so that a person knows what the seller wants.
func otherProtocols(header http.Header, body []byte) (protocols []string) {
	for _, scheme := range authSchemes(header.Values("WWW-Authenticate")) {
		switch strings.ToUpper(scheme) {
		case "L402", "LSAT":
			protocols = append(protocols, "L402 (Lightning)")
		case "PAYMENT":
			protocols = append(protocols, "MPP (WWW-Authenticate: Payment)")
		default:
			protocols = append(protocols, quote(scheme))
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

// authSchemes lists the schemes of WWW-Authenticate (RFC 9110 §11.6.1), in which commas part
// challenges and parameters alike: a part that does not begin with name= begins a challenge. Eight
// are enough to name.
func authSchemes(values []string) (schemes []string) {
	for _, value := range values {
		quoted := false
		parts := strings.FieldsFunc(value[:min(len(value), MaxHeader)], func(r rune) bool {
			if r == '"' {
				quoted = !quoted
			}
			return r == ',' && !quoted
		})
		for _, part := range parts {
			scheme, rest, _ := strings.Cut(strings.TrimSpace(part), " ")
			isParameter := strings.Contains(scheme, "=") || strings.HasPrefix(strings.TrimSpace(rest), "=")
			if scheme != "" && !isParameter && len(schemes) < 8 {
				schemes = append(schemes, scheme)
			}
		}
	}
	return schemes
}
