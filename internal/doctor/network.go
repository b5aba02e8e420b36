package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"x402-wallet/facilitator"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/publicnode"
)

// node asks a network's node whether it is there, on that network, and what time it thinks it is.
func (o Options) node(ctx context.Context, network string) findings {
	clock := o.wallet.EVM.Clock
	if x402.IsSolana(network) {
		clock = o.wallet.Solana.Clock
	}
	theirs, err := clock(ctx, network)
	if err != nil {
		return failed(err, fmt.Sprintf("look at the network connection, or set another rpc under "+
			"[networks.%q] and x402-wallet policy seal", network))
	}
	if theirs.IsZero() {
		return found(warn, "compare this computer's clock with another one",
			"it is the right chain, but does not say what time it is")
	}
	if skew := o.Now().Sub(theirs); skew.Abs() > maxSkew {
		return found(fail, "set this computer's clock (timedatectl, w32tm, sntp), or ask another node",
			"this computer's clock and the node's differ by %s; beyond %s nothing is signed",
			skew.Abs().Round(time.Second), maxSkew)
	}
	return good("it answers, is on the right chain, and its clock agrees")
}

// chosen are the networks that the owner named or prefers, in the order of preference.
func (o Options) chosen() []string {
	return slices.DeleteFunc(slices.Clone(o.wallet.Networks), func(network string) bool {
		return slices.Contains(o.wallet.Unnamed, network)
	})
}

// publicNodes says once that an own node is better. It asks none: those of chosen networks were asked by
// themselves.
func (o Options) publicNodes(context.Context) findings {
	rules, err := o.Opener.Rules()
	if err != nil {
		return nil // rules says it
	}
	var chosen []string
	for _, network := range o.chosen() {
		if rules.Nodes()[network] == publicnode.Of(network) {
			chosen = append(chosen, x402.NetworkName(network))
		}
	}
	if len(chosen) == 0 {
		return good("you named a node for each network that you use")
	}
	return found(warn, "set rpc under [networks.…] to a node of your own, or one that you pay for",
		"%s: reached through public nodes. They limit how often they are asked, and who runs a node can lie "+
			"about what became of a payment", strings.Join(chosen, ", "))
}

// funds tells what can be spent on a network. A node that does not answer is not a zero.
func (o Options) funds(ctx context.Context, network string) (list findings) {
	rows, _, err := o.wallet.OnChain(ctx, network, "")
	if err != nil {
		return failed(err, "fix the node first")
	}
	for _, row := range rows {
		vault := o.wallet.EVM.VaultOn(row.Network)
		ofVault := vault != "" && row.Address == vault
		look, allow := toAllow(row.Network, ofVault)
		if row.Owner != "" {
			o.allowance(ctx, row.Network, row.Owner, &list)
		}
		asset, _ := o.wallet.Engine.Assets.Asset(row.Network, row.Asset)
		worth := func(amount *money.Amount) string {
			return asset.Dollars(*amount).Price() + " in " + row.Symbol
		}
		switch {
		case slices.Contains([]x402.Code{x402.RPCError, x402.Timeout, x402.CheckFailed}, row.ErrorCode):
			list.add(warn, "fix the node first", "not known: %s", row.Error)
		case row.Error != "":
			list.add(fail, look+"; then "+allow, "%s", row.Error)
		case row.Available.IsZero() && ofVault:
			list.add(warn, look, "the vault is empty, or what it lets the agent spend until now is used up")
		case row.Available.IsZero() && row.Delegated != nil:
			list.add(warn, allow, "the delegation is used up, or its account is empty")
		case row.Available.IsZero() && vault != "":
			list.add(warn, "send a dollar to "+row.Address+" (x402-wallet address --qr)",
				"the agent has nothing of its own: sellers whose facilitator takes no vault cannot be paid")
		case row.Available.IsZero():
			list.add(warn, "send USDC to "+row.Address+" (x402-wallet address --qr)",
				"there is nothing to spend")
		case ofVault:
			list.add(ok, "", "%s can be spent now from your vault, which holds %s", worth(row.Available),
				worth(row.Balance))
		case row.Owner != "":
			list.add(ok, "", "%s can be spent: %s is at the agent's address, and %s may be taken from yours",
				worth(row.Available), worth(row.Balance), worth(row.Delegated))
		case row.Delegated != nil:
			list.add(ok, "", "%s can be spent, of %s that were delegated",
				worth(row.Available), worth(row.Delegated))
		default:
			list.add(ok, "", "%s can be spent", worth(row.Available))
		}
	}
	return list
}

// toAllow are the owner's commands about what the agent may spend of theirs.
func toAllow(network string, ofVault bool) (look, allow string) {
	if ofVault {
		return x402.Command("vault", "show", "--network", network),
			x402.Command("vault", "allow", "--network", network)
	}
	on := "--network " + network
	return "x402-wallet delegation show " + on, "x402-wallet delegation approve " + on +
		" --owner-keypair FILE --amount 25"
}

// allowance tells of an owner's account that the agent may take from: what is needed for that besides.
func (o Options) allowance(ctx context.Context, network, owner string, list *findings) {
	a, asset, err := o.wallet.Allowance(ctx, network, owner, "")
	worth := func(amount money.Amount) string { return asset.Dollars(amount).Price() + " in " + asset.Symbol }
	switch {
	case err != nil: // the row says it
	case a.Gas.IsZero():
		list.add(warn, "send a little of the network's coin to "+a.Agent+" (x402-wallet address --qr)",
			"the agent has nothing to pay the gas of taking from your account with")
	case a.Balance.Cmp(a.Approved) < 0:
		list.add(warn, "send "+asset.Symbol+" to "+a.Owner, "your account has %s, of %s that may be taken",
			worth(a.Balance), worth(a.Approved))
	}
}

// facilitators asks each what it supports. They are needed where the wallet settles itself, and to
// discover services.
func (o Options) facilitators(ctx context.Context) (list findings) {
	answers := o.wallet.Facilitators.Answers(ctx, "")
	if len(answers) == 0 {
		return found(warn, "add one under [[facilitators]]",
			"none is configured: what the wallet has to settle itself cannot be paid")
	}
	covered := map[string]bool{}
	for _, f := range answers {
		if f.Err != nil {
			list.add(fail, "look at the network connection and at the facilitator's entry and "+
				"credentials; sellers that settle themselves do not need it",
				"%s does not say what it supports: %v", f.Name, f.Err)
			continue
		}
		var ours []string
		for _, network := range o.chosen() {
			settles := func(k facilitator.Kind) bool { return k.Scheme == x402.Exact && k.Network == network }
			if slices.ContainsFunc(f.Kinds, settles) {
				covered[network] = true
				ours = append(ours, x402.NetworkName(network))
			}
		}
		if len(ours) == 0 {
			list.add(warn, "take it out of [[facilitators]], or configure a network that it knows",
				"%s supports none of the configured networks", f.Name)
			continue
		}
		list.add(ok, "", "%s settles on %s", f.Name, strings.Join(ours, ", "))
	}
	silent := slices.ContainsFunc(answers, func(f facilitator.Answer) bool { return f.Err != nil })
	for _, network := range o.chosen() {
		if !covered[network] && !silent {
			list.add(warn, "add one under [[facilitators]]; sellers that settle themselves do not need it",
				"no facilitator settles on %s", x402.Title(network))
		}
	}
	return list
}
