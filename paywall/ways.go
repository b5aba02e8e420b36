package paywall

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	evm "x402-wallet/chain/evm/message"
	"x402-wallet/facilitator"
	"x402-wallet/x402"
)

// How an option is paid: what belongs to each way in an offer besides network, asset, amount and payee.

// way is how an option is paid.
func (w *Paywall) way(o Option, asset x402.AssetInfo) (string, error) {
	way := x402.Exact
	switch {
	case o.Scheme == x402.Upto:
		way = x402.Upto
	case o.Scheme == x402.BatchSettlement:
		way = x402.BatchSettlement
	case o.Scheme != "" && o.Scheme != x402.Exact:
		return "", fmt.Errorf("%q is no scheme that is sold in: there are exact, upto and batch-settlement",
			o.Scheme)
	case o.Permit2 || asset.Permit2Only:
		way = x402.Permit2
	}
	switch {
	case way == x402.Exact:
		return way, nil
	case x402.IsSolana(asset.Network):
		return "", fmt.Errorf("%s is for EVM networks", way)
	case w.options.Version == 1:
		return "", fmt.Errorf("version 1 has no %s; %s of %s needs version 2", way, asset.Symbol,
			asset.Network)
	case way != x402.BatchSettlement:
		return way, nil
	case o.Permit2 || asset.Permit2Only:
		return "", fmt.Errorf("deposits for batch-settlement come by EIP-3009, not by Permit2 (%s)",
			asset.Symbol)
	}
	return way, w.canSellByBatch()
}

// scheme is the option's, as it is asked for.
func (o option) scheme() string {
	if o.way == x402.Permit2 {
		return x402.Exact
	}
	return o.way
}

// isByPermit2 reports whether Permit2 moves the money.
func (o option) isByPermit2() bool { return o.way == x402.Permit2 || o.way == x402.Upto }

// isSettledByOne reports whether what a buyer signs names the only facilitator that can settle it.
func (o option) isSettledByOne() bool {
	return x402.IsSolana(o.Network) || o.way == x402.Upto || o.way == x402.BatchSettlement
}

// settlerKind says who settles where only one can: who pays the fees on Solana, of upto the facilitator that
// the buyer names, and of batch-settlement who signs for the receiver. It is remembered, for when the
// facilitator is down.
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

// routing is what a facilitator is chosen by.
func (o option) routing() facilitator.Terms {
	return facilitator.Terms{Network: o.Network, Asset: o.Asset.Address, Symbol: o.Asset.Symbol,
		Price: o.Price}
}

// maxSettlers bounds the facilitators' addresses that are remembered for each network.
const maxSettlers = 64

// nameSettler puts a facilitator's address, which buyers have to name, into an offer's extra, and remembers
// it: a facilitator with several takes one at random each time it is asked, so a buyer may come back with the
// one before.
func (w *Paywall) nameSettler(network, address string, extra map[string]json.RawMessage) error {
	address, err := evm.Address(address)
	if err != nil {
		return fmt.Errorf("the facilitator's address: %w", err)
	}
	extra["facilitatorAddress"] = jsonOf(address)
	w.mu.Lock()
	defer w.mu.Unlock()
	known := w.settlers[network]
	if slices.Contains(known, address) {
		return nil
	}
	if len(known) >= maxSettlers {
		known = slices.Delete(known, 0, 1)
	}
	w.settlers[network] = append(known, address)
	return nil
}

// uptoTerms are an offer's terms with the facilitator that the buyer accepted, if buyers were told to name
// it.
func (w *Paywall) uptoTerms(r x402.Requirement, accepted json.RawMessage) x402.Requirement {
	var said struct {
		Extra struct {
			Address string `json:"facilitatorAddress"`
		} `json:"extra"`
	}
	if json.Unmarshal(accepted, &said) != nil || said.Extra.Address == r.ExtraString("facilitatorAddress") {
		return r
	}
	w.mu.Lock()
	isOurs := slices.Contains(w.settlers[r.Network], said.Extra.Address)
	w.mu.Unlock()
	if !isOurs {
		return r
	}
	other, err := x402.DecodeRequirement(withExtra(r.Raw, func(extra map[string]json.RawMessage) {
		extra["facilitatorAddress"] = jsonOf(said.Extra.Address)
	}), 2)
	if err != nil {
		return r
	}
	return other
}

// declaredSponsoring is the extension by which a buyer's approval of Permit2 is brought to the chain together
// with the payment, as the reference declares it (x402 2.27, eip2612-gas-sponsoring).
func declaredSponsoring() json.RawMessage {
	field := func(pattern string) map[string]string {
		return map[string]string{"type": "string", "pattern": pattern}
	}
	const address, number = "^0x[a-fA-F0-9]{40}$", "^[0-9]+$"
	return jsonOf(map[string]any{
		"info": map[string]string{"version": "1",
			"description": "An approval of Permit2 by EIP-2612 is brought to the chain with the payment."},
		"schema": map[string]any{
			"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
			"properties": map[string]any{"from": field(address), "asset": field(address),
				"spender": field(address), "amount": field(number), "nonce": field(number),
				"deadline": field(number), "signature": field("^0x[a-fA-F0-9]+$"),
				"version": field(`^[0-9]+(\.[0-9]+)*$`)},
			"required": []string{"from", "asset", "spender", "amount", "nonce", "deadline", "signature",
				"version"},
		},
	})
}

// isSponsored reports whether a buyer can approve Permit2 for an option by a signature.
func (o option) isSponsored() bool { return o.isByPermit2() && o.Asset.HasPermit() }
