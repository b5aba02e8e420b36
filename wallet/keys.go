package wallet

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"
	"golang.org/x/crypto/sha3"
)

const secretSize = 32

// The chains a wallet has a key for, as the keystore names them.
const (
	ChainSolana = "solana"
	ChainEVM    = "evm"
)

// keys are the unlocked keys. There is one copy of each, in locked memory, so that wipe reaches it;
// this is also why the secp256k1 key is not go-ethereum's, whose scalar is a big.Int that every
// signature copies to the heap.
type keys struct {
	redacted
	*material
}

type material struct {
	memory   *secret           // holds those below
	pair                       // of the wallet's own account
	seal     *[secretSize]byte // HMAC key of [Wallet.Seal]
	phrase   phraseRecord      // zero: there is none, or it was dropped
	accounts []pair            // of the other accounts, as the keystore's header names them
}

// pair is the keys of one account.
type pair struct {
	solana ed25519.PrivateKey // seed ‖ public key
	evm    signer
}

// The plaintext of the keystore is {"version":1,"solana":…,"evm":…,"seal":…}, each value 32 bytes
// in base64, with exactly these bytes between the values. It is read by position: encoding/json
// would leave copies of the secrets in buffers that cannot be wiped. After "seal" comes "phrase", 84 bytes
// ([phraseRecord]), if there is a recovery phrase, then the keys of further accounts: "solana1", "evm1",
// "solana2", and so on.
const (
	plainHead   = `{"version":1,"solana":"`
	plainEVM    = `","evm":"`
	plainSeal   = `","seal":"`
	plainPhrase = `","phrase":"`
	plainOther  = `","%s%d":"`
	plainEnd    = `"}`

	secretText = 44 // base64 of 32 bytes
)

// contents is what a keystore holds besides the keys of its accounts and the key of its seals. The size of
// the ciphertext tells it, so that it is known without a passphrase.
type contents struct {
	phrase bool // the recovery phrase that the keys come from
}

// holds is what a keystore of k holds.
func (k *keys) holds() contents { return contents{phrase: k.hasPhrase()} }

// size is that of the plaintext, with this many accounts besides the wallet's own.
func (c contents) size(accounts int) int {
	size := len(plainHead) + len(plainEVM) + len(plainSeal) + len(plainEnd) + 3*secretText
	if c.phrase {
		size += len(plainPhrase) + base64.StdEncoding.EncodedLen(phraseSize)
	}
	for i := range accounts {
		size += len(otherName(ChainSolana, i)) + len(otherName(ChainEVM, i)) + 2*secretText
	}
	return size
}

// otherName stands before a key of the account at i in the plaintext.
func otherName(chain string, i int) string { return fmt.Sprintf(plainOther, chain, i+1) }

// plainPart is a secret of the plaintext, and what stands before it.
type plainPart struct {
	name   string
	secret []byte
}

// parts are those of the plaintext, in their order.
func (k *keys) parts(of contents) []plainPart {
	list := []plainPart{{plainHead, k.solana[:secretSize]}, {plainEVM, k.evm.secret[:]},
		{plainSeal, k.seal[:]}}
	if of.phrase {
		list = append(list, plainPart{plainPhrase, k.phrase})
	}
	for i, p := range k.accounts {
		list = append(list, plainPart{otherName(ChainSolana, i), p.solana[:secretSize]},
			plainPart{otherName(ChainEVM, i), p.evm.secret[:]})
	}
	return list
}

// pairSize is the room that a pair takes in locked memory.
const pairSize = ed25519.PrivateKeySize + secretSize + nonceWork

// blankKeys is room in locked memory for keys with this many accounts besides the wallet's own: whoever fills
// in seeds of solana, the secrets of evm and seal calls complete. No secret lies on a stack meanwhile,
// which Go copies when it grows.
func blankKeys(accounts int) *keys {
	memory := newSecret((1+accounts)*pairSize + secretSize + phraseSize)
	rest := memory.bytes
	take := func(n int) (part []byte) {
		part, rest = rest[:n:n], rest[n:]
		return part
	}
	takePair := func() pair {
		return pair{solana: take(ed25519.PrivateKeySize),
			evm: signer{secret: (*[secretSize]byte)(take(secretSize)),
				work: (*[nonceWork]byte)(take(nonceWork))}}
	}
	m := &material{memory: memory, pair: takePair(), seal: (*[secretSize]byte)(take(secretSize)),
		phrase: phraseRecord(take(phraseSize))}
	for range accounts {
		m.accounts = append(m.accounts, takePair())
	}
	return &keys{material: m}
}

