package wallet

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

// A recovery phrase (BIP-39) stands for both keys of a wallet. Its keystore keeps the keys as they are, and
// the phrase besides, which nothing is signed with and which is dropped from what an unlocked wallet holds:
// it is there to be shown to its owner (showphrase.go), and to nobody else.

// Phrase is a recovery phrase on its way into [Create], which wipes it. It prints as [redacted].
type Phrase struct {
	redacted
	memory *secret
	record phraseRecord // in memory
	seed   []byte       // in memory, behind it: of BIP-39
}

// NewPhrase makes a phrase of 24 words, for the keys at the standard paths.
func NewPhrase(random io.Reader) (*Phrase, error) {
	entropy := make([]byte, maxEntropy)
	defer clear(entropy)
	if _, err := io.ReadFull(random, entropy); err != nil {
		return nil, setup("make a phrase", fmt.Errorf("read random bytes: %w", err))
	}
	return newPhrase(wordsOf(entropy), nil, StandardPaths(0))
}

// ReadPhrase takes a phrase from a source, and BIP-39's passphrase that belongs to it from another one; nil:
// it has none. That passphrase is not kept: whoever recovers the wallet has to know it. The phrase is in
// English.
//
// Errors: SETUP_FAILED, which tells no word; KEYSTORE_PERMISSIONS; the context's.
func ReadPhrase(ctx context.Context, phrase, passphrase Passphrase, paths Paths) (*Phrase, error) {
	text, err := askFor(ctx, "the phrase", phrase)
	if err != nil {
		return nil, err
	}
	defer clear(text)
	words, _, err := readWords(text)
	defer clear(words)
	if err == nil && !isPhraseLength(len(words)) {
		err = fmt.Errorf("%w, this one %d", errPhraseLength, len(words))
	}
	if err != nil {
		return nil, phraseError(err)
	}
	var extra []byte
	if passphrase != nil {
		if extra, err = askFor(ctx, "the phrase's passphrase", passphrase); err != nil {
			return nil, err
		}
		defer clear(extra)
	}
	return newPhrase(words, extra, paths)
}

// PhraseFor is the recovery phrase of this wallet for another one: of another account of it, so that no two
// wallets have the same key and each its own limits. The keystore's passphrase is asked for, and passphrase
// for that of the phrase; nil: it has none. The wallet is not unlocked. Errors: those of [Wallet.Unlock];
// SETUP_FAILED where there is no phrase, or another passphrase belongs to it, or the keys are this wallet's
// own.
func (w *Wallet) PhraseFor(ctx context.Context, typed, passphrase Passphrase, paths Paths) (*Phrase, error) {
	ks, _, err := readKeystore(w.dir)
	if err != nil {
		return nil, err
	}
	if !ks.holds.phrase {
		return nil, noPhrase("take the phrase of " + w.dir)
	}
	k, err := w.decryptWith(ctx, ks, []Passphrase{typed})
	if err != nil {
		return nil, err
	}
	defer k.wipe()
	var extra []byte
	if passphrase != nil {
		if extra, err = askFor(ctx, "the phrase's passphrase", passphrase); err != nil {
			return nil, err
		}
		defer clear(extra)
	}
	p, err := k.phraseAt(w.dir, extra, paths)
	if err != nil {
		return nil, err
	}
	return p.otherThan(w.dir, ks)
}

// phraseAt is the phrase of the keys k of a home, for those at other paths. extra is its passphrase; empty:
// it has none.
func (k *keys) phraseAt(home string, extra []byte, paths Paths) (*Phrase, error) {
	words := wordsOf(k.phrase.entropy())
	defer clear(words)
	own, err := newPhrase(words, extra, Paths{Solana: k.phrase.solanaPath().String(),
		EVM: k.phrase.evmPath().String()})
	if err != nil {
		return nil, err
	}
	defer own.Wipe()
	solana, evm, err := own.Addresses()
	if err != nil {
		return nil, err
	}
	if ofSolana, ofEVM := k.addresses(); solana != ofSolana || evm != ofEVM {
		e := setup("take the phrase of "+home, errors.New("a passphrase of the phrase's own belongs to "+
			"it, and this is not the one"))
		e.hint = "give the BIP-39 passphrase that the wallet was made with: --phrase-passphrase"
		return nil, e
	}
	return newPhrase(words, extra, paths)
}

// otherThan is p, if its keys are not those of a keystore.
func (p *Phrase) otherThan(home string, ks *keystore) (*Phrase, error) {
	solana, evm, err := p.Addresses()
	if err == nil && (solana == ks.solana || evm == ks.evm) {
		e := setup("take the phrase of "+home, errors.New("a key at this path is that wallet's own; two "+
			"wallets with "+
			"one key would each spend up to their limits"))
		e.hint = "choose another account: --index N, counted from 0"
		err = e
	}
	if err != nil {
		p.Wipe()
		return nil, err
	}
	return p, nil
}

func noPhrase(what string) *codedError {
	e := setup(what, errors.New("this keystore has none: its keys were imported, or made without one"))
	e.hint = "back up keystore.json, and remember its passphrase: together they are the keys"
	return e
}

// askFor asks one source for what is no passphrase of this wallet.
func askFor(ctx context.Context, what string, source Passphrase) ([]byte, error) {
	given, err := askPassphrase(ctx, []Passphrase{func(ctx context.Context) ([]byte, error) {
		given, err := source(ctx)
		if errors.Is(err, ErrNoPassphrase) {
			err = locked("there is no terminal to type it on")
		}
		return given, err
	}})
	if errors.Is(err, codeLocked) || errors.Is(err, codeInvalidPassphrase) {
		e := setup("get "+what, err)
		e.hint = "run it in a terminal, or name an owner-only file or an open descriptor"
		return nil, e
	}
	return given, err
}

