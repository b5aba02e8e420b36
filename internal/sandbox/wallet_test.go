package sandbox

import (
	"context"
	"crypto/rand"
	"net/http"
	"testing"
	"time"

	"github.com/gagliardetto/solana-go"
	"github.com/stretchr/testify/require"

	"x402-wallet/chain/svm"
	"x402-wallet/chain/svm/decode"
	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/wire"
)

type solanaPayer struct{ private solana.PrivateKey }

func (p solanaPayer) Address() string { return p.private.PublicKey().String() }

func (p solanaPayer) SignTransfer(_ context.Context, d decode.Draft) ([64]byte, error) {
	return sign(p.private, d.Message), nil
}

// The wallet's own Solana code and this package's, written apart, understand each other.
func TestTheWalletsSolana(t *testing.T) {
	s := start(t, Options{Finality: time.Second})
	agent := solanaPayer{newKey()}
	wallet := svm.New(svm.Options{Signer: agent, RPC: map[string]string{Solana: s.SolanaNodeURL},
		HTTP: &http.Client{}, Rand: rand.Reader, Now: s.Now})
	account := s.Delegate(agent.Address(), 3*mill)
	known := must.Get(decode.AssociatedAccount(s.Owner, s.solana.asset.Address, false))(t)
	require.Equal(t, account, known)

	sign := func() (*wire.Challenge, x402.Authorization) {
		funds := must.Get(wallet.Funds(t.Context(), Solana, s.solana.asset))(t)
		require.Equal(t, account, funds.Source)
		c := testworld.Challenge(t, s.SellerURL+"/solana")
		a, err := wallet.Authorize(t.Context(), x402.Order{Requirement: c.Accepts[0], Asset: s.solana.asset,
			Source: funds.Source, Validity: time.Minute, Now: s.Now()})
		require.NoError(t, err)
		return c, a
	}
	c, a := sign()
	status := must.Get(wallet.Status(t.Context(), a.Evidence))(t)
	require.Equal(t, x402.Open, status.State)
	answer := pay(t, s, "/solana", c, a.Payload)
	require.Equal(t, 200, answer.Status, answer)
	require.EqualValues(t, 2*mill, s.Delegated(account))
	status = must.Get(wallet.Status(t.Context(), a.Evidence))(t)
	require.Equal(t, x402.Settled, status.State)
	require.Equal(t, s.Settlements()[0].Transaction, status.Transaction)

	_, a = sign() // never sent
	s.Advance(155 * slotTime)
	status = must.Get(wallet.Status(t.Context(), a.Evidence))(t)
	require.Equal(t, x402.Expired, status.State, status.Note)
}
