// Package owner makes keystores and changes them: another passphrase, another account, and the recovery
// phrase taken out. Only the owner's commands do; who signs does not import it.
//
// The files: create.go, change.go (a new passphrase), account.go, phrase.go, passphrase.go (which one is
// good), lock.go (every process locks), format.go (the file as it is written) and store.go (how it is
// written).
package owner

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"x402-wallet/wallet"
	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/guarded"
	"x402-wallet/wallet/internal/keystore"
)

// defaultN takes 256 MiB and about 1 s, as age and go-ethereum.
const defaultN = 1 << 18

// Options are for [Create]. The zero value is right outside tests.
type Options struct {
	N      int                  // scrypt's n: a power of two from 2^14 to 2^20; zero means 2^18
	Now    func() time.Time     // the clock, also of the auto-lock; nil means time.Now
	Rand   io.Reader            // of keys, salt and nonce; nil means crypto/rand
	Import []guarded.PrivateKey // keys to take instead of new ones, at most one per chain; wiped

	// Phrase has both keys in place of Import, and the phrase that they come from (recovery.Phrase); wiped.
	// The keystore keeps the phrase unless KeysOnly is set.
	Phrase   *guarded.Seeds
	KeysOnly bool

	// Before is called before the keystore gets its name, to seal what belongs to the wallet from
	// its first moment: see [wallet.Wallet.Seal]. nil means nothing.
	Before func(seal func(purpose string, data []byte) []byte) error

	KDF keystore.KDF // nil means keystore.Scrypt
}

// Create makes a wallet in dir, which it makes too (0700), and returns it unlocked. The passphrase
// is asked for only when dir can take a wallet. What is on the disk has been read back and
// decrypted before it got its name, and no wallet is ever overwritten.
//
// Errors: KEYPAIR_EXISTS, KEYSTORE_PERMISSIONS (dir), SETUP_FAILED (everything
// else: no passphrase, a weak one, the disk), or the context's.
func Create(ctx context.Context, dir string, passphrase wallet.Passphrase,
	opt Options) (*wallet.Wallet, error) {
	defer func() {
		for _, i := range opt.Import {
			i.Wipe()
		}
		opt.Phrase.Wipe()
	}()
	if err := opt.complete(); err != nil {
		return nil, err
	}
	if err := checkVacant(dir); err != nil {
		return nil, err
	}
	normal, err := askNewPassphrase(ctx, passphrase)
	if err != nil {
		return nil, err
	}
	defer normal.Wipe()
	k, err := generate(opt.Rand, opt.Import, opt.Phrase)
	if err != nil {
		return nil, coded.Setup("make the keys", err)
	}
	if opt.KeysOnly {
		k.DropPhrase()
	}
	ks, err := create(dir, k, normal.Bytes, opt)
	if err != nil {
		k.Wipe()
		return nil, err
	}
	w := wallet.New(dir, ks, opt.KDF, opt.Now)
	return w, w.Hold(k)
}

// complete sets the defaults and checks the rest.
func (o *Options) complete() error {
	o.N = cmp.Or(o.N, defaultN)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Rand == nil {
		o.Rand = rand.Reader
	}
	if o.KDF == nil {
		o.KDF = keystore.Scrypt
	}
	// a negative n is a very large one
	if err := keystore.CheckScrypt(uint64(o.N), keystore.ScryptR, 1); err != nil {
		return coded.Setup("choose the key derivation", err)
	}
	if o.Phrase != nil && len(o.Import) > 0 {
		return coded.Setup("import keys", errors.New("a phrase has the keys for both chains"))
	}
	var chains []string
	for _, i := range o.Import {
		if guarded.SecretOf(i) == nil || slices.Contains(chains, i.Chain) {
			return coded.Setup("import keys", errors.New("there must be one key for a chain"))
		}
		chains = append(chains, i.Chain)
	}
	return nil
}

