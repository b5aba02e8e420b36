// Package signatures says who signed something that is no payment: sign-ins, offers, receipts. Payments are
// judged by the chains' packages.
//
// What must stay true: a signature that fits is the account's own. Those that fit many messages are refused.
package signatures

import (
	"crypto/ed25519"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"
	"github.com/decred/dcrd/dcrec/secp256k1/v4/ecdsa"
	"golang.org/x/crypto/sha3"

	"x402-wallet/x402"
)

var errNotSigned = errors.New("no signature")

func Keccak256(parts ...[]byte) (sum [32]byte) {
	h := sha3.NewLegacyKeccak256()
	for _, p := range parts {
		h.Write(p)
	}
	h.Sum(sum[:0])
	return sum
}

// RecoverEVM is the account, with the capitals of EIP-55, whose key signed digest: r ‖ s ‖ v, v 27, 28, 0
// or 1, s in the lower half (EIP-2).
func RecoverEVM(digest [32]byte, signature [65]byte) (string, error) {
	v := signature[64]
	if v < 27 {
		v += 27
	}
	var s secp256k1.ModNScalar
	overflow := s.SetByteSlice(signature[32:64])
	if v > 28 || overflow || s.IsOverHalfOrder() {
		return "", errNotSigned
	}
	key, _, err := ecdsa.RecoverCompact(append([]byte{v}, signature[:64]...), digest[:])
	if err != nil {
		return "", errNotSigned
	}
	return AccountOf(key), nil
}

// AccountOf is the account of a key, with the capitals of EIP-55.
func AccountOf(key *secp256k1.PublicKey) string {
	sum := Keccak256(key.SerializeUncompressed()[1:])
	text := []byte(hex.EncodeToString(sum[12:]))
	capitals := Keccak256(text)
	for i, c := range text {
		if nibble := capitals[i/2] >> (4 * (1 - i%2)) & 0xf; c >= 'a' && nibble >= 8 {
			text[i] = c - 'a' + 'A'
		}
	}
	return "0x" + string(text)
}

// smallOrder are the encodings of the points of small order on edwards25519, without their sign: for them
// signatures can be made that fit many messages, and nobody has their secret.
var smallOrder = []string{
	"0000000000000000000000000000000000000000000000000000000000000000",
	"0100000000000000000000000000000000000000000000000000000000000000",
	"26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
	"c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
	"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	"edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	"eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
}

// VerifyEd25519 is RFC 8032's verification for keys that somebody can have.
func VerifyEd25519(public, message, signature []byte) bool {
	if len(public) != ed25519.PublicKeySize {
		return false
	}
	unsigned := append([]byte{}, public...)
	unsigned[31] &= 0x7f
	for _, point := range smallOrder {
		if hex.EncodeToString(unsigned) == point {
			return false
		}
	}
	return ed25519.Verify(public, message, signature)
}

// VerifySignIn refuses a message that the account named in it did not sign: by EIP-191 for an EVM account of
// its own key, by ed25519 for a Solana one, of which keys of small order are refused. Contracts' signatures
// (ERC-1271) are not looked at. Errors: *x402.SignInError.
func VerifySignIn(s x402.SignIn) error {
	text, err := s.Text()
	if err != nil {
		return err
	}
	if x402.IsSolana(s.ChainID) {
		public, signature := x402.DecodeBase58(s.Address, 32), x402.DecodeBase58(s.Signature, 64)
		if public == nil || signature == nil {
			return malformed("its address or signature is not base58 of its length")
		}
		if !VerifyEd25519(public, []byte(text), signature) {
			return notTheirs
		}
		return nil
	}
	signature, err := hex.DecodeString(strings.TrimPrefix(s.Signature, "0x"))
	if err != nil || len(signature) != 65 || !strings.HasPrefix(s.Signature, "0x") {
		return malformed("its signature is not 65 bytes in hex; contracts' are not taken")
	}
	signer, err := RecoverEVM(personalHash(text), [65]byte(signature))
	if err != nil || !strings.EqualFold(signer, s.Address) {
		return notTheirs
	}
	return nil
}

var notTheirs = &x402.SignInError{Reason: "invalid_siwx_signature",
	Message: "the account named in it did not sign it"}

func malformed(why string) error {
	return &x402.SignInError{Reason: "invalid_siwx_malformed_signature", Message: why}
}

// personalHash is the hash of a text that EIP-191 (version 0x45, "personal_sign") signs.
func personalHash(text string) [32]byte {
	return Keccak256([]byte("\x19Ethereum Signed Message:\n" + strconv.Itoa(len(text)) + text))
}
