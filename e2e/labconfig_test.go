package e2e

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
)

type ConfigOptions struct {
	Budget       string   // lines of [budget]
	Policy       string   // further lines of [policy]
	TokenAccount string   // the owner's token account on Solana; empty: none is named
	Vault        string   // the owner's vault on EVM; empty: none is named
	Owner        string   // the owner's account on EVM that a float is taken from; empty: none is named
	Float        string   // how much at a time; empty: the wallet's own default
	ApprovalGas  string   // what an approval that a seller sends may cost on EVM; empty: none is signed
	Facilitators []string // URLs in order; nil: the lab's
	Loopback     []string // further URLs or host:port entries that plain http is allowed for
	More         string   // further tables
}

// Config is a config.toml for a wallet in this lab: its chains, its facilitators as lab0, lab1, …,
// and everybody's exact host and port allowed on loopback.
func (l *Lab) Config(options ConfigOptions) string {
	facilitators := options.Facilitators
	if facilitators == nil {
		facilitators = l.Facilitators
	}
	var hosts []string
	known := []string{l.Seller, l.SellerV1, l.SellerOzskr, l.EVM.URL, l.SVM.URL}
	for _, at := range slices.Concat(known, l.Facilitators, facilitators, options.Loopback) {
		if host := hostPort(at); !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}

	var b strings.Builder
	table := func(head string, lines ...string) {
		fmt.Fprintf(&b, "%s\n%s\n\n", head, strings.TrimSpace(strings.Join(lines, "\n")))
	}
	set := func(key, value string) string { return fmt.Sprintf("%s = %q", key, value) }

	table("[budget]", options.Budget)
	table("[policy]", fmt.Sprintf("loopback = [\"%s\"]", strings.Join(hosts, `", "`)), options.Policy)
	evm := []string{set("rpc", l.EVM.URL)}
	if options.Vault != "" {
		evm = append(evm, set("vault", options.Vault))
	}
	if options.Owner != "" {
		evm = append(evm, set("allowance_from", options.Owner))
	}
	if options.Float != "" {
		evm = append(evm, set("float", options.Float))
	}
	if options.ApprovalGas != "" {
		evm = append(evm, set("approval_gas", options.ApprovalGas))
	}
	table(fmt.Sprintf("[networks.%q]", l.EVM.Network), evm...)
	svm := []string{set("rpc", l.SVM.URL)}
	if options.TokenAccount != "" {
		svm = append(svm, set("token_account", options.TokenAccount))
	}
	table(fmt.Sprintf("[networks.%q]", l.SVM.Network), svm...)
	for i, at := range facilitators {
		table("[[facilitators]]", set("name", fmt.Sprintf("lab%d", i)), set("url", at), set("auth", "none"))
	}
	b.WriteString(options.More)
	return b.String()
}

func hostPort(at string) string {
	if parsed, err := url.Parse(at); err == nil && parsed.Host != "" {
		return parsed.Host
	}
	return at
}
