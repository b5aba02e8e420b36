package wallet

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"runtime/debug"
	"time"

	"golang.org/x/crypto/scrypt"
)

// Limits of the keystore file. Everything is checked before memory is taken:
// scrypt with n = 2^30 ends a Go process, and recover does not help.
const (
	keystoreFormat  = "x402-wallet-keystore"
	keystoreVersion = 1
	ownerVersion    = 2 // with the owner's key, without which nothing of the file is another
	phraseVersion   = 3 // with the phrase that the keys come from
	bothVersion     = 4 // with both
	kdfName         = "scrypt"
	cipherName      = "aes-256-gcm"

	maxKeystore = 64 << 10 // ours has about 1 KiB; more is not ours

	minN     = 1 << 14 // 16 MiB: what a phone could do in 2010
	maxN     = 1 << 20 // 1 GiB of memory and about 4 s, the most an owner may ask for
	safeN    = 1 << 17 // OWASP's least; below it opens with a warning
	defaultN = 1 << 18 // 256 MiB and about 1 s, as age and go-ethereum
	scryptR  = 8
	maxP     = 4

	saltSize       = 32
	nonceSize      = 12
	gcmTagSize     = 16
	commitmentSize = 32
)

func hasOwnerIn(version uint64) bool  { return version == ownerVersion || version == bothVersion }
func hasPhraseIn(version uint64) bool { return version == phraseVersion || version == bothVersion }

// header is every field of the file that is not ciphertext or commitment.
type header struct {
	version     uint64 // keystoreVersion to bothVersion
	n, r, p     uint64
	salt        []byte // saltSize
	nonce       []byte // nonceSize
	solana, evm string // addresses
	created     time.Time
}

// keystore is one keystore file, read or about to be written.
type keystore struct {
	header
	ciphertext []byte // sizeOf(version) + gcmTagSize
	commitment []byte // HMAC-SHA-256 of header ‖ ciphertext
}

// canonical is the one byte form of the header that is authenticated (package
// doc). No field can hold a space or a newline, so no two headers share it.
func (h *header) canonical() []byte {
	return fmt.Appendf(nil, "%s %d\nkdf %s %d %d %d %s\ncipher %s %s\nkey %s %s\nkey %s %s\ncreated %s\n",
		keystoreFormat, h.version,
		kdfName, h.n, h.r, h.p, base64.StdEncoding.EncodeToString(h.salt),
		cipherName, base64.StdEncoding.EncodeToString(h.nonce),
		ChainSolana, h.solana, ChainEVM, h.evm, h.created.Format(time.RFC3339))
}

// file is the JSON of SPEC §3, for writing; parse reads it field by field.
type file struct {
	Format     string     `json:"format"`
	Version    uint64     `json:"version"`
	KDF        fileKDF    `json:"kdf"`
	Cipher     fileCipher `json:"cipher"`
	Keys       []fileKey  `json:"keys"`
	Created    time.Time  `json:"created"`
	Ciphertext []byte     `json:"ciphertext"`
	Commitment []byte     `json:"commitment"`
}

type fileKDF struct {
	Name string `json:"name"`
	N    uint64 `json:"n"`
	R    uint64 `json:"r"`
	P    uint64 `json:"p"`
	Salt []byte `json:"salt"`
}

type fileKey struct {
	Chain   string `json:"chain"`
	Address string `json:"address"`
}

type fileCipher struct {
	Name  string `json:"name"`
	Nonce []byte `json:"nonce"`
}

// marshal is the file as it is written: indented, ended by a newline.
func (k *keystore) marshal() ([]byte, error) {
	out, err := json.MarshalIndent(file{
		Format:     keystoreFormat,
		Version:    k.version,
		KDF:        fileKDF{Name: kdfName, N: k.n, R: k.r, P: k.p, Salt: k.salt},
		Cipher:     fileCipher{Name: cipherName, Nonce: k.nonce},
		Keys:       []fileKey{{Chain: ChainSolana, Address: k.solana}, {Chain: ChainEVM, Address: k.evm}},
		Created:    k.created,
		Ciphertext: k.ciphertext,
		Commitment: k.commitment,
	}, "", "  ")
	return append(out, '\n'), err
}

