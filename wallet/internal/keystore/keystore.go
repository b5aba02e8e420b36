// Package keystore reads the encrypted file that the keys are in, and holds the keys in locked memory. The
// comment of package wallet describes the file. Package owner writes it.
package keystore

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"time"
	"unicode/utf8"

	"golang.org/x/crypto/scrypt"
	"golang.org/x/text/unicode/norm"

	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/curve"
	"x402-wallet/wallet/internal/guarded"
	"x402-wallet/wallet/internal/strictjson"
)

// Limits of the keystore file. Everything is checked before memory is taken:
// scrypt with n = 2^30 ends a Go process, and recover does not help.
const (
	Format     = "x402-wallet-keystore"
	Version    = 1
	KDFName    = "scrypt"
	CipherName = "aes-256-gcm"

	MaxSize = 64 << 10 // ours has about 1 KiB, and ½ KiB for each account; more is not ours

	MinN    = 1 << 14 // 16 MiB: what a phone could do in 2010
	MaxN    = 1 << 20 // 1 GiB of memory and about 4 s, the most an owner may ask for
	safeN   = 1 << 17 // OWASP's least; below it opens with a warning
	ScryptR = 8
	maxP    = 4

	SaltSize       = 32
	NonceSize      = 12
	gcmTagSize     = 16
	commitmentSize = 32
)

// Header is every field of the file that is not ciphertext or commitment.
type Header struct {
	N, R, P     uint64
	Salt        []byte // SaltSize
	Nonce       []byte // NonceSize
	Solana, EVM string // addresses
	Created     time.Time
	Accounts    []AccountInfo // the others
}

// File is one keystore file, read or about to be written.
type File struct {
	Header
	Holds      Contents // follows from the size of Ciphertext
	Ciphertext []byte   // Holds.Size(len(Accounts)) + gcmTagSize
	Commitment []byte   // HMAC-SHA-256 of header ‖ ciphertext
}

// Canonical is the one byte form of the header that is authenticated (package
// wallet). No field can hold a space or a newline, so no two headers share it.
func (h *Header) Canonical() []byte {
	out := fmt.Appendf(nil, "%s %d\nkdf %s %d %d %d %s\ncipher %s %s\nkey %s %s\nkey %s %s\ncreated %s\n",
		Format, Version,
		KDFName, h.N, h.R, h.P, base64.StdEncoding.EncodeToString(h.Salt),
		CipherName, base64.StdEncoding.EncodeToString(h.Nonce),
		ChainSolana, h.Solana, ChainEVM, h.EVM, h.Created.Format(time.RFC3339))
	for _, a := range h.Accounts {
		out = fmt.Appendf(out, "account %s %d %s %s\n", a.Name, a.Index, a.Solana, a.EVM)
	}
	return out
}

type fileReader struct{ strictjson.Reader }

// Parse reads a keystore file: strictly, and without any work or memory that
// the file could ask for. What it returns is well formed, not yet authentic.
func Parse(data []byte) (*File, error) {
	if len(data) > MaxSize {
		return nil, coded.Corrupt("it is larger than %d bytes", MaxSize)
	}
	var in fileReader
	k := &File{}
	in.Document(data)
	top := in.ObjectWith(data, []string{"accounts"}, "format", "version", "kdf", "cipher", "keys", "created",
		"ciphertext", "commitment")
	in.Constant(top["format"], Format)
	if version := in.Number(top["version"]); in.Err == nil && version != Version {
		return nil, coded.Corrupt("unsupported version %d, this program reads version %d", version,
			Version)
	}
	in.kdf(top["kdf"], &k.Header)
	cipher := in.Object(top["cipher"], "name", "nonce")
	in.Constant(cipher["name"], CipherName)
	k.Nonce = in.Binary(cipher["nonce"], NonceSize)
	k.Solana, k.EVM = in.keys(top["keys"])
	in.accounts(top["accounts"], &k.Header)
	k.Created = in.time(top["created"])
	k.Ciphertext = in.Base64(top["ciphertext"])
	k.Holds = in.contents(len(k.Ciphertext)-gcmTagSize, len(k.Accounts))
	k.Commitment = in.Binary(top["commitment"], commitmentSize)
	if in.Err != nil {
		return nil, coded.Corrupt("%w", in.Err)
	}
	return k, nil
}

