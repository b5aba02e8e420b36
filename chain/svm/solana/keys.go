// Package solana has the words that Solana's transactions are made of, and makes what is signed of one.
//
// What must stay true: a message says what its instructions say and nothing else, in the one order that
// the runtime takes. Nothing here reads a message. Who signs one reads it back by a decoder that shares
// nothing with this (chain/svm/decode.go, wallet/solana.go).
//
// The files: keys.go (keys, hashes, signatures), pda.go (addresses without a key), message.go.
package solana

import (
	"errors"

	"filippo.io/edwards25519"

	"x402-wallet/x402/base58"
)

// PublicKey is an address: an Ed25519 key, or 32 bytes that are none.
type PublicKey [32]byte

// Hash is a blockhash.
type Hash [32]byte

// Signature is an Ed25519 signature. A transaction's first one is its id.
type Signature [64]byte

// ErrAddress says that a text is not base58 of 32 bytes.
var ErrAddress = errors.New("not a Solana address")

var errSignature = errors.New("not a Solana signature")

// ParseKey reads the one base58 spelling of 32 bytes, on the curve or off it. Error: ErrAddress.
func ParseKey(text string) (PublicKey, error) {
	data := base58.Decode(text, len(PublicKey{}))
	if data == nil {
		return PublicKey{}, ErrAddress
	}
	return PublicKey(data), nil
}

// MustKey is ParseKey for constants. It panics where they are none.
func MustKey(text string) PublicKey {
	key, err := ParseKey(text)
	if err != nil {
		panic("solana: " + text + " is " + err.Error())
	}
	return key
}

// ParseSignature reads the one base58 spelling of 64 bytes.
func ParseSignature(text string) (Signature, error) {
	data := base58.Decode(text, len(Signature{}))
	if data == nil {
		return Signature{}, errSignature
	}
	return Signature(data), nil
}

// String is base58.
func (k PublicKey) String() string { return base58.Encode(k[:]) }

// String is base58.
func (h Hash) String() string { return base58.Encode(h[:]) }

// String is base58.
func (s Signature) String() string { return base58.Encode(s[:]) }

// MarshalText is base58: keys are arguments of a node's methods.
func (k PublicKey) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// IsZero reports whether it is 32 zero bytes: nobody's key, and the System program's address.
func (k PublicKey) IsZero() bool { return k == PublicKey{} }

// IsZero reports whether nobody has signed.
func (s Signature) IsZero() bool { return s == Signature{} }

// IsOnCurve reports whether somebody may have the key: whether it decompresses to a point, as the runtime's
// curve25519-dalek sees it. That takes y modulo p, and x = 0 with either sign, as edwards25519 does.
func (k PublicKey) IsOnCurve() bool {
	_, err := new(edwards25519.Point).SetBytes(k[:])
	return err == nil
}
