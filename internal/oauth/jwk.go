package oauth

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"

	"github.com/MicahParks/jwkset"

	"x402-wallet/x402"
)

const (
	// RSA keys of fewer bits can be broken, and one of more takes long for each signature.
	minRSA, maxRSA = 2048, 8192
	// maxKeys bounds the keys of a server; most have two or three.
	maxKeys = 100
)

// key is a server's public key, and the algorithms that it is for.
type key struct {
	public     crypto.PublicKey
	algorithms []string
}

func (k key) isFor(algorithm string) bool { return slices.Contains(k.algorithms, algorithm) }

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
		var j jwkset.JWKMarshal
		if x402.DecodeStrict(each, maxKeySet, &j) != nil {
			continue
		}
		k, err := newKey(j)
		if err != nil {
			continue
		}
		if _, there := keys[j.KID]; there {
			twice = append(twice, j.KID)
		}
		keys[j.KID] = k
	}
	for _, kid := range twice {
		delete(keys, kid)
	}
	return keys, nil
}

var errKey = errors.New("is no key to verify tokens with")

// newKey reads a public key that is for signatures. Its certificates are not read: x5u is an address, which
// the server could choose at will.
func newKey(j jwkset.JWKMarshal) (k key, err error) {
	j.X5U, j.X5C, j.X5T, j.X5TS256 = "", nil, "", ""
	forOthers := (j.USE != "" && j.USE != jwkset.UseSig) ||
		(j.KEYOPS != nil && !slices.Contains(j.KEYOPS, jwkset.KeyOpsVerify))
	if j.KID == "" || forOthers || j.D != "" {
		return key{}, errKey
	}
	for _, number := range []string{j.N, j.E, j.X, j.Y} {
		if _, err := unbase64(number); err != nil { // the library takes more than one spelling
			return key{}, errKey
		}
	}
	read, err := jwkset.NewJWKFromMarshal(j, jwkset.JWKMarshalOptions{}, jwkset.JWKValidateOptions{})
	if err != nil {
		return key{}, err
	}

	k = key{public: read.Key(), algorithms: algorithmsOf(read.Key(), j)}
	switch {
	case len(k.algorithms) == 0:
		return key{}, errKey
	case j.ALG == "":
		return k, nil
	case !k.isFor(string(j.ALG)):
		return key{}, errKey
	}
	k.algorithms = []string{string(j.ALG)}
	return k, nil
}

// algorithmsOf returns the algorithms that a key may be used with. It returns nil for a key that is weak, not
// written in full or of another kind.
func algorithmsOf(public crypto.PublicKey, j jwkset.JWKMarshal) []string {
	switch public := public.(type) {
	case *rsa.PublicKey:
		bits, isOdd := public.N.BitLen(), public.N.Bit(0) == 1 && public.E%2 == 1
		if bits < minRSA || bits > maxRSA || !isOdd {
			return nil
		}
		return []string{"RS256", "PS256"}
	case *ecdsa.PublicKey:
		size := base64.RawURLEncoding.EncodedLen((public.Params().BitSize + 7) / 8)
		if len(j.X) != size || len(j.Y) != size { // RFC 7518 §6.2.1.2
			return nil
		}
		switch public.Curve {
		case elliptic.P256():
			return []string{"ES256"}
		case elliptic.P384():
			return []string{"ES384"}
		}
	case ed25519.PublicKey:
		return []string{"EdDSA"}
	}
	return nil
}
