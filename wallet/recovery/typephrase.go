package recovery

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"x402-wallet/wallet"
	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/terminal"
)

// mostMistakes is how many words that are in no list may be typed.
const mostMistakes = 24

// FromTerminal asks the person at the controlling terminal for a recovery phrase, and shows nothing of
// what is typed: the words, one a line or several, are looked up as they come, and the checksum at the end.
// After too many mistakes it gives up with SETUP_FAILED.
func FromTerminal() wallet.Passphrase {
	return func(ctx context.Context) ([]byte, error) {
		return terminal.On(ctx, terminal.Open, askPhrase)
	}
}

// FromFile is the content of a file that only its owner, the caller, can read: KEYSTORE_PERMISSIONS
// otherwise.
func FromFile(path string) wallet.Passphrase {
	return func(context.Context) ([]byte, error) {
		data, err := coded.ReadFile(path, wallet.MaxPassphrase)
		switch {
		case err == nil && len(data) == 0:
			return nil, coded.Setup("read the phrase in "+path, errors.New("the file is empty"))
		case errors.Is(err, coded.Permissions) || err == nil:
			return data, err
		case errors.Is(err, fs.ErrNotExist):
			return nil, coded.Setup("read the phrase in "+path, errors.New("there is no such file"))
		}
		return nil, coded.Setup("read the phrase in "+path, err)
	}
}

// askPhrase returns a phrase that is right, in the list's own spelling.
func askPhrase(t *terminal.Terminal) ([]byte, error) {
	err := t.Says("Type the recovery phrase, or paste it: one word a line, or several. Nothing of it is " +
		"shown.")
	for try := 0; err == nil && try < terminal.Tries; try++ {
		words, asked := askWords(t)
		if asked != nil {
			return nil, asked
		}
		entropy, wrong := entropyOf(words)
		clear(entropy)
		if wrong == nil {
			text := spell(words)
			clear(words)
			return text, nil
		}
		clear(words)
		err = t.Says("That is no phrase: " + wrong.Error() + ". From the beginning again.")
	}
	if err != nil {
		return nil, err
	}
	return nil, coded.Setup(fmt.Sprintf("no phrase after %d tries", terminal.Tries), nil)
}

// askWords asks for words until they are as many as a phrase has.
func askWords(t *terminal.Terminal) (words []int, err error) {
	words = make([]int, 0, mostWords+1)
	for mistakes := 0; len(words) < mostWords; {
		if mistakes > mostMistakes {
			clear(words)
			return nil, coded.Setup(fmt.Sprintf("no phrase after %d mistakes", mistakes), nil)
		}
		prompt := fmt.Sprintf("Word %d: ", len(words)+1)
		if isPhraseLength(len(words)) {
			prompt = fmt.Sprintf("Word %d (Enter if that was all): ", len(words)+1)
		}
		line, err := t.Line(prompt)
		if errors.Is(err, coded.WalletLocked) {
			err = coded.Setup("no phrase was typed", nil)
		}
		if err != nil {
			clear(words)
			return nil, err
		}
		var said string
		words, said = moreWords(words, line)
		clear(line)
		switch {
		case said != "":
			mistakes++
			if err := t.Says(said); err != nil {
				clear(words)
				return nil, err
			}
		case len(words) > 0 && words[len(words)-1] == endOfWords:
			return words[:len(words)-1], nil
		}
	}
	return words, nil
}

// endOfWords stands for the empty line behind the words.
const endOfWords = -1

// moreWords are words and those of a line, up to the first that is in no list, and what the person is told of
// it.
func moreWords(words []int, line []byte) (all []int, said string) {
	more, near, err := readWords(line)
	defer clear(more)
	if room := mostWords - len(words); len(more) > room {
		return words, fmt.Sprintf("Those are more than %d words. Go on with word %d.", mostWords,
			len(words)+1)
	}
	all = append(words, more...)
	var unknown unknownWord
	switch {
	case errors.As(err, &unknown):
		said = fmt.Sprintf("Word %d is not in the English list of BIP-39", len(all)+1)
		if len(near) > 0 {
			said += " (like it: " + strings.Join(near, ", ") + ")"
		}
		return all, said + fmt.Sprintf(". Go on with word %d.", len(all)+1)
	case err != nil:
		return words, err.Error() + "."
	case len(more) == 0 && isPhraseLength(len(words)):
		return append(all, endOfWords), ""
	case len(more) == 0:
		return all, fmt.Sprintf("A phrase has 12, 15, 18, 21 or 24 words; these are %d.", len(words))
	}
	return all, ""
}
