package cli

import (
	"cmp"
	"context"
	"encoding/hex"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"x402-wallet/tools"
	"x402-wallet/wallet/imported"
	"x402-wallet/wallet/terminal"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/onchain"
	"x402-wallet/x402/remedy"
)

type vaultFlags struct {
	network, vault, owner, keypair string
	amount                         string
	perPayment, perPeriod          string
	period, window                 time.Duration
}

// vaultOut is what became of an owner's transactions about a vault, or what is to be signed.
type vaultOut struct {
	Network      string          `json:"network"`
	Vault        string          `json:"vault"`
	Owner        string          `json:"owner"`
	Transactions []vaultTransfer `json:"transactions"`
	Config       string          `json:"config,omitempty"` // lines for config.toml, of a new vault
	Next         x402.Next       `json:"next"`
}

// vaultTransfer is one of them. Its fields are those that wallets take (eth_sendTransaction).
type vaultTransfer struct {
	Does     string `json:"does"`
	ChainID  uint64 `json:"chainId"`
	From     string `json:"from"`
	To       string `json:"to,omitempty"` // "": it makes the contract
	Data     string `json:"data"`
	Nonce    uint64 `json:"nonce"`
	Gas      uint64 `json:"gas"`
	MaxFee   string `json:"maxFeePerGas"` // wei
	Tip      string `json:"maxPriorityFeePerGas"`
	Unsigned string `json:"unsigned,omitempty"` // the bytes that are to be signed (EIP-1559)
	Hash     string `json:"transactionHash,omitempty"`
}

func (p *Program) vaultCommand(ui *ui) *cobra.Command {
	var f vaultFlags
	show := p.onWallet(ui, func(ctx context.Context, w *tools.Wallet, _ []string) error {
		network, asset, err := vaultNetwork(w, f.network)
		if err != nil {
			return err
		}
		return askWallet(ui, "waiting for the node", func() (tools.DelegationOut, error) {
			address := cmp.Or(f.vault, w.EVM.VaultOn(network))
			if address == "" {
				_, err := w.Vault(ctx, network, "")
				return tools.DelegationOut{}, err
			}
			return w.CheckDelegation(ctx, network, address)
		}, func(out tools.DelegationOut) { ui.delegation(delegationOut{DelegationOut: out}, asset) })
	})
	cmd := &cobra.Command{Use: "vault", Short: "Your contract on an EVM chain that the agent may pay from",
		Args: wants(), RunE: show}
	verbs := []*cobra.Command{
		{Use: "deploy", Short: "Make a vault", RunE: p.changeVault(ui, &f, deployVault)},
		{Use: "deposit", Short: "Put money into your vault", RunE: p.changeVault(ui, &f, depositVault)},
		{Use: "allow", Short: "Let the agent spend within limits", RunE: p.changeVault(ui, &f, allowVault)},
		{Use: "show", Short: "Show what your vault lets the agent spend", RunE: show},
		{Use: "revoke", Short: "Let nobody spend from your vault", RunE: p.changeVault(ui, &f, revokeVault)},
		{Use: "withdraw", Short: "Take money out of your vault", RunE: p.changeVault(ui, &f, withdrawVault)},
	}
	for _, sub := range append([]*cobra.Command{cmd}, verbs...) {
		sub.Args = wants()
		sub.Flags().StringVar(&f.network, "network", "",
			"on this `NETWORK`, like base; default: the preferred one")
		if sub.Name() != "deploy" {
			sub.Flags().StringVar(&f.vault, "vault", "",
				"the vault's `ADDRESS`; default: that of config.toml")
		}
	}
	for _, sub := range verbs {
		switch sub.Name() {
		case "show":
			continue
		case "deploy", "allow":
			sub.Flags().StringVar(&f.perPayment, "per-payment", "",
				"the most that one payment may be, in whole `TOKENS`; default: budget.per_call")
			sub.Flags().StringVar(&f.perPeriod, "per-period", "",
				"what becomes available in each period, in whole `TOKENS`; default: budget.day")
			sub.Flags().DurationVar(&f.period, "period", 24*time.Hour, "how long a `PERIOD` is")
			sub.Flags().DurationVar(&f.window, "window", 10*time.Minute,
				"how long what the agent signs may be good for, a `TIME`")
		case "deposit", "withdraw":
			sub.Flags().StringVar(&f.amount, "amount", "", "how much, in whole `TOKENS`, like 25 or 2.50")
		}
		if sub.Name() == "deploy" {
			sub.Flags().StringVar(&f.owner, "owner", "",
				"whose vault it is: your own `ADDRESS`, if you sign elsewhere")
		}
		sub.Flags().StringVar(&f.keypair, "owner-keypair", "", "sign with the key in this `FILE` (a "+
			"keystore of go-ethereum, or hex) and send; without it the transaction is printed for your "+
			"own signer")
	}
	cmd.AddCommand(verbs...)
	return cmd
}

