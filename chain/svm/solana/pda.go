package solana

import (
	"crypto/sha256"
	"errors"
	"slices"
)

// The token programs, and the one that makes an owner's account for a mint.
var (
	TokenProgram      = MustKey("TokenkegQfeZyiNwAJbNbGKPFXCWuBvf9Ss623VQ5DA")
	Token2022         = MustKey("TokenzQdBNbLqP5VEhdkAS6EPFLC1PHnBqCXEpPxuEb")
	AssociatedProgram = MustKey("ATokenGPvbdGVxr1b2hvZbsiqW5xWH25efTNsLJA8knL")
)

var errNoAddress = errors.New("no program address is off the curve")

// AssociatedAccount is the associated token account of an owner, a program-derived address or a key, for
// a mint of a token program. The two token programs give different addresses.
func AssociatedAccount(owner, mint, program PublicKey) (PublicKey, error) {
	return programAddress(AssociatedProgram, owner[:], program[:], mint[:])
}

// programAddress is the address that a program derives of seeds, each of at most 32 bytes: by the highest
// bump whose hash is off the curve, so that nobody can have its key (solana-sdk's Pubkey,
// find_program_address).
func programAddress(program PublicKey, seeds ...[]byte) (PublicKey, error) {
	seed := slices.Concat(seeds...)
	for bump := byte(255); bump > 0; bump-- { // 0 is none there either
		address := PublicKey(sha256.Sum256(slices.Concat(seed, []byte{bump}, program[:],
			[]byte("ProgramDerivedAddress"))))
		if !address.IsOnCurve() {
			return address, nil
		}
	}
	return PublicKey{}, errNoAddress // one in 2^255
}