func (in *fileReader) kdf(raw json.RawMessage, h *Header) {
	kdf := in.Object(raw, "name", "n", "r", "p", "salt")
	in.Constant(kdf["name"], KDFName)
	h.N, h.R, h.P = in.Number(kdf["n"]), in.Number(kdf["r"]), in.Number(kdf["p"])
	h.Salt = in.Binary(kdf["salt"], SaltSize)
	if in.Err == nil {
		in.Err = CheckScrypt(h.N, h.R, h.P)
	}
}

// CheckScrypt holds the parameters to the limits above.
func CheckScrypt(n, r, p uint64) error {
	switch {
	case n < MinN || n > MaxN || n&(n-1) != 0:
		return fmt.Errorf("scrypt n is %d, it must be a power of two from %d to %d", n, MinN, MaxN)
	case r != ScryptR:
		return fmt.Errorf("scrypt r is %d, it must be %d", r, ScryptR)
	case p < 1 || p > maxP:
		return fmt.Errorf("scrypt p is %d, it must be 1 to %d", p, maxP)
	}
	return nil
}

// keys reads exactly the two keys of an account that have addresses, in their order.
func (in *fileReader) keys(raw json.RawMessage) (solana, evm string) {
	list := in.List(raw)
	if in.Err == nil && len(list) != 2 {
		in.Fail("it lists %d keys, there are two", len(list))
	}
	if in.Err != nil {
		return "", ""
	}
	onSolana, onEVM := in.Object(list[0], "chain", "address"), in.Object(list[1], "chain", "address")
	in.Constant(onSolana["chain"], ChainSolana)
	in.Constant(onEVM["chain"], ChainEVM)
	solana, evm = in.Text(onSolana["address"]), in.Text(onEVM["address"])
	if in.Err == nil && !(curve.IsSolanaAddress(solana) && curve.IsEVMAddress(evm)) {
		in.Fail("an address in it is not one")
	}
	return solana, evm
}

// accounts reads the others: a list that is left out where there are none.
func (in *fileReader) accounts(raw json.RawMessage, h *Header) {
	if in.Err != nil || raw == nil {
		return
	}
	list := in.List(raw)
	if in.Err == nil && (len(list) == 0 || len(list) > MaxAccounts) {
		in.Fail("it lists %d accounts", len(list))
	}
	for _, each := range list {
		one := in.Object(each, "name", "index", "keys")
		a := AccountInfo{Name: in.Text(one["name"]), Index: in.index(one["index"])}
		a.Solana, a.EVM = in.keys(one["keys"])
		if in.Err == nil {
			in.Err = h.CheckNew(a)
		}
		h.Accounts = append(h.Accounts, a)
	}
}

// index reads the place of an account in a phrase.
func (in *fileReader) index(raw json.RawMessage) uint32 {
	n := in.Number(raw)
	if n > MaxAccount {
		in.Fail("a phrase has no account %d", n)
		return 0
	}
	return uint32(n) //nolint:gosec // it is no more than MaxAccount
}

// time reads RFC 3339 in UTC with whole seconds, the one form that is written.
func (in *fileReader) time(raw json.RawMessage) time.Time {
	text := in.Text(raw)
	t, err := time.Parse(time.RFC3339, text)
	if err != nil || t.UTC().Format(time.RFC3339) != text {
		in.Fail("its time is not RFC 3339 in UTC")
	}
	return t.UTC()
}

// contents is what a plaintext of this size holds.
func (in *fileReader) contents(size, accounts int) Contents {
	for _, c := range []Contents{{}, {Phrase: true}} {
		if c.Size(accounts) == size {
			return c
		}
	}
	in.Fail("its ciphertext has another length than any content")
	return Contents{}
}

