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

	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/curve"
	"x402-wallet/wallet/internal/guarded"
	"x402-wallet/wallet/internal/strictjson"
)

// Limits of the keystore file. Everything is checked before memory is taken:
// scrypt with n = 2^30 ends a Go process, and recover does not help.
const (
	keystoreFormat  = "x402-wallet-keystore"
	keystoreVersion = 1
	kdfName         = "scrypt"
	cipherName      = "aes-256-gcm"

	maxKeystore = 64 << 10 // ours has about 1 KiB, and ½ KiB for each account; more is not ours

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

// header is every field of the file that is not ciphertext or commitment.
type header struct {
	n, r, p     uint64
	salt        []byte // saltSize
	nonce       []byte // nonceSize
	solana, evm string // addresses
	created     time.Time
	accounts    []AccountInfo // the others
}

// keystore is one keystore file, read or about to be written.
type keystore struct {
	header
	holds      contents // follows from the size of ciphertext
	ciphertext []byte   // holds.size(len(accounts)) + gcmTagSize
	commitment []byte   // HMAC-SHA-256 of header ‖ ciphertext
}

// canonical is the one byte form of the header that is authenticated (package
// doc). No field can hold a space or a newline, so no two headers share it.
func (h *header) canonical() []byte {
	out := fmt.Appendf(nil, "%s %d\nkdf %s %d %d %d %s\ncipher %s %s\nkey %s %s\nkey %s %s\ncreated %s\n",
		keystoreFormat, keystoreVersion,
		kdfName, h.n, h.r, h.p, base64.StdEncoding.EncodeToString(h.salt),
		cipherName, base64.StdEncoding.EncodeToString(h.nonce),
		ChainSolana, h.solana, ChainEVM, h.evm, h.created.Format(time.RFC3339))
	for _, a := range h.accounts {
		out = fmt.Appendf(out, "account %s %d %s %s\n", a.Name, a.Index, a.Solana, a.EVM)
	}
	return out
}

// file is the JSON of a keystore, for writing; parse reads it field by field.
type file struct {
	Format     string        `json:"format"`
	Version    uint64        `json:"version"`
	KDF        fileKDF       `json:"kdf"`
	Cipher     fileCipher    `json:"cipher"`
	Keys       []fileKey     `json:"keys"`
	Accounts   []fileAccount `json:"accounts,omitempty"` // none without other accounts
	Created    time.Time     `json:"created"`
	Ciphertext []byte        `json:"ciphertext"`
	Commitment []byte        `json:"commitment"`
}

type fileAccount struct {
	Name  string    `json:"name"`
	Index uint32    `json:"index"`
	Keys  []fileKey `json:"keys"`
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
	var accounts []fileAccount
	for _, a := range k.accounts {
		accounts = append(accounts, fileAccount{Name: a.Name, Index: a.Index,
			Keys: fileKeys(a.Solana, a.EVM)})
	}
	out, err := json.MarshalIndent(file{
		Format:     keystoreFormat,
		Version:    keystoreVersion,
		KDF:        fileKDF{Name: kdfName, N: k.n, R: k.r, P: k.p, Salt: k.salt},
		Cipher:     fileCipher{Name: cipherName, Nonce: k.nonce},
		Keys:       fileKeys(k.solana, k.evm),
		Accounts:   accounts,
		Created:    k.created,
		Ciphertext: k.ciphertext,
		Commitment: k.commitment,
	}, "", "  ")
	return append(out, '\n'), err
}

func fileKeys(solana, evm string) []fileKey {
	return []fileKey{{Chain: ChainSolana, Address: solana}, {Chain: ChainEVM, Address: evm}}
}

// fileReader reads a keystore file.
type fileReader struct{ strictjson.Reader }

// parse reads a keystore file: strictly, and without any work or memory that
// the file could ask for. What it returns is well formed, not yet authentic.
func parse(data []byte) (*keystore, error) {
	if len(data) > maxKeystore {
		return nil, coded.Corrupt("it is larger than %d bytes", maxKeystore)
	}
	var in fileReader
	k := &keystore{}
	in.Document(data)
	top := in.ObjectWith(data, []string{"accounts"}, "format", "version", "kdf", "cipher", "keys", "created",
		"ciphertext", "commitment")
	in.Constant(top["format"], keystoreFormat)
	if version := in.Number(top["version"]); in.Err == nil && version != keystoreVersion {
		return nil, coded.Corrupt("unsupported version %d, this program reads version %d", version,
			keystoreVersion)
	}
	in.kdf(top["kdf"], &k.header)
	cipher := in.Object(top["cipher"], "name", "nonce")
	in.Constant(cipher["name"], cipherName)
	k.nonce = in.Binary(cipher["nonce"], nonceSize)
	k.solana, k.evm = in.keys(top["keys"])
	in.accounts(top["accounts"], &k.header)
	k.created = in.time(top["created"])
	k.ciphertext = in.Base64(top["ciphertext"])
	k.holds = in.contents(len(k.ciphertext)-gcmTagSize, len(k.accounts))
	k.commitment = in.Binary(top["commitment"], commitmentSize)
	if in.Err != nil {
		return nil, coded.Corrupt("%w", in.Err)
	}
	return k, nil
}

func (in *fileReader) kdf(raw json.RawMessage, h *header) {
	kdf := in.Object(raw, "name", "n", "r", "p", "salt")
	in.Constant(kdf["name"], kdfName)
	h.n, h.r, h.p = in.Number(kdf["n"]), in.Number(kdf["r"]), in.Number(kdf["p"])
	h.salt = in.Binary(kdf["salt"], saltSize)
	if in.Err == nil {
		in.Err = checkScrypt(h.n, h.r, h.p)
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
func (in *fileReader) accounts(raw json.RawMessage, h *header) {
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
			in.Err = h.checkNew(a)
		}
		h.accounts = append(h.accounts, a)
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
func (in *fileReader) contents(size, accounts int) contents {
	for _, c := range []contents{{}, {phrase: true}} {
		if c.size(accounts) == size {
			return c
		}
	}
	in.Fail("its ciphertext has another length than any content")
	return contents{}
}

// kdf derives 64 bytes from a normalised passphrase: 0–31 the AES key, 32–63
// the commitment key. A field where it is used, so that tests can count it.
type kdf func(passphrase, salt []byte, n, r, p uint64) ([]byte, error)

const (
	kdfSize = 64
	aesSize = 32
)

// scryptKDF takes 128·n·r bytes, 256 MiB by
// default, and gives them back to the system at once: they hold what the
// passphrase was stretched through, and a locked wallet should be small.
func scryptKDF(passphrase, salt []byte, n, r, p uint64) ([]byte, error) {
	if err := checkScrypt(n, r, p); err != nil {
		return nil, err
	}
	defer debug.FreeOSMemory()
	return scrypt.Key(passphrase, salt, int(n), int(r), int(p), kdfSize)
}

// encrypt makes a keystore of k under a fresh salt and nonce. others names the accounts of k besides its own;
// their addresses follow from the keys.
func encrypt(k *keys, others []AccountInfo, passphrase []byte, n uint64, created time.Time, derive kdf,
	random io.Reader) (*keystore, error) {
	if len(others) != len(k.accounts) {
		return nil, fmt.Errorf("there are keys of %d accounts, and names of %d", len(k.accounts), len(others))
	}
	fresh := make([]byte, saltSize+nonceSize)
	if _, err := io.ReadFull(random, fresh); err != nil {
		return nil, fmt.Errorf("read random bytes: %w", err)
	}
	ks := &keystore{holds: k.holds(), header: header{
		n: n, r: scryptR, p: 1,
		salt:    fresh[:saltSize:saltSize],
		nonce:   fresh[saltSize:],
		created: created.UTC().Truncate(time.Second),
	}}
	ks.solana, ks.evm = k.addresses()
	for i, a := range others {
		a.Solana, a.EVM = k.accounts[i].addresses()
		ks.accounts = append(ks.accounts, a)
	}

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
	defer plain.Wipe()
	ks.ciphertext = aead.Seal(nil, ks.nonce, plain.Bytes, ks.canonical())
	ks.commitment = ks.commit(derived)
	return ks, nil
}

// decrypt returns the keys, or an [*Error]: a commitment that does not fit is INVALID_PASSPHRASE,
// whether the passphrase or the file is wrong. Everything that is wrong behind a good commitment
// was written by somebody who knew the passphrase, and is KEYSTORE_CORRUPT.
func (ks *keystore) decrypt(passphrase []byte, derive kdf) (*keys, error) {
	derived, err := derive(passphrase, ks.salt, ks.n, ks.r, ks.p)
	if err != nil {
		return nil, coded.Corrupt("derive its key: %w", err)
	}
	defer clear(derived)
	if !hmac.Equal(ks.commitment, ks.commit(derived)) {
		return nil, coded.WrongPassphrase()
	}
	aead, err := newGCM(derived)
	if err != nil {
		return nil, coded.Corrupt("%w", err)
	}
	// Open must not grow it: what it leaves behind stays unwiped
	memory := guarded.New(ks.holds.size(len(ks.accounts)))
	defer memory.Wipe()
	plain, err := aead.Open(memory.Bytes[:0], ks.nonce, ks.ciphertext, ks.canonical())
	if err != nil {
		return nil, coded.Corrupt("its ciphertext is not authentic")
	}
	k, err := readPlaintext(plain, ks.holds, len(ks.accounts))
	if err != nil {
		return nil, coded.Corrupt("%w", err)
	}
	if !ks.names(k) {
		k.wipe()
		return nil, coded.Corrupt("its keys do not belong to the addresses it names")
	}
	return k, nil
}

// names reports whether the addresses of a header are those of keys.
func (h *header) names(k *keys) bool {
	if len(k.accounts) != len(h.accounts) {
		return false
	}
	solana, evm := k.addresses()
	are := solana == h.solana && evm == h.evm
	for i, a := range h.accounts {
		solana, evm = k.accounts[i].addresses()
		are = are && solana == a.Solana && evm == a.EVM
	}
	return are
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
