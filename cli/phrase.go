package cli

import (
	"context"
	"crypto/rand"
	"strings"

	"github.com/spf13/cobra"

	"x402-wallet/wallet"
	"x402-wallet/wallet/owner"
	"x402-wallet/wallet/recovery"
	"x402-wallet/wallet/terminal"
	"x402-wallet/wallet/unlock"
	"x402-wallet/x402"
)

// The recovery phrase (BIP-39) of a wallet: taken in by init or made there, and shown by export-phrase on the
// terminal alone. No flag takes its words, which would be in the shell's history and in the list of
// processes.

// phraseFlags say which phrase a new wallet is made from; none: a new one, where no key is imported.
type phraseFlags struct {
	typed      bool
	of         string // the home of a wallet
	file       string
	fd         int
	passphrase passphraseSource // of BIP-39
	asksForOne bool             // the passphrase is typed
	account    uint32
	paths      []string
	keysOnly   bool
	show       bool
}

func (f *phraseFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&f.typed, "import-phrase", false,
		"make the keys from a recovery phrase (BIP-39) that you type, which is not shown")
	flags.StringVar(&f.file, "import-phrase-file", "", "make the keys from the recovery phrase in this "+
		"owner-only `FILE`")
	flags.IntVar(&f.fd, "import-phrase-fd", -1,
		"make the keys from the recovery phrase that this open descriptor `N` has")
	flags.Lookup("import-phrase-fd").DefValue = "0" // that it means none is not shown
	flags.BoolVar(&f.asksForOne, "phrase-passphrase", false,
		"the phrase has a BIP-39 passphrase (\"25th word\"): ask for it")
	f.passphrase.add(cmd, "phrase-", "the phrase's BIP-39 passphrase")
	flags.Uint32Var(&f.account, "index", 0, "take account `N` of the phrase, counted from 0: "+
		"m/44'/501'/N'/0' for Solana and "+
		" m/44'/60'/0'/0/N for EVM")
	flags.StringArrayVar(&f.paths, "key-path", nil, "take the key at this derivation `KEYPATH`, such as "+
		"m/44h/501h/0h; evm=KEYPATH and solana=KEYPATH say for which chain, and solana=seed is "+
		"solana-keygen's own")
	flags.BoolVar(&f.keysOnly, "keys-only", false, "keep the phrase's two keys, and not the phrase")
	flags.BoolVar(&f.show, "export-phrase", false,
		"show the recovery phrase on the terminal when the wallet is made, to write it down")
	flags.StringVar(&f.of, "import-phrase-of", "", "make the keys from the recovery phrase of the wallet "+
		"in this "+
		"home `DIR`, of another account (--index): the phrase stays there")
	cmd.MarkFlagsMutuallyExclusive("import-phrase", "import-phrase-file", "import-phrase-fd",
		"import-phrase-of")
	cmd.MarkFlagsMutuallyExclusive("import-phrase-of", "export-phrase")
	cmd.MarkFlagsMutuallyExclusive("phrase-passphrase", "phrase-passphrase-file")
	cmd.MarkFlagsMutuallyExclusive("phrase-passphrase", "phrase-passphrase-fd")
	cmd.MarkFlagsMutuallyExclusive("index", "key-path")
	cmd.MarkFlagsMutuallyExclusive("keys-only", "export-phrase")
}

// isImported reports whether the keys come from a phrase that the owner has.
func (f phraseFlags) isImported() bool { return f.typed || f.of != "" || f.file != "" || f.fd >= 0 }

// check refuses what does not go together.
func (f phraseFlags) check(all initFlags) error {
	ofAPhrase := f.asksForOne || f.passphrase.file != "" || f.passphrase.fd >= 0 || f.account > 0 ||
		len(f.paths) > 0 || f.keysOnly
	others := len(all.importKeyFile) > 0 || all.importSolana+all.importEVM+all.importOzskr != ""
	switch {
	case ofAPhrase && !f.isImported():
		return usageError{text: "--index, --key-path, --keys-only and --phrase-passphrase say something " +
			"of a phrase that is imported", hint: "add --import-phrase or --import-phrase-file FILE"}
	case f.isImported() && others:
		return usageError{text: "a phrase has the keys for both chains; no other key can be imported with it",
			hint: "leave out the other import, or make a second wallet: X402_WALLET_HOME=DIR x402-wallet " +
				"init"}
	case f.show && others:
		return usageError{text: "keys that are imported one by one have no phrase to be shown",
			hint: "leave out --export-phrase"}
	case all.askNobody && (f.typed || f.of != "" || f.asksForOne || f.show):
		return usageError{text: "--no-input asks nobody, and a phrase is typed or shown on a terminal",
			hint: "give it --import-phrase-file FILE, and --phrase-passphrase-file FILE where it has a " +
				"passphrase"}
	case f.account > owner.MaxAccount:
		return usagef("--index is %d, it is at most %d", f.account, owner.MaxAccount)
	}
	_, err := f.keyPaths()
	return err
}