// parse reads a keystore file: strictly, and without any work or memory that
// the file could ask for. What it returns is well formed, not yet authentic.
func parse(data []byte) (*keystore, error) {
	if len(data) > maxKeystore {
		return nil, corrupt("it is larger than %d bytes", maxKeystore)
	}
	var in jsonReader
	k := &keystore{}
	in.document(data)
	top := in.object(data, "format", "version", "kdf", "cipher", "keys", "created", "ciphertext",
		"commitment")
	in.constant(top["format"], keystoreFormat)
	k.version = in.number(top["version"])
	if in.err == nil && (k.version < keystoreVersion || k.version > bothVersion) {
		return nil, corrupt("unsupported version %d, this program reads versions %d to %d", k.version,
			keystoreVersion, bothVersion)
	}
	in.kdf(top["kdf"], &k.header)
	cipher := in.object(top["cipher"], "name", "nonce")
	in.constant(cipher["name"], cipherName)
	k.nonce = in.binary(cipher["nonce"], nonceSize)
	in.keys(top["keys"], &k.header)
	k.created = in.time(top["created"])
	k.ciphertext = in.binary(top["ciphertext"], sizeOf(k.version)+gcmTagSize)
	k.commitment = in.binary(top["commitment"], commitmentSize)
	if in.err != nil {
		return nil, corrupt("%w", in.err)
	}
	return k, nil
}

func (in *jsonReader) kdf(raw json.RawMessage, h *header) {
	kdf := in.object(raw, "name", "n", "r", "p", "salt")
	in.constant(kdf["name"], kdfName)
	h.n, h.r, h.p = in.number(kdf["n"]), in.number(kdf["r"]), in.number(kdf["p"])
	h.salt = in.binary(kdf["salt"], saltSize)
	if in.err == nil {
		in.err = checkScrypt(h.n, h.r, h.p)
	}
}

// checkScrypt holds the parameters to the limits above.
func checkScrypt(n, r, p uint64) error {
	switch {
	case n < minN || n > maxN || n&(n-1) != 0:
		return fmt.Errorf("scrypt n is %d, it must be a power of two from %d to %d", n, minN, maxN)
	case r != scryptR:
		return fmt.Errorf("scrypt r is %d, it must be %d", r, scryptR)
	case p < 1 || p > maxP:
		return fmt.Errorf("scrypt p is %d, it must be 1 to %d", p, maxP)
	}
	return nil
}

// keys reads exactly the two keys that have addresses, in their order.
func (in *jsonReader) keys(raw json.RawMessage, h *header) {
	list := in.list(raw)
	if in.err == nil && len(list) != 2 {
		in.err = fmt.Errorf("it lists %d keys, there are two", len(list))
	}
	if in.err != nil {
		return
	}
	solana, evm := in.object(list[0], "chain", "address"), in.object(list[1], "chain", "address")
	in.constant(solana["chain"], ChainSolana)
	in.constant(evm["chain"], ChainEVM)
	h.solana, h.evm = in.text(solana["address"]), in.text(evm["address"])
	if in.err == nil && !(isSolanaAddress(h.solana) && isEVMAddress(h.evm)) {
		in.err = fmt.Errorf("an address in it is not one")
	}
}

// time reads RFC 3339 in UTC with whole seconds, the one form that is written.
func (in *jsonReader) time(raw json.RawMessage) time.Time {
	text := in.text(raw)
	t, err := time.Parse(time.RFC3339, text)
	if err != nil || t.UTC().Format(time.RFC3339) != text {
		in.fail("its time is not RFC 3339 in UTC")
	}
	return t.UTC()
}

// binary reads base64 of exactly size bytes, in its one right spelling.
func (in *jsonReader) binary(raw json.RawMessage, size int) []byte {
	text := in.text(raw)
	if in.err != nil {
		return nil
	}
	out, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(out) != size || base64.StdEncoding.EncodeToString(out) != text {
		in.err = fmt.Errorf("a value is not base64 of %d bytes", size)
	}
	return out
}

// kdf derives 64 bytes from a normalised passphrase: 0–31 the AES key, 32–63
// the commitment key. A field where it is used, so that tests can count it.
type kdf func(passphrase, salt []byte, n, r, p uint64) ([]byte, error)

