package doctor

import (
	"context"
	"maps"
	"slices"
	"strings"

	"x402-wallet/internal/child"
	"x402-wallet/wallet"
)

// servers is what the programs of MCP servers are kept from.
func (o Options) servers(context.Context) (list findings) {
	rules, err := o.Opener.Rules()
	if err != nil {
		return nil // rules says it
	}
	for _, name := range slices.Sorted(maps.Keys(rules.Servers)) {
		s := rules.Servers[name]
		if len(s.Command) == 0 {
			continue
		}
		if s.Sandbox != nil && !*s.Sandbox {
			list.add(ok, "",
				"%s runs unconfined, as its sandbox = false says: it can do all that you can", name)
			continue
		}
		program := child.Program{Argv: s.Command, Sandbox: child.Sandbox{Closed: []string{o.Home}}}
		list = append(list, confined(name, program.Unconfined(), s.Sandbox != nil)...)
	}
	return list.or("config.toml names no MCP server that is a program")
}

// signers is whether those that keep a key themselves could sign now. Nothing is started or asked that the
// owner did not seal.
func (o Options) signers(ctx context.Context) (list findings) {
	rules, err := o.Opener.Rules()
	if err != nil || len(rules.Signers) == 0 {
		return good("the keystore signs") // what is wrong with the rules they say
	}
	if sealed := o.seal(ctx); sealed[0].Status != ok {
		return found(warn, "seal the rules first: x402-wallet policy seal",
			"the signers were not asked: the rules that name them are not sealed")
	}
	return askSigners(ctx, o.Opener.SignersByChain(rules))
}

// askSigners asks each signer whether it is there with its key.
func askSigners(ctx context.Context, signers map[string]wallet.Signer) (list findings) {
	for _, chain := range slices.Sorted(maps.Keys(signers)) {
		s := signers[chain]
		name, address := s.Account()
		if err := s.Check(ctx); err != nil {
			list = append(list, failed(err, "x402-wallet signer test "+name)...)
			continue
		}
		list.add(ok, "", "the signer %s is there, with the key of %s", name, address)
	}
	return list
}

// confined is the finding about one program; why is why it cannot be confined.
func confined(name, why string, required bool) findings {
	switch gaps := child.Gaps(); {
	case why != "" && required:
		return found(fail, "sandbox = false starts it all the same, with all that you can do",
			"%s has sandbox = true and is not started: %s", name, why)
	case why != "":
		return found(warn, "sandbox = false says that this is meant", "%s runs unconfined: %s", name, why)
	case len(gaps) > 0:
		return found(warn, "a newer kernel closes that",
			"%s is kept from reading this wallet's home, but can %s", name, strings.Join(gaps, ", and "))
	}
	return good("%s is kept from this wallet's home and from signals to it; it can do all else that you can",
		name)
}
