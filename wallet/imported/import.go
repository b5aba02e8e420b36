// Package imported reads private keys out of files of other wallets and out of the system's keychain, and has
// what an owner signs with a key of their own. None of these keys is stored by it.
package imported

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"

	"x402-wallet/internal/ownfile"
	"x402-wallet/wallet"
	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/curve"
	"x402-wallet/wallet/internal/guarded"
)

// maxImport is the most a plain key file may have; a Solana one has about 230 bytes.
const maxImport = 4 << 10

// Key is a key from a file of another wallet: on its way into owner.Create, which wipes it, or to
// sign for its owner; then its Wipe is the caller's. It prints as [redacted].
type Key struct{ guarded.PrivateKey }

// The formats of files that Import reads, by the names of init's flags.
//
//	solana        the Solana command line's: a JSON array of 64 numbers, the Ed25519 seed and its
//	              public key, which must belong together
//	evm           a keystore of go-ethereum (Web3 Secret Storage, version 3; Foundry, ethers and
//	              MetaMask write it too). Its passphrase is used as it is typed: that format does
//	              not normalise it
//	ozskr         a keystore of @ozskr/agent-wallet-sdk, version 1 or 2: the Solana key of the
//	              wallet before this one
//	key-file      a raw key: 32 bytes in hex, with or without 0x, or, for Solana, the base58 of 64
//	              bytes that other wallets export, seed ‖ public key. Hex is an EVM key
//	key-file:evm, key-file:solana
//	              the same, where hex is a secp256k1 scalar, or an Ed25519 seed
const keyFileFormat = "key-file"

// Read reads a key from a file of another wallet, which must be its owner's only and is not
// changed. passphrase is asked where the format has one.
//
// Errors: KEYSTORE_PERMISSIONS, INVALID_PASSPHRASE (or the file was changed), SETUP_FAILED for
// everything else.
func Read(ctx context.Context, format, path string, passphrase wallet.Passphrase) (Key, error) {
	switch format {
	case "solana":
		return importSolana(path)
	case "evm":
		return importEVM(ctx, path, passphrase)
	case "ozskr":
		return importOzskr(ctx, path, passphrase)
	case keyFileFormat, keyFileFormat + ":" + wallet.ChainSolana, keyFileFormat + ":" + wallet.ChainEVM:
		return importRaw(path, strings.TrimPrefix(strings.TrimPrefix(format, keyFileFormat), ":"))
	}
	return Key{}, importError(path, "there is no format "+strconv.Quote(format))
}

func importSolana(path string) (Key, error) {
	data, err := readImport(path)
	if err != nil {
		return Key{}, err
	}
	defer clear(data)
	var list []json.RawMessage // numbers, not bytes: base64 would also be []byte
	if json.Unmarshal(data, &list) != nil || len(list) != ed25519.PrivateKeySize {
		return Key{}, importError(path, "it is not a JSON array of 64 numbers")
	}
	var pair [ed25519.PrivateKeySize]byte
	defer clear(pair[:])
	for i, number := range list {
		defer clear(number)
		n, err := strconv.ParseUint(string(number), 10, 8)
		if err != nil {
			return Key{}, importError(path, "a number in it is not from 0 to 255")
		}
		pair[i] = byte(n)
	}
	return fromPair(path, pair[:])
}

// fromPair takes the secret half of an Ed25519 pair, seed ‖ public key, which must belong together.
func fromPair(path string, pair []byte) (Key, error) {
	key := ed25519.NewKeyFromSeed(pair[:guarded.Size])
	defer clear(key)
	if !bytes.Equal(key, pair) {
		return Key{}, importError(path, "its public half does not belong to its secret half")
	}
	return newImported(path, wallet.ChainSolana, pair[:guarded.Size])
}

// importRaw reads a raw key for a chain; "" goes by the form.
func importRaw(path, chain string) (Key, error) {
	data, err := readImport(path)
	if err != nil {
		return Key{}, err
	}
	defer clear(data)
	text := ownfile.TrimLine(data)
	if pair := curve.Unbase58(text, ed25519.PrivateKeySize); pair != nil && chain != wallet.ChainEVM {
		defer clear(pair)
		return fromPair(path, pair)
	}
	text = bytes.TrimPrefix(text, []byte("0x"))
	var secret [guarded.Size]byte
	defer clear(secret[:])
	if len(text) != hex.EncodedLen(guarded.Size) {
		return Key{}, importError(path, "it is not 64 hexadecimal digits")
	}
	if _, err := hex.Decode(secret[:], text); err != nil {
		return Key{}, importError(path, "it is not 64 hexadecimal digits") // err would quote one
	}
	if chain == "" {
		chain = wallet.ChainEVM
	}
	return newImported(path, chain, secret[:])
}

