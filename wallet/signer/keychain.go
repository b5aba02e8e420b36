package signer

import (
	"context"

	"x402-wallet/wallet"
	"x402-wallet/wallet/imported"
)

// keychain is a key that is an item of the system's keychain. Package wallet reads and uses it: no key is
// handed to this one.
type keychain struct{ key imported.KeychainKey }

func (k keychain) address(ctx context.Context) (string, error) { return k.key.Address(ctx) }

func (k keychain) sign(ctx context.Context, o wallet.Order) ([]byte, error) {
	return k.key.Sign(ctx, o)
}
