// Package recovery makes, reads and shows recovery phrases (BIP-39), and derives the keys of a wallet from
// one.
package recovery

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"

	"x402-wallet/wallet"
	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/curve"
	"x402-wallet/wallet/internal/guarded"
	"x402-wallet/wallet/internal/record"
	"x402-wallet/wallet/owner"
)

// A recovery phrase (BIP-39) stands for both keys of a wallet. Its keystore keeps the keys as they are, and
// the phrase besides, which nothing is signed with and which is dropped from what an unlocked wallet holds:
// it is there to be shown to its owner (showphrase.go), and to nobody else.

// Phrase is a recovery phrase on its way into owner.Create, which wipes it. It prints as [redacted].
type Phrase struct {
	guarded.Redacted
	memory *guarded.Memory
	record record.Phrase // in memory
	seed   []byte        // in memory, behind it: of BIP-39
}

// New makes a phrase of 24 words, for the keys at the standard paths.
func New(random io.Reader) (*Phrase, error) {
	entropy := make([]byte, record.MaxEntropy)
	defer clear(entropy)
	if _, err := io.ReadFull(random, entropy); err != nil {
		return nil, coded.Setup("make a phrase", fmt.Errorf("read random bytes: %w", err))
	}
	return newPhrase(wordsOf(entropy), nil, StandardPaths(0))
}

// Read takes a phrase from a source, and BIP-39's passphrase that belongs to it from another one; nil:
// it has none. That passphrase is not kept: whoever recovers the wallet has to know it. The phrase is in
// English.
//
// Errors: SETUP_FAILED, which tells no word; KEYSTORE_PERMISSIONS; the context's.
func Read(ctx context.Context, phrase, passphrase wallet.Passphrase, paths Paths) (*Phrase, error) {
	text, err := owner.AskFor(ctx, "the phrase", phrase)
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
		if extra, err = owner.AskFor(ctx, "the phrase's passphrase", passphrase); err != nil {
			return nil, err
		}
		defer clear(extra)
	}
	return newPhrase(words, extra, paths)
}

