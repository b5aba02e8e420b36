package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"x402-wallet/internal/config"
	"x402-wallet/internal/config/environ"
	"x402-wallet/internal/pattern"
	"x402-wallet/wallet"
	"x402-wallet/wallet/imported"
	"x402-wallet/wallet/owner"
	"x402-wallet/wallet/terminal"
	"x402-wallet/wallet/unlock"
	"x402-wallet/x402"
)

type initOut struct {
	Home      string       `json:"home"`
	Addresses []addressOut `json:"addresses"`
	Config    string       `json:"config"`
	NextSteps []string     `json:"nextSteps"`
	Installed []string     `json:"installed,omitempty"` // clients that have the wallet now
	Unlock    string       `json:"unlock,omitempty"`    // keyring, agent or file
	Arrived   []string     `json:"arrived,omitempty"`   // what was waited for
}

type initFlags struct {
	passphrase, importPassphrase         passphraseSource
	keyring                              bool
	configFile                           string
	importSolana, importEVM, importOzskr string
	importKeyFile                        []string
	phrase                               phraseFlags

	clients        []string // to install into; nil: it is asked or left
	unlock         string   // "": it is asked or left
	waitForFunds   bool
	yes, askNobody bool
}

func (p *Program) initCommand(ui *ui) *cobra.Command {
	var f initFlags
	cmd := &cobra.Command{
		Use: "init", Short: "Create the wallet", Args: wants(),
		RunE: func(cmd *cobra.Command, _ []string) error { return p.create(cmd.Context(), ui, f) },
	}
	f.passphrase.add(cmd, "", "the passphrase")
	cmd.Flags().BoolVar(&f.keyring, "keyring", false,
		"keep the passphrase in the system's keyring, and let the wallet unlock itself with it")
	cmd.Flags().StringVar(&f.configFile, "config", "", "take this `FILE` as config.toml, the owner's rules")
	cmd.Flags().StringVar(&f.importSolana, "import-solana", "",
		"take the Solana key from this `FILE` of the Solana command line")
	cmd.Flags().StringVar(&f.importEVM, "import-evm", "",
		"take the EVM key from this `FILE` of go-ethereum (keystore V3; also Foundry's, ethers')")
	cmd.Flags().StringVar(&f.importOzskr, "import-ozskr", "",
		"take the Solana key from this keystore `FILE` of @ozskr/agent-wallet-sdk")
	cmd.Flags().StringArrayVar(&f.importKeyFile, "import-key-file", nil,
		"take a raw key from this `FILE`: 64 hex digits are an EVM key, base58 is a Solana one; evm=FILE and solana=FILE say it")
	f.importPassphrase.add(cmd, "import-", "the imported files' passphrase")
	f.phrase.add(cmd)
	cmd.Flags().StringSliceVar(&f.clients, "install", nil,
		"write the wallet into these MCP `CLIENTS`, as install does: names, all that are here, or none")
	cmd.Flags().StringVar(&f.unlock, "unlock", "",
		"how the agent's wallet is unlocked, `HOW`: agent, keyring, file or none")
	cmd.Flags().BoolVar(&f.waitForFunds, "wait-for-funds", false, "wait until money has arrived")
	cmd.Flags().BoolVarP(&f.yes, "yes", "y", false,
		"ask for nothing but the passphrase: yes to the clients that are here and to the environment's key")
	cmd.Flags().BoolVar(&f.askNobody, "no-input", false,
		"ask for nothing at all: the passphrase comes from a file or descriptor")
	fd := cmd.Flags().Lookup("import-passphrase-fd")
	fd.Usage = "read the imported files' passphrase from the open descriptor `N`"
	return cmd
}

