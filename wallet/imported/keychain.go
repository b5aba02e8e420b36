package imported

import (
	"context"
	"crypto/ed25519"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/zalando/go-keyring"

	"x402-wallet/wallet"
	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/curve"
	"x402-wallet/wallet/internal/guarded"
)

// keychainService is the name under which the system's keychain has keys that sign.
const keychainService = "x402-wallet-signer"

// keychainTimeout is how long the keychain may take, which may ask its owner on the screen.
const keychainTimeout = 20 * time.Second

// KeychainKey is a key that is an item of the system's keychain (Secret Service over D-Bus, macOS Keychain,
// Windows Credential Manager), where the system guards it instead of the wallet's passphrase: any program of
// the same user may be able to read it. It is read for each signature and is in this process for as long as
// that takes; the text that the keychain hands over cannot be wiped, and stays until its memory is used
// again.
type KeychainKey struct {
	Chain   string
	Account string // of the item; its service is x402-wallet-signer
}

func (k KeychainKey) Address(ctx context.Context) (string, error) {
	key, err := k.read(ctx)
	defer key.Wipe()
	return key.Address, err
}

// Sign carries out an order: r ‖ s ‖ v with v 0 or 1, or 64 bytes of Solana.
func (k KeychainKey) Sign(ctx context.Context, o wallet.Order) ([]byte, error) {
	key, err := k.read(ctx)
	if err != nil {
		return nil, err
	}
	defer key.Wipe()
	if o.Chain != k.Chain {
		return nil, coded.Unsupported("the key is of another chain")
	}
	if k.Chain == wallet.ChainEVM {
		sig, err := key.signDigest(o.Digest)
		return sig[:], err
	}
	private := ed25519.NewKeyFromSeed(guarded.SecretOf(key.PrivateKey)[:])
	defer clear(private)
	sig, err := curve.SignEd25519(private, o.Payload)
	return sig[:], err
}

// Keep puts a key into the keychain, under this account, where there must be none yet: SETUP_FAILED.
func (k KeychainKey) Keep(ctx context.Context, key Key) error {
	if guarded.SecretOf(key.PrivateKey) == nil || key.Chain != k.Chain {
		return coded.Setup("keep the key in the system's keychain", errors.New("it is of another chain"))
	}
	_, err := k.ask(ctx, func() (string, error) { return keyring.Get(keychainService, k.Account) })
	if err == nil {
		return coded.Setup("keep the key in the system's keychain",
			fmt.Errorf("there is an item %s of %s already",
				k.Account, keychainService))
	}
	if !errors.Is(err, keyring.ErrNotFound) {
		return keychainError(err)
	}
	text := hex.EncodeToString(guarded.SecretOf(key.PrivateKey)[:])
	_, err = k.ask(ctx, func() (string, error) { return "", keyring.Set(keychainService, k.Account, text) })
	if err != nil {
		return keychainError(err)
	}
	return nil
}

// read reads the key; the caller wipes it.
func (k KeychainKey) read(ctx context.Context) (Key, error) {
	text, err := k.ask(ctx, func() (string, error) { return keyring.Get(keychainService, k.Account) })
	if errors.Is(err, keyring.ErrNotFound) {
		e := coded.Setup(fmt.Sprintf("the system's keychain has no item %s of %s", k.Account,
			keychainService), nil)
		e.Advice = "x402-wallet signer add with --kind keychain --key-file FILE puts a key there"
		return Key{}, e
	}
	if err != nil {
		return Key{}, keychainError(err)
	}
	var secret [guarded.Size]byte
	defer clear(secret[:])
	const place = "the system's keychain"
	if pair := curve.Unbase58(text, ed25519.PrivateKeySize); pair != nil && k.Chain == wallet.ChainSolana {
		defer clear(pair)
		return fromPair(place, pair)
	}
	if len(text) == hex.EncodedLen(guarded.Size)+2 && text[:2] == "0x" {
		text = text[2:]
	}
	isHex := len(text) == hex.EncodedLen(guarded.Size)
	if isHex {
		_, err := hex.Decode(secret[:], []byte(text))
		isHex = err == nil
	}
	if !isHex {
		return Key{}, importError(place, "the item is not 64 hexadecimal digits")
	}
	return newImported(place, k.Chain, secret[:])
}

// ask asks the keychain, which may hang, or ask its owner on the screen.
func (k KeychainKey) ask(ctx context.Context, f func() (string, error)) (string, error) {
	limited, cancel := context.WithTimeout(ctx, keychainTimeout)
	defer cancel()
	text, err := guarded.Await(limited, func() ([]byte, error) {
		text, err := f()
		return []byte(text), err
	})
	defer clear(text)
	if ctx.Err() == nil && limited.Err() != nil {
		err = fmt.Errorf("no answer within %v", keychainTimeout)
	}
	return string(text), err
}

func keychainError(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	e := coded.Setup("ask the system's keychain for the key", err)
	e.Advice = "unlock the keychain; on a machine without a desktop there may be none"
	return e
}
