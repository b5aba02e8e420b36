//go:build linux || darwin || windows

package agent_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
	"x402-wallet/history"
	"x402-wallet/history/verify"
	"x402-wallet/internal/must"
	. "x402-wallet/wallet/agent"
	"x402-wallet/wallet/agent/client"
	"x402-wallet/wallet/seal"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/wire"
)

// signInRow makes a reserved payment a reserved sign-in.
func (w *world) signInRow(change func(*history.Payment)) history.Payment {
	return w.reserve(0, func(p *history.Payment) {
		p.Scheme, p.Asset, p.Symbol, p.PayTo = x402.SignInScheme, "", "", ""
		if change != nil {
			change(p)
		}
	})
}

// message is the honest one for such a row.
func (w *world) message(change func(*x402.SignIn)) x402.SignIn {
	m := x402.SignIn{Domain: "api.example", Address: w.evm, URI: "https://api.example/x", Version: "1",
		ChainID: base, Type: "eip191", Nonce: "a1b2c3d4e5f6", IssuedAt: time.Now().UTC().Format(time.RFC3339)}
	if change != nil {
		change(&m)
	}
	return m
}

func (w *world) signsIn() client.SignIns {
	turn := *w.client.Client
	turn.Before = func() bool { return true }
	signer := client.Signer{Remote: &turn}
	onEVM, onSolana := signer, signer
	onEVM.Account, onSolana.Account = w.evm, w.solana
	return client.SignIns{EVM: onEVM, Solana: onSolana}
}

func allowSignIn(r *Rules) { r.Budget.SignIn = budget.RuleAllow }

// The agent signs in for a row that is reserved, once; the row is sealed before the signature is out, costs
// nothing, and the ledger is whole.
func TestTheAgentSignsIn(t *testing.T) {
	w := newWorld(t)
	w.allow(allowSignIn)
	row := w.signInRow(nil)
	m := must.Get(w.signsIn().SignIn(t.Context(), row.ID, w.message(nil)))(t)
	require.NoError(t, wire.VerifySignIn(m, "https://api.example", time.Now()))
	p := must.Get(w.store.Payment(t.Context(), row.ID))(t)
	require.Equal(t, history.Submitted, p.State)
	require.Equal(t, m.Evidence().Unique(), p.Evidence.Unique())
	require.NoError(t, verify.Owned(t.Context(), w.guard.Store, w.guard))

	_, err := w.signsIn().SignIn(t.Context(), row.ID, w.message(nil))
	w.refused(err, "submitted, not reserved")

	solana := w.signInRow(func(p *history.Payment) {
		p.Network, p.Source = "solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1", w.solana
	})
	m = must.Get(w.signsIn().SignIn(t.Context(), solana.ID, w.message(func(m *x402.SignIn) {
		m.ChainID, m.Type, m.Address = solana.Network, "ed25519", w.solana
	})))(t)
	require.NoError(t, wire.VerifySignIn(m, "https://api.example", time.Now()))
	require.NoError(t, verify.Owned(t.Context(), w.guard.Store, w.guard))
}

// Whatever is not the reserved sign-in gets no signature: no other site, account or chain, no payment's row,
// and no row that would move money.
func TestTheAgentSignsInNowhereElse(t *testing.T) {
	w := newWorld(t)
	w.allow(allowSignIn)
	for why, change := range map[string]func(*x402.SignIn){
		"domain_mismatch":   func(m *x402.SignIn) { m.Domain, m.URI = "b.example", "https://b.example" },
		"uri_mismatch":      func(m *x402.SignIn) { m.URI = "https://evil.example" },
		"its chain":         func(m *x402.SignIn) { m.ChainID = "eip155:8453" },
		"its account":       func(m *x402.SignIn) { m.Address = payee },
		"issued_at_too_old": func(m *x402.SignIn) { m.IssuedAt = "2025-02-27T15:56:28Z" },
	} {
		_, err := w.signsIn().SignIn(t.Context(), w.signInRow(nil).ID, w.message(change))
		w.refused(err, why)
	}
	for name, change := range map[string]func(*history.Payment){
		"a price":  func(p *history.Payment) { p.Price = 1 },
		"amount":   func(p *history.Payment) { p.Amount = money.NewAmount(1) },
		"a payee":  func(p *history.Payment) { p.PayTo = payee },
		"an asset": func(p *history.Payment) { p.Asset = usdc.Address },
		"payment":  func(p *history.Payment) { p.Scheme = x402.Exact },
	} {
		_, err := w.signsIn().SignIn(t.Context(), w.signInRow(change).ID, w.message(nil))
		why := "its kind"
		if name == "payment" {
			why = "cannot be read"
		}
		w.refused(err, why)
	}
	_, err := w.signsIn().SignIn(t.Context(), "pay_none", w.message(nil))
	w.refused(err, "no such payment")
	_, err = w.client.Sign(t.Context(), w.signInRow(nil).ID, []byte("hello"))
	w.refused(err, "not the text of a sign-in")

	transfer := w.transfer(w.signInRow(nil)) // and no payment is signed for a sign-in's row
	transfer.Authorization.To, transfer.Authorization.Value = payee, money.NewAmount(1)
	requireCode(t, must.Err(w.client.SignTransfer(t.Context(), transfer)), x402.PolicyDenied)
}

// By policy.sign_in nobody is signed in to, or a person is asked once for each host, whose word is the
// owner's seal.
func TestTheAgentSignsInAsTheOwnerSays(t *testing.T) {
	w := newWorld(t)
	w.allow(func(r *Rules) { r.Budget.SignIn = budget.RuleRefuse })
	_, err := w.signsIn().SignIn(t.Context(), w.signInRow(nil).ID, w.message(nil))
	w.refused(err, "does not let the wallet sign in")

	w.allow(func(r *Rules) { r.Budget.SignIn = budget.RuleAsk })
	_, err = w.signsIn().SignIn(t.Context(), w.signInRow(nil).ID, w.message(nil))
	requireCode(t, err, x402.ApprovalRequired)

	w.approve = true
	row := w.signInRow(nil)
	w.approve = false
	must.Get(w.signsIn().SignIn(t.Context(), row.ID, w.message(nil)))(t)
	again := w.message(func(m *x402.SignIn) { m.Nonce = "another1" })
	_, err = w.signsIn().SignIn(t.Context(), w.signInRow(nil).ID, again)
	require.NoError(t, err, "the host is known now")
	elsewhere := w.signInRow(func(p *history.Payment) { p.Host, p.URL = "b.example", "https://b.example/x" })
	requireCode(t, must.Err(w.signsIn().SignIn(t.Context(), elsewhere.ID, w.message(func(m *x402.SignIn) {
		m.Domain, m.URI = "b.example", "https://b.example/x"
	}))), x402.ApprovalRequired)
	require.NoError(t, verify.Owned(t.Context(), w.guard.Store, w.guard))

	// Accepting the ledger as it is keeps what is known of hosts.
	require.NoError(t, w.guard.Seal(t.Context(), true))
	fresh := &seal.Guard{Home: w.home, Rules: w.guard.Rules, Store: w.store, Key: w.keys}
	require.NoError(t, verify.Owned(context.Background(), fresh.Store, fresh))
	must.Get(w.signsIn().SignIn(t.Context(), w.signInRow(nil).ID, w.message(func(m *x402.SignIn) {
		m.Nonce = "another2"
	})))(t)
}
