package wallet

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
)

// maxImport is the most a plain key file may have; a Solana one has about 230 bytes.
const maxImport = 4 << 10

// Imported is a key from a file of another wallet: on its way into [wallet.Create], which wipes it, or to
// sign for its owner; then its Wipe is the caller's. It prints as [redacted].
type Imported struct{ PrivateKey }

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

// Import reads a key from a file of another wallet, which must be its owner's only and is not
// changed. passphrase is asked where the format has one.
//
// Errors: KEYSTORE_PERMISSIONS, INVALID_PASSPHRASE (or the file was changed), SETUP_FAILED for
// everything else.
func Import(ctx context.Context, format, path string, passphrase Passphrase) (Imported, error) {
	switch format {
	case "solana":
		return importSolana(path)
	case "evm":
		return importEVM(ctx, path, passphrase)
	case "ozskr":
		return importOzskr(ctx, path, passphrase)
	case keyFileFormat, keyFileFormat + ":" + ChainSolana, keyFileFormat + ":" + ChainEVM:
		return importRaw(path, strings.TrimPrefix(strings.TrimPrefix(format, keyFileFormat), ":"))
	}
	return Imported{}, importError(path, "there is no format "+strconv.Quote(format))
}

func importSolana(path string) (Imported, error) {
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

// importRaw reads a raw key for a chain; "" goes by the form.
func importRaw(path, chain string) (Imported, error) {
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
	if chain == ChainSolana {
		key := ed25519.NewKeyFromSeed(secret)
		defer clear(key)
		return Imported{NewPrivateKey(chain, solanaAddressOf(key), secret)}, nil
	}
	var public *secp256k1.PublicKey
	var err error
	withCleanStack(func() { public, err = publicKey((*[secretSize]byte)(secret)) })
	if err != nil {
		return Imported{}, importError(path, err.Error())
	}
	return Imported{NewPrivateKey(chain, evmAddressOf(public), secret)}, nil
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

func importEVM(ctx context.Context, path string, passphrase Passphrase) (Imported, error) {
	file, secret, err := openImport(ctx, path, "go-ethereum keystore of version 3", parseGeth, passphrase)
	if err != nil {
		return Imported{}, err
	}
	defer clear(secret)
	imported, err := newImported(path, ChainEVM, secret)
	if err == nil && file.address != "" && !strings.EqualFold(file.address, imported.Address[len("0x"):]) {
		imported.Wipe()
		return Imported{}, importError(path, "its key does not belong to the address it names")
	}
	return imported, err
}

func importOzskr(ctx context.Context, path string, passphrase Passphrase) (Imported, error) {
	_, pair, err := openImport(ctx, path, "ozskr keystore", parseOzskr, passphrase)
	if err != nil {
		return Imported{}, err
	}
	defer clear(pair)
	return fromPair(path, pair)
}

// openImport reads a file of another wallet, asks for its passphrase and decrypts what it holds,
// which the caller wipes.
func openImport[F interface{ decrypt([]byte) ([]byte, error) }](ctx context.Context, path, kind string,
	parse func([]byte) (F, error), source Passphrase) (file F, secret []byte, err error) {
	data, err := readImport(path)
	if err != nil {
		return file, nil, err
	}
	if file, err = parse(data); err != nil {
		return file, nil, importError(path, "it is no "+kind+": "+err.Error())
	}
	given, err := askPassphrase(ctx, []Passphrase{source})
	if errors.Is(err, codeLocked) {
		e := setup("get the passphrase of "+path, err)
		e.hint = "run it in a terminal, or give --import-passphrase-file or --import-passphrase-fd"
		return file, nil, e
	}
	if err != nil {
		return file, nil, err
	}
	defer clear(given)
	secret, err = file.decrypt(given)
	switch {
	case errors.Is(err, codeInvalidPassphrase):
		return file, nil, &codedError{code: codeInvalidPassphrase,
			msg:  "wrong passphrase for " + path + ", or the file was changed",
			hint: "try again with the passphrase of the wallet that wrote it; nothing was changed"}
	case err != nil:
		return file, nil, setup("decrypt "+path, err)
	}
	return file, secret, nil
}

// importReader reads the file of another wallet.
type importReader struct{ jsonReader }

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
	in.document(data)
	others := []string{"crypto", "Crypto", "address", "id", "name", "meta", "x-ethers"}
	top := in.objectWith(data, others, "version")
	if v := in.number(top["version"]); in.err == nil && v != 3 {
		return f, fmt.Errorf("it has version %d", v)
	}
	if address, ok := top["address"]; ok {
		f.address = strings.TrimPrefix(in.text(address), "0x")
	}
	section, small := top["crypto"]
	if other, large := top["Crypto"]; large && !small {
		section = other // older programs
	} else if in.err == nil && small == large {
		return f, errors.New("it must have one section crypto")
	}
	crypto := in.object(section, "cipher", "ciphertext", "cipherparams", "kdf", "kdfparams", "mac")
	in.constant(crypto["cipher"], "aes-128-ctr")
	f.ciphertext = in.hex(crypto["ciphertext"], secretSize, secretSize)
	f.iv = in.hex(in.object(crypto["cipherparams"], "iv")["iv"], aes.BlockSize, aes.BlockSize)
	f.mac = in.hex(crypto["mac"], sha256.Size, sha256.Size)
	in.gethKDF(in.text(crypto["kdf"]), crypto["kdfparams"], &f)
	return f, in.err
}

func (in *importReader) gethKDF(name string, raw json.RawMessage, f *gethFile) {
	var params map[string]json.RawMessage
	switch {
	case in.err != nil:
		return
	case name == "scrypt":
		params = in.object(raw, "n", "r", "p", "dklen", "salt")
		f.n, f.r, f.p = in.number(params["n"]), in.number(params["r"]), in.number(params["p"])
		if in.err == nil {
			in.err = checkImportedScrypt(f.n, f.r, f.p)
		}
	case name == "pbkdf2":
		params = in.object(raw, "c", "prf", "dklen", "salt")
		in.constant(params["prf"], "hmac-sha256")
		f.rounds = in.number(params["c"])
		if f.rounds < 1 || f.rounds > importMaxRounds {
			in.fail("pbkdf2 c is %d, it must be 1 to %d", f.rounds, importMaxRounds)
		}
	default:
		in.fail("its kdf is neither scrypt nor pbkdf2")
		return
	}
	if size := in.number(params["dklen"]); in.err == nil && size != 32 {
		in.fail("dklen is %d, it must be 32", size)
	}
	f.salt = in.hex(params["salt"], 1, importMaxSalt)
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
	if !hmac.Equal(keccak256(authentic), f.mac) {
		return nil, codeInvalidPassphrase
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
	in.document(data)
	top := in.objectWith(data, []string{"scryptParams"}, "version", "salt", "iv", "ciphertext", "authTag")
	version, params := in.number(top["version"]), top["scryptParams"]
	switch {
	case in.err != nil:
	case version == 1 && params == nil:
		// It does not say its cost: the SDK wrote 2^14 and, for production, 2^20.
		f.costs = [][3]uint64{{1 << 14, 8, 1}, {1 << 20, 8, 1}}
	case version == 2 && params != nil:
		scrypt := in.object(params, "N", "r", "p", "keyLen")
		n, r, p := in.number(scrypt["N"]), in.number(scrypt["r"]), in.number(scrypt["p"])
		if size := in.number(scrypt["keyLen"]); in.err == nil && size != ozskrKey {
			in.fail("keyLen is %d, it must be %d", size, ozskrKey)
		}
		if in.err == nil {
			in.err = checkImportedScrypt(n, r, p)
		}
		f.costs = [][3]uint64{{n, r, p}}
	default:
		in.fail("version %d is neither 1 without nor 2 with scryptParams", version)
	}
	f.salt = in.binary(top["salt"], ozskrSalt)
	f.nonce = in.binary(top["iv"], ozskrNonce)
	f.sealed = append(in.binary(top["ciphertext"], ed25519.PrivateKeySize),
		in.binary(top["authTag"], ozskrTag)...)
	return f, in.err
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
	return nil, codeInvalidPassphrase
}

func ozskrGCM(derived []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(derived)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}
