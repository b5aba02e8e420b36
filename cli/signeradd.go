package cli

import (
	"cmp"
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"x402-wallet/internal/config"
	"x402-wallet/wallet"
	"x402-wallet/wallet/imported"
	"x402-wallet/x402"
)

type newSigner struct {
	config.Signer
	name    string
	sandbox bool
	isSet   bool   // sandbox was given
	keyFile string // a key to put into the keychain
}

// signerAddCommand asks a signer for its address, has it sign a text, and writes it into the rules, sealed by
// the passphrase: it says who signs.
func (p *Program) signerAddCommand(ui *ui) *cobra.Command {
	var n newSigner
	cmd := &cobra.Command{
		Use:   "add NAME [-- PROGRAM ARGUMENT...]",
		Short: "Let somebody else keep a key and sign with it (asks for the passphrase)",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			n.name, n.Command, n.isSet = args[0], args[1:], cmd.Flags().Changed("sandbox")
			if len(n.Command) > 0 && cmd.ArgsLenAtDash() != 1 {
				return usagef("write the program and its arguments behind --: signer add %s … -- %s", n.name,
					strings.Join(n.Command, " "))
			}
			if n.isSet {
				n.Sandbox = &n.sandbox
			}
			if len(n.Command) > 0 {
				n.Kind = cmp.Or(n.Kind, config.SignerCommand)
			}
			return p.addSigner(cmd.Context(), ui, n)
		},
	}
	f := cmd.Flags()
	f.StringVar(&n.Kind, "kind", "", "what it is: "+strings.Join(config.SignerKinds(), ", "))
	f.StringVar(&n.Chain, "chain", wallet.ChainEVM, "what it signs on: evm or solana")
	f.StringVar(&n.Signer.Address, "address", "", "the address that its key has to have; absent: it is asked")
	f.DurationVar(&n.Timeout, "timeout", 0, "how long it may take, 1s to 5m (30s)")
	f.StringArrayVar(&n.Env, "env", nil, "a variable that the program gets, by its `NAME`; more than once")
	f.BoolVar(&n.sandbox, "sandbox", true, "whether the program is kept from the wallet's home")
	f.StringVar(&n.Key, "key", "", "what the service calls the key")
	f.StringVar(&n.Region, "region", "", "of AWS")
	f.StringVar(&n.Organization, "organization", "", "of Turnkey")
	f.StringVar(&n.URL, "url", "", "where its API is, if not where its provider has it")
	f.StringVar(&n.SecretFile, "secret-file", "", "an owner-only `FILE` with its credentials")
	f.StringArrayVar(&n.SecretCommand, "secret-command", nil,
		"a program that prints its credentials; once for each of its `WORD`s")
	f.StringVar(&n.SecretEnv, "secret-env", "", "the `VARIABLE` that its credentials are in")
	f.StringVar(&n.keyFile, "key-file", "", "keychain: a `FILE` with a key, which is put into the keychain")
	return ui.loosens(cmd)
}

func (p *Program) addSigner(ctx context.Context, ui *ui, n newSigner) error {
	if err := p.haveWallet(); err != nil {
		return err
	}
	rules, err := p.Rules()
	if err != nil {
		return err
	}
	if _, there := rules.Signers[n.name]; there {
		return x402.Errorf(x402.InvalidArgument, "there is a signer %s already", n.name).
			WithHint("remove it first: x402-wallet signer remove %s", n.name)
	}
	// what is wrong with it is said before anybody is asked
	checked, err := n.in(rules.Raw, cmp.Or(n.Signer.Address, placeholder(n.Chain)))
	if err != nil {
		return asInvalid(err)
	}
	if err := p.keepInKeychain(ctx, ui, n); err != nil {
		return err
	}
	toTest := checked.Signers[n.name]
	toTest.Address = n.Signer.Address
	row, err := p.testSigner(ctx, ui, checked, n.name, toTest)
	if err != nil {
		return err
	}
	ui.note("the signer %s has the key of %s on %s; a test text was signed in %d ms", n.name, row.Address,
		n.Chain, *row.Milliseconds)
	n.Signer.Address = row.Address
	edit := func(text []byte, _ *config.Config) ([]byte, error) { return n.write(text, row.Address) }
	return p.changeRulesThen(ctx, ui, edit, func(guardedRules, string) error {
		return ui.answer(row, func() {
			ui.say("the signer %s signs on %s from now on, from %s", n.name, n.Chain, row.Address)
			ui.note("payments need money at that address: x402-wallet address --qr")
			ui.note("the keystore still takes your passphrase; a wallet that is unlocked now has to be " +
				"locked and unlocked again")
		})
	})
}

func (p *Program) keepInKeychain(ctx context.Context, ui *ui, n newSigner) error {
	if n.keyFile == "" {
		return nil
	}
	if n.Kind != config.SignerKeychain {
		return usagef("--key-file goes with --kind %s", config.SignerKeychain)
	}
	key, err := imported.Read(ctx, "key-file:"+n.Chain, n.keyFile, nil)
	if err != nil {
		return err
	}
	defer key.Wipe()
	if err := (imported.KeychainKey{Chain: n.Chain, Account: n.Key}).Keep(ctx, key); err != nil {
		return err
	}
	ui.note("the key of %s is in the system's keychain, as %s; %s still has it, too", key.Address, n.Key,
		n.keyFile)
	return nil
}

// placeholder stands for an address that is not known yet.
func placeholder(chain string) string {
	if chain == wallet.ChainSolana {
		return strings.Repeat("1", 32)
	}
	return "0x" + strings.Repeat("0", 40)
}

// in are the rules with the signer added.
func (n newSigner) in(text []byte, address string) (*config.Config, error) {
	text, err := n.write(text, address)
	if err != nil {
		return nil, err
	}
	return config.Parse(text)
}

func (n newSigner) write(text []byte, address string) ([]byte, error) {
	var table tomlTable
	table.add("kind", n.Kind)
	table.add("chain", n.Chain)
	table.add("address", address)
	if n.Timeout != 0 {
		table.add("timeout", n.Timeout.Round(time.Millisecond).String())
	}
	table.add("key", n.Key)
	table.add("region", n.Region)
	table.add("organization", n.Organization)
	table.add("url", n.URL)
	table.add("secret_file", n.SecretFile)
	table.add("secret_env", n.SecretEnv)
	table.addList("command", n.Command)
	table.addList("env", n.Env)
	table.addList("secret_command", n.SecretCommand)
	if n.Sandbox != nil {
		table = append(table, tomlKey{"sandbox", strconv.FormatBool(*n.Sandbox)})
	}
	return table.write(text, "signers", n.name)
}
