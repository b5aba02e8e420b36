package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"

	"github.com/spf13/cobra"

	"x402-wallet/history"
	"x402-wallet/internal/ask"
	"x402-wallet/internal/config"
	"x402-wallet/wallet"
	"x402-wallet/wallet/owner"
	"x402-wallet/wallet/seal"
	"x402-wallet/wallet/terminal"
	"x402-wallet/wallet/unlock"
	"x402-wallet/x402"
)

type passphraseOut struct {
	Changed bool `json:"changed"`
	Keyring bool `json:"keyring"` // the system's keyring holds it now
}

type passphraseFlags struct {
	old, fresh      passphraseSource
	keyring, forget bool
}

// passphraseSource is a file or a descriptor where a passphrase may be read from, in place of the
// terminal.
type passphraseSource struct {
	file string
	fd   int
}

func (s *passphraseSource) add(cmd *cobra.Command, prefix, whose string) {
	cmd.Flags().StringVar(&s.file, prefix+"passphrase-file", "", "read "+whose+" from this owner-only `FILE`")
	s.addFD(cmd, prefix, whose)
	cmd.MarkFlagsMutuallyExclusive(prefix+"passphrase-file", prefix+"passphrase-fd")
}

func (s *passphraseSource) addFD(cmd *cobra.Command, prefix, whose string) {
	cmd.Flags().IntVar(&s.fd, prefix+"passphrase-fd", -1, "read "+whose+" from this open descriptor `N`")
	cmd.Flags().Lookup(prefix + "passphrase-fd").DefValue = "0" // that it means none is not shown
}

// or is the source that the flags name, else the person at the terminal.
func (s passphraseSource) or(terminal wallet.Passphrase) wallet.Passphrase {
	switch {
	case s.fd >= 0:
		return unlock.FD(s.fd)
	case s.file != "":
		return unlock.File(s.file)
	}
	return terminal
}

