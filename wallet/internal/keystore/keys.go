package keystore

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"

	"x402-wallet/wallet/internal/curve"
	"x402-wallet/wallet/internal/guarded"
	"x402-wallet/wallet/internal/record"
)

// The chains a wallet has a key for, as the keystore names them.
const (
	ChainSolana = "solana"
	ChainEVM    = "evm"
)

// Keys are the unlocked keys. There is one copy of each, in locked memory, so that wipe reaches it;
// this is also why the secp256k1 key is not go-ethereum's, whose scalar is a big.Int that every
// signature copies to the heap.
type Keys struct {
	guarded.Redacted
	*material
}

type material struct {
	memory   *guarded.Memory     // holds those below
	Pair                         // of the wallet's own account
	Seal     *[guarded.Size]byte // HMAC key of wallet.Wallet.Seal
	Phrase   record.Phrase       // zero: there is none, or it was dropped
	Accounts []Pair              // of the other accounts, as the keystore's header names them
}

// Pair is the keys of one account.
type Pair struct {
	Solana ed25519.PrivateKey // seed ‖ public key
	EVM    curve.Signer
}

// The plaintext of the keystore is {"version":1,"solana":…,"evm":…,"seal":…}, each value 32 bytes
// in base64, with exactly these bytes between the values. It is read by position: encoding/json
// would leave copies of the secrets in buffers that cannot be wiped. After "seal" comes "phrase", 84 bytes
// (record.Phrase), if there is a recovery phrase, then the keys of further accounts: "solana1", "evm1",
// "solana2", and so on.
const (
	plainHead   = `{"version":1,"solana":"`
	plainEVM    = `","evm":"`
	plainSeal   = `","seal":"`
	plainPhrase = `","phrase":"`
	plainOther  = `","%s%d":"`
	PlainEnd    = `"}`

	secretText = 44 // base64 of 32 bytes
)

// Contents is what a keystore holds besides the keys of its accounts and the key of its seals. The size of
// the ciphertext tells it, so that it is known without a passphrase.
type Contents struct {
	Phrase bool // the recovery phrase that the keys come from
}

func (k *Keys) Holds() Contents { return Contents{Phrase: k.HasPhrase()} }

// Size is that of the plaintext, with this many accounts besides the wallet's own.
func (c Contents) Size(accounts int) int {
	size := len(plainHead) + len(plainEVM) + len(plainSeal) + len(PlainEnd) + 3*secretText
	if c.Phrase {
		size += len(plainPhrase) + base64.StdEncoding.EncodedLen(record.Size)
	}
	for i := range accounts {
		size += len(otherName(ChainSolana, i)) + len(otherName(ChainEVM, i)) + 2*secretText
	}
	return size
}

// otherName stands before a key of the account at i in the plaintext.
func otherName(chain string, i int) string { return fmt.Sprintf(plainOther, chain, i+1) }

// Part is a secret of the plaintext, and what stands before it.
type Part struct {
	Name   string
	Secret []byte
}

// Parts are those of the plaintext, in their order.
func (k *Keys) Parts(of Contents) []Part {
	list := []Part{{plainHead, k.Solana[:guarded.Size]}, {plainEVM, k.EVM.Secret[:]},
		{plainSeal, k.Seal[:]}}
	if of.Phrase {
		list = append(list, Part{plainPhrase, k.Phrase})
	}
	for i, p := range k.Accounts {
		list = append(list, Part{otherName(ChainSolana, i), p.Solana[:guarded.Size]},
			Part{otherName(ChainEVM, i), p.EVM.Secret[:]})
	}
	return list
}

// pairSize is the room that a pair takes in locked memory.
const pairSize = ed25519.PrivateKeySize + guarded.Size + curve.NonceWork

