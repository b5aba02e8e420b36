package evm

import (
	"context"
	"encoding/json"

	"github.com/ethereum/go-ethereum/common"

	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// The extension erc20ApprovalGasSponsoring: a facilitator brings to the chain, in front of the payment, a
// transaction of the payer's own that approves Permit2, and sends the payer coins for its gas where they
// lack. It is for tokens that know no EIP-2612. Where the owner says what it may cost (approval_gas) one is
// signed, for Permit2 alone and for exactly the payment's amount; the reference client's has no limit. It
// has an account nonce: any later transaction of the account ends it, and it ends one that was signed with
// the same.

// ApprovalGas is what a payment's approval by a transaction has of its own; all else in it is the payment's.
type ApprovalGas struct {
	Nonce  uint64       `json:"nonce"` // of the account that pays
	Gas    uint64       `json:"gas"`
	MaxFee money.Amount `json:"maxFee"` // wei for each gas, as is Tip
	Tip    money.Amount `json:"tip"`
}

// MaxCost is the most that its gas may cost, in wei.
func (g ApprovalGas) MaxCost() money.Amount { return g.MaxFee.Times(g.Gas) }

// approvalGas prepares the transaction that approves a payment. Errors: those of approveTransaction, and
// POLICY_DENIED where its gas may cost more than the owner allows.
func (p *Permitted) approvalGas(ctx context.Context, n *node, asset x402.AssetInfo, amount money.Amount) (
	*ApprovalGas, error) {
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
	return &ApprovalGas{Nonce: t.Nonce, Gas: t.Gas, MaxFee: t.MaxFee, Tip: t.Tip}, nil
}

// approvalTransaction is the transaction that d's signer signs.
func (d PermitDraft) approvalTransaction() (tx transaction, err error) {
	chain, err := chainID(d.Asset.Network)
	if err != nil {
		return tx, err
	}
	a, g := d.Authorization, d.Transaction
	return transaction{chainID: chain, nonce: g.Nonce, gas: g.Gas, tip: g.Tip, maxFee: g.MaxFee,
		to: common.HexToAddress(a.Token).Bytes(), data: approveData(common.HexToAddress(Permit2Address), a.Amount)}, nil
}

// approvalJSON is what a buyer adds to the extension's info.
type approvalJSON struct {
	From              string `json:"from"`
	Asset             string `json:"asset"`
	Spender           string `json:"spender"`
	Amount            string `json:"amount"`
	SignedTransaction string `json:"signedTransaction"`
}

// encodeApproval is the extension with what a buyer adds to it: {"info":{…}}, once the signature is shown to
// be the payer's.
func encodeApproval(d PermitDraft, signature [65]byte) (json.RawMessage, error) {
	tx, err := d.approvalTransaction()
	if err != nil {
		return nil, err
	}
	a := d.Authorization
	signed, _, err := tx.signed(signature, a.From)
	if err != nil {
		return nil, err
	}
	return json.Marshal(map[string]approvalJSON{"info": {From: a.From, Asset: a.Token,
		Spender: Permit2Address, Amount: a.Amount.String(), SignedTransaction: hexText(signed)}})
}
