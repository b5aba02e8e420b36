package wallet

import (
	"context"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"

	"github.com/decred/dcrd/dcrec/secp256k1/v4/ecdsa"
)

// The two signers and Seal are the only use of the keys. Each signer has one
// method, for the one kind of message that its key may sign (kinds.go): there is
// no way to get any other bytes signed. What may be paid is decided before.

// EVMSigner signs with the secp256k1 key.
type EVMSigner struct{ w *Wallet }

// EVM is the signer for EVM chains. It unlocks the wallet when it has to sign.
func (w *Wallet) EVM() EVMSigner { return EVMSigner{w: w} }

// Address is 0x… with the EIP-55 checksum.
func (s EVMSigner) Address() string { return s.w.header.evm }

// signDigest signs a Keccak-256 digest: r ‖ s ‖ v, with v 27 or 28 and s in the
// lower half of the order (EIP-2). The same digest has the same signature (RFC
// 6979).
func (s EVMSigner) signDigest(ctx context.Context, digest [32]byte) (sig [65]byte, err error) {
	err = s.w.withKeys(ctx, func(k *keys) {
		compact := ecdsa.SignCompact(&k.evm, digest[:], false) // v ‖ r ‖ s
		copy(sig[:], compact[1:])
		sig[64] = compact[0]
	})
	return sig, err
}

// SolanaSigner signs with the Ed25519 key.
type SolanaSigner struct{ w *Wallet }

// Solana is the signer for Solana. It unlocks the wallet when it has to sign.
func (w *Wallet) Solana() SolanaSigner { return SolanaSigner{w: w} }

// Address is the public key in base58.
func (s SolanaSigner) Address() string { return s.w.header.solana }

// signMessage signs the bytes of a transaction's message (RFC 8032, pure).
func (s SolanaSigner) signMessage(ctx context.Context, msg []byte) (sig [64]byte, err error) {
	err = s.w.withKeys(ctx, func(k *keys) {
		copy(sig[:], ed25519.Sign(k.solana, msg))
	})
	return sig, err
}

// Seal is a MAC over data that only an unlocked wallet can make: HMAC-SHA-256,
// with a key from inside the keystore, over the length of purpose (8 bytes, big
// endian) ‖ purpose ‖ data. A seal made for one purpose is none for another. To
// check a seal, make it again and compare with hmac.Equal.
func (w *Wallet) Seal(ctx context.Context, purpose string, data []byte) (seal []byte, err error) {
	err = w.withKeys(ctx, func(k *keys) { seal = k.mac(purpose, data) })
	return seal, err
}

func (k *keys) mac(purpose string, data []byte) []byte {
	mac := hmac.New(sha256.New, k.seal[:])
	mac.Write(binary.BigEndian.AppendUint64(nil, uint64(len(purpose))))
	mac.Write([]byte(purpose))
	mac.Write(data)
	return mac.Sum(nil)
}
