package client

import (
	"context"
	"errors"

	"x402-wallet/wallet"
	"x402-wallet/wallet/agent"
	"x402-wallet/x402"
)

// SignIns signs in with the wallet's accounts: in this process, or by the unlock agent where it is its turn.
// It is a pay.SignInSigner.
type SignIns struct {
	Keys   *wallet.Account
	Remote *Client // nil: none
}

// Address is the account that signs in on a network; "": none does.
func (s SignIns) Address(network string) string {
	solana, evm := s.Keys.Addresses()
	switch x402.Namespace(network) {
	case "eip155":
		return evm
	case "solana":
		return solana
	}
	return ""
}

// SignIn signs a message for the row of that id, and verifies what it gives back. Errors: the wallet's, the
// agent's refusal, or a *x402.SignInError where the message is none.
func (s SignIns) SignIn(ctx context.Context, id string, m x402.SignIn) (x402.SignIn, error) {
	text, err := m.Text()
	if err != nil {
		return m, err
	}
	var signature []byte
	err = ErrNone
	if s.Remote.first() {
		signature, err = s.Remote.call(ctx, agent.Request{Op: "sign-in", Payment: id, Text: text})
	}
	if errors.Is(err, ErrNone) {
		signature, err = s.Keys.SignIn(ctx, text)
	}
	if err != nil {
		return m, err
	}
	m.Signature = agent.EncodeSignIn(m, signature)
	if m.VerifySignature() != nil { // what is shown is what was asked for
		return m, garbled()
	}
	return m, nil
}
