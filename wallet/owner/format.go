package owner

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"x402-wallet/wallet"
	"x402-wallet/wallet/internal/guarded"
	"x402-wallet/wallet/internal/keystore"
)

// file is the JSON of a keystore, for writing; keystore.Parse reads it field by field.
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
func marshal(k *keystore.File) ([]byte, error) {
	var accounts []fileAccount
	for _, a := range k.Accounts {
		accounts = append(accounts, fileAccount{Name: a.Name, Index: a.Index,
			Keys: fileKeys(a.Solana, a.EVM)})
	}
	out, err := json.MarshalIndent(file{
		Format:     keystore.Format,
		Version:    keystore.Version,
		KDF:        fileKDF{Name: keystore.KDFName, N: k.N, R: k.R, P: k.P, Salt: k.Salt},
		Cipher:     fileCipher{Name: keystore.CipherName, Nonce: k.Nonce},
		Keys:       fileKeys(k.Solana, k.EVM),
		Accounts:   accounts,
		Created:    k.Created,
		Ciphertext: k.Ciphertext,
		Commitment: k.Commitment,
	}, "", "  ")
	return append(out, '\n'), err
}

func fileKeys(solana, evm string) []fileKey {
	return []fileKey{{Chain: wallet.ChainSolana, Address: solana}, {Chain: wallet.ChainEVM, Address: evm}}
}

// encrypt makes a keystore of k under a fresh salt and nonce. others names the accounts of k besides its own;
// their addresses follow from the keys.
func encrypt(k *keystore.Keys, others []wallet.AccountInfo, passphrase []byte, n uint64,
	created time.Time, derive keystore.KDF, random io.Reader) (*keystore.File, error) {
	if len(others) != len(k.Accounts) {
		return nil, fmt.Errorf("there are keys of %d accounts, and names of %d", len(k.Accounts), len(others))
	}
	fresh := make([]byte, keystore.SaltSize+keystore.NonceSize)
	if _, err := io.ReadFull(random, fresh); err != nil {
		return nil, fmt.Errorf("read random bytes: %w", err)
	}
	ks := &keystore.File{Holds: k.Holds(), Header: keystore.Header{
		N: n, R: keystore.ScryptR, P: 1,
		Salt:    fresh[:keystore.SaltSize:keystore.SaltSize],
		Nonce:   fresh[keystore.SaltSize:],
		Created: created.UTC().Truncate(time.Second),
	}}
	ks.Solana, ks.EVM = k.Addresses()
	for i, a := range others {
		a.Solana, a.EVM = k.Accounts[i].Addresses()
		ks.Accounts = append(ks.Accounts, a)
	}

	derived, err := derive(passphrase, ks.Salt, ks.N, ks.R, ks.P)
	if err != nil {
		return nil, err
	}
	defer clear(derived)
	aead, err := keystore.NewGCM(derived)
	if err != nil {
		return nil, err
	}
	plain := plaintext(k)
	defer plain.Wipe()
	ks.Ciphertext = aead.Seal(nil, ks.Nonce, plain.Bytes, ks.Canonical())
	ks.Commitment = ks.Commit(derived)
	return ks, nil
}

// plaintext is what the keystore encrypts; the caller wipes it.
func plaintext(k *keystore.Keys) *guarded.Memory {
	memory := guarded.New(k.Holds().Size(len(k.Accounts)))
	out := memory.Bytes[:0]
	for _, part := range k.Parts(k.Holds()) {
		out = append(out, part.Name...)
		out = base64.StdEncoding.AppendEncode(out, part.Secret)
	}
	_ = append(out, keystore.PlainEnd...)
	return memory
}
