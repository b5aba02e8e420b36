package cli

import (
	"bytes"
	"context"
	"errors"

	"github.com/spf13/cobra"

	"x402-wallet/internal/config"
	"x402-wallet/wallet"
	"x402-wallet/x402"
)

// passphraseOut is what passphrase answers.
type passphraseOut struct {
	Changed bool `json:"changed"`
	Keyring bool `json:"keyring"` // the system's keyring holds it now
}

type passphraseFlags struct {
	old, fresh passphraseSource
	keyring    bool
	forget     bool
}

// passphraseSource is a file or a descriptor where a passphrase may be read from, in place of the
// terminal.
type passphraseSource struct {
	file string
	fd   int
}

func (s *passphraseSource) add(cmd *cobra.Command, prefix, whose string) {
	cmd.Flags().StringVar(&s.file, prefix+"passphrase-file", "", "read "+whose+" from this owner-only `FILE`")
	cmd.Flags().IntVar(&s.fd, prefix+"passphrase-fd", noFD, "read "+whose+" from this open descriptor `N`")
	hideDefault(cmd, prefix+"passphrase-fd")
	cmd.MarkFlagsMutuallyExclusive(prefix+"passphrase-file", prefix+"passphrase-fd")
}

// or is the source that the flags name, else the person at the terminal.
func (s passphraseSource) or(terminal wallet.Passphrase) wallet.Passphrase {
	switch {
	case s.fd >= 0:
		return wallet.FromFD(s.fd)
	case s.file != "":
		return wallet.FromFile(s.file)
	}
	return terminal
}

func (p *Program) passphraseCommand(ui *ui) *cobra.Command {
	var f passphraseFlags
	cmd := &cobra.Command{
		Use: "passphrase", Short: "Change the passphrase, or keep it in the system's keyring", Args: wants(),
		Long: "Change the passphrase. The old one and the new one are asked on the terminal, or read from " +
			"files or descriptors named\n" +
			"here; nothing else answers for the old one. The keystore is replaced only after the new one " +
			"was written and opened:\n" +
			"whatever happens, one of the two opens the wallet. Copies of the old keystore still open " +
			"with the old passphrase.\n\n" +
			"With --keyring nothing is changed: the passphrase is put into the system's keyring, where " +
			"keyring = true finds it.",
		Example: "  x402-wallet passphrase\n" +
			"  x402-wallet passphrase --keyring\n" +
			"  x402-wallet passphrase --passphrase-file old.txt --new-passphrase-file new.txt",
		RunE: func(cmd *cobra.Command, _ []string) error {
			keys, err := wallet.Open(p.Home)
			if err != nil {
				return err
			}
			defer func() { _ = keys.Close() }()
			switch {
			case f.forget:
				return p.forgetKeyring(cmd.Context(), ui, keys)
			case f.keyring:
				return p.keepInKeyring(cmd.Context(), ui, keys,
					f.old.or(ui.asking(wallet.FromTerminal("Passphrase: "))))
			}
			return p.changePassphrase(cmd.Context(), ui, keys, f)
		},
	}
	f.old.add(cmd, "", "the passphrase")
	f.fresh.add(cmd, "new-", "the new passphrase")
	cmd.Flags().BoolVar(&f.keyring, "keyring", false,
		"put the passphrase into the system's keyring instead of changing it")
	cmd.Flags().BoolVar(&f.forget, "forget-keyring", false, "take it out of the system's keyring again")
	cmd.MarkFlagsMutuallyExclusive("keyring", "forget-keyring", "new-passphrase-file")
	cmd.MarkFlagsMutuallyExclusive("keyring", "forget-keyring", "new-passphrase-fd")
	return cmd
}

func (p *Program) changePassphrase(ctx context.Context, ui *ui, keys *wallet.Wallet,
	f passphraseFlags) error {
	var fresh []byte // kept for the keyring
	defer func() { clear(fresh) }()
	source := f.fresh.or(ui.asking(wallet.FromTerminalTwice()))
	done := ui.waiting("encrypting the keys again")
	err := keys.ChangePassphrase(ctx, byPerson(f.old.or(ui.asking(wallet.FromTerminal("Old passphrase: "))),
		byFlags), func(ctx context.Context) ([]byte, error) {
		given, err := source(ctx)
		fresh = bytes.Clone(given)
		return given, err
	}, wallet.Options{})
	done()
	if err != nil {
		return err
	}
	out := passphraseOut{Changed: true}
	rules, err := config.Load(p.Home)
	if err == nil && rules.Keystore.Keyring { // else the next unlocking would be with the old one
		err = keys.KeepInKeyring(ctx, func(context.Context) ([]byte, error) {
			return bytes.Clone(fresh), nil
		})
		out.Keyring = err == nil
		if err != nil {
			ui.warn([]string{"the passphrase is changed, but " + err.Error() +
				"; run x402-wallet passphrase --keyring"})
		}
	}
	if file := keptIn(p.Env, rules); file != "" {
		ui.note("write the new passphrase to %s too: the agent's wallet unlocks itself with it", safe(file))
	}
	if ui.json {
		return ui.printJSON(out)
	}
	ui.say("the passphrase is changed; keep it apart from a backup of keystore.json")
	return nil
}

// keptIn is the file that the wallet unlocks itself with, if any; rules may be nil.
func keptIn(env config.Env, rules *config.Config) string {
	if env.PassphraseFile != "" || rules == nil {
		return env.PassphraseFile
	}
	return rules.Keystore.PassphraseFile
}

func (p *Program) keepInKeyring(ctx context.Context, ui *ui, keys *wallet.Wallet,
	passphrase wallet.Passphrase) error {
	if err := keys.KeepInKeyring(ctx, byPerson(passphrase, byFlags)); err != nil {
		return err
	}
	if rules, err := config.Load(p.Home); err == nil && !rules.Keystore.Keyring {
		ui.note("set keyring = true under [keystore] in config.toml, so that it is asked")
	}
	if ui.json {
		return ui.printJSON(passphraseOut{Keyring: true})
	}
	ui.say("the system's keyring holds the passphrase: programs that run as you can read it there")
	return nil
}

func (p *Program) forgetKeyring(ctx context.Context, ui *ui, keys *wallet.Wallet) error {
	was, err := keys.ForgetKeyring(ctx)
	if err != nil {
		return err
	}
	if ui.json {
		return ui.printJSON(passphraseOut{})
	}
	if !was {
		ui.say("the passphrase was not in the system's keyring")
		return nil
	}
	ui.say("the passphrase was removed from the system's keyring")
	return nil
}

// byFlags are a passphraseSource's.
const byFlags = "--passphrase-file FILE or --passphrase-fd N"

// byPerson explains a source that is only a person's to give, when there is none. orElse is how
// else it can be given.
func byPerson(source wallet.Passphrase, orElse string) wallet.Passphrase {
	return func(ctx context.Context) ([]byte, error) {
		given, err := source(ctx)
		if errors.Is(err, wallet.ErrNoPassphrase) {
			return nil, x402.Errorf(x402.WalletLocked,
				"this needs the passphrase, typed by a person now, and there is no terminal").
				WithHint("run it in a terminal, or with %s; what unlocks the wallet automatically is "+
					"never used for this", orElse)
		}
		return given, err
	}
}