// vaultNetwork is the EVM network that is meant, and its dollars: the one named, or the preferred one of
// those that have a vault, or of all.
func vaultNetwork(w *tools.Wallet, named string) (network string, asset x402.AssetInfo, err error) {
	meant := configured(w, "eip155", named)
	if len(meant) == 0 {
		return "", asset, notConfigured("EVM")
	}
	with := slices.IndexFunc(meant, func(n string) bool { return w.EVM.VaultOn(n) != "" })
	network = meant[max(with, 0)]
	asset, known := w.Engine.Assets.Named(network, "")
	if !known {
		return "", asset, x402.Errorf(x402.UntrustedAsset, "no dollars are known on %s",
			x402.Title(network)).WithHint("add a token to config.toml under [[assets]]")
	}
	return network, asset, nil
}

// configured are the wallet's networks of a family of chains that are meant: the one named, or all.
func configured(w *tools.Wallet, namespace, named string) []string {
	wanted, _ := x402.Network(named)
	return slices.DeleteFunc(slices.Clone(w.Networks), func(n string) bool {
		return x402.Namespace(n) != namespace || (named != "" && n != wanted)
	})
}

func notConfigured(family string) error {
	return x402.Errorf(x402.InvalidArgument, "no such %s network is configured", family).
		WithHint("networks with an rpc in config.toml can be used")
}

// vaultCall is what an owner's command is made with.
type vaultCall struct {
	*vaultFlags
	ctx   context.Context
	w     *tools.Wallet
	asset x402.AssetInfo
	owner string
	vault onchain.Vault // read from the chain; of a new one its network alone
	// send signs a transaction and brings it to the chain; nil: it is printed for another signer
	send func(t onchain.OwnerTransaction) (hash string, err error)
	out  vaultOut
}

// changeVault builds an owner's transactions; it signs and sends them with the owner's key, or prints them.
func (p *Program) changeVault(ui *ui, f *vaultFlags, change func(*vaultCall) error) runs {
	return func(cmd *cobra.Command, _ []string) error {
		return p.with(cmd, ui, nil, func(ctx context.Context, w *tools.Wallet) error {
			network, asset, err := vaultNetwork(w, f.network)
			if err != nil {
				return err
			}
			c := &vaultCall{vaultFlags: f, ctx: ctx, w: w, asset: asset, owner: f.owner,
				vault: onchain.Vault{Network: network}}
			if f.keypair != "" {
				key, err := ownersKey(ctx, ui, f.keypair)
				if err != nil {
					return err
				}
				defer key.Wipe()
				c.owner, c.send = key.Address, func(t onchain.OwnerTransaction) (string, error) {
					return signOwners(ctx, w, key, t)
				}
			}
			defer ui.waiting("waiting for the node")()
			if cmd.Name() != "deploy" {
				c.vault, err = w.Vault(ctx, network, f.vault)
				if err != nil {
					return err
				}
				c.owner = cmp.Or(c.owner, c.vault.Owner)
				if c.owner != c.vault.Owner {
					return x402.Errorf(x402.InvalidArgument,
						"the vault %s belongs to %s, but the key in %s is that of %s", c.vault.Address,
						c.vault.Owner, f.keypair, c.owner).
						WithHint("name your own vault by --vault, or its owner's key by --owner-keypair")
				}
			}
			c.out = vaultOut{Network: network, Vault: c.vault.Address, Owner: c.owner}
			if err := change(c); err != nil {
				return err
			}
			switch {
			case c.out.Next.Do != "":
			case c.send != nil:
				c.out.Next.Do = x402.Done
			default:
				c.out.Next = x402.Next{Do: x402.AskPerson, Why: "the owner signs and sends it"}
			}
			return ui.answer(c.out, func() { ui.vault(c.out) })
		})
	}
}

// ownersKey reads an EVM key: a keystore of go-ethereum, or a raw one.
func ownersKey(ctx context.Context, ui *ui, file string) (imported.Key, error) {
	key, err := imported.Read(ctx, "key-file:evm", file, nil)
	if err == nil || x402.HasCode(err, x402.KeystorePermissions) {
		return key, err
	}
	return imported.Read(ctx, "evm", file, ui.asking(terminal.Ask("Passphrase of "+safe(file)+": ")))
}