// Exists reports whether dir has a keystore; whether it can be opened Open says.
func Exists(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, keystore.Name))
	return err == nil
}

func exists(dir string) *coded.Error {
	return &coded.Error{As: coded.Exists,
		Msg:    "there is a wallet in " + dir + " already, and it is never overwritten",
		Advice: "use another X402_WALLET_HOME, or move the old one to a safe place first"}
}

// checkVacant says whether dir can take a new wallet; it need not be there yet.
func checkVacant(dir string) error {
	err := keystore.CheckHome(dir)
	if errors.Is(err, coded.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = os.Lstat(filepath.Join(dir, keystore.Name))
	switch {
	case err == nil:
		return exists(dir)
	case errors.Is(err, fs.ErrNotExist):
		return nil
	}
	return coded.Setup("look into "+dir, err)
}

// create encrypts k and puts it into dir. KEYPAIR_EXISTS, KEYSTORE_PERMISSIONS and the error of
// opt.Before pass as they are, everything else is SETUP_FAILED.
func create(dir string, k *keystore.Keys, passphrase []byte, opt Options) (*keystore.File, error) {
	if err := checkImports(k, opt.Import); err != nil {
		return nil, err
	}
	if opt.Before != nil {
		if err := opt.Before(k.MAC); err != nil {
			return nil, err
		}
	}
	ks, err := encrypt(k, nil, passphrase, uint64(opt.N), opt.Now(), opt.KDF, opt.Rand)
	if err != nil {
		return nil, coded.Setup("encrypt the keys", err)
	}
	data, err := marshal(ks)
	if err != nil {
		return nil, coded.Setup("encode the keystore", err)
	}
	if err := makeHome(dir); err != nil {
		return nil, coded.Setup("make "+dir, err)
	}
	if err := keystore.CheckHome(dir); err != nil { // another may have made it meanwhile
		return nil, err
	}
	err = writeNew(dir, data, opensWith(passphrase, opt.KDF, k))
	if err != nil && !errors.Is(err, coded.Exists) && !errors.Is(err, coded.Permissions) {
		return nil, coded.Setup("write the keystore", err)
	}
	return ks, err
}

// generate makes the keys that were not imported, and are not a phrase's, from the random source.
func generate(random io.Reader, imported []guarded.PrivateKey,
	phrase *guarded.Seeds) (*keystore.Keys, error) {
	k := keystore.Blank(0)
	for _, s := range [][]byte{k.Solana[:guarded.Size], k.EVM.Secret[:], k.Seal[:]} {
		if _, err := io.ReadFull(random, s); err != nil {
			k.Wipe()
			return nil, fmt.Errorf("read random bytes: %w", err)
		}
	}
	for _, i := range imported {
		switch i.Chain {
		case wallet.ChainSolana:
			copy(k.Solana, guarded.SecretOf(i)[:])
		case wallet.ChainEVM:
			*k.EVM.Secret = *guarded.SecretOf(i)
		}
	}
	if phrase != nil {
		fill(&k.Pair, phrase)
		_, _, record := guarded.PartsOf(phrase)
		copy(k.Phrase, record)
	}
	// A random number is no scalar about once in 2^128 times: an error then is
	// as good as another draw.
	return k.Complete()
}

// checkImports checks that what was imported is what the keystore will hold.
func checkImports(k *keystore.Keys, imported []guarded.PrivateKey) error {
	solana, evm := k.Addresses()
	for _, i := range imported {
		if i.Address != solana && i.Address != evm {
			return coded.Setup("import keys",
				fmt.Errorf("the %s key has another address than %s, which was imported", i.Chain, i.Address))
		}
	}
	return nil
}

// fill copies the keys of an account, and complete makes the rest.
func fill(p *keystore.Pair, from *guarded.Seeds) {
	solana, evm, _ := guarded.PartsOf(from)
	copy(p.Solana, solana[:])
	*p.EVM.Secret = *evm
}