func (f phraseFlags) keyPaths() (recovery.Paths, error) {
	paths := recovery.StandardPaths(f.account)
	for _, entry := range f.paths {
		chain, path, named := strings.Cut(entry, "=")
		if !named {
			chain, path = "", entry
		}
		if named && chain != wallet.ChainSolana && chain != wallet.ChainEVM {
			return paths, usagef("--key-path %q is neither KEYPATH nor solana=KEYPATH nor evm=KEYPATH", entry)
		}
		if err := paths.Put(chain, path); err != nil {
			return paths, usagef("--key-path: %s", err.Error())
		}
	}
	return paths, nil
}

func (f phraseFlags) source(ui *ui) wallet.Passphrase {
	switch {
	case f.fd >= 0:
		return unlock.FD(f.fd)
	case f.file != "":
		return recovery.FromFile(f.file)
	}
	return ui.asking(recovery.FromTerminal())
}

const askPhrases = "BIP-39 passphrase of the phrase (not shown): "

// takePhrase reads the phrase that the flags name, shows whose addresses it makes and asks whether they are
// meant; without one it makes a phrase, unless keys were imported. nil: there is none. Nothing was written
// yet.
func (b *beginning) takePhrase(ctx context.Context, imported bool) (*recovery.Phrase, error) {
	f := b.phrase
	switch {
	case imported:
		return nil, nil
	case !f.isImported():
		b.hasPhrase = true
		return recovery.New(rand.Reader)
	}
	paths, err := f.keyPaths()
	if err != nil {
		return nil, err
	}
	var passphrase wallet.Passphrase
	if f.asksForOne {
		passphrase = b.ui.asking(terminal.Ask(askPhrases))
	}
	var phrase *recovery.Phrase
	if f.of != "" {
		phrase, err = b.phraseOf(ctx, f.passphrase.or(passphrase), paths)
	} else {
		phrase, err = recovery.Read(ctx, f.source(b.ui), f.passphrase.or(passphrase), paths)
	}
	if err != nil {
		return nil, err
	}
	if err := b.meansPhrase(ctx, phrase, paths); err != nil {
		phrase.Wipe()
		return nil, err
	}
	b.hasPhrase = !f.keepsNone()
	return phrase, nil
}

// keepsNone reports whether the keystore is to hold the keys alone. Another wallet's phrase stays in that
// one.
func (f phraseFlags) keepsNone() bool { return f.keysOnly || f.of != "" }

// phraseOf is another wallet's phrase, for the passphrase that its owner types: what unlocks it without them
// would let an agent take its other accounts, under rules of its own.
func (b *beginning) phraseOf(ctx context.Context, passphrase wallet.Passphrase,
	paths recovery.Paths) (*recovery.Phrase, error) {
	other, err := wallet.Open(b.phrase.of)
	if err != nil {
		return nil, err
	}
	defer func() { _ = other.Close() }()
	typed := terminal.Ask("Passphrase of the wallet in " + safe(b.phrase.of) + ": ")
	return recovery.Of(ctx, other, b.ui.byPerson(b.ui.asking(typed), ""), passphrase, paths)
}

