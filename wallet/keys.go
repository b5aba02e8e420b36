package wallet

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"io"

	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/curve"
	"x402-wallet/wallet/internal/guarded"
	"x402-wallet/wallet/internal/record"
)

// The chains a wallet has a key for, as the keystore names them.
const (
	ChainSolana = "solana"
	ChainEVM    = "evm"
)

// keys are the unlocked keys. There is one copy of each, in locked memory, so that wipe reaches it;
// this is also why the secp256k1 key is not go-ethereum's, whose scalar is a big.Int that every
// signature copies to the heap.
type keys struct {
	guarded.Redacted
	*material
}

type material struct {
	memory   *guarded.Memory     // holds those below
	pair                         // of the wallet's own account
	seal     *[guarded.Size]byte // HMAC key of [Wallet.Seal]
	phrase   record.Phrase       // zero: there is none, or it was dropped
	accounts []pair              // of the other accounts, as the keystore's header names them
}

// pair is the keys of one account.
type pair struct {
	solana ed25519.PrivateKey // seed ‖ public key
	evm    curve.Signer
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
		size += len(plainPhrase) + base64.StdEncoding.EncodedLen(record.Size)
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
	list := []plainPart{{plainHead, k.solana[:guarded.Size]}, {plainEVM, k.evm.Secret[:]},
		{plainSeal, k.seal[:]}}
	if of.phrase {
		list = append(list, plainPart{plainPhrase, k.phrase})
	}
	for i, p := range k.accounts {
		list = append(list, plainPart{otherName(ChainSolana, i), p.solana[:guarded.Size]},
			plainPart{otherName(ChainEVM, i), p.evm.Secret[:]})
	}
	return list
}

// pairSize is the room that a pair takes in locked memory.
const pairSize = ed25519.PrivateKeySize + guarded.Size + curve.NonceWork

// blankKeys is room in locked memory for keys with this many accounts besides the wallet's own: whoever fills
// in seeds of solana, the secrets of evm and seal calls complete. No secret lies on a stack meanwhile,
// which Go copies when it grows.
func blankKeys(accounts int) *keys {
	memory := guarded.New((1+accounts)*pairSize + guarded.Size + record.Size)
	rest := memory.Bytes
	take := func(n int) (part []byte) {
		part, rest = rest[:n:n], rest[n:]
		return part
	}
	takePair := func() pair {
		return pair{solana: take(ed25519.PrivateKeySize),
			evm: curve.Signer{Secret: (*[guarded.Size]byte)(take(guarded.Size)),
				Work: (*[curve.NonceWork]byte)(take(curve.NonceWork))}}
	}
	m := &material{memory: memory, pair: takePair(), seal: (*[guarded.Size]byte)(take(guarded.Size)),
		phrase: record.Phrase(take(record.Size))}
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

// fill copies the keys of an account, and complete makes the rest.
func (p *pair) fill(from *guarded.Seeds) {
	solana, evm, _ := guarded.PartsOf(from)
	copy(p.solana, solana[:])
	*p.evm.Secret = *evm
}

func (p *pair) complete() (err error) {
	guarded.WithCleanStack(func() {
		whole := ed25519.NewKeyFromSeed(p.solana[:guarded.Size])
		copy(p.solana, whole)
		clear(whole)
		p.evm.Public, err = curve.PublicKey(p.evm.Secret)
	})
	return err
}

// generate makes the keys that were not imported, and are not a phrase's, from the random source.
func generate(random io.Reader, imported []guarded.PrivateKey, phrase *guarded.Seeds) (*keys, error) {
	k := blankKeys(0)
	for _, s := range [][]byte{k.solana[:guarded.Size], k.evm.Secret[:], k.seal[:]} {
		if _, err := io.ReadFull(random, s); err != nil {
			k.wipe()
			return nil, fmt.Errorf("read random bytes: %w", err)
		}
	}
	for _, i := range imported {
		switch i.Chain {
		case ChainSolana:
			copy(k.solana, guarded.SecretOf(i)[:])
		case ChainEVM:
			*k.evm.Secret = *guarded.SecretOf(i)
		}
	}
	if phrase != nil {
		k.pair.fill(phrase)
		_, _, record := guarded.PartsOf(phrase)
		copy(k.phrase, record)
	}
	// A random number is no scalar about once in 2^128 times: an error then is
	// as good as another draw.
	return k.complete()
}

// checkImports checks that what was imported is what the keystore will hold.
func (k *keys) checkImports(imported []guarded.PrivateKey) error {
	solana, evm := k.addresses()
	for _, i := range imported {
		if i.Address != solana && i.Address != evm {
			return coded.Setup("import keys",
				fmt.Errorf("the %s key has another address than %s, which was imported", i.Chain, i.Address))
		}
	}
	return nil
}

// addresses derives both addresses from the keys themselves.
func (p *pair) addresses() (solana, evm string) {
	return curve.SolanaAddressOf(p.solana), curve.EVMAddressOf(p.evm.Public)
}

// plaintext is what the keystore encrypts; the caller wipes it.
func (k *keys) plaintext() *guarded.Memory {
	memory := guarded.New(k.holds().size(len(k.accounts)))
	out := memory.Bytes[:0]
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
	isRight := !holds.phrase || k.phrase.IsRight()
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
	decoded := k.evm.Work[:size/4*3] // Decode writes whole groups of three
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
	k.memory.Wipe()
}

// hasPhrase reports whether k has the phrase that its keys come from.
func (k *keys) hasPhrase() bool { return k.phrase.IsThere() }

// dropPhrase wipes the phrase alone, as of keys that are held to pay with.
func (k *keys) dropPhrase() { clear(k.phrase) }
