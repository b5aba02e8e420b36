// Package remedy refuses options that a person could make payable, and gives the lines of config.toml that
// would. What must stay true: nothing that a seller wrote of a token or a network is taken over into them
// but its name.
package remedy

import (
	"fmt"
	"math/big"
	"regexp"

	"x402-wallet/internal/pattern"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/publicnode"
)

// SealCommand is what the person types after config.toml was edited.
const SealCommand = "x402-wallet policy seal"

// NetworkLines are the lines of config.toml that set a network up: with the node that is built in, or with
// a place for one's own.
func NetworkLines(caip2 string) string {
	node, note := publicnode.Of(caip2), "a public node; your own is better"
	if node == "" {
		node, note = "https://…", "a node of this network"
	}
	return fmt.Sprintf("[networks.%q]\nrpc = %q   # %s", caip2, node, note)
}

// VaultLines are the lines of config.toml that name an owner's vault.
func VaultLines(caip2, vault string) string {
	return fmt.Sprintf("[networks.%q]\nvault = %q", caip2, vault)
}

// AllowanceLines are the lines of config.toml that name an owner's account to take a float from.
func AllowanceLines(caip2, owner string) string {
	return fmt.Sprintf("[networks.%q]\nallowance_from = %q\nfloat = \"1.00\"", caip2, owner)
}

// NetworkOff is the refusal of an option on a network without a node. It comes with what the person does.
// caip2 is a name that x402.Network has read.
func NetworkOff(caip2 string) *x402.Error {
	e := x402.Errorf(x402.InvalidRequirement, "%s is not configured: it has no node", x402.Title(caip2)).
		WithHint("the person adds the lines in details.config to config.toml and runs `%s`", SealCommand).
		WithDetail("network", caip2).WithDetail("config", NetworkLines(caip2))
	return e.WithCommand(SealCommand, fmt.Sprintf("This seller is paid on %s, which your wallet has no node "+
		"for. Add these lines to config.toml and seal it:\n%s", x402.Title(caip2), NetworkLines(caip2)))
}

// RateLines are the lines of config.toml that give a token of the registry a rate. RATE is for the person
// to fill in: nothing here knows what it is worth today.
func RateLines(a x402.AssetInfo) string {
	return fmt.Sprintf("[[assets]]\nnetwork = %q\nsymbol = %q\n"+
		"usd = \"RATE\"      # what one %s is worth in dollars today\n"+
		"margin = \"0.02\"   # so much more is counted, in case it rises", a.Network, a.Symbol, a.Symbol)
}

// Unrated is the refusal of an option in a token that is no dollar, while its owner has set no rate.
func Unrated(a x402.AssetInfo) *x402.Error {
	where := a.Symbol + " on " + x402.Title(a.Network)
	e := x402.Errorf(x402.UntrustedAsset, "%s is no dollar, and without a rate no limit could count it",
		where).
		WithHint("the person adds the lines in details.config to config.toml and runs `%s`", SealCommand).
		WithDetail("config", RateLines(a))
	return e.WithCommand(SealCommand, fmt.Sprintf("This seller wants %s. If you want to pay in it, write "+
		"what it is worth into config.toml and seal it:\n%s", where, RateLines(a)))
}

// addressForms are what token addresses look like, by namespace.
var addressForms = map[string]func() *regexp.Regexp{
	"eip155": pattern.Lazy(`^0x[0-9a-fA-F]{40}$`),
	"solana": pattern.Lazy(`^[1-9A-HJ-NP-Za-km-z]{32,44}$`),
}

// UnknownAsset is the refusal of an option in a token that the registry does not have. Where it names a
// token's address, the error has the lines of config.toml that would add it, with what only the owner can
// say left open: what a seller writes of its token is not taken over.
func UnknownAsset(r x402.Requirement) *x402.Error {
	form := addressForms[x402.Namespace(r.Network)]
	if form == nil || !form().MatchString(r.Asset) {
		return x402.Errorf(x402.InvalidRequirement, "the asset %s is not the address of a token",
			x402.Quote(r.Asset))
	}
	lines := AssetLines(r.Network, r.Asset)
	return x402.Errorf(x402.UntrustedAsset, "the asset %s on %s is not in the registry", x402.Quote(r.Asset),
		x402.Title(r.Network)).
		WithHint("only assets that are built in or that the owner added are ever paid; the person can add "+
			"the lines in details.config to config.toml, filled in, and run `%s`", SealCommand).
		WithDetail("config", lines).
		WithCommand(SealCommand, "The seller asks for the token "+r.Asset+" on "+x402.Title(r.Network)+
			", which your wallet does not know. Only if its issuer's own site names this address: add it to "+
			"config.toml under [[assets]], with its decimals and worth, and seal the rules.")
}

// AssetLines are the lines of config.toml that add a token. What stands in capitals is for the owner to
// fill in: as it is, config.toml is refused.
func AssetLines(network, address string) string {
	lines := fmt.Sprintf("[[assets]]\nnetwork = %q\naddress = %q\nsymbol = \"SYMBOL\"\ndecimals = DECIMALS\n"+
		"usd = \"DOLLARS\" # of one whole token", network, address)
	if x402.Namespace(network) == "eip155" {
		lines += "\nname = \"NAME\" # of its EIP-712 domain, as the contract says\nversion = \"VERSION\""
	}
	return lines
}

// Delegate is the command by which an owner lets the agent spend an amount of an account: whole tokens,
// because an owner does not delegate cents.
func Delegate(asset x402.AssetInfo, account string, amount money.Amount) string {
	return x402.Command("delegation", "approve", "--owner-keypair", "FILE", "--network", asset.Network,
		"--token-account", account, "--asset", asset.Symbol, "--amount", wholeTokens(amount, asset.Decimals))
}

// wholeTokens rounds up to whole tokens.
func wholeTokens(a money.Amount, decimals uint8) string {
	amount, _ := new(big.Int).SetString(a.String(), 10)
	unit := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(decimals)), nil)
	whole, rest := amount.QuoRem(amount, unit, new(big.Int))
	if rest.Sign() > 0 {
		whole.Add(whole, big.NewInt(1))
	}
	return whole.String()
}
