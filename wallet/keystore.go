package wallet

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"io"
	"runtime/debug"
	"time"

	"golang.org/x/crypto/scrypt"
)

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
		n: n, r: scryptR, p: 1,
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
	defer clear(plain)
	ks.ciphertext = aead.Seal(nil, ks.nonce, plain, ks.canonical())
	ks.commitment = ks.commit(derived)
	return ks, nil
}

// decrypt returns the keys, or an [*Error]: a commitment that does not fit is
// INVALID_PASSPHRASE, whether the passphrase or the file is wrong. Everything
// that is wrong behind a good commitment was written by who knew the
// passphrase, and is KEYSTORE_CORRUPT.
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
	plain := make([]byte, 0, plainSize) // Open must not grow it: what it leaves behind stays unwiped
	plain, err = aead.Open(plain, ks.nonce, ks.ciphertext, ks.canonical())
	if err != nil {
		return nil, corrupt("its ciphertext is not authentic")
	}
	defer clear(plain)
	k, err := readPlaintext(plain)
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
		"cheaply; "+
		"set the passphrase again with: x402-wallet passphrase", ks.n, safeN)}
}
