package tools

import (
	"context"
	"slices"
	"sync"

	"x402-wallet/x402"
)

// coinAsset stands in a row for a network's own money, which fees are paid in and nothing is bought with.
const coinAsset = "native"

// IsCoin reports whether the row is of a network's own money.
func (r BalanceRow) IsCoin() bool { return r.Asset == coinAsset }

func (w *Wallet) chainOf(network string) chain {
	switch x402.Namespace(network) {
	case "eip155":
		return w.EVM
	case "solana":
		return w.Solana
	}
	return nil
}

// others are rows for what there is something of on the networks, but their default tokens: the tokens that
// the owner's registry knows, and the networks' own money, if that is not the default token itself. Where a
// node does not tell, the row of the latter says so.
func (w *Wallet) others(ctx context.Context, networks []string) (rows []BalanceRow) {
	found := make([][]BalanceRow, len(networks))
	var wait sync.WaitGroup
	for i, network := range networks {
		known := w.Engine.Assets.Assets(network)
		known = known[min(len(known), 1):]
		isToken := slices.Contains(paidByToken, network)
		if w.chainOf(network) == nil || (isToken && len(known) == 0) {
			continue
		}
		wait.Go(func() {
			coin := BalanceRow{Network: network, Asset: coinAsset}
			coin.Symbol, coin.Decimals = coinOf(network)
			err := w.asking(ctx, network, func(ctx context.Context) error {
				tokens, amount, err := w.chainOf(network).Holdings(ctx, network, known)
				for _, a := range tokens {
					found[i] = append(found[i], BalanceRow{Network: network, Asset: a.Address,
						Symbol: a.Symbol, Decimals: a.Decimals})
				}
				coin.Balance = &amount
				return err
			})
			if err != nil {
				coin.Balance, coin.Error, coin.ErrorCode = nil, err.Message, err.Code
			} else {
				coin.Address = w.chainOf(network).Address()
			}
			w.read(ctx, found[i])
			if err != nil || (!isToken && !coin.Balance.IsZero()) {
				found[i] = append(found[i], coin)
			}
		})
	}
	wait.Wait()
	return slices.Concat(found...)
}

// withOthers puts other rows behind those of their network. Of a node that told nothing one row says so.
func withOthers(rows, others []BalanceRow) (all []BalanceRow) {
	all = []BalanceRow{}
	isSilent := map[string]bool{}
	for i, row := range rows {
		all = append(all, row)
		isSilent[row.Network] = isSilent[row.Network] || row.Error != ""
		if i+1 < len(rows) && rows[i+1].Network == row.Network {
			continue
		}
		for _, other := range others {
			if other.Network == row.Network && !(other.Error != "" && isSilent[row.Network]) {
				all = append(all, other)
			}
		}
	}
	return all
}