// KDF derives 64 bytes from a normalised passphrase: 0–31 the AES key, 32–63
// the commitment key. A field where it is used, so that tests can count it.
type KDF func(passphrase, salt []byte, n, r, p uint64) ([]byte, error)

const (
	kdfSize = 64
	aesSize = 32
)

// Scrypt is the KDF. It takes 128·n·r bytes, 256 MiB by
// default, and gives them back to the system at once: they hold what the
// passphrase was stretched through, and a locked wallet should be small.
func Scrypt(passphrase, salt []byte, n, r, p uint64) ([]byte, error) {
	if err := CheckScrypt(n, r, p); err != nil {
		return nil, err
	}
	defer debug.FreeOSMemory()
	return scrypt.Key(passphrase, salt, int(n), int(r), int(p), kdfSize)
}

// NFC copies p into locked memory in its NFC form, so that the same letters open the wallet
// whichever keyboard typed them. The caller wipes it.
func NFC(p []byte) *guarded.Memory {
	// NFC makes UTF-8 at most three times longer (UAX #15); growing the slice
	// would leave a copy behind.
	s := guarded.New(3*len(p) + utf8.UTFMax)
	s.Bytes = norm.NFC.Append(s.Bytes[:0], p...)
	return s
}

// Decrypt returns the keys, or an [*Error]: a commitment that does not fit is INVALID_PASSPHRASE,
// whether the passphrase or the file is wrong. Everything that is wrong behind a good commitment
// was written by somebody who knew the passphrase, and is KEYSTORE_CORRUPT.
func (ks *File) Decrypt(passphrase []byte, derive KDF) (*Keys, error) {
	derived, err := derive(passphrase, ks.Salt, ks.N, ks.R, ks.P)
	if err != nil {
		return nil, coded.Corrupt("derive its key: %w", err)
	}
	defer clear(derived)
	if !hmac.Equal(ks.Commitment, ks.Commit(derived)) {
		return nil, coded.WrongPassphrase()
	}
	aead, err := NewGCM(derived)
	if err != nil {
		return nil, coded.Corrupt("%w", err)
	}
	// Open must not grow it: what it leaves behind stays unwiped
	memory := guarded.New(ks.Holds.Size(len(ks.Accounts)))
	defer memory.Wipe()
	plain, err := aead.Open(memory.Bytes[:0], ks.Nonce, ks.Ciphertext, ks.Canonical())
	if err != nil {
		return nil, coded.Corrupt("its ciphertext is not authentic")
	}
	k, err := readPlaintext(plain, ks.Holds, len(ks.Accounts))
	if err != nil {
		return nil, coded.Corrupt("%w", err)
	}
	if !ks.names(k) {
		k.Wipe()
		return nil, coded.Corrupt("its keys do not belong to the addresses it names")
	}
	return k, nil
}

// names reports whether the addresses of a header are those of keys.
func (h *Header) names(k *Keys) bool {
	if len(k.Accounts) != len(h.Accounts) {
		return false
	}
	solana, evm := k.Addresses()
	are := solana == h.Solana && evm == h.EVM
	for i, a := range h.Accounts {
		solana, evm = k.Accounts[i].Addresses()
		are = are && solana == a.Solana && evm == a.EVM
	}
	return are
}

// Commit is HMAC-SHA-256 of header ‖ ciphertext with the second half of the
// derived bytes: it binds the file to one passphrase, which GCM does not.
func (ks *File) Commit(derived []byte) []byte {
	mac := hmac.New(sha256.New, derived[aesSize:])
	mac.Write(ks.Canonical())
	mac.Write(ks.Ciphertext)
	return mac.Sum(nil)
}

// NewGCM is the cipher, with the first half of the derived bytes.
func NewGCM(derived []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(derived[:aesSize])
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// Warnings are what an owner should hear about a keystore that opens.
func (ks *File) Warnings() []string {
	if ks.N >= safeN {
		return nil
	}
	return []string{fmt.Sprintf("the keystore's scrypt n is %d, below %d: a stolen file is guessed too "+
		"cheaply; set the passphrase again with: x402-wallet passphrase", ks.N, safeN)}
}
