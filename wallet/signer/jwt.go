package signer

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	stded25519 "crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"maps"
	"strings"

	"github.com/golang-jwt/jwt/v5"
)

// token is a JWT by a key: ES256, EdDSA or RS256.
func token(key crypto.Signer, header map[string]any, claims jwt.MapClaims) (string, error) {
	var method jwt.SigningMethod = jwt.SigningMethodEdDSA
	switch key.(type) {
	case *ecdsa.PrivateKey:
		method = jwt.SigningMethodES256
	case *rsa.PrivateKey:
		method = jwt.SigningMethodRS256
	}
	t := jwt.NewWithClaims(method, claims)
	maps.Copy(t.Header, header)
	return t.SignedString(key)
}

// privateKey reads a key in PEM, or in base64: PKCS #8 or SEC 1 in DER, or the 64 bytes of Ed25519, seed ‖
// public key. nil: it is none of a kind that is used here.
func privateKey(text string) crypto.Signer {
	// in variables and JSON a PEM's line ends are often written as \n
	text = strings.TrimSpace(strings.ReplaceAll(text, `\n`, "\n"))
	var der []byte
	if block, _ := pem.Decode([]byte(text)); block != nil {
		der = block.Bytes
	} else {
		raw, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return nil
		}
		if len(raw) == stded25519.PrivateKeySize {
			key := stded25519.NewKeyFromSeed(raw[:stded25519.SeedSize])
			if bytes.Equal(key, raw) {
				return key
			}
		}
		der = raw
	}
	var parsed any
	parsed, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		parsed, err = x509.ParseECPrivateKey(der)
	}
	if err != nil {
		return nil
	}
	switch key := parsed.(type) {
	case stded25519.PrivateKey:
		return key
	case *rsa.PrivateKey:
		return key
	case *ecdsa.PrivateKey:
		if key.Curve == elliptic.P256() {
			return key
		}
	}
	return nil
}
