// Package record is how a keystore has the recovery phrase that its keys come from.
package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
)

const (
	HardenedStep = 1 << 31 // is set in the number of a hardened step

	// MaxPath is how many steps a path has at most: BIP-44 has 5.
	MaxPath = 6

	MaxEntropy = 32
)

// SeedPath in place of a path is the Solana key that solana-keygen makes without one: the first half of the
// seed itself.
const SeedPath = "seed"

// Path is a path, step by step; nil is [SeedPath].
type Path []uint32

func (d Path) String() string {
	if d == nil {
		return SeedPath
	}
	text := "m"
	for _, step := range d {
		text += "/" + strconv.FormatUint(uint64(step&^HardenedStep), 10)
		if step&HardenedStep != 0 {
			text += "'"
		}
	}
	return text
}

func CheckSolana(d Path) error {
	if slices.ContainsFunc(d, func(step uint32) bool { return step&HardenedStep == 0 }) {
		return fmt.Errorf("path %s has a step without ': a Solana key has none (SLIP-10)", d)
	}
	return nil
}

func CheckEVM(d Path) error {
	if d == nil {
		return errors.New("an EVM key has a path, such as m/44'/60'/0'/0/0")
	}
	return nil
}

// Phrase is how a keystore has a phrase, or 84 zeros:
//
//	0      the bytes of its entropy: 16, 20, 24, 28 or 32
//	1      1: a passphrase of BIP-39's belongs to it, which is not kept
//	2–33   the entropy, and zeros
//	34–58  the path of the Solana key: how many steps it has (255: it is [SeedPath]), and room for 6,
//	       each of 4 bytes, big endian; the rest is zeros
//	59–83  the path of the EVM key
type Phrase []byte

const (
	PathRoom      = 1 + 4*MaxPath
	atSolanaPath  = 2 + MaxEntropy
	AtEVMPath     = atSolanaPath + PathRoom
	Size          = AtEVMPath + PathRoom // a multiple of 3: its base64 ends without padding
	seedPathSteps = 0xff
)

func (r Phrase) Set(entropy []byte, hasPassphrase bool, solana, evm Path) {
	clear(r)
	r[0] = byte(len(entropy))
	if hasPassphrase {
		r[1] = 1
	}
	copy(r[2:], entropy)
	putPath(r[atSolanaPath:], solana)
	putPath(r[AtEVMPath:], evm)
}

func putPath(at []byte, path Path) {
	at[0] = byte(len(path))
	if path == nil {
		at[0] = seedPathSteps
	}
	for i, step := range path {
		binary.BigEndian.PutUint32(at[1+4*i:], step)
	}
}

func pathAt(at []byte) Path {
	if at[0] == seedPathSteps {
		return nil
	}
	path := make(Path, min(int(at[0]), MaxPath))
	for i := range path {
		path[i] = binary.BigEndian.Uint32(at[1+4*i:])
	}
	return path
}

func (r Phrase) IsThere() bool       { return !bytes.Equal(r, make([]byte, len(r))) }
func (r Phrase) HasPassphrase() bool { return r[1] == 1 }
func (r Phrase) SolanaPath() Path    { return pathAt(r[atSolanaPath:]) }
func (r Phrase) EVMPath() Path       { return pathAt(r[AtEVMPath:]) }

// Entropy is nil where the record has no right form.
func (r Phrase) Entropy() []byte {
	n := int(r[0])
	if n%4 != 0 || n < 16 || n > MaxEntropy {
		return nil
	}
	return r[2 : 2+n]
}

// IsRight reports whether a record is one that set writes.
func (r Phrase) IsRight() bool {
	entropy, solana, evm := r.Entropy(), r.SolanaPath(), r.EVMPath()
	if entropy == nil || CheckSolana(solana) != nil || CheckEVM(evm) != nil {
		return false
	}
	again := make(Phrase, Size)
	defer clear(again)
	again.Set(entropy, r.HasPassphrase(), solana, evm)
	return slices.Equal(r, again)
}