// newImported copies the secret and derives its address.
func newImported(path, chain string, secret []byte) (Key, error) {
	if chain == wallet.ChainSolana {
		key := ed25519.NewKeyFromSeed(secret)
		defer clear(key)
		return Key{guarded.NewPrivateKey(chain, curve.SolanaAddressOf(key), secret)}, nil
	}
	var public *secp256k1.PublicKey
	var err error
	guarded.WithCleanStack(func() { public, err = curve.PublicKey((*[guarded.Size]byte)(secret)) })
	if err != nil {
		return Key{}, importError(path, err.Error())
	}
	return Key{guarded.NewPrivateKey(chain, curve.EVMAddressOf(public), secret)}, nil
}

func readImport(path string) ([]byte, error) {
	data, err := coded.ReadFile(path, maxImport)
	switch {
	case errors.Is(err, coded.Permissions):
		return nil, err
	case errors.Is(err, fs.ErrNotExist):
		return nil, importError(path, "there is no such file")
	case err != nil:
		return nil, coded.Setup("read the key in "+path, err)
	}
	return data, nil
}

func importError(path, why string) *coded.Error {
	return coded.Setup("read the key in "+path, errors.New(why))
}

// Limits of the key derivation of other wallets' files, checked before memory
// is taken or time is spent. They hold what those wallets write: go-ethereum's
// light files (n 2^12, p 6), its test vectors (r 1, p 8), ethers' (n 2^17).
const (
	importMaxMemory = 1 << 30 // 128·n·r, as for our own file
	importMaxWork   = 1 << 25 // n·r·p: about 5 s
	importMaxRounds = 1 << 24 // of PBKDF2, about 5 s; go-ethereum's has 2^18
	importMaxSalt   = 64
	importMaxN      = 1 << 20
)

// checkImportedScrypt holds n, r and p to these limits.
func checkImportedScrypt(n, r, p uint64) error {
	switch {
	case n < 2 || n > importMaxN || n&(n-1) != 0:
		return fmt.Errorf("scrypt n is %d, it must be a power of two from 2 to %d", n, importMaxN)
	case r < 1 || r > 32 || 128*n*r > importMaxMemory:
		return fmt.Errorf("scrypt r is %d with n %d, it must be 1 to 32 and 128·n·r at most %d bytes", r, n,
			importMaxMemory)
	case p < 1 || p > 16 || n*r*p > importMaxWork:
		return fmt.Errorf("scrypt p is %d with n %d and r %d, it must be 1 to 16 and n·r·p at most %d", p, n,
			r, importMaxWork)
	}
	return nil
}

func importEVM(ctx context.Context, path string, passphrase wallet.Passphrase) (Key, error) {
	file, secret, err := openImport(ctx, path, "go-ethereum keystore of version 3", parseGeth, passphrase)
	if err != nil {
		return Key{}, err
	}
	defer clear(secret)
	imported, err := newImported(path, wallet.ChainEVM, secret)
	if err == nil && file.address != "" && !strings.EqualFold(file.address, imported.Address[len("0x"):]) {
		imported.Wipe()
		return Key{}, importError(path, "its key does not belong to the address it names")
	}
	return imported, err
}

func importOzskr(ctx context.Context, path string, passphrase wallet.Passphrase) (Key, error) {
	_, pair, err := openImport(ctx, path, "ozskr keystore", parseOzskr, passphrase)
	if err != nil {
		return Key{}, err
	}
	defer clear(pair)
	return fromPair(path, pair)
}

// openImport reads a file of another wallet, asks for its passphrase and decrypts what it holds,
// which the caller wipes.
func openImport[F interface{ decrypt([]byte) ([]byte, error) }](ctx context.Context, path, kind string,
	parse func([]byte) (F, error), source wallet.Passphrase) (file F, secret []byte, err error) {
	data, err := readImport(path)
	if err != nil {
		return file, nil, err
	}
	if file, err = parse(data); err != nil {
		return file, nil, importError(path, "it is no "+kind+": "+err.Error())
	}
	given, err := wallet.AskPassphrase(ctx, []wallet.Passphrase{source})
	if errors.Is(err, coded.WalletLocked) {
		e := coded.Setup("get the passphrase of "+path, err)
		e.Advice = "run it in a terminal, or give --import-passphrase-file or --import-passphrase-fd"
		return file, nil, e
	}
	if err != nil {
		return file, nil, err
	}
	defer clear(given)
	secret, err = file.decrypt(given)
	switch {
	case errors.Is(err, coded.InvalidPassphrase):
		return file, nil, &coded.Error{As: coded.InvalidPassphrase,
			Msg:    "wrong passphrase for " + path + ", or the file was changed",
			Advice: "try again with the passphrase of the wallet that wrote it; nothing was changed"}
	case err != nil:
		return file, nil, coded.Setup("decrypt "+path, err)
	}
	return file, secret, nil
}
