package wallet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
)

const (
	hardenedStep = 1 << 31 // is set in the number of a hardened step

	// maxPath is how many steps a path has at most: BIP-44 has 5.
	maxPath = 6

	maxEntropy = 32
)

// SeedPath in place of a path is the Solana key that solana-keygen makes without one: the first half of the
// seed itself.
const SeedPath = "seed"

// derivation is a path, step by step; nil is [SeedPath].
type derivation []uint32

func (d derivation) String() string {
	if d == nil {
		return SeedPath
	}
	text := "m"
	for _, step := range d {
		text += "/" + strconv.FormatUint(uint64(step&^hardenedStep), 10)
		if step&hardenedStep != 0 {
			text += "'"
		}
	}
	return text
}

func checkSolanaPath(d derivation) error {
	if slices.ContainsFunc(d, func(step uint32) bool { return step&hardenedStep == 0 }) {
		return fmt.Errorf("path %s has a step without ': a Solana key has none (SLIP-10)", d)
	}
	return nil
}

func checkEVMPath(d derivation) error {
	if d == nil {
		return errors.New("an EVM key has a path, such as m/44'/60'/0'/0/0")
	}
	return nil
}

// phraseRecord is how a keystore has a phrase, or 84 zeros:
//
//	0      the bytes of its entropy: 16, 20, 24, 28 or 32
//	1      1: a passphrase of BIP-39's belongs to it, which is not kept
//	2–33   the entropy, and zeros
//	34–58  the path of the Solana key: how many steps it has (255: it is [SeedPath]), and room for 6,
//	       each of 4 bytes, big endian; the rest is zeros
//	59–83  the path of the EVM key
type phraseRecord []byte

const (
	pathRoom      = 1 + 4*maxPath
	atSolanaPath  = 2 + maxEntropy
	atEVMPath     = atSolanaPath + pathRoom
	phraseSize    = atEVMPath + pathRoom // a multiple of 3: its base64 ends without padding
	seedPathSteps = 0xff
)

func (r phraseRecord) set(entropy []byte, hasPassphrase bool, solana, evm derivation) {
	clear(r)
	r[0] = byte(len(entropy))
	if hasPassphrase {
		r[1] = 1
	}
	copy(r[2:], entropy)
	putPath(r[atSolanaPath:], solana)
	putPath(r[atEVMPath:], evm)
}

func putPath(at []byte, path derivation) {
	at[0] = byte(len(path))
	if path == nil {
		at[0] = seedPathSteps
	}
	for i, step := range path {
		binary.BigEndian.PutUint32(at[1+4*i:], step)
	}
}

func pathAt(at []byte) derivation {
	if at[0] == seedPathSteps {
		return nil
	}
	path := make(derivation, min(int(at[0]), maxPath))
	for i := range path {
		path[i] = binary.BigEndian.Uint32(at[1+4*i:])
	}
	return path
}

func (r phraseRecord) isThere() bool          { return !bytes.Equal(r, make([]byte, len(r))) }
func (r phraseRecord) hasPassphrase() bool    { return r[1] == 1 }
func (r phraseRecord) solanaPath() derivation { return pathAt(r[atSolanaPath:]) }
func (r phraseRecord) evmPath() derivation    { return pathAt(r[atEVMPath:]) }

// entropy is nil where the record has no right form.
func (r phraseRecord) entropy() []byte {
	n := int(r[0])
	if n%4 != 0 || n < 16 || n > maxEntropy {
		return nil
	}
	return r[2 : 2+n]
}

// isRight reports whether a record is one that set writes.
func (r phraseRecord) isRight() bool {
	entropy, solana, evm := r.entropy(), r.solanaPath(), r.evmPath()
	if entropy == nil || checkSolanaPath(solana) != nil || checkEVMPath(evm) != nil {
		return false
	}
	again := make(phraseRecord, phraseSize)
	defer clear(again)
	again.set(entropy, r.hasPassphrase(), solana, evm)
	return slices.Equal(r, again)
}