func (p *Program) passphraseCommand(ui *ui) *cobra.Command {
	var f passphraseFlags
	cmd := &cobra.Command{
		Use: "passphrase", Short: "Change the passphrase, or keep it in the system's keyring", Args: wants(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			keys, err := wallet.Open(p.Home)
			if err != nil {
				return err
			}
			defer func() { _ = keys.Close() }()
			switch {
			case f.forget:
				return forgetKeyring(cmd.Context(), ui, keys)
			case f.keyring:
				return p.keepInKeyring(cmd.Context(), ui, keys,
					f.old.or(ui.asking(terminal.Ask("Passphrase: "))))
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
	source := f.fresh.or(ui.asking(terminal.AskTwice()))
	done := ui.waiting("encrypting the keys again")
	old := f.old.or(ui.asking(terminal.Ask("Old passphrase: ")))
	kept := func(ctx context.Context) ([]byte, error) {
		given, err := source(ctx)
		fresh = bytes.Clone(given)
		return given, err
	}
	err := owner.ChangePassphrase(ctx, keys, ui.byPerson(old, byFlags), kept, owner.Options{})
	done()
	if err != nil {
		return err
	}
	out := passphraseOut{Changed: true}
	rules, err := config.Load(p.Home)
	if err == nil && rules.Keystore.Keyring { // else the next unlocking would be with the old one
		err = unlock.KeepInKeyring(ctx, keys, typed(fresh))
		out.Keyring = err == nil
		if err != nil {
			ui.warn([]string{"the passphrase is changed, but " + err.Error() +
				"; run x402-wallet passphrase --keyring"})
		}
	}
	file := p.Env.PassphraseFile
	if rules != nil {
		file = cmp.Or(file, rules.Keystore.PassphraseFile)
	}
	if file != "" { // that the wallet unlocks itself with
		ui.note("write the new passphrase to %s too: the agent's wallet unlocks itself with it", safe(file))
	}
	return ui.answerLine(out, "the passphrase is changed; keep it apart from a backup of keystore.json")
}

func (p *Program) keepInKeyring(ctx context.Context, ui *ui, keys *wallet.Wallet,
	passphrase wallet.Passphrase) error {
	if err := unlock.KeepInKeyring(ctx, keys, ui.byPerson(passphrase, byFlags)); err != nil {
		return err
	}
	if rules, err := config.Load(p.Home); err == nil && !rules.Keystore.Keyring {
		ui.note("set keyring = true under [keystore] in config.toml, so that it is asked")
	}
	return ui.answerLine(passphraseOut{Keyring: true},
		"the system's keyring holds the passphrase: programs that run as you can read it there")
}

func forgetKeyring(ctx context.Context, ui *ui, keys *wallet.Wallet) error {
	was, err := unlock.ForgetKeyring(ctx, keys)
	if err != nil {
		return err
	}
	said := "the passphrase was not in the system's keyring"
	if was {
		said = "the passphrase was removed from the system's keyring"
	}
	return ui.answerLine(passphraseOut{}, "%s", said)
}

// typed is a passphrase that a person typed; who has it wipes it.
func typed(passphrase []byte) wallet.Passphrase {
	return func(context.Context) ([]byte, error) { return bytes.Clone(passphrase), nil }
}

// byFlags are a passphraseSource's.
const byFlags = "--passphrase-file FILE or --passphrase-fd N"

// byPerson explains a source that is only a person's to give, when there is none: by the same command
// again. orElse is how else it can be given; "": in no other way.
func (u *ui) byPerson(source wallet.Passphrase, orElse string) wallet.Passphrase {
	return func(ctx context.Context) ([]byte, error) {
		given, err := source(ctx)
		how := "run it in a terminal"
		if orElse != "" {
			how += ", or with " + orElse
		}
		if errors.Is(err, wallet.ErrNoPassphrase) {
			return nil, x402.Errorf(x402.WalletLocked,
				"this needs the passphrase, typed by a person now, and there is no terminal").
				WithHint("%s; what unlocks the wallet automatically is never used for this", how).
				WithCommand(u.line, "This takes your passphrase: please run it in a terminal.")
		}
		return given, err
	}
}

// Whatever loosens takes the passphrase, typed by the owner at that moment: on the terminal, or
// with --page on a one-time page of the loopback interface. No file, command, keyring,
// variable or unlock agent answers for it.

// loosening is what the owner is asked for.
type loosening struct {
	prompt string   // on the terminal, where lines have been shown before
	title  string   // on the page
	lines  []string // what exactly
}

// loosens gives a command the page.
func (u *ui) loosens(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().BoolVar(&u.page, "page", false, "ask for the passphrase on a one-time page in the browser "+
		"of this machine, not on the terminal")
	return cmd
}

// owner is the wallet, unlocked by what its owner types now. Close it.
func (p *Program) owner(ctx context.Context, ui *ui, l loosening) (*wallet.Wallet, error) {
	keys, err := wallet.Open(p.Home)
	if err != nil {
		return nil, err
	}
	err = ui.asked(ctx, l, func(typed wallet.Passphrase) error { return keys.Unlock(ctx, typed) })
	if err != nil {
		_ = keys.Close()
		return nil, err
	}
	return keys, nil
}

// asked is what the owner is asked for; use gets what they type now, on the page again where it was wrong.
func (u *ui) asked(ctx context.Context, l loosening, use func(wallet.Passphrase) error) error {
	if u.keeps {
		use = u.keeping(use)
	}
	if u.page {
		return u.onPage(ctx, l, use)
	}
	return use(u.byPerson(u.asking(terminal.Ask(l.prompt)), "--page in a browser on this machine"))
}

// keeping is use, and keeps what is typed for it.
func (u *ui) keeping(use func(wallet.Passphrase) error) func(wallet.Passphrase) error {
	return func(source wallet.Passphrase) error {
		return use(func(ctx context.Context) ([]byte, error) {
			given, err := source(ctx)
			if err == nil {
				u.forgetGiven()
				u.given = bytes.Clone(given)
			}
			return given, err
		})
	}
}

func (u *ui) forgetGiven() {
	clear(u.given)
	u.given = nil
}

// ownerOf is the guard of a ledger with the owner's key. done wipes it.
func (p *Program) ownerOf(ctx context.Context, ui *ui, store *history.Store,
	l loosening) (guard *seal.Guard, done func(), err error) {
	keys, err := p.owner(ctx, ui, l)
	if err != nil {
		return nil, nil, err
	}
	return p.Guard(store, nil, keys), func() { _ = keys.Close() }, nil
}

// onPage asks on a page, whose address whoever runs the command opens.
func (u *ui) onPage(ctx context.Context, l loosening, use func(wallet.Passphrase) error) error {
	page, wait, err := ask.Ask(ctx, l.title, l.lines, func(passphrase []byte) (again bool, err error) {
		err = use(typed(passphrase))
		return x402.HasCode(err, x402.InvalidPassphrase), err
	})
	if err != nil {
		return err
	}
	u.note("open this page on this machine, within %s, and type the passphrase there:\n  %s", ask.Expiry,
		page)
	err = wait()
	if errors.Is(err, ask.ErrDeclined) || errors.Is(err, ask.ErrExpired) {
		return x402.Errorf(x402.WalletLocked, "%s; nothing was changed", err.Error()).
			WithHint("run the command again, and answer on its page").
			WithCommand(u.line, "Nothing was changed: please run it again, and answer on its page.")
	}
	return err
}
