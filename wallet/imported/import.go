// Package imported reads private keys out of files of other wallets and out of the system's keychain, and has
// what an owner signs with a key of their own. None of these keys is stored by it.
package imported

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"
	"golang.org/x/crypto/scrypt"

	"x402-wallet/internal/ownfile"
	"x402-wallet/wallet"
	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/curve"
	"x402-wallet/wallet/internal/guarded"
	"x402-wallet/wallet/internal/strictjson"
)

// maxImport is the most a plain key file may have; a Solana one has about 230 bytes.
const maxImport = 4 << 10

// Key is a key from a file of another wallet: on its way into [wallet.Create], which wipes it, or to
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

// importReader reads the file of another wallet.
type importReader struct{ strictjson.Reader }

// gethFile is a Web3 Secret Storage file, version 3.
type gethFile struct {
	address             string // without 0x; "" where it names none
	ciphertext, iv, mac []byte
	salt                []byte
	n, r, p             uint64 // scrypt
	rounds              uint64 // PBKDF2-HMAC-SHA-256; 0 where it is scrypt
}

// parseGeth reads the file strictly. Fields of other programs that say nothing
// about the key (ethers' mnemonic above all) are passed over.
func parseGeth(data []byte) (f gethFile, err error) {
	var in importReader
	in.Document(data)
	others := []string{"crypto", "Crypto", "address", "id", "name", "meta", "x-ethers"}
	top := in.ObjectWith(data, others, "version")
	if v := in.Number(top["version"]); in.Err == nil && v != 3 {
		return f, fmt.Errorf("it has version %d", v)
	}
	if address, ok := top["address"]; ok {
		f.address = strings.TrimPrefix(in.Text(address), "0x")
	}
	section, small := top["crypto"]
	if other, large := top["Crypto"]; large && !small {
		section = other // older programs
	} else if in.Err == nil && small == large {
		return f, errors.New("it must have one section crypto")
	}
	crypto := in.Object(section, "cipher", "ciphertext", "cipherparams", "kdf", "kdfparams", "mac")
	in.Constant(crypto["cipher"], "aes-128-ctr")
	f.ciphertext = in.Hex(crypto["ciphertext"], guarded.Size, guarded.Size)
	f.iv = in.Hex(in.Object(crypto["cipherparams"], "iv")["iv"], aes.BlockSize, aes.BlockSize)
	f.mac = in.Hex(crypto["mac"], sha256.Size, sha256.Size)
	in.gethKDF(in.Text(crypto["kdf"]), crypto["kdfparams"], &f)
	return f, in.Err
}

func (in *importReader) gethKDF(name string, raw json.RawMessage, f *gethFile) {
	var params map[string]json.RawMessage
	switch {
	case in.Err != nil:
		return
	case name == "scrypt":
		params = in.Object(raw, "n", "r", "p", "dklen", "salt")
		f.n, f.r, f.p = in.Number(params["n"]), in.Number(params["r"]), in.Number(params["p"])
		if in.Err == nil {
			in.Err = checkImportedScrypt(f.n, f.r, f.p)
		}
	case name == "pbkdf2":
		params = in.Object(raw, "c", "prf", "dklen", "salt")
		in.Constant(params["prf"], "hmac-sha256")
		f.rounds = in.Number(params["c"])
		if f.rounds < 1 || f.rounds > importMaxRounds {
			in.Fail("pbkdf2 c is %d, it must be 1 to %d", f.rounds, importMaxRounds)
		}
	default:
		in.Fail("its kdf is neither scrypt nor pbkdf2")
		return
	}
	if size := in.Number(params["dklen"]); in.Err == nil && size != 32 {
		in.Fail("dklen is %d, it must be 32", size)
	}
	f.salt = in.Hex(params["salt"], 1, importMaxSalt)
}

// decrypt returns the 32 bytes of the key, or codeInvalidPassphrase.
func (f gethFile) decrypt(passphrase []byte) ([]byte, error) {
	var derived []byte
	var err error
	if f.rounds > 0 {
		// it takes a string: a copy that is not wiped
		derived, err = pbkdf2.Key(sha256.New, string(passphrase), f.salt, int(f.rounds), 32)
	} else {
		defer debug.FreeOSMemory()
		derived, err = scrypt.Key(passphrase, f.salt, int(f.n), int(f.r), int(f.p), 32)
	}
	if err != nil {
		return nil, err
	}
	defer clear(derived)
	authentic := append(append([]byte{}, derived[16:]...), f.ciphertext...)
	defer clear(authentic)
	if !hmac.Equal(curve.Keccak256(authentic), f.mac) {
		return nil, coded.InvalidPassphrase
	}
	block, err := aes.NewCipher(derived[:16])
	if err != nil {
		return nil, err
	}
	secret := make([]byte, len(f.ciphertext))
	cipher.NewCTR(block, f.iv).XORKeyStream(secret, f.ciphertext)
	return secret, nil
}

// The sizes in a file of the ozskr wallet.
const (
	ozskrSalt, ozskrNonce, ozskrTag = 32, 12, 16
	ozskrKey                        = 32
)

// ozskrFile is the ozskr wallet's keystore: AES-256-GCM under scrypt, no additional data.
type ozskrFile struct {
	salt, nonce, sealed []byte      // sealed is ciphertext ‖ tag
	costs               [][3]uint64 // n, r, p, to be tried in this order
}

func parseOzskr(data []byte) (f ozskrFile, err error) {
	var in importReader
	in.Document(data)
	top := in.ObjectWith(data, []string{"scryptParams"}, "version", "salt", "iv", "ciphertext", "authTag")
	version, params := in.Number(top["version"]), top["scryptParams"]
	switch {
	case in.Err != nil:
	case version == 1 && params == nil:
		// It does not say its cost: the SDK wrote 2^14 and, for production, 2^20.
		f.costs = [][3]uint64{{1 << 14, 8, 1}, {1 << 20, 8, 1}}
	case version == 2 && params != nil:
		scrypt := in.Object(params, "N", "r", "p", "keyLen")
		n, r, p := in.Number(scrypt["N"]), in.Number(scrypt["r"]), in.Number(scrypt["p"])
		if size := in.Number(scrypt["keyLen"]); in.Err == nil && size != ozskrKey {
			in.Fail("keyLen is %d, it must be %d", size, ozskrKey)
		}
		if in.Err == nil {
			in.Err = checkImportedScrypt(n, r, p)
		}
		f.costs = [][3]uint64{{n, r, p}}
	default:
		in.Fail("version %d is neither 1 without nor 2 with scryptParams", version)
	}
	f.salt = in.Binary(top["salt"], ozskrSalt)
	f.nonce = in.Binary(top["iv"], ozskrNonce)
	f.sealed = append(in.Binary(top["ciphertext"], ed25519.PrivateKeySize),
		in.Binary(top["authTag"], ozskrTag)...)
	return f, in.Err
}

// decrypt returns seed ‖ public key, or codeInvalidPassphrase.
func (f ozskrFile) decrypt(passphrase []byte) ([]byte, error) {
	defer debug.FreeOSMemory()
	for _, cost := range f.costs {
		derived, err := scrypt.Key(passphrase, f.salt, int(cost[0]), int(cost[1]), int(cost[2]), ozskrKey)
		if err != nil {
			return nil, err
		}
		aead, err := ozskrGCM(derived)
		clear(derived)
		if err != nil {
			return nil, err
		}
		if pair, err := aead.Open(nil, f.nonce, f.sealed, nil); err == nil {
			return pair, nil
		}
	}
	return nil, coded.InvalidPassphrase
}

func ozskrGCM(derived []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(derived)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}
