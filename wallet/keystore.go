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
type fileReader struct{ jsonReader }

// parse reads a keystore file: strictly, and without any work or memory that
// the file could ask for. What it returns is well formed, not yet authentic.
func parse(data []byte) (*keystore, error) {
	if len(data) > maxKeystore {
		return nil, corrupt("it is larger than %d bytes", maxKeystore)
	}
	var in fileReader
	k := &keystore{}
	in.document(data)
	top := in.objectWith(data, []string{"accounts"}, "format", "version", "kdf", "cipher", "keys", "created",
		"ciphertext", "commitment")
	in.constant(top["format"], keystoreFormat)
	if version := in.number(top["version"]); in.err == nil && version != keystoreVersion {
		return nil, corrupt("unsupported version %d, this program reads version %d", version, keystoreVersion)
	}
	in.kdf(top["kdf"], &k.header)
	cipher := in.object(top["cipher"], "name", "nonce")
	in.constant(cipher["name"], cipherName)
	k.nonce = in.binary(cipher["nonce"], nonceSize)
	k.solana, k.evm = in.keys(top["keys"])
	in.accounts(top["accounts"], &k.header)
	k.created = in.time(top["created"])
	k.ciphertext = in.base64(top["ciphertext"])
	k.holds = in.contents(len(k.ciphertext)-gcmTagSize, len(k.accounts))
	k.commitment = in.binary(top["commitment"], commitmentSize)
	if in.err != nil {
		return nil, corrupt("%w", in.err)
	}
	return k, nil
}

func (in *fileReader) kdf(raw json.RawMessage, h *header) {
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

// keys reads exactly the two keys of an account that have addresses, in their order.
func (in *fileReader) keys(raw json.RawMessage) (solana, evm string) {
	list := in.list(raw)
	if in.err == nil && len(list) != 2 {
		in.fail("it lists %d keys, there are two", len(list))
	}
	if in.err != nil {
		return "", ""
	}
	onSolana, onEVM := in.object(list[0], "chain", "address"), in.object(list[1], "chain", "address")
	in.constant(onSolana["chain"], ChainSolana)
	in.constant(onEVM["chain"], ChainEVM)
	solana, evm = in.text(onSolana["address"]), in.text(onEVM["address"])
	if in.err == nil && !(isSolanaAddress(solana) && isEVMAddress(evm)) {
		in.fail("an address in it is not one")
	}
	return solana, evm
}

// accounts reads the others: a list that is left out where there are none.
func (in *fileReader) accounts(raw json.RawMessage, h *header) {
	if in.err != nil || raw == nil {
		return
	}
	list := in.list(raw)
	if in.err == nil && (len(list) == 0 || len(list) > MaxAccounts) {
		in.fail("it lists %d accounts", len(list))
	}
	for _, each := range list {
		one := in.object(each, "name", "index", "keys")
		a := AccountInfo{Name: in.text(one["name"]), Index: in.index(one["index"])}
		a.Solana, a.EVM = in.keys(one["keys"])
		if in.err == nil {
			in.err = h.checkNew(a)
		}
		h.accounts = append(h.accounts, a)
	}
}

// index reads the place of an account in a phrase.
func (in *fileReader) index(raw json.RawMessage) uint32 {
	n := in.number(raw)
	if n > MaxAccount {
		in.fail("a phrase has no account %d", n)
		return 0
	}
	return uint32(n) //nolint:gosec // it is no more than MaxAccount
}

// time reads RFC 3339 in UTC with whole seconds, the one form that is written.
func (in *fileReader) time(raw json.RawMessage) time.Time {
	text := in.text(raw)
	t, err := time.Parse(time.RFC3339, text)
	if err != nil || t.UTC().Format(time.RFC3339) != text {
		in.fail("its time is not RFC 3339 in UTC")
	}
	return t.UTC()
}

// contents is what a plaintext of this size holds.
func (in *fileReader) contents(size, accounts int) contents {
	for _, c := range []contents{{}, {owner: true}, {phrase: true}, {owner: true, phrase: true}} {
		if c.size(accounts) == size {
			return c
		}
	}
	in.fail("its ciphertext has another length than any content")
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
	// Open must not grow it: what it leaves behind stays unwiped
	memory := newSecret(ks.holds.size(len(ks.accounts)))
	defer memory.wipe()
	plain, err := aead.Open(memory.bytes[:0], ks.nonce, ks.ciphertext, ks.canonical())
	if err != nil {
		return nil, corrupt("its ciphertext is not authentic")
	}
	k, err := readPlaintext(plain, ks.holds, len(ks.accounts))
	if err != nil {
		return nil, corrupt("%w", err)
	}
	if !ks.names(k) {
		k.wipe()
		return nil, corrupt("its keys do not belong to the addresses it names")
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
