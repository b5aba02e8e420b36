package evm

import (
	"context"

	"x402-wallet/chain/evm/message"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// Holdings says which tokens the agent has something of, and how much of the network's coin, in wei: one
// question for each. A token that the node does not tell of is among them, so that its own row says why.
// Errors are those of the question for the coin.
func (e *Exact) Holdings(ctx context.Context, network string, tokens []x402.AssetInfo) (some []x402.AssetInfo,
	coin money.Amount, err error) {
	n, err := e.Node(network)
	if err != nil {
		return nil, coin, err
	}
	self, err := e.Self()
	if err != nil {
		return nil, coin, err
	}
	has := make([]bool, len(tokens))
	questions := []func() error{func() (err error) {
		coin, err = n.Coins(ctx, self, Latest)
		return err
	}}
	for i, token := range tokens {
		questions = append(questions, func() error {
			address, err := message.ParseAddress(token.Address)
			if err != nil {
				return nil //nolint:nilerr // it is no token of this chain
			}
			word, err := n.Read(ctx, address, Latest, SelectBalanceOf, message.Word(self))
			has[i] = err != nil || !message.AmountOf(word).IsZero()
			return nil //nolint:nilerr // a token that does not say is shown
		})
	}
	if err := Together(questions...); err != nil {
		return nil, coin, err
	}
	for i, token := range tokens {
		if has[i] {
			some = append(some, token)
		}
	}
	return some, coin, nil
}
