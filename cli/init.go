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
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"x402-wallet/internal/config"
	"x402-wallet/wallet"
	"x402-wallet/x402"
)

// initOut is what init answers.
type initOut struct {
	Home      string       `json:"home"`
	Addresses []addressOut `json:"addresses"`
	Config    string       `json:"config"`
	NextSteps []string     `json:"nextSteps"`
}

type initFlags struct {
	passphrase, importPassphrase         passphraseSource
	keyring                              bool
	configFile                           string
	importSolana, importEVM, importOzskr string
	importKeyFile                        []string
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
	fd := cmd.Flags().Lookup("import-passphrase-fd")
	fd.Usage = "read the imported files' passphrase from the open descriptor `N`"
	return cmd
}

// create finds whatever is wrong with what it was given before anything is made, asks for the
// passphrase, and makes the wallet.
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
	env := p.Env
	f.passphrase.file = cmp.Or(f.passphrase.file, env.PassphraseFile)
	if file := env.AgentKeypair; file != "" && !f.importsSolana() {
		// shown before there are new keys, while it can still be stopped
		ui.warn([]string{fmt.Sprintf("AGENT_KEYPAIR_PATH names %s, but its key is not imported: this "+
			"wallet gets a new one. To keep the address, stop here and run x402-wallet init "+
			"--import-ozskr %s", file, shellWord(file))})
	}
	env.AgentKeypair = ""
	imports, err := f.imports(ctx, ui)
	if err != nil {
		return err
	}
	rules, there, err := p.newRules(f)
	if err != nil {
		return err
	}
	leave, err := p.makeHome()
	if err != nil {
		return err
	}
	passphrase, err := newPassphrase(ctx, ui, f)
	if err != nil {
		leave()
		return err
	}
	defer clear(passphrase)
	done := ui.waiting("encrypting the keys: slow on purpose, so that guessing the passphrase is slow too")
	keys, err = p.CreateWallet(ctx, NewWallet{
		Rules: rules, RulesInPlace: there, Passphrase: passphrase, Imports: imports,
	})
	done()
	if err != nil {
		return err
	}
	defer func() { _ = keys.Close() }()
	warnings := append(rules.Warnings, config.IgnoredEnv(env, rules)...)
	if f.keyring {
		warnings = append(warnings, intoKeyring(ctx, keys, passphrase, rules)...)
	}
	ui.warn(warnings)
	return p.created(ui, keys, f)
}

// intoKeyring keeps a new wallet's passphrase. The wallet is made by now, so what goes wrong is a
// warning.
func intoKeyring(ctx context.Context, keys *wallet.Wallet, passphrase []byte, rules *config.Config) []string {
	err := keys.KeepInKeyring(ctx, typed(passphrase))
	switch {
	case err != nil:
		return []string{err.Error() + "; try again with x402-wallet passphrase --keyring"}
	case !rules.Keystore.Keyring:
		return []string{"config.toml does not say keyring = true under [keystore], so the keyring is " +
			"not asked"}
	}
	return nil
}

// importsSolana reports whether the Solana key is another wallet's; a raw key without a chain is
// taken for one.
func (f initFlags) importsSolana() bool {
	return f.importSolana != "" || f.importOzskr != "" ||
		slices.ContainsFunc(f.importKeyFile, func(entry string) bool {
			return !strings.HasPrefix(entry, wallet.ChainEVM+"=")
		})
}