// complete makes what follows from the secrets. If they are no keys it wipes them.
func (k *keys) complete() (*keys, error) {
	err := k.pair.complete()
	for i := range k.accounts {
		err = errors.Join(err, k.accounts[i].complete())
	}
	if err != nil {
		k.wipe()
		return nil, err
	}
	return k, nil
}

func (p *pair) complete() (err error) {
	withCleanStack(func() {
		whole := ed25519.NewKeyFromSeed(p.solana[:secretSize])
		copy(p.solana, whole)
		clear(whole)
		p.evm.public, err = publicKey(p.evm.secret)
	})
	return err
}

// generate makes the keys that were not imported, and are not a phrase's, from the random source.
func generate(random io.Reader, imported []Imported, phrase *Phrase) (*keys, error) {
	k := blankKeys(0)
	for _, s := range [][]byte{k.solana[:secretSize], k.evm.secret[:], k.seal[:]} {
		if _, err := io.ReadFull(random, s); err != nil {
			k.wipe()
			return nil, fmt.Errorf("read random bytes: %w", err)
		}
	}
	for _, i := range imported {
		switch i.Chain {
		case ChainSolana:
			copy(k.solana, i.secret[:])
		case ChainEVM:
			*k.evm.secret = *i.secret
		}
	}
	if phrase != nil {
		if err := phrase.derive(&k.pair); err != nil {
			k.wipe()
			return nil, err
		}
		copy(k.phrase, phrase.record)
	}
	// A random number is no scalar about once in 2^128 times: an error then is
	// as good as another draw.
	return k.complete()
}

// checkImports checks that what was imported is what the keystore will hold.
func (k *keys) checkImports(imported []Imported) error {
	solana, evm := k.addresses()
	for _, i := range imported {
		if i.Address != solana && i.Address != evm {
			return setup("import keys",
				fmt.Errorf("the %s key has another address than %s, which was imported", i.Chain, i.Address))
		}
	}
	return nil
}

// addresses derives both addresses from the keys themselves.
func (p *pair) addresses() (solana, evm string) {
	return solanaAddressOf(p.solana), evmAddressOf(p.evm.public)
}

func solanaAddressOf(key ed25519.PrivateKey) string { return base58(key[secretSize:]) }

func evmAddressOf(public *secp256k1.PublicKey) string {
	return evmAddress([20]byte(keccak256(public.SerializeUncompressed()[1:])[12:]))
}

// plaintext is what the keystore encrypts; the caller wipes it.
func (k *keys) plaintext() *secret {
	memory := newSecret(k.holds().size(len(k.accounts)))
	out := memory.bytes[:0]
	for _, part := range k.parts(k.holds()) {
		out = append(out, part.name...)
		out = base64.StdEncoding.AppendEncode(out, part.secret)
	}
	_ = append(out, plainEnd...)
	return memory
}

// readPlaintext is the reverse of plaintext. Its errors carry nothing of plain.
func readPlaintext(plain []byte, holds contents, accounts int) (*keys, error) {
	k := blankKeys(accounts)
	rest := plain
	for _, part := range k.parts(holds) {
		var ok bool
		rest, ok = bytes.CutPrefix(rest, []byte(part.name))
		if ok {
			rest, ok = k.decodeSecret(part.secret, rest)
		}
		if !ok {
			k.wipe()
			return nil, errPlaintext
		}
	}
	isRight := !holds.phrase || k.phrase.isRight()
	if string(rest) != plainEnd || k.holds() != holds || !isRight {
		k.wipe()
		return nil, errPlaintext
	}
	return k.complete()
}

// decodeSecret reads the base64 of a secret from the beginning of text into its place, and returns what
// follows.
func (k *keys) decodeSecret(into, text []byte) (rest []byte, ok bool) {
	size := base64.StdEncoding.EncodedLen(len(into))
	if len(text) < size {
		return nil, false
	}
	decoded := k.evm.work[:size/4*3] // Decode writes whole groups of three
	n, err := base64.StdEncoding.Strict().Decode(decoded, text[:size])
	copy(into, decoded)
	clear(decoded)
	return text[size:], err == nil && n == len(into)
}

