package wire

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"math/big"
	"strings"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"
	decred "github.com/decred/dcrd/dcrec/secp256k1/v4/ecdsa"

	"x402-wallet/x402"
	"x402-wallet/x402/signatures"
)

// JSON Web Signatures (RFC 7515) by keys that a DID carries in itself: did:key and did:jwk. A did:web is a
// key at a host that the signer names, and is not fetched.

// maxJWS bounds a signature with its payload, in bytes: an offer's has under 1 KiB.
const maxJWS = 8 << 10

// jwsKey is one public key: of exactly one kind.
type jwsKey struct {
	ed25519   ed25519.PublicKey
	p256      *ecdsa.PublicKey
	secp256k1 *secp256k1.PublicKey
}

var (
	errJWS    = errors.New("it is no signature that can be read (JWS)")
	errDID    = errors.New("its key cannot be read out of its DID")
	errDIDWeb = errors.New("its key is at a host that the signer names (did:web), which is not asked")
	errNotBy  = errors.New("the signature is not by the key that it names")
)

// verifyJWS is the payload of a compact JWS and the DID of who signed it.
func verifyJWS(jws string) (payload []byte, did string, err error) {
	parts := strings.Split(jws, ".")
	if len(jws) > maxJWS || len(parts) != 3 {
		return nil, "", errJWS
	}
	var decoded [3][]byte
	for i, part := range parts {
		decoded[i], err = base64.RawURLEncoding.Strict().DecodeString(part)
		if err != nil {
			return nil, "", errJWS
		}
	}
	var header x402.Object
	if x402.DecodeStrict(decoded[0], maxJWS, &header) != nil {
		return nil, "", errJWS
	}
	alg, errAlg := header.Text("alg")
	kid, errKid := header.Text("kid")
	if errAlg != nil || errKid != nil || header.Has("crit") || header.Has("b64") {
		return nil, "", errJWS
	}
	did, fragment, _ := strings.Cut(kid, "#")
	key, err := keyOfDID(did)
	if err != nil {
		return nil, did, err
	}
	if id, isKey := strings.CutPrefix(did, "did:key:"); isKey && fragment != "" && fragment != id {
		return nil, did, errDID
	}
	if !key.signed(alg, []byte(parts[0]+"."+parts[1]), decoded[2]) {
		return nil, did, errNotBy
	}
	return decoded[1], did, nil
}

// signed reports whether the key signed a message by an algorithm of its kind.
func (k jwsKey) signed(alg string, message, signature []byte) bool {
	if alg == "EdDSA" && k.ed25519 != nil {
		return signatures.VerifyEd25519(k.ed25519, message, signature)
	}
	if len(signature) != 64 {
		return false
	}
	digest := sha256.Sum256(message)
	switch {
	case alg == "ES256" && k.p256 != nil:
		return ecdsa.Verify(k.p256, digest[:], new(big.Int).SetBytes(signature[:32]),
			new(big.Int).SetBytes(signature[32:]))
	case alg == "ES256K" && k.secp256k1 != nil:
		var r, s secp256k1.ModNScalar
		overflow := r.SetByteSlice(signature[:32]) || s.SetByteSlice(signature[32:])
		return !overflow && decred.NewSignature(&r, &s).Verify(digest[:], k.secp256k1)
	}
	return false
}

func keyOfDID(did string) (jwsKey, error) {
	if strings.HasPrefix(did, "did:web:") {
		return jwsKey{}, errDIDWeb
	}
	if text, is := strings.CutPrefix(did, "did:key:z"); is {
		return keyOfMultikey(text)
	}
	if text, is := strings.CutPrefix(did, "did:jwk:"); is {
		data, err := base64.RawURLEncoding.Strict().DecodeString(text)
		if err == nil {
			return keyOfJWK(data)
		}
	}
	return jwsKey{}, errDID
}

// keyOfMultikey reads base58 of a key behind its multicodec: Ed25519, secp256k1 or P-256, compressed.
func keyOfMultikey(text string) (k jwsKey, err error) {
	if data := x402.DecodeBase58(text, 34); data != nil && data[0] == 0xed && data[1] == 0x01 {
		return jwsKey{ed25519: data[2:]}, nil
	}
	data := x402.DecodeBase58(text, 35)
	switch {
	case data == nil:
		return k, errDID
	case data[0] == 0xe7 && data[1] == 0x01:
		k.secp256k1, err = secp256k1.ParsePubKey(data[2:])
	case data[0] == 0x80 && data[1] == 0x24:
		x, y := elliptic.UnmarshalCompressed(elliptic.P256(), data[2:])
		if x == nil {
			return k, errDID
		}
		k.p256, err = pointP256(x.FillBytes(make([]byte, 32)), y.FillBytes(make([]byte, 32)))
	default:
		return k, errDID
	}
	if err != nil {
		return jwsKey{}, errDID
	}
	return k, nil
}

func keyOfJWK(data []byte) (k jwsKey, err error) {
	var jwk x402.Object
	if x402.DecodeStrict(data, maxJWS, &jwk) != nil {
		return k, errDID
	}
	var text [4]string
	for i, name := range []string{"kty", "crv", "x", "y"} {
		text[i], err = jwk.Text(name)
		if err != nil {
			return k, errDID
		}
	}
	x, errX := base64.RawURLEncoding.DecodeString(text[2])
	y, errY := base64.RawURLEncoding.DecodeString(text[3])
	isEC := text[0] == "EC" && len(x) == 32 && len(y) == 32
	switch {
	case errX != nil || errY != nil:
		return k, errDID
	case text[0] == "OKP" && text[1] == "Ed25519" && len(x) == ed25519.PublicKeySize:
		return jwsKey{ed25519: x}, nil
	case isEC && text[1] == "P-256":
		k.p256, err = pointP256(x, y)
	case isEC && text[1] == "secp256k1":
		k.secp256k1, err = secp256k1.ParsePubKey(append(append([]byte{4}, x...), y...))
	default:
		return k, errDID
	}
	if err != nil {
		return jwsKey{}, errDID
	}
	return k, nil
}

func pointP256(x, y []byte) (*ecdsa.PublicKey, error) {
	return ecdsa.ParseUncompressedPublicKey(elliptic.P256(), append(append([]byte{4}, x...), y...))
}
