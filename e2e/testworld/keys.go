package testworld

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"testing"

	"github.com/ethereum/go-ethereum/crypto"
	"github.com/gagliardetto/solana-go"
	"github.com/stretchr/testify/require"

	"x402-wallet/chain/evm"
	"x402-wallet/x402"
)

// EVMKey signs EIP-3009 transfers as a wallet does, without asking anybody. It is an evm.Signer.
type EVMKey struct{ Private *ecdsa.PrivateKey }

// NewEVMKey makes a random one.
func NewEVMKey(t testing.TB) EVMKey {
	t.Helper()
	private, err := crypto.GenerateKey()
	require.NoError(t, err)
	return EVMKey{Private: private}
}

// Address is the key's, with EIP-55's checksum.
func (k EVMKey) Address() string { return crypto.PubkeyToAddress(k.Private.PublicKey).Hex() }

// SignTransfer signs a transfer's digest; v is 27 or 28.
func (k EVMKey) SignTransfer(_ context.Context, t evm.Transfer) (signature [65]byte, err error) {
	made, err := crypto.Sign(t.Digest[:], k.Private)
	if err != nil {
		return signature, err
	}
	copy(signature[:], made)
	signature[64] += 27
	return signature, nil
}

// SolanaKey signs transactions as a wallet does, without asking anybody. It is an svm.Signer.
type SolanaKey struct{ Private ed25519.PrivateKey }

// NewSolanaKey makes a random one.
func NewSolanaKey(t testing.TB) SolanaKey {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	return SolanaKey{Private: private}
}

// Address is the key's, in base58.
func (k SolanaKey) Address() string {
	return solana.PublicKeyFromBytes(k.Private.Public().(ed25519.PublicKey)).String()
}

// SignTransfer signs a transaction's message.
func (k SolanaKey) SignTransfer(_ context.Context, _ string, message []byte) ([64]byte, error) {
	return [64]byte(ed25519.Sign(k.Private, message)), nil
}

// Code requires that an error has a code, and gives it with its hint and details.
func Code(t testing.TB, want x402.Code, err error) *x402.Error {
	t.Helper()
	require.Error(t, err)
	coded := x402.AsError(err)
	require.Equal(t, want, coded.Code, "%v", err)
	return coded
}