var errPlaintext = errors.New("the decrypted content has another form")

// wipe clears the keys; k is of no use afterwards. A nil k is fine.
func (k *keys) wipe() {
	if k == nil {
		return
	}
	k.memory.wipe()
}

// redaction is the only printed form of whatever holds a secret.
const redaction = "[redacted]"

// redacted, embedded, answers every way Go has to print a value: the verbs of fmt, JSON, text
// encodings and slog. Two ways pass it by, unexported fields of other structs and %p, and print the
// memory. So a secret is besides kept behind a pointer, of which they show the address.
type redacted struct{}

func (redacted) Format(f fmt.State, _ rune)   { _, _ = io.WriteString(f, redaction) }
func (redacted) String() string               { return redaction }
func (redacted) GoString() string             { return redaction }
func (redacted) MarshalText() ([]byte, error) { return []byte(redaction), nil }
func (redacted) MarshalJSON() ([]byte, error) { return []byte(`"` + redaction + `"`), nil }
func (redacted) LogValue() slog.Value         { return slog.StringValue(redaction) }

const base58Alphabet = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"

// base58 encodes with Bitcoin's alphabet, a leading 1 for each leading zero byte.
func base58(data []byte) string {
	digits := make([]byte, 0, len(data)*138/100+1) // little endian; log 256 / log 58 < 1.38
	for _, b := range data {
		carry := int(b)
		for i := range digits {
			carry += int(digits[i]) << 8
			digits[i] = byte(carry % 58)
			carry /= 58
		}
		for ; carry > 0; carry /= 58 {
			digits = append(digits, byte(carry%58))
		}
	}
	var out strings.Builder
	for i := 0; i < len(data) && data[i] == 0; i++ {
		out.WriteByte(base58Alphabet[0])
	}
	for i := len(digits) - 1; i >= 0; i-- {
		out.WriteByte(base58Alphabet[digits[i]])
	}
	return out.String()
}

// unbase58 decodes base58 of exactly size bytes in its one right spelling, or
// returns nil. It makes no copy of what it reads that it does not return.
func unbase58[T ~string | ~[]byte](text T, size int) []byte {
	if len(text) > size*138/100+1 {
		return nil
	}
	out := make([]byte, size+1) // big endian; the first byte catches the overflow
	for i := range len(text) {
		carry := strings.IndexByte(base58Alphabet, text[i])
		for j := len(out) - 1; j >= 0 && carry >= 0; j-- {
			carry += int(out[j]) * 58
			out[j] = byte(carry)
			carry >>= 8
		}
		if carry != 0 || out[0] != 0 {
			clear(out)
			return nil
		}
	}
	ones, zeros := 0, 1 // out[0] is no byte of the answer
	for ones < len(text) && text[ones] == base58Alphabet[0] {
		ones++
	}
	for zeros < len(out) && out[zeros] == 0 {
		zeros++
	}
	if ones != zeros-1 {
		clear(out)
		return nil
	}
	return out[1:]
}

// isSolanaAddress reports whether s is base58 of exactly 32 bytes.
func isSolanaAddress(s string) bool { return unbase58(s, 32) != nil }

// evmAddress turns the last 20 bytes of a Keccak-256 hash into 0x… with the capitals of EIP-55.
func evmAddress(account [20]byte) string {
	text := []byte(hex.EncodeToString(account[:]))
	sum := keccak256(text)
	for i, c := range text {
		nibble := sum[i/2] >> (4 * (1 - i%2)) & 0xf
		if c >= 'a' && nibble >= 8 {
			text[i] = c - 'a' + 'A'
		}
	}
	return "0x" + string(text)
}

// isEVMAddress reports whether s is an address with a right EIP-55 checksum.
func isEVMAddress(s string) bool {
	word := addressWord(s)
	return word != nil && evmAddress([20]byte(word[12:])) == s
}

func keccak256(data []byte) []byte {
	h := sha3.NewLegacyKeccak256()
	h.Write(data)
	return h.Sum(nil)
}
