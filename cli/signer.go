package cli

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"x402-wallet/internal/config"
	"x402-wallet/internal/config/edit"
	"x402-wallet/wallet"
	"x402-wallet/x402"
)

// Signers that keep a key of the wallet's themselves (docs/rules.md).

type signerRow struct {
	Name    string `json:"name"`
	Chain   string `json:"chain"`
	Kind    string `json:"kind"`
	Address string `json:"address"`
	// of a test: how long the signature took
	Milliseconds *int64 `json:"milliseconds,omitempty"`
}

func (p *Program) signerCommand(ui *ui) *cobra.Command {
	list := func(cmd *cobra.Command, _ []string) error {
		keys, rules, err := p.whoSigns(cmd.Context())
		if err != nil {
			return err
		}
		defer func() { _ = keys.Close() }()
		rows := signerRows(keys, rules)
		return ui.answer(map[string]any{"signers": rows}, func() {
			ui.table([]string{"CHAIN", "SIGNER", "KIND", "ADDRESS"}, each(rows, func(r signerRow) []string {
				return []string{r.Chain, r.Name, r.Kind, r.Address}
			}))
		})
	}
	cmd := &cobra.Command{Use: "signer", Short: "Who keeps the keys and signs with them", Args: wants(),
		RunE: list}
	cmd.AddCommand(&cobra.Command{Use: "list", Short: "List who signs", Args: wants(), RunE: list},
		p.signerAddCommand(ui), p.signerTestCommand(ui), p.signerRemoveCommand(ui))
	return cmd
}

// signerRows are who signs on each chain.
func signerRows(keys *wallet.Wallet, rules *config.Config) (rows []signerRow) {
	for _, chain := range []string{wallet.ChainEVM, wallet.ChainSolana} {
		name, address := keys.Signer(chain).Account()
		kind := rules.Signers[name].Kind
		if kind == "" {
			kind = name // the keystore
		}
		rows = append(rows, signerRow{Name: name, Chain: chain, Kind: kind, Address: address})
	}
	return rows
}

// signerTestCommand has a signer of the sealed rules sign a text that pays nobody.
func (p *Program) signerTestCommand(ui *ui) *cobra.Command {
	return &cobra.Command{
		Use: "test NAME", Short: "Have a signer sign a text that pays nobody, and check it",
		Args: wants("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			guard, err := p.rules(cmd.Context())
			if err != nil {
				return err
			}
			defer guard.Store.Close()
			// nothing is started or asked that stands in rules that the owner did not seal
			if err := guard.CheckConfig(cmd.Context()); err != nil {
				return err
			}
			rules, known := guard.config.Signers[args[0]]
			if !known {
				return noSigner(guard.config, args[0])
			}
			row, err := p.testSigner(cmd.Context(), ui, guard.config, args[0], rules)
			if err != nil {
				return err
			}
			return ui.answerLine(row, "%s signs for %s on %s; it took %d ms", row.Name, row.Address,
				row.Chain, *row.Milliseconds)
		},
	}
}

// testSigner asks a signer whose key it has, and has it sign. What a command writes to its standard error is
// shown.
func (p *Program) testSigner(ctx context.Context, ui *ui, all *config.Config, name string,
	s config.Signer) (row signerRow, err error) {
	defer ui.waiting("asking the signer " + name)()
	said := func(text string) { ui.note("%s says: %s", name, safe(text)) }
	asked := p.Signer(name, s, all, said)
	address, err := asked.Address(ctx)
	if err != nil {
		return row, err
	}
	if s.Address == "" || (s.Chain == wallet.ChainEVM && strings.EqualFold(s.Address, address)) {
		s.Address = address // with the capitals of EIP-55
		asked = p.Signer(name, s, all, said)
	}
	if s.Address != address {
		return row, x402.Errorf(x402.SetupFailed, "the signer %s has the key of %s, and not of %s", name,
			x402.Brief(address), s.Address).WithHint("name the address that it has, or another key")
	}
	began := time.Now()
	if err := wallet.TestSigner(ctx, asked, s.Chain, began); err != nil {
		return row, err
	}
	took := time.Since(began).Milliseconds()
	return signerRow{Name: name, Chain: s.Chain, Kind: s.Kind, Address: address, Milliseconds: &took}, nil
}

// signerRemoveCommand gives signing back to the keystore.
func (p *Program) signerRemoveCommand(ui *ui) *cobra.Command {
	return ui.loosens(&cobra.Command{
		Use: "remove NAME", Short: "Let the keystore sign again (asks for the passphrase)",
		Args: wants("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			edit := func(text []byte, rules *config.Config) ([]byte, error) {
				if _, known := rules.Signers[args[0]]; !known {
					return nil, noSigner(rules, args[0])
				}
				return edit.Remove(text, "signers", args[0])
			}
			return p.changeRulesThen(cmd.Context(), ui, edit, func(guard guardedRules, _ string) error {
				keys, err := p.OpenKeys(guard.config)
				if err != nil {
					return err
				}
				defer func() { _ = keys.Close() }()
				rows := signerRows(keys, guard.config)
				return ui.answer(map[string]any{"signers": rows}, func() {
					ui.say("the signer %s is removed; the keystore signs again, from its own address:",
						args[0])
					for _, r := range rows {
						ui.say("  %s  %s  %s", r.Chain, r.Name, r.Address)
					}
					ui.note("what is at the other address stays there")
				})
			})
		},
	})
}

func noSigner(rules *config.Config, name string) error {
	e := x402.Errorf(x402.InvalidArgument, "there is no signer %s", x402.Quote(name))
	if names := slices.Sorted(maps.Keys(rules.Signers)); len(names) > 0 {
		return e.WithHint("there is: %v", names)
	}
	return e.WithHint("the keystore signs; x402-wallet signer add NAME adds another")
}
