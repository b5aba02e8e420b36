package wallet

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"
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
	text, err := AskFor(ctx, "the phrase", phrase)
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
		if extra, err = AskFor(ctx, "the phrase's passphrase", passphrase); err != nil {
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
func PhraseFor(ctx context.Context, w *Wallet, typed, passphrase Passphrase, paths Paths) (*Phrase, error) {
	of, err := w.Phrase(ctx, typed, "take the phrase of "+w.Dir())
	if err != nil {
		return nil, err
	}
	defer of.Wipe()
	var extra []byte
	if passphrase != nil {
		if extra, err = AskFor(ctx, "the phrase's passphrase", passphrase); err != nil {
			return nil, err
		}
		defer clear(extra)
	}
	p, err := phraseAt(of, extra, paths)
	if err != nil {
		return nil, err
	}
	return p.otherThan(of)
}

// Derive makes the keys of an account of a keystore's phrase, at the standard paths. passphrase is that of
// the phrase; empty: it has none.
func Derive(of *Seeds, passphrase []byte, account uint32) (*Seeds, error) {
	p, err := phraseAt(of, passphrase, StandardPaths(account))
	if err != nil {
		return nil, err
	}
	defer p.Wipe()
	return p.Seeds()
}

// phraseAt is the phrase of a keystore, for keys at other paths. extra is its passphrase; empty: it has none.
func phraseAt(of *Seeds, extra []byte, paths Paths) (*Phrase, error) {
	kept := recordOf(of)
	words := wordsOf(kept.entropy())
	defer clear(words)
	own, err := newPhrase(words, extra, Paths{Solana: kept.solanaPath().String(),
		EVM: kept.evmPath().String()})
	if err != nil {
		return nil, err
	}
	defer own.Wipe()
	solana, evm, err := own.Addresses()
	if err != nil {
		return nil, err
	}
	if solana != of.Solana || evm != of.EVM {
		e := setup("take the phrase of "+of.Home, errors.New("a passphrase of the phrase's own belongs to "+
			"it, and this is not the one"))
		e.hint = "give the BIP-39 passphrase that the wallet was made with: --phrase-passphrase"
		return nil, e
	}
	return newPhrase(words, extra, paths)
}

// otherThan is p, if its keys are not those of a keystore.
func (p *Phrase) otherThan(of *Seeds) (*Phrase, error) {
	solana, evm, err := p.Addresses()
	if err == nil && (solana == of.Solana || evm == of.EVM) {
		e := setup("take the phrase of "+of.Home, errors.New("a key at this path is that wallet's own; two "+
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
	s, err := p.Seeds()
	if err != nil {
		return "", "", err
	}
	defer s.Wipe()
	return s.Solana, s.EVM, nil
}

func recordOf(s *Seeds) phraseRecord {
	_, _, phrase := PartsOf(s)
	return phraseRecord(phrase)
}

// Seeds are the keys of the phrase with the phrase itself, for [wallet.Create], which wipes them.
func (p *Phrase) Seeds() (*Seeds, error) {
	if p.seed == nil {
		return nil, setup("derive the keys", errors.New("the phrase was wiped"))
	}
	s := NewSeeds(phraseSize)
	solana, evm, phrase := PartsOf(s)
	copy(phrase, p.record)
	var err error
	withCleanStack(func() {
		deriveSolana(p.seed, p.record.solanaPath(), solana)
		if err = deriveEVM(p.seed, p.record.evmPath(), evm); err != nil {
			return
		}
		whole := ed25519.NewKeyFromSeed(solana[:])
		s.Solana = solanaAddressOf(whole)
		clear(whole)
		var public *secp256k1.PublicKey
		if public, err = publicKey(evm); err == nil {
			s.EVM = evmAddressOf(public)
		}
	})
	if err != nil {
		s.Wipe()
		return nil, setup("derive the keys", err)
	}
	return s, nil
}
