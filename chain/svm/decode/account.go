package decode

import (
	"crypto/sha256"
	"errors"
	"slices"

	"filippo.io/edwards25519"

	"x402-wallet/x402"
)

// associatedProgram makes an owner's token account for a mint.
const associatedProgram = "ATokenGPvbdGVxr1b2hvZbsiqW5xWH25efTNsLJA8knL"

var (
	errAddress   = errors.New("not a Solana address")
	errNoAddress = errors.New("no program address is off the curve")
)

// AssociatedAccount is the associated token account of an owner, a program-derived address or a key, for a
// mint. Under Token-2022 it is another account than under SPL Token. Error: one of the texts is no address.
func AssociatedAccount(owner, mint string, is2022 bool) (string, error) {
	program := splProgram
	if is2022 {
		program = spl2022Program
	}
	var seeds []byte
	for _, text := range []string{owner, program, mint} {
		address := x402.DecodeBase58(text, len(publicKey{}))
		if address == nil {
			return "", errAddress
		}
		seeds = append(seeds, address...)
	}
	address, err := programAddress(x402.DecodeBase58(associatedProgram, len(publicKey{})), seeds)
	if err != nil {
		return "", err
	}
	return address.String(), nil
}

// programAddress is the address that a program derives of seeds: by the highest bump whose hash is off the
// curve, so that nobody can have its key (find_program_address of solana-sdk's Pubkey).
func programAddress(program, seeds []byte) (publicKey, error) {
	for bump := byte(255); bump > 0; bump-- { // 0 is not tried there either
		address := publicKey(sha256.Sum256(slices.Concat(seeds, []byte{bump}, program,
			[]byte("ProgramDerivedAddress"))))
		if !address.isOnCurve() {
			return address, nil
		}
	}
	return publicKey{}, errNoAddress // one in 2^255
}

// isOnCurve reports whether somebody may have the key: whether it decompresses to a point, as the runtime's
// curve25519-dalek sees it. That takes y modulo p, and x = 0 with either sign, as edwards25519 does.
func (k publicKey) isOnCurve() bool {
	_, err := new(edwards25519.Point).SetBytes(k[:])
	return err == nil
}