// create finds whatever is wrong with what it was given before anything is made, asks for the
// passphrase, and makes the wallet. What follows (begin.go) can only be done with a wallet that is there.
func (p *Program) create(ctx context.Context, ui *ui, f initFlags) error {
	keys, err := wallet.Open(p.Home)
	if err == nil {
		_ = keys.Close()
		return x402.Errorf(x402.KeypairExists, "there is already a wallet in %s", p.Home).
			WithHint("use it, or choose another home with X402_WALLET_HOME; a wallet is never overwritten")
	}
	if x402.AsError(err).Code != x402.WalletNotFound {
		return err
	}
	if p.Env.Handed != "" { // the clients, keyring and files of the service's user are nobody's
		f.clients, f.unlock, f.yes = []string{"none"}, unlockNone, true
	}
	b, err := p.begin(ui, f)
	if err != nil {
		return err
	}
	env := p.Env
	b.passphrase.file = cmp.Or(b.passphrase.file, env.PassphraseFile)
	if err := b.takeOzskrKey(ctx, env.AgentKeypair); err != nil {
		return err
	}
	env.AgentKeypair = ""
	imports, err := b.imports(ctx, ui)
	if err != nil {
		return err
	}
	phrase, err := b.takePhrase(ctx, len(imports) > 0)
	if err != nil {
		return err
	}
	defer phrase.Wipe()
	rules, there, err := p.newRules(b.initFlags)
	if err != nil {
		return err
	}
	leave, err := p.makeHome()
	if err != nil {
		return err
	}
	passphrase, err := newPassphrase(ctx, ui, b.initFlags)
	if err != nil {
		leave()
		return err
	}
	defer clear(passphrase)
	if err := b.chooseUnlock(ctx, rules, there || f.configFile != ""); err != nil {
		leave()
		return err
	}
	rules, there, err = p.newRules(b.initFlags) // with the keyring, if that was chosen
	if err != nil {
		return err
	}
	done := ui.waiting("encrypting the keys: slow on purpose, so that guessing the passphrase is slow too")
	keys, err = p.CreateWallet(ctx, NewWallet{
		Rules: rules, RulesInPlace: there, Passphrase: passphrase, Imports: imports, Phrase: phrase,
		KeysOnly: f.phrase.keepsNone(),
	})
	done()
	if err != nil {
		return err
	}
	defer func() { _ = keys.Close() }()
	ui.warn(append(rules.Warnings, environ.Ignored(env, rules)...))
	return b.withWallet(ctx, keys, rules, passphrase)
}

// intoKeyring keeps a new wallet's passphrase. The wallet is made by now, so what goes wrong is a
// warning.
func intoKeyring(ctx context.Context, keys *wallet.Wallet, passphrase []byte, rules *config.Config) []string {
	err := unlock.KeepInKeyring(ctx, keys, typed(passphrase))
	switch {
	case err != nil:
		return []string{err.Error() + "; try again with x402-wallet passphrase --keyring"}
	case !rules.Keystore.Keyring:
		return []string{"config.toml does not say keyring = true under [keystore], so the keyring is " +
			"not asked"}
	}
	return nil
}

// importsSolana reports whether the Solana key is another wallet's, or a phrase's; a raw key without a chain
// is taken for one.
func (f initFlags) importsSolana() bool {
	return f.phrase.isImported() || f.importSolana != "" || f.importOzskr != "" ||
		slices.ContainsFunc(f.importKeyFile, func(entry string) bool {
			return !strings.HasPrefix(entry, wallet.ChainEVM+"=")
		})
}

// imports reads the keys of other wallets, one for each chain at most. Their files are only read.
func (f initFlags) imports(ctx context.Context, ui *ui) (list []imported.Key, err error) {
	type source struct{ format, file string }
	sources := []source{{"solana", f.importSolana}}
	for _, entry := range f.importKeyFile { // FILE, or chain=FILE
		chain, file, named := strings.Cut(entry, "=")
		switch {
		case !named && entry != "":
			sources = append(sources, source{"key-file", entry})
		case file != "" && (chain == wallet.ChainSolana || chain == wallet.ChainEVM):
			sources = append(sources, source{"key-file:" + chain, file})
		default:
			return nil, usagef("--import-key-file %q is neither FILE nor solana=FILE nor evm=FILE", entry)
		}
	}
	sources = append(sources, source{"evm", f.importEVM}, source{"ozskr", f.importOzskr})
	passphrase := f.passphraseOf(ui)
	for _, s := range sources {
		if s.file == "" {
			continue
		}
		key, err := imported.Read(ctx, s.format, s.file, passphrase(s.file))
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(list, func(k imported.Key) bool { return k.Chain == key.Chain }) {
			return nil, usagef("two keys are imported for %s; a wallet has one for each chain", key.Chain)
		}
		list = append(list, key)
	}
	return list, nil
}

