package testworld

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/crypto"
	"github.com/gagliardetto/solana-go"
	"github.com/stretchr/testify/require"

	"x402-wallet/history"
	exact "x402-wallet/scheme/exact/check"
	"x402-wallet/scheme/signing"
	siwx "x402-wallet/scheme/siwx/check"
	"x402-wallet/wallet"
	"x402-wallet/wallet/agent"
	"x402-wallet/wallet/agent/client"
	"x402-wallet/x402"
	"x402-wallet/x402/onchain"
)

// NewEVMKey makes a random key that signs as a wallet does, without asking anybody.
func NewEVMKey(t testing.TB) onchain.Signer {
	t.Helper()
	private, err := crypto.GenerateKey()
	require.NoError(t, err)
	return evmKey{private}
}

type evmKey struct{ private *ecdsa.PrivateKey }

func (k evmKey) Address() string { return crypto.PubkeyToAddress(k.private.PublicKey).Hex() }

// Sign signs each digest of a draft.
func (k evmKey) Sign(_ context.Context, d onchain.Draft) (signatures []byte, err error) {
	for _, digest := range d.Signs {
		made, err := crypto.Sign(digest, k.private)
		if err != nil {
			return nil, err
		}
		made[64] += 27
		signatures = append(signatures, made...)
	}
	return signatures, nil
}

// NewSolanaKey makes a random key that signs transactions as a wallet does, without asking anybody.
func NewSolanaKey(t testing.TB) onchain.Signer {
	t.Helper()
	_, private, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	return solanaKey{private}
}

type solanaKey struct{ private ed25519.PrivateKey }

func (k solanaKey) Address() string {
	return solana.PublicKeyFromBytes(k.private.Public().(ed25519.PublicKey)).String()
}

// Sign signs the message of a draft.
func (k solanaKey) Sign(_ context.Context, d onchain.Draft) ([]byte, error) {
	return ed25519.Sign(k.private, d.Signs[0]), nil
}

// Signers sign with a wallet's own account what is reserved in a ledger, by the checks of the schemes exact
// and sign-in-with-x.
func Signers(store *history.Store, keys *wallet.Wallet) (onEVM, onSolana client.Signer) {
	onEVM.Local = &agent.Recorder{Store: store, Now: time.Now,
		Rules: agent.Rules{Schemes: []string{x402.Exact},
			Assets: x402.NewRegistry(nil), MaxTimeout: time.Hour, Checks: map[string]signing.Check{
				x402.Exact: exact.Check{}, x402.SignInScheme: siwx.Check{}}},
		Account: keys.AccountNamed}
	onSolana = onEVM
	onSolana.Account, onEVM.Account = keys.Addresses()
	return onEVM, onSolana
}
