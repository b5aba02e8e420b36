package wallet

import (
	"bytes"
	"crypto/ed25519"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"strconv"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"
)

// maxImport is the most a plain key file may have; a Solana one has about 230 bytes.
const maxImport = 4 << 10

// Imported is a key from a file of another wallet: on its way into [Create], which wipes it, or to
// sign for its owner with [Imported.SignDelegation]; then [Imported.Wipe] is the caller's. It prints
// as [redacted].
type Imported struct {
	redacted
	Chain   string // [ChainSolana] or [ChainEVM]
	Address string // what it will be known by; Create compares it with what its keystore returns
	secret  *[secretSize]byte
}

// ImportSolanaJSON reads a key file of the Solana command line: a JSON array of 64 numbers, the
// Ed25519 seed and its public key, which must belong together. The file must be its owner's only.
func ImportSolanaJSON(path string) (Imported, error) {
	data, err := readImport(path)
	if err != nil {
		return Imported{}, err
	}
	defer clear(data)
	var list []json.RawMessage // numbers, not bytes: base64 would also be []byte
	if json.Unmarshal(data, &list) != nil || len(list) != ed25519.PrivateKeySize {
		return Imported{}, importError(path, "it is not a JSON array of 64 numbers")
	}
	var pair [ed25519.PrivateKeySize]byte
	defer clear(pair[:])
	for i, number := range list {
		defer clear(number)
		n, err := strconv.ParseUint(string(number), 10, 8)
		if err != nil {
			return Imported{}, importError(path, "a number in it is not from 0 to 255")
		}
		pair[i] = byte(n)
	}
	return fromPair(path, pair[:])
}

// fromPair takes the secret half of an Ed25519 pair, seed ‖ public key, which must belong together.
func fromPair(path string, pair []byte) (Imported, error) {
	key := ed25519.NewKeyFromSeed(pair[:secretSize])
	defer clear(key)
	if !bytes.Equal(key, pair) {
		return Imported{}, importError(path, "its public half does not belong to its secret half")
	}
	return newImported(path, ChainSolana, pair[:secretSize])
}

// ImportKeyFile reads a raw key: 32 bytes in hex, with or without 0x, or, for Solana, the base58 of
// 64 bytes that other wallets export, seed ‖ public key. Hex is a secp256k1 scalar for [ChainEVM]
// and an Ed25519 seed for [ChainSolana]; chain "" goes by the form, and hex is then an EVM key. The
// file must be its owner's only.
func ImportKeyFile(path, chain string) (Imported, error) {
	if chain != ChainSolana && chain != ChainEVM && chain != "" {
		return Imported{}, importError(path, "there is no chain "+strconv.Quote(chain))
	}
	data, err := readImport(path)
	if err != nil {
		return Imported{}, err
	}
	defer clear(data)
	text := trimLine(data)
	if pair := unbase58(text, ed25519.PrivateKeySize); pair != nil && chain != ChainEVM {
		defer clear(pair)
		return fromPair(path, pair)
	}
	text = bytes.TrimPrefix(text, []byte("0x"))
	var secret [secretSize]byte
	defer clear(secret[:])
	if len(text) != hex.EncodedLen(secretSize) {
		return Imported{}, importError(path, "it is not 64 hexadecimal digits")
	}
	if _, err := hex.Decode(secret[:], text); err != nil {
		return Imported{}, importError(path, "it is not 64 hexadecimal digits") // err would quote one
	}
	if chain == "" {
		chain = ChainEVM
	}
	return newImported(path, chain, secret[:])
}

// newImported copies the secret and derives its address.
func newImported(path, chain string, secret []byte) (Imported, error) {
	i := Imported{Chain: chain, secret: (*[secretSize]byte)(bytes.Clone(secret))}
	if chain == ChainSolana {
		key := ed25519.NewKeyFromSeed(i.secret[:])
		defer clear(key)
		i.Address = solanaAddressOf(key)
		return i, nil
	}
	var key secp256k1.PrivateKey
	defer key.Zero()
	if overflow := key.Key.SetBytes(i.secret); overflow != 0 || key.Key.IsZero() {
		i.Wipe()
		return Imported{}, importError(path, errNotAScalar.Error())
	}
	i.Address = evmAddressOf(key.PubKey())
	return i, nil
}

// Wipe clears the key.
func (i Imported) Wipe() {
	if i.secret != nil {
		clear(i.secret[:])
	}
}

func readImport(path string) ([]byte, error) {
	data, err := readOwned(path, maxImport)
	switch {
	case errors.Is(err, codePermissions):
		return nil, err
	case errors.Is(err, fs.ErrNotExist):
		return nil, importError(path, "there is no such file")
	case err != nil:
		return nil, setup("read the key in "+path, err)
	}
	return data, nil
}

func importError(path, why string) *codedError {
	return setup("read the key in "+path, errors.New(why))
}
