package wallet

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"
)

const secretSize = 32

// keys are the unlocked keys. There is one copy of each, so that wipe reaches
// it; this is also why the secp256k1 key is not go-ethereum's, whose scalar is a
// big.Int that every signature copies to the heap.
type keys struct {
	redacted
	*material
}

type material struct {
	solana ed25519.PrivateKey // seed ‖ public key
	evm    secp256k1.PrivateKey
	seal   [secretSize]byte // HMAC key of [Wallet.Seal]
}

// The plaintext of the keystore is {"version":1,"solana":…,"evm":…,"seal":…}, each value 32 bytes
// in base64, with exactly these bytes between the values. It is read by position: encoding/json
// would leave copies of the secrets in buffers that cannot be wiped.
const (
	plainSolana = `{"version":1,"solana":"`
	plainEVM    = `","evm":"`
	plainSeal   = `","seal":"`
	plainEnd    = `"}`

	secretText = 44 // base64 of 32 bytes
	plainSize  = len(plainSolana) + len(plainEVM) + len(plainSeal) + len(plainEnd) + 3*secretText
)

// newKeys takes the secrets over: it wipes what it was given.
func newKeys(solana, evm, seal *[secretSize]byte) (*keys, error) {
	defer func() { *solana, *evm, *seal = [secretSize]byte{}, [secretSize]byte{}, [secretSize]byte{} }()
	k := &keys{material: &material{solana: ed25519.NewKeyFromSeed(solana[:]), seal: *seal}}
	if overflow := k.evm.Key.SetBytes(evm); overflow != 0 || k.evm.Key.IsZero() {
		k.wipe()
		return nil, errNotAScalar
	}
	return k, nil
}

var errNotAScalar = errors.New("not a secp256k1 private key: it must be above zero and below the order of " +
	"the curve")

// generate makes the keys that were not imported from the random source.
func generate(random io.Reader, imported []Imported) (*keys, error) {
	var solana, evm, seal [secretSize]byte
	for _, s := range []*[secretSize]byte{&solana, &evm, &seal} {
		if _, err := io.ReadFull(random, s[:]); err != nil {
			return nil, fmt.Errorf("read random bytes: %w", err)
		}
	}
	for _, i := range imported {
		switch i.Chain {
		case ChainSolana:
			solana = *i.secret
		case ChainEVM:
			evm = *i.secret
		}
	}
	// A random number is no scalar about once in 2^128 times: an error then is
	// as good as another draw.
	return newKeys(&solana, &evm, &seal)
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
func (k *keys) addresses() (solana, evm string) {
	return solanaAddressOf(k.solana), evmAddressOf(k.evm.PubKey())
}

func solanaAddressOf(key ed25519.PrivateKey) string { return base58(key[secretSize:]) }

func evmAddressOf(public *secp256k1.PublicKey) string {
	return evmAddress([20]byte(keccak256(public.SerializeUncompressed()[1:])[12:]))
}

// plaintext is what the keystore encrypts; the caller wipes it. It has room for the GCM tag.
func (k *keys) plaintext() []byte {
	var evm [secretSize]byte
	defer clear(evm[:])
	k.evm.Key.PutBytes(&evm)

	out := make([]byte, 0, plainSize+gcmTagSize)
	for _, part := range []struct {
		name   string
		secret []byte
	}{{plainSolana, k.solana[:secretSize]}, {plainEVM, evm[:]}, {plainSeal, k.seal[:]}} {
		out = append(out, part.name...)
		out = base64.StdEncoding.AppendEncode(out, part.secret)
	}
	return append(out, plainEnd...)
}

// readPlaintext is the reverse of plaintext. Its errors carry nothing of plain.
func readPlaintext(plain []byte) (*keys, error) {
	var solana, evm, seal [secretSize]byte
	rest := plain
	for _, part := range []struct {
		name   string
		secret *[secretSize]byte
	}{{plainSolana, &solana}, {plainEVM, &evm}, {plainSeal, &seal}} {
		var ok bool
		rest, ok = bytes.CutPrefix(rest, []byte(part.name))
		if !ok || len(rest) < secretText {
			return nil, errPlaintext
		}
		var text [secretSize + 1]byte // Decode writes whole groups of three
		n, err := base64.StdEncoding.Strict().Decode(text[:], rest[:secretText])
		copy(part.secret[:], text[:])
		clear(text[:])
		if err != nil || n != secretSize {
			return nil, errPlaintext
		}
		rest = rest[secretText:]
	}
	if string(rest) != plainEnd {
		return nil, errPlaintext
	}
	return newKeys(&solana, &evm, &seal)
}

var errPlaintext = errors.New("the decrypted content has another form")

// wipe clears the keys; k is of no use afterwards. A nil k is fine.
func (k *keys) wipe() {
	if k == nil {
		return
	}
	clear(k.solana)
	k.evm.Zero()
	clear(k.seal[:])
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
