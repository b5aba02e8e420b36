package app

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"x402-wallet/internal/ownfile"
	"x402-wallet/x402"
)

// statementKeyFile is the key by which a paywall signs its offers and receipts, in its home: Ed25519, PKCS #8
// in PEM, 0600. It is no wallet's key, and can spend nothing; who has it can make receipts in the seller's
// name.
const statementKeyFile = "paywall-signing-key.pem"

func (a *app) statementKey() (ed25519.PrivateKey, error) {
	path := filepath.Join(a.home, statementKeyFile)
	key, err := readStatementKey(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err = makeStatementKey(path); err == nil || errors.Is(err, fs.ErrExist) { // another paywall's
			key, err = readStatementKey(path)
		}
	}
	if err != nil {
		return nil, x402.Errorf(x402.SetupFailed, "the key that signs offers and receipts: %w", err).
			WithHint("correct %s, or remove it: then a new one is made, under which buyers do not know you",
				path)
	}
	return key, nil
}

func makeStatementKey(path string) error {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return createExclusive(path, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

func readStatementKey(path string) (ed25519.PrivateKey, error) {
	const maxKey = 4 << 10
	text, _, err := ownfile.Read(path, maxKey)
	if err != nil {
		return nil, err
	}
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%s can be read by others; correct it with: chmod 600 %s", path, path)
	}
	block, rest := pem.Decode(text)
	if block == nil || len(rest) > 0 {
		return nil, errors.New("it is not one PEM block")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	own, is := key.(ed25519.PrivateKey)
	if err != nil || !is {
		return nil, errors.New("it is no Ed25519 key in PKCS #8")
	}
	return own, nil
}
