package sandbox

import (
	"crypto/sha256"
	"errors"
	"math/big"
	"slices"

	"github.com/mr-tron/base58"

	"x402-wallet/x402"
)

// key is a Solana public key or program address.
type key [32]byte

// String is base58.
func (k key) String() string { return base58.Encode(k[:]) }

// UnmarshalText reads base58.
func (k *key) UnmarshalText(text []byte) (err error) {
	*k, err = parseKey(string(text))
	return err
}

var errKey = errors.New("not a Solana address")

// parseKey reads base58 of exactly 32 bytes.
func parseKey(text string) (k key, err error) {
	raw := x402.DecodeBase58(text, len(k))
	if raw == nil {
		return k, errKey
	}
	return key(raw), nil
}

// mustKey is for the constants below.
func mustKey(text string) key {
	k, err := parseKey(text)
	if err != nil {
		panic("sandbox: " + text + " is not an address")
	}
	return k
}

// The programs.
var (
	programToken      = mustKey("TokenkegQfeZyiNwAJbNbGKPFXCWuBvf9Ss623VQ5DA")
	programToken2022  = mustKey("TokenzQdBNbLqP5VEhdkAS6EPFLC1PHnBqCXEpPxuEb")
	programAssociated = mustKey("ATokenGPvbdGVxr1b2hvZbsiqW5xWH25efTNsLJA8knL")
	programBudget     = mustKey("ComputeBudget111111111111111111111111111111")
	programMemo       = mustKey("MemoSq4gqABAXKb96qnH8TysNcWxMyWCqXgDLGmfcHr")
	programSystem     = mustKey("11111111111111111111111111111111")
)

// associatedAccount derives the associated token account: the first of the program addresses with
// bump 255, 254, … that is no point of the curve, so that nobody can have its private key.
func associatedAccount(owner, program, mint key) key {
	for bump := 255; bump > 0; bump-- {
		candidate := key(sha256.Sum256(slices.Concat(owner[:], program[:], mint[:], []byte{byte(bump)},
			programAssociated[:], []byte("ProgramDerivedAddress"))))
		if !onCurve(candidate) {
			return candidate
		}
	}
	panic("sandbox: no program address") // has a probability of 2^-255
}

// The field and curve of Ed25519 (RFC 8032 §5.1): -x² + y² = 1 + d·x²·y² modulo 2^255-19.
var (
	fieldP = new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 255), big.NewInt(19))
	curveD = func() *big.Int {
		d := new(big.Int).ModInverse(big.NewInt(121666), fieldP)
		return d.Mod(d.Mul(d, big.NewInt(-121665)), fieldP)
	}()
)

// onCurve reports whether 32 bytes decompress to a point: whether x² = (y²-1)/(d·y²+1) has a root.
// (y is taken modulo p and the sign of x = 0 is not looked at, as in Solana's curve25519-dalek.)
func onCurve(k key) bool {
	k[31] &= 0x7f
	slices.Reverse(k[:]) // from little-endian
	y2 := new(big.Int).SetBytes(k[:])
	y2.Mod(y2.Mul(y2, y2), fieldP)
	one := big.NewInt(1)
	below := new(big.Int).Mul(curveD, y2)
	below.Mod(below.Add(below, one), fieldP) // never 0: -1/d is no square
	x2 := new(big.Int).Sub(y2, one)
	x2.Mod(x2.Mul(x2, below.ModInverse(below, fieldP)), fieldP)
	return x2.Sign() == 0 || big.Jacobi(x2, fieldP) == 1
}
