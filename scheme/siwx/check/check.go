// Package check decides whether a sign-in may be signed (sign-in-with-x, CAIP-122).
//
// What must stay true: the text names the site that the ledger's row is for and the account that signs, it is
// good now, and the row moves nothing: a sign-in is no way around the limits.
package check

import (
	"context"
	"encoding/hex"

	"github.com/mr-tron/base58"

	"x402-wallet/history"
	"x402-wallet/scheme/signing"
	"x402-wallet/wallet"
	"x402-wallet/x402"
)

// Check is a signing.Check.
type Check struct{}

// Read implements signing.Check. The message is the text that is signed.
func (Check) Read(_ context.Context, q signing.Question) (signing.Message, error) {
	p := q.Payment
	m, err := x402.ReadSignInText(string(q.Message))
	if err != nil {
		return nil, signing.Refuse("it is not the text of a sign-in")
	}
	origin, err := x402.Origin(p.URL)
	if err != nil {
		return nil, signing.Refuse("its row names no site")
	}
	if err := m.CheckBound(origin, q.Now); err != nil {
		return nil, signing.Refuse("%v", err)
	}
	account := map[string]string{"eip155": q.Account.EVM,
		"solana": q.Account.Solana}[x402.Namespace(p.Network)]
	err = signing.Compare(
		signing.Is("kind", isFree(p)),
		signing.Is("site", m.Domain == p.Host),
		signing.Is("chain", m.ChainID == p.Network),
		signing.Is("account", account != "" && m.Address == account && p.Source == account))
	if err != nil {
		return nil, err
	}
	return signIn{signing.Basis{Asks: signing.Terms{IsSignIn: true}, Bytes: q.Message}, m}, nil
}

// isFree reports whether a row moves nothing.
func isFree(p history.Payment) bool {
	return p.Amount.IsZero() && p.Price == 0 && p.PayTo == "" && p.Asset == ""
}

type signIn struct {
	signing.Basis
	x402.SignIn
}

// Sign implements signing.Message.
func (s signIn) Sign(ctx context.Context, by *wallet.Account) ([]byte, error) {
	return by.SignIn(ctx, string(s.Bytes))
}

// Signed implements signing.Message. The wallet has verified the signature.
func (s signIn) Signed(signature []byte) (history.Signed, error) {
	m := s.SignIn
	m.Signature = EncodeSignature(m, signature)
	return history.Signed{Evidence: m.Evidence()}, nil
}

// EncodeSignature is a signature as the message's kind of account writes it.
func EncodeSignature(m x402.SignIn, signature []byte) string {
	if x402.IsSolana(m.ChainID) {
		return base58.Encode(signature)
	}
	return "0x" + hex.EncodeToString(signature)
}