// take sends a transaction, or notes it for another signer.
func (c *vaultCall) take(t onchain.OwnerTransaction, err error) error {
	if err != nil {
		return err
	}
	shown := shownTransaction(t)
	if c.send != nil {
		shown.Hash, err = c.send(t)
	} else {
		shown.Unsigned, err = unsigned(c.w, t)
	}
	c.out.Transactions = append(c.out.Transactions, shown)
	return err
}

// unsigned is a transaction as another signer takes it.
func unsigned(w *tools.Wallet, t onchain.OwnerTransaction) (string, error) {
	raw, err := w.EVM.Unsigned(t)
	return "0x" + hex.EncodeToString(raw), err
}

func (c *vaultCall) limits() (l onchain.VaultLimits, err error) {
	rules := c.w.Engine.Rules
	l.Period, l.MaxWindow = c.period, c.window
	l.PerPayment, err = wholeUnits("per-payment", cmp.Or(c.perPayment, rules.PerCall.String()), c.asset)
	if err != nil {
		return l, err
	}
	l.PerPeriod, err = wholeUnits("per-period", cmp.Or(c.perPeriod, rules.Day.String()), c.asset)
	return l, err
}

func deployVault(c *vaultCall) error {
	if c.owner == "" {
		return usagef("either --owner ADDRESS, whose signer makes the vault, or --owner-keypair FILE")
	}
	l, err := c.limits()
	if err != nil {
		return err
	}
	t, err := c.w.EVM.DeployVault(c.ctx, c.vault.Network, c.owner, c.asset, l)
	if err != nil {
		return err
	}
	c.out.Vault = c.w.EVM.VaultAddress(t)
	c.out.Config = remedy.VaultLines(c.vault.Network, c.out.Vault)
	if err := c.take(t, nil); err != nil {
		return err
	}
	c.out.Next = x402.Next{Do: x402.AskPerson, Command: remedy.SealCommand,
		Why: "when the vault is there, put config into config.toml and seal it; then deposit"}
	return nil
}

func allowVault(c *vaultCall) error {
	l, err := c.limits()
	if err != nil {
		return err
	}
	return c.take(c.w.EVM.AllowVault(c.ctx, c.vault, l))
}

func revokeVault(c *vaultCall) error { return c.take(c.w.EVM.RevokeVault(c.ctx, c.vault)) }

func withdrawVault(c *vaultCall) error {
	amount, err := wholeUnits("amount", c.amount, c.asset)
	if err != nil {
		return err
	}
	if amount.Cmp(c.vault.Balance) > 0 {
		return x402.Errorf(x402.InsufficientFunds, "the vault holds %s %s",
			c.vault.Balance.Units(c.asset.Decimals), c.asset.Symbol).
			WithHint("that much or less can be taken out")
	}
	return c.take(c.w.EVM.WithdrawVault(c.ctx, c.vault, amount))
}

// depositVault takes two transactions where the vault may not take the money yet: the second one can be
// estimated only when the first is in a block.
func depositVault(c *vaultCall) error {
	amount, err := wholeUnits("amount", c.amount, c.asset)
	if err != nil {
		return err
	}
	deposit, err := c.w.EVM.DepositVault(c.ctx, c.vault, amount)
	if !x402.HasCode(err, x402.CheckFailed) {
		return c.take(deposit, err)
	}
	if err := c.take(c.w.EVM.ApproveVault(c.ctx, c.vault, amount)); err != nil {
		return err
	}
	if c.send == nil {
		c.out.Next = x402.Next{Do: x402.Repeat,
			Why: "once this is in a block, the same command makes the deposit"}
		return nil
	}
	return c.take(c.w.EVM.DepositVault(c.ctx, c.vault, amount))
}

func wholeUnits(flag, text string, asset x402.AssetInfo) (money.Amount, error) {
	amount, err := tokens(text, asset.Decimals)
	if err != nil {
		return amount, usagef("--%s %q is not a number of %s above 0 with at most %d decimals", flag, text,
			asset.Symbol, asset.Decimals)
	}
	return amount, nil
}

func (u *ui) vault(out vaultOut) {
	for _, t := range out.Transactions {
		if t.Hash != "" {
			u.say("done: %s; transaction %s", t.Does, t.Hash)
			continue
		}
		u.note("to %s, %s signs this transaction (chain %d, nonce %d) and pays its gas:", t.Does, t.From,
			t.ChainID, t.Nonce)
		u.say("%s", t.Unsigned)
	}
	if out.Config != "" {
		u.note("\nthe vault: %s\nWhen it is there, put this into config.toml and run %s:\n\n%s", out.Vault,
			remedy.SealCommand, out.Config)
	}
	if out.Next.Do == x402.Repeat {
		u.note("%s", x402.Sentence(out.Next.Why))
	}
}
