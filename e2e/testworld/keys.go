package testworld

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"testing"

	"github.com/ethereum/go-ethereum/crypto"
	"github.com/gagliardetto/solana-go"
	"github.com/stretchr/testify/require"

	"x402-wallet/chain/evm"
	"x402-wallet/chain/evm/message"
	"x402-wallet/chain/svm"
	"x402-wallet/chain/svm/decode"
)

// NewEVMKey makes a random key that signs EIP-3009 transfers as a wallet does, without asking anybody.
func NewEVMKey(t testing.TB) evm.Signer {
	t.Helper()
	private, err := crypto.GenerateKey()
	require.NoError(t, err)
	return evmKey{private}
}

type evmKey struct{ private *ecdsa.PrivateKey }

func (k evmKey) Address() string { return crypto.PubkeyToAddress(k.private.PublicKey).Hex() }

func (k evmKey) SignTransfer(_ context.Context, t message.Transfer) (signature [65]byte, err error) {
	made, err := crypto.Sign(t.Digest[:], k.private)
	copy(signature[:], made)
	signature[64] += 27
	return signature, err
}

func (k evmKey) SignPermit2(ctx context.Context, d message.PermitDraft) (permit, approval [65]byte,
	err error) {
	permit, err = k.SignTransfer(ctx, message.Transfer{Digest: d.Digest})
	if err != nil || d.Approval == nil {
		return permit, approval, err
	}
	digest, err := message.PermitDigest(d.Asset, *d.Approval)
	if err != nil {
		return permit, approval, err
	}
	approval, err = k.SignTransfer(ctx, message.Transfer{Digest: digest})
	return permit, approval, err
}

// NewSolanaKey makes a random key that signs transactions as a wallet does, without asking anybody.
func NewSolanaKey(t testing.TB) svm.Signer {
	t.Helper()
	_, private, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	return solanaKey{private}
}

type solanaKey struct{ private ed25519.PrivateKey }

func (k solanaKey) Address() string {
	return solana.PublicKeyFromBytes(k.private.Public().(ed25519.PublicKey)).String()
}

func (k solanaKey) SignTransfer(_ context.Context, d decode.Draft) ([64]byte, error) {
	return [64]byte(ed25519.Sign(k.private, d.Message)), nil
}
