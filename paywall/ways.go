package paywall

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"x402-wallet/facilitator"
	batch "x402-wallet/scheme/batch/sell"
	exact "x402-wallet/scheme/exact/sell"
	mpp "x402-wallet/scheme/mpp/sell"
	permit2 "x402-wallet/scheme/permit2/sell"
	"x402-wallet/scheme/selling"
	tempo "x402-wallet/scheme/tempo/sell"
	"x402-wallet/x402"
)

// newWays registers the ways to be paid. An option that names no scheme is paid by the first.
func newWays(o Options) []selling.Way {
	return []selling.Way{exact.Way{}, permit2.Exact{}, &permit2.Upto{}, batch.Way{}, tempo.New(o.Nodes, nil)}
}

// protocol is another one than x402 that HTTP handlers sell in. It is nil if there is none.
func (w *Paywall) protocol() selling.Protocol {
	if !w.options.MPP {
		return nil
	}
	return mpp.Protocol{}
}

// shop has all that the ways need.
func (w *Paywall) shop() selling.Shop {
	return selling.Shop{Channels: w.options.Store, Facilitators: w.options.Facilitators,
		Assets: w.options.Assets, VerifyOnly: w.options.VerifyOnly, SharedPayTo: w.options.SharedPayTo,
		Now: w.now, Margin: w.settleMargin, Patience: w.confirmTimeout, WakeClaims: w.wakeClaims, Log: w.log}
}

// way is how an option is paid.
func (w *Paywall) way(said selling.Said, asset x402.AssetInfo) (found selling.Way, err error) {
	preset := w.ways[0].Traits().Scheme
	if asset.IsTIP20() {
		preset = x402.Tempo
	}
	scheme := cmp.Or(said.Scheme, preset)
	var all []string
	for _, way := range w.ways {
		is := way.Traits()
		if is.Scheme == scheme && (found == nil || is.IsByPermit2 == said.ByPermit2) {
			found = way
		}
		if !slices.Contains(all, is.Scheme) {
			all = append(all, is.Scheme)
		}
	}
	if found == nil {
		return nil, fmt.Errorf("%q is no scheme that is sold in: there are %s", scheme,
			strings.Join(all, ", "))
	}
	switch is := found.Traits(); {
	case is.IsMPPAlone != asset.IsTIP20():
		return nil, fmt.Errorf("%s is not paid by %s", asset.Symbol, is.Scheme)
	case is.IsMPPAlone && !w.options.MPP:
		return nil, fmt.Errorf("%s is asked for in MPP alone, which is for HTTP handlers of Go programs "+
			"(Options.MPP)", asset.Symbol)
	case is.IsNewer && x402.IsSolana(asset.Network):
		return nil, fmt.Errorf("%s is for EVM networks", is.Name)
	case is.IsNewer && w.options.Version == 1:
		return nil, fmt.Errorf("version 1 has no %s; %s of %s needs version 2", is.Name, asset.Symbol,
			asset.Network)
	}
	return found, nil
}

// scheme is the option's, as it is asked for.
func (o option) scheme() string { return o.Way.Traits().Scheme }

// isX402 reports whether it is an option of x402.
func (o option) isX402() bool { return !o.Way.Traits().IsMPPAlone }

// settler verifies and settles what is paid by an option.
func (w *Paywall) settler(o option) selling.Settler {
	if own, ok := o.Way.(selling.Settler); ok {
		return own
	}
	return w.options.Facilitators
}

// isSettledByOne reports whether what a buyer signs names the only facilitator that can settle it.
func (o option) isSettledByOne() bool { return o.Way.SettlerIn(o.Network) != "" }

// settlerKind says who settles where only one can. It is remembered, for when the facilitator is down.
func (w *Paywall) settlerKind(ctx context.Context, o option, version int) (facilitator.Kind, error) {
	list, err := w.options.Facilitators.Supported(ctx, o.Network) // remembered there for five minutes
	suits := func(k facilitator.Kind) bool {
		return k.Version == version && k.Scheme == o.scheme() && k.Settler() != "" && k.Takes(o.routing())
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil { // of those who did not answer what they said before
		for _, k := range w.kinds[o.Network] {
			if !slices.ContainsFunc(list, func(now facilitator.Kind) bool {
				return now.Facilitator == k.Facilitator
			}) {
				list = append(list, k)
			}
		}
	}
	w.kinds[o.Network] = list
	if i := slices.IndexFunc(list, suits); i >= 0 {
		return list[i], nil
	}
	if err == nil {
		return facilitator.Kind{}, fmt.Errorf("no facilitator settles %s on %s", o.scheme(), o.Network)
	}
	return facilitator.Kind{}, err
}

func (o option) routing() facilitator.Terms {
	return facilitator.Terms{Network: o.Network, Asset: o.Asset.Address, Symbol: o.Asset.Symbol,
		Price: o.Price}
}