// Blank is room in locked memory for keys with this many accounts besides the wallet's own: whoever fills
// in seeds of Solana, the secrets of EVM and Seal calls Complete. No secret lies on a stack meanwhile,
// which Go copies when it grows.
func Blank(accounts int) *Keys {
	memory := guarded.New((1+accounts)*pairSize + guarded.Size + record.Size)
	rest := memory.Bytes
	take := func(n int) (part []byte) {
		part, rest = rest[:n:n], rest[n:]
		return part
	}
	takePair := func() Pair {
		return Pair{Solana: take(ed25519.PrivateKeySize),
			EVM: curve.Signer{Secret: (*[guarded.Size]byte)(take(guarded.Size)),
				Work: (*[curve.NonceWork]byte)(take(curve.NonceWork))}}
	}
	m := &material{memory: memory, Pair: takePair(), Seal: (*[guarded.Size]byte)(take(guarded.Size)),
		Phrase: record.Phrase(take(record.Size))}
	for range accounts {
		m.Accounts = append(m.Accounts, takePair())
	}
	return &Keys{material: m}
}

// Complete makes what follows from the secrets. If they are no keys it wipes them.
func (k *Keys) Complete() (*Keys, error) {
	err := k.Pair.Complete()
	for i := range k.Accounts {
		err = errors.Join(err, k.Accounts[i].Complete())
	}
	if err != nil {
		k.Wipe()
		return nil, err
	}
	return k, nil
}

// Complete does the same for one account.
func (p *Pair) Complete() (err error) {
	guarded.WithCleanStack(func() {
		whole := ed25519.NewKeyFromSeed(p.Solana[:guarded.Size])
		copy(p.Solana, whole)
		clear(whole)
		p.EVM.Public, err = curve.PublicKey(p.EVM.Secret)
	})
	return err
}

// Addresses derives both addresses from the keys themselves.
func (p *Pair) Addresses() (solana, evm string) {
	return curve.SolanaAddressOf(p.Solana), curve.EVMAddressOf(p.EVM.Public)
}

// readPlaintext reads the parts. Its errors carry nothing of plain.
func readPlaintext(plain []byte, holds Contents, accounts int) (*Keys, error) {
	k := Blank(accounts)
	rest := plain
	for _, part := range k.Parts(holds) {
		var ok bool
		rest, ok = bytes.CutPrefix(rest, []byte(part.Name))
		if ok {
			rest, ok = k.decodeSecret(part.Secret, rest)
		}
		if !ok {
			k.Wipe()
			return nil, errPlaintext
		}
	}
	isRight := !holds.Phrase || k.Phrase.IsRight()
	if string(rest) != PlainEnd || k.Holds() != holds || !isRight {
		k.Wipe()
		return nil, errPlaintext
	}
	return k.Complete()
}

// decodeSecret reads the base64 of a secret from the beginning of text into its place, and returns what
// follows.
func (k *Keys) decodeSecret(into, text []byte) (rest []byte, ok bool) {
	size := base64.StdEncoding.EncodedLen(len(into))
	if len(text) < size {
		return nil, false
	}
	decoded := k.EVM.Work[:size/4*3] // Decode writes whole groups of three
	n, err := base64.StdEncoding.Strict().Decode(decoded, text[:size])
	copy(into, decoded)
	clear(decoded)
	return text[size:], err == nil && n == len(into)
}

var errPlaintext = errors.New("the decrypted content has another form")

// Wipe clears the keys; k is of no use afterwards. A nil k is fine.
func (k *Keys) Wipe() {
	if k == nil {
		return
	}
	k.memory.Wipe()
}

// HasPhrase reports whether k has the phrase that its keys come from.
func (k *Keys) HasPhrase() bool { return k.Phrase.IsThere() }

// DropPhrase wipes the phrase alone, as of keys that are held to pay with.
func (k *Keys) DropPhrase() { clear(k.Phrase) }

// MAC is the seal that wallet.Wallet.Seal describes.
func (k *Keys) MAC(purpose string, data []byte) []byte {
	mac := hmac.New(sha256.New, k.Seal[:])
	mac.Write(binary.BigEndian.AppendUint64(nil, uint64(len(purpose))))
	mac.Write([]byte(purpose))
	mac.Write(data)
	return mac.Sum(nil)
}
