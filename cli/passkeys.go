package cli

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"x402-wallet/internal/config"
	"x402-wallet/internal/config/edit"
	"x402-wallet/internal/passkey"
	"x402-wallet/internal/passkey/invitation"
	"x402-wallet/x402"
)

// The owner's passkeys: what they approve payments by on the service's pages.

// PagesFile is the file of the home in which a service says where its pages are.
const PagesFile = "pages.url"

// passkeyRow is a passkey as passkeys list shows it.
type passkeyRow struct {
	Name   string `json:"name"`
	Origin string `json:"origin"`
	ID     string `json:"id"`
}

func (p *Program) passkeysCommand(ui *ui) *cobra.Command {
	list := func(*cobra.Command, []string) error {
		if err := p.haveWallet(); err != nil {
			return err
		}
		rules, err := config.Load(p.Home)
		if err != nil {
			return err
		}
		rows := []passkeyRow{}
		for _, name := range slices.Sorted(maps.Keys(rules.Passkeys)) {
			rows = append(rows, passkeyRow{Name: name, Origin: rules.Passkeys[name].Origin,
				ID: rules.Passkeys[name].ID})
		}
		return ui.answer(map[string]any{"passkeys": rows}, func() { ui.passkeys(rows) })
	}
	cmd := &cobra.Command{Use: "passkeys", Short: "The passkeys that you approve payments by", Args: wants(),
		RunE: list}
	cmd.AddCommand(&cobra.Command{Use: "list", Short: "List the passkeys", Args: wants(), RunE: list},
		p.passkeysAddCommand(ui), p.passkeysRemoveCommand(ui))
	return cmd
}

func (u *ui) passkeys(rows []passkeyRow) {
	if len(rows) == 0 {
		u.note("you have no passkey: approving takes the passphrase (x402-wallet passkeys add NAME)")
		return
	}
	var table [][]string
	for _, r := range rows {
		table = append(table, []string{r.Name, r.Origin, r.ID})
	}
	u.table([]string{"PASSKEY", "FOR", "ID"}, table)
}

// passkeysAddCommand has a passkey made behind a link of the service's pages, and seals it with the
// passphrase, typed when there is something to seal: whoever opened the link changes no rule by it.
func (p *Program) passkeysAddCommand(ui *ui) *cobra.Command {
	return ui.loosens(&cobra.Command{
		Use: "add NAME", Short: "Add a passkey by a link to the service's page (asks for the passphrase)",
		Args: wants("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := args[0]
			key, err := p.makePasskey(cmd.Context(), ui, name)
			if err != nil {
				return err
			}
			edit := func(text []byte, rules *config.Config) ([]byte, error) {
				if err := newPasskey(rules, name); err != nil {
					return nil, err
				}
				return tomlTable{{"id", edit.Quote(key.ID)}, {"public_key", edit.Quote(key.PublicKey)},
					{"origin", edit.Quote(key.Origin)}, {"count", strconv.FormatInt(key.Count, 10)},
				}.write(text, "passkeys", name)
			}
			return p.changeRulesThen(cmd.Context(), ui, edit, func(guardedRules, string) error {
				return ui.answerLine(passkeyRow{Name: name, Origin: key.Origin, ID: key.ID},
					"the passkey %s approves payments at %s from now on", name, key.Origin)
			})
		},
	})
}

// makePasskey gives the owner the link, and waits for what is made there.
func (p *Program) makePasskey(ctx context.Context, ui *ui, name string) (key passkey.Key, err error) {
	if err := p.haveWallet(); err != nil {
		return key, err
	}
	rules, err := config.Load(p.Home)
	if err != nil {
		return key, err
	}
	if err := newPasskey(rules, name); err != nil {
		return key, err
	}
	origin, err := p.pagesOrigin(rules)
	if err != nil {
		return key, err
	}
	waiting, err := invitation.Invite(ctx, p.Home, name, origin)
	if err != nil {
		return key, x402.Errorf(x402.SetupFailed, "%w", err)
	}
	ui.note("open this link where the passkey is to be, within %s; it is good once:\n  %s", invitation.Life,
		waiting.URL)
	key, err = waiting.Wait(ctx)
	if err != nil && ctx.Err() == nil {
		err = x402.Errorf(x402.SetupFailed, "%w; nothing was changed", err).
			WithHint("run the command again, and open its link")
	}
	return key, err
}

// newPasskey refuses a name that is none, or is there.
func newPasskey(rules *config.Config, name string) error {
	if !config.IsName(name) {
		return usagef("a passkey's name is 1 to 40 of a-z, 0-9, - and _, and begins with a letter")
	}
	if _, there := rules.Passkeys[name]; there {
		return x402.Errorf(x402.InvalidArgument, "there is a passkey %s already", name).
			WithHint("remove it first: x402-wallet passkeys remove %s", name)
	}
	return nil
}

// pagesOrigin is where browsers find the service's pages: as the rules say, else as the service does that
// runs.
func (p *Program) pagesOrigin(rules *config.Config) (string, error) {
	origin := rules.Service.URL
	if origin == "" {
		text, err := os.ReadFile(filepath.Join(p.Home, PagesFile))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", err
		}
		origin = strings.TrimSpace(string(text))
	}
	if origin == "" {
		return "", x402.Errorf(x402.SetupFailed, "no service of this wallet has pages now").
			WithHint("start it with x402-wallet serve --http 127.0.0.1:8402, or say in config.toml where " +
				"browsers find it: [service] url")
	}
	if _, err := passkey.RPID(origin); err != nil {
		return "", x402.Errorf(x402.SetupFailed, "%w", err).WithHint("give the service a name in " +
			"config.toml: [service] url")
	}
	return origin, nil
}

// passkeysRemoveCommand takes a passkey out of the rules: nothing is approved by it any more, and who is
// signed in by it is not.
func (p *Program) passkeysRemoveCommand(ui *ui) *cobra.Command {
	return ui.loosens(&cobra.Command{
		Use: "remove NAME", Short: "Take a passkey away", Args: wants("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.changeRules(cmd.Context(), ui, func(text []byte, rules *config.Config) ([]byte, error) {
				if _, known := rules.Passkeys[args[0]]; !known {
					return nil, x402.Errorf(x402.InvalidArgument, "there is no passkey %s",
						x402.Quote(args[0])).WithHint("x402-wallet passkeys list shows those there are")
				}
				return edit.Remove(text, "passkeys", args[0])
			})
		},
	})
}
