package evm

import (
	"context"

	"x402-wallet/chain/evm/message"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// The extension erc20ApprovalGasSponsoring: a facilitator brings to the chain, in front of the payment, a
// transaction of the payer's own that approves Permit2, and sends the payer coins for its gas where they
// lack. It is for tokens that know no EIP-2612. Where the owner says what it may cost (approval_gas) one is
// signed, for Permit2 alone and for exactly the payment's amount; the reference client's has no limit. It
// has an account nonce: any later transaction of the account ends it, and it ends one that was signed with
// the same.

// approvalGas prepares the transaction that approves a payment. Errors: those of approveTransaction, and
// POLICY_DENIED where its gas may cost more than the owner allows.
func (p *Permitted) approvalGas(ctx context.Context, n *node, asset x402.AssetInfo, amount money.Amount) (
	*message.ApprovalGas, error) {
	t, _, err := p.approveTransaction(ctx, n, asset, amount)
	if err != nil {
		return nil, err
	}
	most := p.gasOfApprovals[n.Network]
	if cost := t.MaxCost(); cost.Cmp(most) > 0 {
		return nil, x402.Errorf(x402.PolicyDenied, "the approval that the seller would send may cost %s of "+
			"gas on %s, and approval_gas allows %s", coin(cost), x402.Title(n.Network), coin(most)).
			WithDetail("gasWei", cost).WithDetail("limit", most).
			WithHint("nothing was signed; wait until gas costs less, or the owner raises approval_gas under "+
				"[networks.%q] in config.toml", n.Network)
	}
	return &message.ApprovalGas{Nonce: t.Nonce, Gas: t.Gas, MaxFee: t.MaxFee, Tip: t.Tip}, nil
}
