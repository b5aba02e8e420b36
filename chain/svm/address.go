package svm

import (
	"errors"
	"slices"

	"github.com/gagliardetto/solana-go"
)

// errAddress says that a text is not base58 of 32 bytes.
var errAddress = errors.New("not a Solana address")

// Programs that a payment is made of.
var (
	computeBudget = solana.ComputeBudget
	memoProgram   = solana.MemoProgramID
	tokenProgram  = solana.TokenProgramID
	token2022     = solana.Token2022ProgramID
)

// programs are addresses that are nobody's: money sent there, or a fee asked of them, is a mistake
// or a trick (B9, B12).
var programs = []solana.PublicKey{
	computeBudget, memoProgram, solana.MemoProgramIDV1, tokenProgram, token2022,
	solana.SPLAssociatedTokenAccountProgramID,
	solana.SystemProgramID, solana.ConfigProgramID, solana.StakeProgramID, solana.VoteProgramID,
	solana.FeatureProgramID,
	solana.BPFLoaderDeprecatedProgramID, solana.BPFLoaderProgramID, solana.BPFLoaderUpgradeableProgramID,
	solana.Secp256k1ProgramID,
	solana.AddressLookupTableProgramID, solana.TokenSwapProgramID, solana.TokenLendingProgramID,
	solana.TokenMetadataProgramID,
	solana.WrappedSol,
	solana.MustPublicKeyFromBase58("Ed25519SigVerify111111111111111111111111111"),
	solana.MustPublicKeyFromBase58("L2TExMFKdjpN9kozasaurPirfHy9P8sbXoAN1qA3S95"), // Lighthouse
	solana.MustPublicKeyFromBase58("1nc1nerator11111111111111111111111111111111"), // burns what it is sent
	solana.MustPublicKeyFromBase58("NativeLoader1111111111111111111111111111111"),
	solana.MustPublicKeyFromBase58("Sysvar1111111111111111111111111111111111111"),
}

func isTokenProgram(key solana.PublicKey) bool { return key == tokenProgram || key == token2022 }

func isProgram(key solana.PublicKey) bool { return slices.Contains(programs, key) }

// parseKey reads the one base58 spelling of 32 bytes, on the curve or off it. The length is looked
// at first: decoding base58 takes the square of it.
func parseKey(text string) (solana.PublicKey, error) {
	if len(text) < 32 || len(text) > 44 {
		return solana.PublicKey{}, errAddress
	}
	key, err := solana.PublicKeyFromBase58(text)
	if err != nil {
		return solana.PublicKey{}, errAddress
	}
	return key, nil
}

// ATA is the associated token account of an owner, a program-derived address or a key, under either
// token program.
func ATA(owner, mint string, is2022 bool) (string, error) {
	ownerKey, err := parseKey(owner)
	if err != nil {
		return "", err
	}
	mintKey, err := parseKey(mint)
	if err != nil {
		return "", err
	}
	address, err := ata(ownerKey, mintKey, programOf(is2022))
	if err != nil {
		return "", err
	}
	return address.String(), nil
}

// ata is the seeds [owner, token program, mint] under the associated token account program. The two
// token programs give different addresses.
func ata(owner, mint, program solana.PublicKey) (solana.PublicKey, error) {
	address, _, err := solana.FindAssociatedTokenAddressWithProgram(owner, mint, program)
	return address, err
}

// TokenProgram is the program of a mint: SPL Token or Token-2022.
func TokenProgram(is2022 bool) string { return programOf(is2022).String() }

func programOf(is2022 bool) solana.PublicKey {
	if is2022 {
		return token2022
	}
	return tokenProgram
}
