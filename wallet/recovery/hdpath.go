package recovery

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha512"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"

	"x402-wallet/wallet"
	"x402-wallet/wallet/internal/curve"
	"x402-wallet/wallet/internal/guarded"
	"x402-wallet/wallet/internal/record"
)

// Keys that are derived from a seed, by a path: of BIP-32 for secp256k1, and of SLIP-10 for Ed25519, where
// every step is hardened.

const (
	coinSolana, coinEVM = 501, 60 // of SLIP-44
)

// Paths say which keys of a phrase a wallet has, as BIP-44 writes them: m/44'/60'/0'/0/0. Where a shell makes
// ' a burden, h stands for it.
type Paths struct {
	Solana string // a path of hardened steps, or [record.SeedPath]
	EVM    string
}

// StandardPaths are those of an account, counted from 0: m/44'/501'/N'/0', as Phantom and other wallets of
// Solana's count theirs, and m/44'/60'/0'/0/N, as MetaMask does.
func StandardPaths(account uint32) Paths {
	return Paths{Solana: fmt.Sprintf("m/44'/%d'/%d'/0'", coinSolana, account),
		EVM: fmt.Sprintf("m/44'/%d'/0'/0/%d", coinEVM, account)}
}

// Put takes a path into p: of the chain that its second step names by the number of its coin, or of chain, if
// that is not empty.
func (p *Paths) Put(chain, path string) error {
	steps, err := parsePath(path)
	if err != nil {
		return err
	}
	if chain == "" && len(steps) > 1 {
		chain = map[uint32]string{coinSolana: wallet.ChainSolana,
			coinEVM: wallet.ChainEVM}[steps[1]&^record.HardenedStep]
	}
	switch chain {
	case wallet.ChainSolana:
		err = record.CheckSolana(steps)
		p.Solana = steps.String()
	case wallet.ChainEVM:
		err = record.CheckEVM(steps)
		p.EVM = steps.String()
	default:
		err = fmt.Errorf("path %s does not say for which chain it is: its second step is neither %d' "+
			"(Solana) "+
			"nor %d' (EVM)", steps, coinSolana, coinEVM)
	}
	return err
}

func parsePath(text string) (record.Path, error) {
	if text == record.SeedPath {
		return nil, nil
	}
	first, rest, _ := strings.Cut(text, "/")
	parts := strings.Split(rest, "/")
	if first != "m" || len(text) > 100 || len(parts) > record.MaxPath {
		return nil, fmt.Errorf("%.100q is no path: it is m and up to %d steps, as m/44'/60'/0'/0/0", text,
			record.MaxPath)
	}
	var steps record.Path
	for _, part := range parts {
		number := strings.TrimRight(part, "'hH")
		n, err := strconv.ParseUint(number, 10, 31)
		if err != nil || len(part) > len(number)+1 || strconv.FormatUint(n, 10) != number {
			return nil, fmt.Errorf("%.100q is no path: a step of it is not a number from 0 to %d, with or "+
				"without '", text, math.MaxInt32)
		}
		if part != number {
			n |= record.HardenedStep
		}
		steps = append(steps, uint32(n))
	}
	return steps, nil
}

// The keys of HMAC by which a seed becomes the key that all paths begin with.
var (
	bip32Key  = []byte("Bitcoin seed")
	slip10Key = []byte("ed25519 seed")
)

// extendedKey is a private key and its chain code, in that order.
type extendedKey [2 * guarded.Size]byte

func (x *extendedKey) key() *[guarded.Size]byte { return (*[guarded.Size]byte)(x[:guarded.Size]) }

// hash sets x to HMAC-SHA-512.
func (x *extendedKey) hash(key []byte, parts ...[]byte) {
	mac := hmac.New(sha512.New, key)
	for _, part := range parts {
		mac.Write(part)
	}
	mac.Sum(x[:0])
}

var errNoKeyThere = errors.New("there is no key at this path: choose another one")

// deriveEVM sets out to the secp256k1 key at a path (BIP-32).
func deriveEVM(seed []byte, path record.Path, out *[guarded.Size]byte) error {
	x, err := walkEVM(seed, path)
	copy(out[:], x[:guarded.Size])
	clear(x[:])
	return err
}

func walkEVM(seed []byte, path record.Path) (x extendedKey, err error) {
	x.hash(bip32Key, seed)
	if _, err := curve.PublicKey(x.key()); err != nil {
		return extendedKey{}, errNoKeyThere
	}
	for _, step := range path {
		if err := x.evmStep(step); err != nil {
			return extendedKey{}, err
		}
	}
	return x, nil
}

func (x *extendedKey) evmStep(step uint32) error {
	parent := *x
	defer clear(parent[:])
	var from [1 + guarded.Size]byte // of the private key, or the public one
	defer clear(from[:])
	copy(from[1:], parent[:guarded.Size])
	if step&record.HardenedStep == 0 {
		public, err := curve.PublicKey(parent.key())
		if err != nil {
			return err
		}
		copy(from[:], public.SerializeCompressed())
	}
	x.hash(parent[guarded.Size:], from[:], binary.BigEndian.AppendUint32(nil, step))
	var sum, was secp256k1.ModNScalar
	defer sum.Zero()
	defer was.Zero()
	overflow := sum.SetBytes(x.key())
	was.SetBytes(parent.key())
	sum.Add(&was)
	if overflow != 0 || sum.IsZero() {
		return errNoKeyThere
	}
	sum.PutBytes(x.key())
	return nil
}

// deriveSolana sets out to the secret of the Ed25519 key at a path (SLIP-10).
func deriveSolana(seed []byte, path record.Path, out *[guarded.Size]byte) {
	if path == nil {
		copy(out[:], seed[:ed25519.SeedSize])
		return
	}
	x := walkSolana(seed, path)
	copy(out[:], x[:guarded.Size])
	clear(x[:])
}

func walkSolana(seed []byte, path record.Path) (x extendedKey) {
	x.hash(slip10Key, seed)
	for _, step := range path {
		parent := x
		x.hash(parent[guarded.Size:], []byte{0}, parent[:guarded.Size], binary.BigEndian.AppendUint32(nil,
			step))
		clear(parent[:])
	}
	return x
}