const (
	kdfSize = 64
	aesSize = 32
)

// scryptKDF is the kdf of version 1. It takes 128·n·r bytes, 256 MiB by
// default, and gives them back to the system at once: they hold what the
// passphrase was stretched through, and a locked wallet should be small.
func scryptKDF(passphrase, salt []byte, n, r, p uint64) ([]byte, error) {
	if err := checkScrypt(n, r, p); err != nil {
		return nil, err
	}
	defer debug.FreeOSMemory()
	return scrypt.Key(passphrase, salt, int(n), int(r), int(p), kdfSize)
}

// encrypt makes a keystore of k under a fresh salt and nonce.
func encrypt(k *keys, passphrase []byte, n uint64, created time.Time, derive kdf,
	random io.Reader) (*keystore, error) {
	fresh := make([]byte, saltSize+nonceSize)
	if _, err := io.ReadFull(random, fresh); err != nil {
		return nil, fmt.Errorf("read random bytes: %w", err)
	}
	ks := &keystore{header: header{
		version: k.version(),
		n:       n, r: scryptR, p: 1,
		salt:    fresh[:saltSize:saltSize],
		nonce:   fresh[saltSize:],
		created: created.UTC().Truncate(time.Second),
	}}
	ks.solana, ks.evm = k.addresses()

	derived, err := derive(passphrase, ks.salt, ks.n, ks.r, ks.p)
	if err != nil {
		return nil, err
	}
	defer clear(derived)
	aead, err := newGCM(derived)
	if err != nil {
		return nil, err
	}
	plain := k.plaintext()
	defer plain.wipe()
	ks.ciphertext = aead.Seal(nil, ks.nonce, plain.bytes, ks.canonical())
	ks.commitment = ks.commit(derived)
	return ks, nil
}

// decrypt returns the keys, or an [*Error]: a commitment that does not fit is INVALID_PASSPHRASE,
// whether the passphrase or the file is wrong. Everything that is wrong behind a good commitment
// was written by somebody who knew the passphrase, and is KEYSTORE_CORRUPT.
func (ks *keystore) decrypt(passphrase []byte, derive kdf) (*keys, error) {
	derived, err := derive(passphrase, ks.salt, ks.n, ks.r, ks.p)
	if err != nil {
		return nil, corrupt("derive its key: %w", err)
	}
	defer clear(derived)
	if !hmac.Equal(ks.commitment, ks.commit(derived)) {
		return nil, wrongPassphrase()
	}
	aead, err := newGCM(derived)
	if err != nil {
		return nil, corrupt("%w", err)
	}
	memory := newSecret(sizeOf(ks.version)) // Open must not grow it: what it leaves behind stays unwiped
	defer memory.wipe()
	plain, err := aead.Open(memory.bytes[:0], ks.nonce, ks.ciphertext, ks.canonical())
	if err != nil {
		return nil, corrupt("its ciphertext is not authentic")
	}
	k, err := readPlaintext(plain, ks.version)
	if err != nil {
		return nil, corrupt("%w", err)
	}
	if solana, evm := k.addresses(); solana != ks.solana || evm != ks.evm {
		k.wipe()
		return nil, corrupt("its keys do not belong to the addresses it names")
	}
	return k, nil
}

// commit is HMAC-SHA-256 of header ‖ ciphertext with the second half of the
// derived bytes: it binds the file to one passphrase, which GCM does not.
func (ks *keystore) commit(derived []byte) []byte {
	mac := hmac.New(sha256.New, derived[aesSize:])
	mac.Write(ks.canonical())
	mac.Write(ks.ciphertext)
	return mac.Sum(nil)
}

func newGCM(derived []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(derived[:aesSize])
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// warnings are what an owner should hear about a keystore that opens.
func (ks *keystore) warnings() []string {
	if ks.n >= safeN {
		return nil
	}
	return []string{fmt.Sprintf("the keystore's scrypt n is %d, below %d: a stolen file is guessed too "+
		"cheaply; set the passphrase again with: x402-wallet passphrase", ks.n, safeN)}
}