func phraseError(cause error) *codedError {
	e := setup("read the phrase", cause)
	e.hint = "compare it with where it is written down: the first four letters of a word say which it is; " +
		"nothing was created"
	return e
}

// newPhrase keeps words and derives what their keys come from.
func newPhrase(words []int, passphrase []byte, paths Paths) (*Phrase, error) {
	solana, err := parsePath(paths.Solana)
	if err == nil {
		err = checkSolanaPath(solana)
	}
	evm, evmErr := parsePath(paths.EVM)
	if evmErr == nil {
		evmErr = checkEVMPath(evm)
	}
	if err := errors.Join(err, evmErr); err != nil {
		return nil, setup("choose the keys of the phrase", err)
	}
	entropy, err := entropyOf(words)
	if err != nil {
		return nil, phraseError(err)
	}
	defer clear(entropy)
	seed, err := bip39Seed(words, passphrase)
	if err != nil {
		return nil, setup("read the phrase", err)
	}
	defer clear(seed)
	memory := newSecret(phraseSize + bip39SeedSize)
	p := &Phrase{memory: memory, record: phraseRecord(memory.bytes[:phraseSize:phraseSize]),
		seed: memory.bytes[phraseSize:]}
	copy(p.seed, seed)
	p.record.set(entropy, len(passphrase) > 0, solana, evm)
	return p, nil
}

// Wipe clears the phrase. A nil p is fine.
func (p *Phrase) Wipe() {
	if p != nil {
		p.memory.wipe()
		p.record, p.seed = nil, nil
	}
}

// Addresses are those of the keys, as [Wallet.Addresses].
func (p *Phrase) Addresses() (solana, evm string, err error) {
	k := blankKeys(0)
	defer k.wipe()
	if err := p.derive(&k.pair); err != nil {
		return "", "", err
	}
	if _, err := k.complete(); err != nil {
		return "", "", setup("derive the keys", err)
	}
	solana, evm = k.addresses()
	return solana, evm, nil
}

// derive sets the keys of an account to those of the phrase.
func (p *Phrase) derive(k *pair) (err error) {
	if p.seed == nil {
		return setup("derive the keys", errors.New("the phrase was wiped"))
	}
	withCleanStack(func() {
		deriveSolana(p.seed, p.record.solanaPath(), (*[secretSize]byte)(k.solana[:secretSize]))
		err = deriveEVM(p.seed, p.record.evmPath(), k.evm.secret)
	})
	if err != nil {
		return setup("derive the keys", err)
	}
	return nil
}

// phraseRecord is how a keystore has a phrase, or 84 zeros:
//
//	0      the bytes of its entropy: 16, 20, 24, 28 or 32
//	1      1: a passphrase of BIP-39's belongs to it, which is not kept
//	2–33   the entropy, and zeros
//	34–58  the path of the Solana key: how many steps it has (255: it is [SeedPath]), and room for 6,
//	       each of 4 bytes, big endian; the rest is zeros
//	59–83  the path of the EVM key
type phraseRecord []byte

const (
	pathRoom      = 1 + 4*maxPath
	atSolanaPath  = 2 + maxEntropy
	atEVMPath     = atSolanaPath + pathRoom
	phraseSize    = atEVMPath + pathRoom // a multiple of 3: its base64 ends without padding
	seedPathSteps = 0xff
)

func (r phraseRecord) set(entropy []byte, hasPassphrase bool, solana, evm derivation) {
	clear(r)
	r[0] = byte(len(entropy))
	if hasPassphrase {
		r[1] = 1
	}
	copy(r[2:], entropy)
	putPath(r[atSolanaPath:], solana)
	putPath(r[atEVMPath:], evm)
}

func putPath(at []byte, path derivation) {
	at[0] = byte(len(path))
	if path == nil {
		at[0] = seedPathSteps
	}
	for i, step := range path {
		binary.BigEndian.PutUint32(at[1+4*i:], step)
	}
}

func pathAt(at []byte) derivation {
	if at[0] == seedPathSteps {
		return nil
	}
	path := make(derivation, min(int(at[0]), maxPath))
	for i := range path {
		path[i] = binary.BigEndian.Uint32(at[1+4*i:])
	}
	return path
}

func (r phraseRecord) isThere() bool          { return !bytes.Equal(r, make([]byte, len(r))) }
func (r phraseRecord) hasPassphrase() bool    { return r[1] == 1 }
func (r phraseRecord) solanaPath() derivation { return pathAt(r[atSolanaPath:]) }
func (r phraseRecord) evmPath() derivation    { return pathAt(r[atEVMPath:]) }

// entropy is nil where the record has no right form.
func (r phraseRecord) entropy() []byte {
	n := int(r[0])
	if n%4 != 0 || n < 16 || n > maxEntropy {
		return nil
	}
	return r[2 : 2+n]
}

// isRight reports whether a record is one that set writes.
func (r phraseRecord) isRight() bool {
	entropy, solana, evm := r.entropy(), r.solanaPath(), r.evmPath()
	if entropy == nil || checkSolanaPath(solana) != nil || checkEVMPath(evm) != nil {
		return false
	}
	again := make(phraseRecord, phraseSize)
	defer clear(again)
	again.set(entropy, r.hasPassphrase(), solana, evm)
	return slices.Equal(r, again)
}

// hasPhrase reports whether k has the phrase that its keys come from.
func (k *keys) hasPhrase() bool { return k.phrase.isThere() }

// dropPhrase wipes the phrase alone, as of keys that are held to pay with.
func (k *keys) dropPhrase() { clear(k.phrase) }