// imports reads the keys of other wallets, one for each chain at most. Their files are only read.
func (f initFlags) imports(ctx context.Context, ui *ui) (list []wallet.Imported, err error) {
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
		key, err := wallet.Import(ctx, s.format, s.file, passphrase(s.file))
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(list, func(k wallet.Imported) bool { return k.Chain == key.Chain }) {
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
			return ui.asking(wallet.FromTerminal("Passphrase of " + safe(file) + ": "))
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
// (of an init that was interrupted, or put there by hand), or the template with the seed's
// environment taken in.
func (p *Program) newRules(f initFlags) (rules *config.Config, there bool, err error) {
	if file := f.configFile; file != "" {
		text, err := readBounded(file, maxRules)
		if err != nil {
			return nil, false, x402.Errorf(x402.SetupFailed, "read the rules: %w", err)
		}
		rules, err = config.Parse(text)
		return rules, false, brokenRules(file, err)
	}
	path := filepath.Join(p.Home, config.FileName)
	if rules, err = config.Load(p.Home); !errors.Is(err, fs.ErrNotExist) {
		return rules, true, brokenRules(path, err)
	}
	text, err := config.Template(p.Env)
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
	passphrase, err := f.passphrase.or(ui.asking(wallet.FromTerminalTwice()))(ctx)
	if err == nil {
		err = wallet.CheckPassphrase(passphrase)
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
	case coded.Code != x402.WalletLocked && coded.Code != x402.InvalidPassphrase:
		return nil, err
	} // else there is no wallet yet that could be
	return nil, x402.Errorf(x402.SetupFailed, "%s", said).
		WithHint("run x402-wallet init in a terminal, or give it --passphrase-file or --passphrase-fd")
}

func (p *Program) created(ui *ui, keys *wallet.Wallet, f initFlags) error {
	steps := p.nextSteps(f)
	out := initOut{Home: p.Home, Addresses: addresses(keys), Config: filepath.Join(p.Home, config.FileName),
		NextSteps: each(steps, nextStep.String)}
	return ui.answer(out, func() {
		ui.say("The wallet is in %s\n", p.Home)
		ui.addresses(out.Addresses)
		ui.say("Next:")
		for i, step := range steps {
			margin := fmt.Sprintf("  %d. ", i+1)
			for _, row := range wrap(step.what, max(cmp.Or(ui.columns, 100), 40)-len(margin)) {
				ui.say("%s%s", margin, row)
				margin = strings.Repeat(" ", len(margin))
			}
			if step.command != "" { // on a line of its own, to be copied
				ui.say("       %s", step.command)
			}
		}
	})
}

// nextStep is what a person does with a new wallet, and the command that does it, if one does.
type nextStep struct{ what, command string }

func (s nextStep) String() string {
	if s.command == "" {
		return s.what
	}
	return s.what + ": " + s.command
}

func (p *Program) nextSteps(f initFlags) []nextStep {
	install := "x402-wallet install claude-code"
	if p.Env.Home != "" {
		install += " -e X402_WALLET_HOME=" + shellWord(p.Home)
	}
	unlock := nextStep{what: "unlock it for the agent's payments. This holds the key for a while; with " +
		"install --passphrase-file FILE the wallet unlocks itself", command: "x402-wallet unlock"}
	if f.keyring {
		unlock = nextStep{what: "the agent's wallet unlocks itself by the system's keyring; keep a copy " +
			"of the passphrase elsewhere"}
	} else if file := f.passphrase.file; file != "" && f.passphrase.fd < 0 {
		if whole, err := filepath.Abs(file); err == nil {
			file = whole
		}
		install += " --passphrase-file " + shellWord(file)
		unlock = nextStep{what: "keep the passphrase in " + file +
			" for the agent's wallet to unlock itself, and a copy of it elsewhere"}
	}
	return []nextStep{
		{what: "back up keystore.json: whoever loses it or the passphrase has lost the money"},
		{what: "look at what the agent may spend; budget set, or config.toml, changes it",
			command: "x402-wallet budget"},
		{what: "fund an address with USDC (no ETH or SOL is needed), or delegate to the Solana address " +
			"from your own token account", command: "x402-wallet help delegation"},
		{what: "give the wallet to your agent; install without a name lists the known clients",
			command: install},
		unlock,
		{what: "check that everything works", command: "x402-wallet doctor"},
	}
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// shellWord writes a path so that a shell takes it as one word.
func shellWord(s string) string {
	if plainWord.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