// Of is the recovery phrase of this wallet for another one: of another account of it, so that no two
// wallets have the same key and each its own limits. The keystore's passphrase is asked for, and passphrase
// for that of the phrase; nil: it has none. The wallet is not unlocked. Errors: those of
// [wallet.Wallet.Unlock]; SETUP_FAILED where there is no phrase, or another passphrase belongs to it, or the
// keys are this wallet's own.
func Of(ctx context.Context, w *wallet.Wallet, typed, passphrase wallet.Passphrase, paths Paths) (*Phrase,
	error) {
	of, err := owner.Phrase(ctx, w, typed, "take the phrase of "+w.Dir())
	if err != nil {
		return nil, err
	}
	defer of.Wipe()
	var extra []byte
	if passphrase != nil {
		if extra, err = owner.AskFor(ctx, "the phrase's passphrase", passphrase); err != nil {
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
func Derive(of *guarded.Seeds, passphrase []byte, account uint32) (*guarded.Seeds, error) {
	p, err := phraseAt(of, passphrase, StandardPaths(account))
	if err != nil {
		return nil, err
	}
	defer p.Wipe()
	return p.Seeds()
}

// phraseAt is the phrase of a keystore, for keys at other paths. extra is its passphrase; empty: it has none.
func phraseAt(of *guarded.Seeds, extra []byte, paths Paths) (*Phrase, error) {
	kept := recordOf(of)
	words := wordsOf(kept.Entropy())
	defer clear(words)
	own, err := newPhrase(words, extra, Paths{Solana: kept.SolanaPath().String(),
		EVM: kept.EVMPath().String()})
	if err != nil {
		return nil, err
	}
	defer own.Wipe()
	solana, evm, err := own.Addresses()
	if err != nil {
		return nil, err
	}
	if solana != of.Solana || evm != of.EVM {
		e := coded.Setup("take the phrase of "+of.Home,
			errors.New("a passphrase of the phrase's own belongs to "+
				"it, and this is not the one"))
		e.Advice = "give the BIP-39 passphrase that the wallet was made with: --phrase-passphrase"
		return nil, e
	}
	return newPhrase(words, extra, paths)
}

// otherThan is p, if its keys are not those of a keystore.
func (p *Phrase) otherThan(of *guarded.Seeds) (*Phrase, error) {
	solana, evm, err := p.Addresses()
	if err == nil && (solana == of.Solana || evm == of.EVM) {
		e := coded.Setup("take the phrase of "+of.Home,
			errors.New("a key at this path is that wallet's own; two "+
				"wallets with "+
				"one key would each spend up to their limits"))
		e.Advice = "choose another account: --index N, counted from 0"
		err = e
	}
	if err != nil {
		p.Wipe()
		return nil, err
	}
	return p, nil
}

func phraseError(cause error) *coded.Error {
	e := coded.Setup("read the phrase", cause)
	e.Advice = "compare it with where it is written down: the first four letters of a word say which it " +
		"is; nothing was created"
	return e
}

// newPhrase keeps words and derives what their keys come from.
func newPhrase(words []int, passphrase []byte, paths Paths) (*Phrase, error) {
	solana, err := parsePath(paths.Solana)
	if err == nil {
		err = record.CheckSolana(solana)
	}
	evm, evmErr := parsePath(paths.EVM)
	if evmErr == nil {
		evmErr = record.CheckEVM(evm)
	}
	if err := errors.Join(err, evmErr); err != nil {
		return nil, coded.Setup("choose the keys of the phrase", err)
	}
	entropy, err := entropyOf(words)
	if err != nil {
		return nil, phraseError(err)
	}
	defer clear(entropy)
	seed, err := bip39Seed(words, passphrase)
	if err != nil {
		return nil, coded.Setup("read the phrase", err)
	}
	defer clear(seed)
	memory := guarded.New(record.Size + bip39SeedSize)
	p := &Phrase{memory: memory, record: record.Phrase(memory.Bytes[:record.Size:record.Size]),
		seed: memory.Bytes[record.Size:]}
	copy(p.seed, seed)
	p.record.Set(entropy, len(passphrase) > 0, solana, evm)
	return p, nil
}

// Wipe clears the phrase. A nil p is fine.
func (p *Phrase) Wipe() {
	if p != nil {
		p.memory.Wipe()
		p.record, p.seed = nil, nil
	}
}

// Addresses are those of the keys, as [wallet.Wallet.Addresses].
func (p *Phrase) Addresses() (solana, evm string, err error) {
	s, err := p.Seeds()
	if err != nil {
		return "", "", err
	}
	defer s.Wipe()
	return s.Solana, s.EVM, nil
}

func recordOf(s *guarded.Seeds) record.Phrase {
	_, _, phrase := guarded.PartsOf(s)
	return record.Phrase(phrase)
}

// Seeds are the keys of the phrase with the phrase itself, for owner.Create, which wipes them.
func (p *Phrase) Seeds() (*guarded.Seeds, error) {
	if p.seed == nil {
		return nil, coded.Setup("derive the keys", errors.New("the phrase was wiped"))
	}
	s := guarded.NewSeeds(record.Size)
	solana, evm, phrase := guarded.PartsOf(s)
	copy(phrase, p.record)
	var err error
	guarded.WithCleanStack(func() {
		deriveSolana(p.seed, p.record.SolanaPath(), solana)
		if err = deriveEVM(p.seed, p.record.EVMPath(), evm); err != nil {
			return
		}
		whole := ed25519.NewKeyFromSeed(solana[:])
		s.Solana = curve.SolanaAddressOf(whole)
		clear(whole)
		var public *secp256k1.PublicKey
		if public, err = curve.PublicKey(evm); err == nil {
			s.EVM = curve.EVMAddressOf(public)
		}
	})
	if err != nil {
		s.Wipe()
		return nil, coded.Setup("derive the keys", err)
	}
	return s, nil
}
