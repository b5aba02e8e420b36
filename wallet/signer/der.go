package signer

import (
	"encoding/asn1"
	"math/big"

	"x402-wallet/wallet"
)

// fromDER is r ‖ s of an ECDSA signature as HSMs and clouds write it (RFC 3279 §2.2.3). v, and s in the lower
// half of the order, are package wallet's to find.
func fromDER(der []byte) ([]byte, error) {
	var parts struct{ R, S *big.Int }
	rest, err := asn1.Unmarshal(der, &parts)
	tooLong := err == nil && (parts.R.BitLen() > 256 || parts.S.BitLen() > 256)
	if err != nil || len(rest) > 0 || tooLong || parts.R.Sign() <= 0 || parts.S.Sign() <= 0 {
		return nil, refused("answers with something else than a signature")
	}
	signature := make([]byte, 64)
	parts.R.FillBytes(signature[:32])
	parts.S.FillBytes(signature[32:])
	return signature, nil
}

// The keys that a SubjectPublicKeyInfo may be of, by the identifiers of its algorithm (RFC 5480, SEC 2, RFC
// 8410).
var (
	ecKey        = asn1.ObjectIdentifier{1, 2, 840, 10045, 2, 1}
	oidSecp256k1 = asn1.ObjectIdentifier{1, 3, 132, 0, 10}
	oidEd25519   = asn1.ObjectIdentifier{1, 3, 101, 112}
)

// addressOfSPKI is the address of a public key in DER (RFC 5280 §4.1.2.7); crypto/x509 knows no secp256k1.
func addressOfSPKI(der []byte, chain string) (string, error) {
	var spki struct {
		Algorithm struct {
			Algorithm asn1.ObjectIdentifier
			Curve     asn1.ObjectIdentifier `asn1:"optional"`
		}
		Key asn1.BitString
	}
	rest, err := asn1.Unmarshal(der, &spki)
	isEVM := chain == wallet.ChainEVM && spki.Algorithm.Algorithm.Equal(ecKey) &&
		spki.Algorithm.Curve.Equal(oidSecp256k1)
	isSolana := chain == wallet.ChainSolana && spki.Algorithm.Algorithm.Equal(oidEd25519)
	if err != nil || len(rest) > 0 || (!isEVM && !isSolana) {
		return "", refused("has a key of another kind: %s takes %s", chain,
			map[string]string{wallet.ChainEVM: "secp256k1", wallet.ChainSolana: "Ed25519"}[chain])
	}
	address, err := addressOf(chain, spki.Key.RightAlign())
	if err != nil {
		return "", refused("has a public key that is none")
	}
	return address, nil
}
