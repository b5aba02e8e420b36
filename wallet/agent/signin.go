package agent

import (
	"context"
	"encoding/hex"

	"github.com/mr-tron/base58"

	"x402-wallet/history"
	"x402-wallet/x402"
)

// Signing in (sign-in-with-x): as with payments the unlock agent is given the text and the row's id, reads
// the text itself, and signs it only if it is what the row was reserved for.

// EncodeSignIn is a signature as the message's kind of account writes it.
func EncodeSignIn(m x402.SignIn, signature []byte) string {
	if x402.IsSolana(m.ChainID) {
		var s [64]byte
		copy(s[:], signature)
		return base58.Encode(s[:])
	}
	return "0x" + hex.EncodeToString(signature)
}

// signIn signs the text of a sign-in that is reserved in the ledger.
func (s *Server) signIn(ctx context.Context, q Request) ([]byte, error) {
	rules, p, err := s.payment(ctx, q.Payment)
	if err != nil {
		return nil, err
	}
	by, err := s.Account(rules.Budget.Account)
	if err != nil {
		return nil, err
	}
	m, err := x402.ReadSignInText(q.Text)
	if err != nil {
		return nil, refuse("it is not the text of a sign-in")
	}
	origin, err := x402.Origin(p.URL)
	if err != nil {
		return nil, refuse("its row names no site")
	}
	if err := m.CheckBound(origin, s.Now()); err != nil {
		return nil, refuse("%v", err)
	}
	payers := map[string]string{"eip155": by.EVM.Address(), "solana": by.Solana.Address()}
	payer := payers[x402.Namespace(p.Network)]
	err = compare([]field{
		{name: "kind", same: p.IsSignIn() && isFree(p)},
		{name: "state", same: p.State == history.Reserved && !p.Created.Before(s.Started)},
		{name: "site", same: m.Domain == p.Host},
		{name: "chain", same: m.ChainID == p.Network},
		{name: "account", same: payer != "" && m.Address == payer && p.Source == payer},
	})
	if err != nil {
		return nil, err
	}
	signature, err := by.SignIn(ctx, q.Text)
	if err != nil {
		return nil, err
	}
	m.Signature = EncodeSignIn(m, signature)
	if err := m.VerifySignature(); err != nil {
		return nil, refuse("%v", err)
	}
	return s.recorded(ctx, rules, p, history.Signed{Evidence: m.Evidence()}, []byte(q.Text), signature)
}

// isFree reports whether a row moves nothing: a sign-in must not be a way around the limits.
func isFree(p history.Payment) bool {
	return p.Amount.IsZero() && p.Price == 0 && p.PayTo == "" && p.Asset == ""
}