// passphraseOf is who is asked for the passphrase of an imported file. That of the flags is the
// same for every file.
func (f initFlags) passphraseOf(ui *ui) func(file string) wallet.Passphrase {
	source := f.importPassphrase.or(nil)
	if source == nil {
		return func(file string) wallet.Passphrase {
			return ui.asking(terminal.Ask("Passphrase of " + safe(file) + ": "))
		}
	}
	read := sync.OnceValues(func() ([]byte, error) { return source(context.Background()) })
	return func(string) wallet.Passphrase {
		if f.importPassphrase.fd < 0 {
			return source
		}
		return func(context.Context) ([]byte, error) {
			given, err := read() // once: a descriptor has it no second time
			return bytes.Clone(given), err
		}
	}
}

// maxRules is more than config takes: what is longer it refuses with its own limit.
const maxRules = 1 << 20

// newRules are config.toml, checked: the owner's file, or the one that is there without a wallet
// (of an init that was interrupted, or put there by hand), or the template with the
// environment of the ozskr wallet taken in.
func (p *Program) newRules(f initFlags) (rules *config.Config, there bool, err error) {
	if file := f.configFile; file != "" {
		text, err := readBounded(file, maxRules)
		if err != nil {
			return nil, false, x402.Errorf(x402.SetupFailed, "read the file of --config: %w", err).
				WithHint("correct --config; nothing was made")
		}
		rules, err = config.Parse(text)
		return rules, false, brokenRules(file, err)
	}
	path := filepath.Join(p.Home, config.FileName)
	if rules, err = config.Load(p.Home); !errors.Is(err, fs.ErrNotExist) {
		return rules, true, brokenRules(path, err)
	}
	text, err := environ.Template(p.Env)
	if err != nil {
		return nil, false, x402.Errorf(x402.SetupFailed, "%w", err).
			WithHint("correct or unset it: init takes it into config.toml")
	}
	if f.keyring {
		text = bytes.Replace(text, []byte("\nkeyring = false "), []byte("\nkeyring = true  "), 1)
	}
	rules, err = config.Parse(text)
	return rules, false, brokenRules(path, err)
}

// brokenRules names the file that a person has to correct, and all that is wrong with it.
func brokenRules(file string, err error) error {
	if err == nil {
		return nil
	}
	var faults []string
	for line := range strings.Lines(err.Error()) {
		faults = append(faults, strings.TrimPrefix(strings.TrimSpace(line), config.FileName+" "))
	}
	return x402.Errorf(x402.SetupFailed, "%s: %s", file, strings.Join(faults, "\n")).
		WithHint("correct it and run init again; nothing was created")
}

func readBounded(file string, limit int64) ([]byte, error) {
	opened, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	return io.ReadAll(io.LimitReader(opened, limit))
}

// makeHome makes the directory; leave removes it again if it was not there before and is still
// empty.
func (p *Program) makeHome() (leave func(), err error) {
	_, missing := os.Lstat(p.Home)
	if err := config.MakeHome(p.Home); err != nil {
		return nil, x402.Errorf(x402.SetupFailed, "%w", err).
			WithHint("choose a home that you can write to with X402_WALLET_HOME")
	}
	return func() {
		if errors.Is(missing, fs.ErrNotExist) {
			_ = os.Remove(p.Home)
		}
	}, nil
}

