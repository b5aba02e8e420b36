package recovery

import (
	"context"
	"crypto/hmac"
	"errors"
	"fmt"

	"x402-wallet/wallet"
	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/record"
	"x402-wallet/wallet/owner"
	"x402-wallet/wallet/terminal"
)

// Show asks for the passphrase and shows the recovery phrase to the person at the controlling terminal,
// until they press Enter. It goes nowhere else: not to stdout, and not to the caller. How many words it has
// is returned.
//
// Errors: SETUP_FAILED where there is no phrase, or no terminal; those of [wallet.Wallet.Unlock].
func Show(ctx context.Context, w *wallet.Wallet, typed wallet.Passphrase) (words int, err error) {
	t, err := terminal.Open()
	if err != nil { // before anybody is asked for the passphrase
		e := coded.Setup("show the phrase", errors.New("there is no terminal"))
		e.Advice = "run it in a terminal: the phrase is written nowhere else"
		return 0, e
	}
	t.Close()
	of, err := owner.Phrase(ctx, w, typed, "show the phrase")
	if err != nil {
		return 0, err
	}
	defer of.Wipe()
	kept := recordOf(of)
	if err := makes(kept, of.Solana, of.EVM); err != nil {
		return 0, err
	}
	page := pageOf(kept, of.Solana, of.EVM)
	_, err = terminal.On(ctx, terminal.Open, func(t *terminal.Terminal) ([]byte, error) {
		defer clear(page) // by who shows it: that can outlast ctx
		defer t.LeaveScreen()
		if err := t.Show(page); err != nil {
			return nil, err
		}
		line, err := t.Line("Press Enter when it is written down: then it goes from the screen. ")
		clear(line)
		if errors.Is(err, coded.WalletLocked) { // the end of input will do, too
			err = nil
		}
		return nil, err
	})
	if ctx.Err() != nil { // the reader still waits for the line
		if t, err := terminal.Open(); err == nil {
			t.LeaveScreen()
			t.Close()
		}
	}
	if errors.Is(err, wallet.ErrNoPassphrase) {
		clear(page)
		err = coded.Setup("show the phrase", errors.New("there is no terminal"))
	}
	return wordCount(kept), err
}

// Check compares a phrase that the person types with the keystore's, for its passphrase, and says how
// many words it has. Errors: SETUP_FAILED where it is another one, or there is none; those of
// [wallet.Wallet.Unlock].
func Check(ctx context.Context, w *wallet.Wallet, typed, phrase wallet.Passphrase) (words int, err error) {
	of, err := owner.Phrase(ctx, w, typed, "compare the phrase")
	if err != nil {
		return 0, err
	}
	defer of.Wipe()
	given, err := Read(ctx, phrase, nil, StandardPaths(0))
	if err != nil {
		return 0, err
	}
	defer given.Wipe()
	if !hmac.Equal(given.record.Entropy(), recordOf(of).Entropy()) {
		e := coded.Setup("compare the phrase", errors.New("it is a phrase, and not this wallet's"))
		e.Advice = "see this wallet's: x402-wallet export-phrase"
		return 0, e
	}
	return wordCount(recordOf(of)), nil
}

// makes reports that the phrase does not make the keys of these addresses: on paper it would be no backup. Of
// one with a passphrase of its own nobody here can say.
func makes(r record.Phrase, solana, evm string) error {
	if r.HasPassphrase() {
		return nil
	}
	words := wordsOf(r.Entropy())
	defer clear(words)
	p, err := newPhrase(words, nil, Paths{Solana: r.SolanaPath().String(), EVM: r.EVMPath().String()})
	if err != nil {
		return err
	}
	defer p.Wipe()
	ofSolana, ofEVM, err := p.Addresses()
	if err == nil && (ofSolana != solana || ofEVM != evm) {
		err = coded.Corrupt("its recovery phrase makes other keys")
	}
	return err
}

func wordCount(r record.Phrase) int { return len(r.Entropy()) / 4 * 3 }

// pageOf is what the person sees. The caller wipes it.
func pageOf(r record.Phrase, solana, evm string) []byte {
	const columns = 4
	words := wordsOf(r.Entropy())
	defer clear(words)
	page := make([]byte, 0, 4<<10) // more than it has: a buffer that is outgrown is not wiped
	page = append(page, "\nThe recovery phrase. Whoever has it has the money, without the passphrase and\n"+
		"without keystore.json: write it on paper, for yourself alone. Nobody who helps\nyou ever needs "+
		"it.\n\n"...)
	for i, n := range words {
		page = fmt.Appendf(page, "%4d  ", i+1)
		page = append(page, english()[n]...)
		page = append(page, "          "[min(len(english()[n]), 9):]...)
		if i%columns == columns-1 || i == len(words)-1 {
			page = append(page, '\n')
		}
	}
	page = fmt.Appendf(page, "\n  Solana  %-20s %s\n  EVM     %-20s %s\n", r.SolanaPath(), solana,
		r.EVMPath(), evm)
	if r.HasPassphrase() {
		page = append(page, "\nA passphrase of the phrase's own (the \"25th word\") belongs to it, and is "+
			"not kept\n"+
			"here: without it these words make another wallet.\n"...)
	}
	return append(page, '\n')
}
