package client

import (
	"context"

	"x402-wallet/scheme/siwx/check"
	"x402-wallet/x402"
	"x402-wallet/x402/onchain"
	"x402-wallet/x402/signatures"
)

// SignIns signs in with the account that pays. It is a pay.SignInSigner.
type SignIns struct {
	EVM, Solana Signer
}

// signer is who signs in on a network; the zero one where nobody does.
func (s SignIns) signer(network string) Signer {
	switch x402.Namespace(network) {
	case "eip155":
		return s.EVM
	case "solana":
		return s.Solana
	}
	return Signer{}
}

// Address is the account that signs in on a network; "": none does.
func (s SignIns) Address(network string) string {
	return s.signer(network).Account
}

// SignIn signs a message for the row of that id, and verifies what it gives back. Errors: the wallet's, the
// agent's refusal, or a *x402.SignInError where the message is none.
func (s SignIns) SignIn(ctx context.Context, id string, m x402.SignIn) (x402.SignIn, error) {
	text, err := m.Text()
	if err != nil {
		return m, err
	}
	d := onchain.Draft{Payment: id, Message: []byte(text), Length: 65}
	if x402.IsSolana(m.ChainID) {
		d.Length = 64
	}
	signature, err := s.signer(m.ChainID).Sign(ctx, d)
	if err != nil {
		return m, err
	}
	m.Signature = check.EncodeSignature(m, signature)
	if signatures.VerifySignIn(m) != nil { // what is shown is what was asked for
		return m, garbled()
	}
	return m, nil
}