// meansPhrase asks on a terminal whether a phrase's addresses are those that the owner expects: another
// passphrase or path makes others, and no error.
func (b *beginning) meansPhrase(ctx context.Context, phrase *recovery.Phrase, paths recovery.Paths) error {
	solana, evm, err := phrase.Addresses()
	if err != nil {
		return err
	}
	b.ui.note("The phrase makes these addresses:\n  Solana  %-20s %s\n  EVM     %-20s %s", paths.Solana,
		solana,
		paths.EVM, evm)
	if b.talk == nil {
		return nil
	}
	meant, err := b.talk.yes(ctx, "Are they the ones that you expect?", true)
	if err == nil && !meant {
		err = x402.Errorf(x402.SetupFailed, "these addresses were not meant; nothing was created").
			WithHint("another --index or --key-path, or the phrase's own passphrase " +
				"(--phrase-passphrase), makes others")
	}
	return err
}

// showPhrase shows the phrase of a new wallet, where that was asked for.
func (b *beginning) showPhrase(ctx context.Context, keys *wallet.Wallet, passphrase []byte) {
	if !b.phrase.show {
		return
	}
	err := b.p.onOwnTerminal(b.ui)
	if err == nil {
		_, err = recovery.Show(ctx, keys, typed(passphrase))
	}
	if err != nil {
		b.failed("the phrase was not shown", err)
		return
	}
	b.sawPhrase = true
}

// backUp is the first thing to do with a new wallet.
func (b *beginning) backUp() nextStep {
	paths, err := b.phrase.keyPaths()
	switch {
	case b.phrase.isImported() && b.phrase.keepsNone() && err == nil:
		return nextStep{what: "back up keystore.json. Besides, the phrase that its keys are from makes " +
			"them again: keep " +
			"that, and where they are: " + paths.Solana + " and " + paths.EVM}
	case !b.hasPhrase || b.sawPhrase || b.p.Env.Handed != "":
		return nextStep{what: "back up keystore.json: whoever loses it or the passphrase has lost the money"}
	}
	return nextStep{what: "back up keystore.json, and write the recovery phrase on paper: whoever loses " +
		"the file or " +
		"the passphrase, and has no phrase, has lost the money", command: "x402-wallet export-phrase"}
}

// exportPhraseOut is what export-phrase answers: nothing of the phrase.
type exportPhraseOut struct {
	Shown bool `json:"shown"` // false: what the owner typed was compared with it
	Words int  `json:"words"`
}

func (p *Program) exportPhraseCommand(ui *ui) *cobra.Command {
	check := false
	cmd := &cobra.Command{
		Use: "export-phrase", Short: "Show the recovery phrase, on the terminal alone", Args: wants(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := p.onOwnTerminal(ui); err != nil {
				return err
			}
			keys, err := wallet.Open(p.Home)
			if err != nil {
				return err
			}
			defer func() { _ = keys.Close() }()
			passphrase := ui.asking(terminal.Ask("Passphrase: "))
			if check {
				return ui.checkPhrase(cmd.Context(), keys, passphrase)
			}
			words, err := recovery.Show(cmd.Context(), keys, passphrase)
			if err != nil {
				return err
			}
			return ui.answerLine(exportPhraseOut{Shown: true, Words: words},
				"the recovery phrase of %d words was shown; x402-wallet init --import-phrase makes this "+
					"wallet from it",
				words)
		},
	}
	cmd.Flags().BoolVar(&check, "check", false, "show nothing: type the phrase, and hear whether it is "+
		"this wallet's")
	return cmd
}

// checkPhrase compares what the owner has on paper with the keystore.
func (u *ui) checkPhrase(ctx context.Context, keys *wallet.Wallet, passphrase wallet.Passphrase) error {
	words, err := recovery.Check(ctx, keys, passphrase, u.asking(recovery.FromTerminal()))
	if err != nil {
		return err
	}
	return u.answerLine(exportPhraseOut{Words: words}, "that is this wallet's recovery phrase, of %d words",
		words)
}

// onOwnTerminal refuses a command whose input or output somebody else may read along: an agent that runs it
// on its owner's terminal, or a pipe.
func (p *Program) onOwnTerminal(ui *ui) error {
	if isTerminal(p.Stdin) && ui.terminal && ui.errTerminal {
		return nil
	}
	return x402.Errorf(x402.SetupFailed, "the recovery phrase is shown on a terminal alone, and this is "+
		"none").
		WithHint("run x402-wallet export-phrase in a terminal, without a pipe or a file behind it").
		WithCommand("x402-wallet export-phrase", "This is for your eyes: please run it in a terminal of "+
			"your own.")
}
