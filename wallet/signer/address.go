package signer

import (
	"crypto/ed25519"
	"errors"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"

	"x402-wallet/wallet"
	"x402-wallet/wallet/internal/curve"
)

// addressOf is the address of a public key: a point of secp256k1, compressed or not, or the 32 bytes of
// Ed25519.
func addressOf(chain string, public []byte) (string, error) {
	if chain == wallet.ChainSolana {
		if len(public) != ed25519.PublicKeySize {
			return "", errors.New("not an Ed25519 key")
		}
		return curve.Base58(public), nil
	}
	key, err := secp256k1.ParsePubKey(public)
	if err != nil {
		return "", err
	}
	return curve.EVMAddressOf(key), nil
}
