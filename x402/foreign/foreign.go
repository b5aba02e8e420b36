// Package foreign says what sellers ask for that this wallet does not speak, each in words by which a person
// can act. What must stay true: there is one text for one reason, wherever it is said.
package foreign

import (
	"fmt"
	"strings"

	"x402-wallet/x402"
)

// gatewayName is the EIP-712 domain of Circle Gateway. Its options look like "exact" with another domain,
// and a signature in it is worth a week or more: it is never made.
const gatewayName = "GatewayWalletBatched"

// IsGateway reports whether an option is Circle Gateway's.
func IsGateway(r x402.Requirement) bool {
	return strings.EqualFold(strings.TrimSpace(r.ExtraString("name")), gatewayName)
}

// Refusal is the refusal of an option that asks for something else than this wallet speaks.
func Refusal(words string) *x402.Error {
	return x402.Errorf(x402.InvalidRequirement, "%s", words).
		WithHint("nothing was signed; take another seller, or ask this one to take plain \"exact\" too")
}

// foreignSchemes are schemes that other wallets pay by, by name; of those that end in a colon all that
// begin so.
var foreignSchemes = map[string]string{
	"permit2": "permit2: x402 calls this the scheme exact with extra.assetTransferMethod permit2, and this " +
		"wallet pays that",
	"deferred": "deferred: the seller adds calls up and bills an account that the buyer has there",
	x402.BatchSettlement: "batch-settlement: the seller is paid out of a channel with a deposit, which " +
		"this wallet opens on EVM networks alone",
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

// Of says what an option asks for that this wallet does not speak; "": nothing of that kind.
func Of(r x402.Requirement) string {
	if IsGateway(r) {
		return "Circle Gateway (" + gatewayName + "): it is paid from a balance that was deposited with " +
			"Circle's Gateway contract before, and this wallet keeps none there"
	}
	if key := voucherSigner(r); key != "" {
		return "batch-settlement with extra." + key + ": another party than the buyer signs the channel's " +
			"vouchers, up to the whole deposit, and this wallet signs its own alone"
	}
	if r.Scheme == x402.BatchSettlement && x402.Namespace(r.NetworkName) == "eip155" {
		return foreignMethods[r.ExtraString("assetTransferMethod")]
	}
	for name, words := range foreignSchemes {
		if r.Scheme == name || (strings.HasSuffix(name, ":") && strings.HasPrefix(r.Scheme, name)) {
			return words
		}
	}
	if words := foreignPermit2(r); words != "" {
		return words
	}
	if words := foreignMethods[r.ExtraString("assetTransferMethod")]; words != "" {
		return words
	}
	return foreignNetwork(r.NetworkName)
}

// voucherSigner is the member of extra in which a seller of batch-settlement names another signer of
// vouchers than the buyer; "": it names none.
func voucherSigner(r x402.Requirement) string {
	if r.Scheme != x402.BatchSettlement {
		return ""
	}
	for _, key := range []string{"voucherManager", "voucherSigner", "payerAuthorizer"} {
		if !x402.IsNull(r.Extra[key]) {
			return key
		}
	}
	return ""
}

// foreignPermit2 says what is asked for by Permit2 where there is none.
func foreignPermit2(r x402.Requirement) string {
	way, isEVM := r.Way(), x402.Namespace(r.Network) == "eip155"
	switch {
	case way == x402.Upto && x402.IsSolana(r.Network):
		return "upto on Solana: the seller is paid out of a channel with a deposit, which this wallet does " +
			"not open"
	case (way == x402.Permit2 || way == x402.Upto) && isEVM && r.Version == 1:
		return way + ": in version 1 of x402 there is no payment by Permit2"
	}
	return ""
}

func foreignNetwork(name string) string {
	chain, _, _ := strings.Cut(name, ":")
	chain, _, _ = strings.Cut(chain, "-") // stellar-testnet
	if title := foreignChains[chain]; title != "" {
		return Network(title)
	}
	return ""
}

// Network says that a network is of a kind that this wallet does not pay on.
func Network(title string) string {
	return fmt.Sprintf("the network %s is not one this wallet pays on: it pays on EVM networks and Solana",
		title)
}
