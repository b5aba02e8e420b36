package oauth

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"math/big"
	"slices"

	"x402-wallet/x402"
)

const (
	// RSA keys of fewer bits can be broken, and one of more takes long for each signature.
	minRSA, maxRSA = 2048, 8192
	// maxExponent is the largest public exponent that crypto/rsa takes.
	maxExponent = 1<<31 - 1
	// maxKeys bounds the keys of a server; most have two or three.
	maxKeys = 100
)

// key is a server's public key, and the algorithms that it is for.
type key struct {
	public     crypto.PublicKey
	algorithms []string
}

func (k key) isFor(algorithm string) bool { return slices.Contains(k.algorithms, algorithm) }

// jwk is a key as it is published (RFC 7517, 7518 §6, 8037).
type jwk struct {
	Kty    string          `json:"kty"`
	Kid    string          `json:"kid"`
	Use    string          `json:"use"`
	KeyOps []string        `json:"key_ops"`
	Alg    string          `json:"alg"`
	Crv    string          `json:"crv"`
	N      string          `json:"n"`
	E      string          `json:"e"`
	X      string          `json:"x"`
	Y      string          `json:"y"`
	D      json.RawMessage `json:"d"`
}

// parseKeys reads a set of keys, by their IDs. What cannot be used is left out, as RFC 7517 §5 has it: keys
// of other kinds or for other uses, weak ones, secret ones, those without an ID and those that share one.
func parseKeys(text []byte) (map[string]key, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := x402.DecodeStrict(text, maxKeySet, &set); err != nil {
		return nil, err
	}
	if len(set.Keys) > maxKeys {
		return nil, errors.New("has too many keys")
	}
	keys, twice := map[string]key{}, []string{}
	for _, each := range set.Keys {
		var j jwk
		if x402.DecodeStrict(each, maxKeySet, &j) != nil {
			continue
		}
		k, err := j.key()
		if err != nil {
			continue
		}
		if _, there := keys[j.Kid]; there {
			twice = append(twice, j.Kid)
		}
		keys[j.Kid] = k
	}
	for _, kid := range twice {
		delete(keys, kid)
	}
	return keys, nil
}

var errKey = errors.New("is no key to verify tokens with")

func (j *jwk) key() (k key, err error) {
	forOthers := (j.Use != "" && j.Use != "sig") || (j.KeyOps != nil && !slices.Contains(j.KeyOps, "verify"))
	if j.Kid == "" || forOthers || j.D != nil {
		return key{}, errKey
	}
	switch j.Kty + " " + j.Crv {
	case "RSA ":
		k.algorithms = []string{"RS256", "PS256"}
		k.public, err = j.rsa()
	case "EC P-256":
		k.algorithms = []string{"ES256"}
		k.public, err = j.point(elliptic.P256())
	case "EC P-384":
		k.algorithms = []string{"ES384"}
		k.public, err = j.point(elliptic.P384())
	case "OKP Ed25519":
		k.algorithms = []string{"EdDSA"}
		k.public, err = j.edwards()
	default:
		err = errKey
	}
	if j.Alg != "" {
		if !k.isFor(j.Alg) {
			return key{}, errKey
		}
		k.algorithms = []string{j.Alg}
	}
	return k, err
}

func (j *jwk) rsa() (*rsa.PublicKey, error) {
	n, errN := unbase64(j.N)
	e, errE := unbase64(j.E)
	modulus, exponent := new(big.Int).SetBytes(n), new(big.Int).SetBytes(e)
	bits := modulus.BitLen()
	switch {
	case errN != nil || errE != nil || bits < minRSA || bits > maxRSA:
		return nil, errKey
	case modulus.Bit(0) == 0 || exponent.Bit(0) == 0:
		return nil, errKey
	case !exponent.IsInt64() || exponent.Int64() < 3 || exponent.Int64() > maxExponent:
		return nil, errKey
	}
	return &rsa.PublicKey{N: modulus, E: int(exponent.Int64())}, nil
}

// point is a point of the curve, whose coordinates are written in full.
func (j *jwk) point(curve elliptic.Curve) (*ecdsa.PublicKey, error) {
	x, errX := unbase64(j.X)
	y, errY := unbase64(j.Y)
	size := (curve.Params().BitSize + 7) / 8
	if errX != nil || errY != nil || len(x) != size || len(y) != size {
		return nil, errKey
	}
	return ecdsa.ParseUncompressedPublicKey(curve, slices.Concat([]byte{4}, x, y))
}

func (j *jwk) edwards() (ed25519.PublicKey, error) {
	x, err := unbase64(j.X)
	if err != nil || len(x) != ed25519.PublicKeySize {
		return nil, errKey
	}
	return x, nil
}
