package x402

import "fmt"

// SealCommand is what the person types after config.toml was edited.
const SealCommand = "x402-wallet policy seal"

// NetworkLines are the lines of config.toml that set a network up: with the node that is built in, or with
// a place for one's own.
func NetworkLines(caip2 string) string {
	node, note := PublicNode(caip2), "a public node; your own is better"
	if node == "" {
		node, note = "https://…", "a node of this network"
	}
	return fmt.Sprintf("[networks.%q]\nrpc = %q   # %s", caip2, node, note)
}

// NetworkOff is the refusal of an option on a network without a node. It comes with what the person does.
// caip2 is a name that Network has read.
func NetworkOff(caip2 string) *Error {
	e := Errorf(InvalidRequirement, "%s is not configured: it has no node", Title(caip2)).
		WithHint("the person adds the lines in details.configLines to config.toml and runs `%s`", SealCommand).
		WithDetail("network", caip2).WithDetail("configLines", NetworkLines(caip2))
	return e.WithCommand(SealCommand, fmt.Sprintf("This seller is paid on %s, which your wallet has no node "+
		"for. Add these lines to config.toml and seal it:\n%s", Title(caip2), NetworkLines(caip2)))
}

// Rated reports whether a token can be counted in dollars: it is one, or the owner set its rate.
func (a AssetInfo) Rated() bool { return a.USD > 0 }

// RateLines are the lines of config.toml that give a token of the registry a rate. RATE is for the person
// to fill in: nothing here knows what it is worth today.
func RateLines(a AssetInfo) string {
	return fmt.Sprintf("[[assets]]\nnetwork = %q\nsymbol = %q\n"+
		"usd = \"RATE\"      # what one %s is worth in dollars today\n"+
		"margin = \"0.02\"   # so much more is counted, in case it rises", a.Network, a.Symbol, a.Symbol)
}

// Unrated is the refusal of an option in a token that is no dollar, while its owner has set no rate.
func Unrated(a AssetInfo) *Error {
	where := a.Symbol + " on " + Title(a.Network)
	e := Errorf(UntrustedAsset, "%s is no dollar, and without a rate no limit could count it", where).
		WithHint("the person adds the lines in details.configLines to config.toml and runs `%s`", SealCommand).
		WithDetail("configLines", RateLines(a))
	return e.WithCommand(SealCommand, fmt.Sprintf("This seller wants %s. If you want to pay in it, write "+
		"what it is worth into config.toml and seal it:\n%s", where, RateLines(a)))
}