// newPassphrase asks for the passphrase before anything is made that would lie around without one.
func newPassphrase(ctx context.Context, ui *ui, f initFlags) ([]byte, error) {
	terminal := ui.asking(terminal.AskTwice())
	if f.askNobody {
		terminal = func(context.Context) ([]byte, error) { return nil, wallet.ErrNoPassphrase }
	}
	passphrase, err := f.passphrase.or(terminal)(ctx)
	if err == nil {
		err = owner.CheckPassphrase(passphrase)
	}
	if err == nil {
		return passphrase, nil
	}
	clear(passphrase)
	coded := x402.AsError(err)
	said := coded.Message
	switch {
	case errors.Is(err, wallet.ErrNoPassphrase):
		said = "a new wallet needs a passphrase, and there is no terminal to ask for one"
		if f.askNobody {
			said = "a new wallet needs a passphrase, and --no-input asks nobody for one"
		}
	case coded.Code != x402.WalletLocked && coded.Code != x402.InvalidPassphrase:
		return nil, err
	} // else there is no wallet yet that could be
	return nil, x402.Errorf(x402.SetupFailed, "%s", said).
		WithHint("run x402-wallet init in a terminal, or give it --passphrase-file or --passphrase-fd")
}

// nextStep is what a person does with a new wallet, and the command that does it, if one does.
type nextStep struct{ what, command string }

func (s nextStep) String() string {
	if s.command == "" {
		return s.what
	}
	return s.what + ": " + s.command
}

// steps prints what is to be done next.
func (u *ui) steps(steps []nextStep) {
	u.say("Next:")
	for i, step := range steps {
		margin := fmt.Sprintf("  %d. ", i+1)
		for _, row := range wrap(step.what, max(cmp.Or(u.columns, 100), 40)-len(margin)) {
			u.say("%s%s", margin, row)
			margin = strings.Repeat(" ", len(margin))
		}
		if step.command != "" { // on a line of its own, to be copied
			u.say("       %s", step.command)
		}
	}
}

// nextSteps are those that were not done already.
func (b *beginning) nextSteps() []nextStep {
	install := "x402-wallet install claude-code"
	if b.p.Env.Home != "" {
		install += " -e X402_WALLET_HOME=" + shellWord(b.p.Home)
	}
	unlock := nextStep{what: "unlock it for the agent's payments. This holds the key for a while; with " +
		"install --passphrase-file FILE the wallet unlocks itself", command: "x402-wallet unlock"}
	switch file := b.unlockFile(); {
	case b.unlock == unlockKeyring:
		unlock = nextStep{what: "the agent's wallet unlocks itself by the system's keyring; keep a copy " +
			"of the passphrase elsewhere"}
	case file != "":
		install += " --passphrase-file " + shellWord(file)
		unlock = nextStep{what: "keep the passphrase in " + file +
			" for the agent's wallet to unlock itself, and a copy of it elsewhere"}
	case b.p.Env.Handed != "":
		unlock.what = "unlock it, after each start of the service"
	case b.unlocked:
		unlock = nextStep{what: "unlock it again after a restart, or when it was idle for a while",
			command: "x402-wallet unlock"}
	}
	steps := []nextStep{
		b.backUp(),
		{what: "look at what the agent may spend; budget set, or config.toml, changes it",
			command: "x402-wallet budget"},
	}
	if len(b.out.Arrived) == 0 {
		steps = append(steps, nextStep{what: "fund an address with USDC (no ETH or SOL is needed), or " +
			"delegate to the Solana address from your own token account",
			command: "x402-wallet help delegation"})
	}
	if b.p.Env.Handed != "" {
		return append(steps, unlock, nextStep{what: "let an agent in, which prints its token",
			command: "x402-wallet agents add NAME"})
	}
	if len(b.out.Installed) == 0 {
		steps = append(steps, nextStep{what: "give the wallet to your agent; install without a name lists " +
			"the known clients", command: install})
	}
	return append(steps, unlock, nextStep{what: "check that everything works", command: "x402-wallet doctor"})
}

var plainWord = pattern.Lazy(`^[A-Za-z0-9_@%+=:,./-]+$`)

// shellWord writes a path so that a shell takes it as one word.
func shellWord(s string) string {
	if plainWord().MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
