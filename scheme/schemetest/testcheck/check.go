// Package testcheck decides whether a cheque may be signed (package schemetest).
//
// What must stay true: payer, payee and amount are the reserved payment's, and the cheque is good for no
// longer than the owner's rules allow.
package testcheck

import (
	"context"

	"x402-wallet/chain/evm/message"
	"x402-wallet/history"
	"x402-wallet/scheme/signing"
	"x402-wallet/wallet"
	"x402-wallet/x402"
)

// Check is a signing.Check.
type Check struct{}

// Read implements signing.Check: it reads the cheque's six strings.
func (Check) Read(_ context.Context, q signing.Question) (signing.Message, error) {
	got, err := message.DecodeAuthorization(q.Message)
	if err != nil {
		return nil, signing.Refuse("it cannot be read")
	}
	p, payer := q.Payment, q.Account.EVM
	err = signing.Compare(
		signing.Is("payer", signing.SameAddress(got.From, payer) && signing.SameAddress(p.Source, payer)),
		signing.Is("payee", signing.SameAddress(got.To, p.PayTo)),
		signing.Is("amount", got.Value == p.Amount),
		signing.Is("validity", got.ValidAfter <= q.Now.Unix() && q.Lives(got.ValidBefore)))
	if err != nil {
		return nil, err
	}
	basis := signing.Basis{Asks: q.Costs(), Bytes: q.Message}
	return cheque{basis, message.Transfer{Asset: q.Asset, Authorization: got}}, nil
}

// cheque is a signing.Message.
type cheque struct {
	signing.Basis
	message.Transfer
}

func (c cheque) Sign(ctx context.Context, by *wallet.Account) ([]byte, error) {
	chain, ok := x402.ChainID(c.Asset.Network)
	if !ok {
		return nil, x402.Errorf(x402.Internal, "the asset is of no eip155 network")
	}
	a := c.Authorization
	signature, err := by.SignEVM(ctx, wallet.TransferWithAuthorization{
		ChainID: chain, Token: c.Asset.Address, Name: c.Asset.Name, Version: c.Asset.Version,
		From: a.From, To: a.To, Value: a.Value.Bytes32(), ValidAfter: uint64(a.ValidAfter),
		ValidBefore: uint64(a.ValidBefore), Nonce: a.Nonce})
	return signature[:], err
}

func (c cheque) Signed([]byte) (history.Signed, error) {
	return history.Signed{Evidence: c.Evidence()}, nil
}
