package client

import (
	"context"

	"x402-wallet/scheme/siwx/check"
	"x402-wallet/x402"
	"x402-wallet/x402/onchain"
)

// SignIns signs in with the account that pays. It is a pay.SignInSigner.
type SignIns struct {
	EVM, Solana Signer
}

// signer is who signs in on a network; false: nobody does.
func (s SignIns) signer(network string) (Signer, bool) {
	switch x402.Namespace(network) {
	case "eip155":
		return s.EVM, true
	case "solana":
		return s.Solana, true
	}
	return Signer{}, false
}

// Address is the account that signs in on a network; "": none does.
func (s SignIns) Address(network string) string {
	signer, _ := s.signer(network)
	return signer.Account
}

// SignIn signs a message for the row of that id, and verifies what it gives back. Errors: the wallet's, the
// agent's refusal, or a *x402.SignInError where the message is none.
func (s SignIns) SignIn(ctx context.Context, id string, m x402.SignIn) (x402.SignIn, error) {
	text, err := m.Text()
	if err != nil {
		return m, err
	}
	signer, _ := s.signer(m.ChainID)
	d := onchain.Draft{Payment: id, Message: []byte(text), Length: 65}
	if x402.IsSolana(m.ChainID) {
		d.Length = 64
	}
	signature, err := signer.Sign(ctx, d)
	if err != nil {
		return m, err
	}
	m.Signature = check.EncodeSignature(m, signature)
	if m.VerifySignature() != nil { // what is shown is what was asked for
		return m, garbled()
	}
	return m, nil
}
