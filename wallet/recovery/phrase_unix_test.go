//go:build unix

package recovery

import (
	"encoding/hex"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/wallet"
	"x402-wallet/wallet/internal/keystore/keytest"
	"x402-wallet/wallet/internal/record"
	"x402-wallet/wallet/internal/wallettest"
	"x402-wallet/wallet/owner"
	"x402-wallet/wallet/terminal"
)

func gotPhrase(p *wallettest.Person, want string) {
	p.T.Helper()
	out, err := p.Got()
	require.NoError(p.T, err, out)
	require.Equal(p.T, hex.EncodeToString([]byte(want)), out)
	for _, word := range strings.Fields(want) {
		require.NotContains(p.T, strings.ReplaceAll(p.Sees(), "like it: junk", ""), word)
	}
}

// One word a line; a word that is wrong is asked for again, and named to nobody but the person.
func TestPhraseTyped(t *testing.T) {
	p := wallettest.SitDown(t, "phrase")
	p.Answers("Word 1: ", 1, "test\n")
	p.Answers("Word 2: ", 1, "  TEST test\n")
	p.Answers("Word 4: ", 1, "\n")
	p.Answers("these are 3.\r\nWord 4: ", 1, "test test test test test test test test jnuk test\n")
	p.Answers("Word 12 is not in the English list of BIP-39 (like it: junk). Go on with word 12.\r\nWord "+
		"12: ", 1, "junk\n")
	p.Answers("Word 13 (Enter if that was all): ", 1, "\n")
	gotPhrase(p, knownPhrase)
}

func TestPhrasePasted(t *testing.T) {
	all := strings.TrimSpace(strings.Repeat("legal winner thank year wave sausage worth useful ", 2) +
		"legal winner thank year wave sausage worth title")
	p := wallettest.SitDown(t, "phrase")
	p.Answers("Word 1: ", 1, strings.ReplaceAll(all, " ", "  ")+"\n")
	gotPhrase(p, all)
}

// The checksum is told, and all is typed again, three times at most; more words than there can be are not
// taken.
func TestPhraseTypedWrong(t *testing.T) {
	p := wallettest.SitDown(t, "phrase")
	p.Answers("Word 1: ", 1, strings.Replace(knownPhrase, "junk", "test", 1)+"\n")
	p.Answers("Word 13 (Enter", 1, "\n")
	p.Answers("its checksum is wrong: a word is another one, or two have changed places. From the "+
		"beginning again.\r\n"+
		"Word 1: ", 1, knownPhrase+"\n")
	p.Answers("Word 13 (Enter", 2, knownPhrase+" zoo\n")
	p.Answers("Those are more than 24 words. Go on with word 13.\r\nWord 13 (Enter", 1, "\n")
	gotPhrase(p, knownPhrase)

	p = wallettest.SitDown(t, "phrase")
	for i := range 3 {
		p.Answers("Word 1: ", i+1, strings.Repeat("zoo ", 24)+"\n")
	}
	out, err := p.Got()
	require.Error(t, err)
	require.Contains(t, out, "SETUP_FAILED no phrase after 3 tries")

	p = wallettest.SitDown(t, "phrase")
	p.Answers("Word 1: ", 1, strings.Repeat("qqqq\n", 40))
	out, err = p.Got()
	require.Error(t, err)
	require.Contains(t, out, "SETUP_FAILED no phrase after 25 mistakes")

	p = wallettest.SitDown(t, "phrase")
	p.Answers("Word 1: ", 1, "\x04")
	out, err = p.Got()
	require.Error(t, err)
	require.Contains(t, out, "SETUP_FAILED no phrase was typed")
}

// The phrase is for the person's eyes: on the terminal's second screen until they press Enter, and not in
// stdout.
func TestShowPhrase(t *testing.T) {
	w := walletOfPhrase(t)
	t.Setenv("PHRASE_HOME", w.Dir())
	p := wallettest.SitDown(t, "show-phrase")
	p.Answers("Passphrase: ", 1, keytest.Passphrase+"\n")
	p.Answers("Press Enter when it is written down", 1, "\n")
	out, err := p.Got()
	require.NoError(t, err, out)
	require.Equal(t, "12", out)
	p.Answers(terminal.ExitScreen, 1, "")
	seen := strings.ReplaceAll(p.Sees(), "\r", "")
	_, page, found := strings.Cut(seen, terminal.EnterScreen)
	require.True(t, found)
	page, _, found = strings.Cut(page, terminal.ExitScreen)
	require.True(t, found)
	require.Contains(t, page, "   1  test         2  test         3  test         4  test      \n")
	require.Contains(t, page, "  12  junk      \n")
	require.Contains(t, page, "m/44'/501'/0'/0'     "+knownSolana)
	require.Contains(t, page, "m/44'/60'/0'/0/0     "+keytest.EVM)
	require.NotContains(t, page, "25th word")
	require.NotContains(t, strings.Replace(seen, page, "", 1), "junk")
}

// Ctrl-C takes it from the screen too; a wrong passphrase shows nothing.
func TestShowPhraseInterrupted(t *testing.T) {
	w := walletOfPhrase(t)
	t.Setenv("PHRASE_HOME", w.Dir())
	p := wallettest.SitDown(t, "show-phrase")
	p.Answers("Passphrase: ", 1, keytest.Passphrase+"\n")
	p.Answers("Press Enter when it is written down", 1, "\x03")
	out, err := p.Got()
	require.Error(t, err)
	require.Contains(t, out, "context canceled")
	p.Answers(terminal.ExitScreen, 1, "") // what it wrote last is read after it has ended

	p = wallettest.SitDown(t, "show-phrase")
	p.Answers("Passphrase: ", 1, keytest.Passphrase+"!\n")
	out, err = p.Got()
	require.Error(t, err)
	require.Contains(t, out, "INVALID_PASSPHRASE")
	require.NotContains(t, p.Sees(), "junk")
	require.NotContains(t, p.Sees(), terminal.EnterScreen)
}

// A keystore whose phrase does not make its keys shows none: on paper it would be no backup.
func TestShowPhraseOfOtherKeys(t *testing.T) {
	seeds := must.Get(readPhrase(t, knownPhrase, "", StandardPaths(0)).Seeds())(t)
	recordOf(seeds)[record.AtEVMPath+record.PathRoom-1-3*4] ^= 1 // another path
	require.ErrorContains(t, makes(recordOf(seeds), knownSolana, keytest.EVM),
		"its recovery phrase makes other keys")
	w := must.Get(owner.Create(t.Context(), keytest.Home(t), wallet.FromValue(keytest.Passphrase),
		owner.Options{N: 1 << 14, Phrase: seeds}))(t)
	t.Cleanup(func() { _ = w.Close() })
	t.Setenv("PHRASE_HOME", w.Dir())
	p := wallettest.SitDown(t, "show-phrase")
	p.Answers("Passphrase: ", 1, keytest.Passphrase+"\n")
	said, err := p.Got()
	require.Error(t, err)
	require.Contains(t, said, "KEYSTORE_CORRUPT")
	require.NotContains(t, p.Sees(), "junk")
}

// Without a terminal nobody is asked, and a keystore without a phrase says so at once.
func TestShowPhraseRefuses(t *testing.T) {
	w := walletOfPhrase(t)
	t.Setenv("PHRASE_HOME", w.Dir())
	cmd := keytest.Command(t, "show-phrase", "")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Stdin = strings.NewReader(keytest.Passphrase + "\n")
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.Equal(t, "SETUP_FAILED show the phrase: there is no terminal", string(out))

	without := otherWallet(t)
	require.NoError(t, os.Setenv("PHRASE_HOME", without.Dir()))
	p := wallettest.SitDown(t, "show-phrase")
	said, err := p.Got()
	require.Error(t, err)
	require.Contains(t, said, "SETUP_FAILED show the phrase: this keystore has none")
	require.NotContains(t, p.Sees(), "Passphrase")
}
