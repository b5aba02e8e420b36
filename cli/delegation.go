package cli

import (
	"cmp"
	"context"
	"time"

	"github.com/spf13/cobra"

	"x402-wallet/history/report"
	"x402-wallet/tools"
	"x402-wallet/wallet/imported"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/onchain"
)

type delegationFlags struct {
	keypair, amount          string
	network, account, symbol string
	unsigned                 bool
}

// changeOut is what became of an owner's transaction.
type changeOut struct {
	Network      string `json:"network"`
	TokenAccount string `json:"tokenAccount"`
	Owner        string `json:"owner"`
	Delegate     string `json:"delegate,omitempty"` // "": revoked
	Amount       string `json:"amount,omitempty"`   // atomic units
	Transaction  string `json:"transaction,omitempty"`
	Signature    string `json:"transactionSignature,omitempty"` // Solana
	Hash         string `json:"transactionHash,omitempty"`      // EVM
	Config       string `json:"config,omitempty"`               // lines that config.toml lacks
}

// delegationOut is a delegation on the chain now, and what the owner did to it with this wallet.
type delegationOut struct {
	tools.DelegationOut
	Changes []report.Change `json:"changes,omitempty"`
}

func (p *Program) delegationCommand(ui *ui) *cobra.Command {
	var f delegationFlags
	current := p.onWallet(ui, func(ctx context.Context, w *tools.Wallet, _ []string) error {
		return askWallet(ui, "waiting for the node", func() (out delegationOut, err error) {
			out.DelegationOut, err = w.CheckDelegation(ctx, f.network, f.account)
			if err == nil {
				out.Changes, err = report.Changes(ctx, w.Store, out.Network, out.OwnerTokenAccount,
					out.TokenMint)
			}
			return out, err
		}, func(out delegationOut) {
			asset, _ := w.Engine.Assets.Asset(out.Network, out.TokenMint)
			ui.delegation(out, asset)
		})
	})
	cmd := &cobra.Command{Use: "delegation", Short: "What you let the agent spend of your own tokens",
		Args: wants(), RunE: current}
	show := &cobra.Command{Use: "show", Short: "Show the delegation", Args: wants(), RunE: current}
	approve := &cobra.Command{
		Use: "approve", Short: "Let the agent spend up to an amount from your account", Args: wants(),
		RunE: func(cmd *cobra.Command, _ []string) error { return p.changeDelegation(cmd, ui, f, false) },
	}
	approve.Flags().StringVar(&f.amount, "amount", "",
		"the most the agent may spend, in whole `TOKENS`, like 25 or 2.50")
	revoke := &cobra.Command{
		Use: "revoke", Short: "End the delegation of your account", Args: wants(),
		RunE: func(cmd *cobra.Command, _ []string) error { return p.changeDelegation(cmd, ui, f, true) },
	}
	for _, sub := range []*cobra.Command{cmd, show, approve, revoke} {
		sub.Flags().StringVar(&f.network, "network", "",
			"on this `NETWORK`, like solana or base; default: the preferred one")
		sub.Flags().StringVar(&f.account, "token-account", "",
			"the token account's `ADDRESS`, on EVM your own; default: that of config.toml, else your key's")
	}
	for _, sub := range []*cobra.Command{approve, revoke} {
		sub.Flags().StringVar(&f.keypair, "owner-keypair", "",
			"your own key in a `FILE`: of the Solana command line, on EVM a keystore of go-ethereum, or hex")
		sub.Flags().StringVar(&f.symbol, "asset", "",
			"this `ASSET`, a symbol or a mint; default: the network's dollars")
		sub.Flags().BoolVar(&f.unsigned, "unsigned", false,
			"print the transaction, for another signer, and send nothing")
	}
	cmd.AddCommand(show, approve, revoke, p.permit2Command(ui))
	for _, each := range append(cmd.Commands(), cmd) {
		addAccountFlag(each.Flags())
	}
	return cmd
}

// delegation shows a delegation in whole tokens where asset, which may be none, is known.
func (u *ui) delegation(out delegationOut, asset x402.AssetInfo) {
	delegate := "nobody"
	if out.Delegate != nil {
		delegate = *out.Delegate
		if out.IsOurAgent {
			delegate += " (this agent)"
		}
	}
	tokens := func(a money.Amount) string {
		if asset.Symbol == "" {
			return a.String() + " atomic units"
		}
		return a.Units(asset.Decimals) + " " + asset.Symbol
	}
	account := "token account"
	switch {
	case out.PerPeriod != nil:
		account = "vault"
	case out.Float != nil:
		account = "your account"
	}
	rows := [][]string{{account, out.OwnerTokenAccount}, {"network", x402.Title(out.Network)},
		{"token", out.TokenMint}, {"delegate", delegate}, {"may spend", tokens(out.RemainingAmount)},
		{"at most ever seen", tokens(out.OriginalAmount)}, {"balance", tokens(out.Balance)}}
	if out.Float != nil {
		rows = append(rows, []string{"taken as a float", tokens(*out.Float)},
			[]string{"the agent's gas", coins(*out.Gas)})
	}
	if out.PerPeriod != nil {
		more := ""
		if out.MoreAt != "" {
			more = "; the next at " + out.MoreAt
		}
		period := time.Duration(out.PeriodSeconds) * time.Second
		rows = append(rows, []string{"owner", out.Owner}, []string{"in one payment", tokens(*out.PerPayment)},
			[]string{"more every " + period.String(), tokens(*out.PerPeriod) + more})
	}
	if out.Frozen {
		rows = append(rows, []string{"frozen", "by the token's issuer"})
	}
	for _, c := range out.Changes {
		did := "revoked"
		if amount, err := money.ParseAmount(c.Amount); err == nil && c.Delegate != "" {
			did = "approved up to " + tokens(amount)
		}
		did += ", transaction " + c.Transaction
		rows = append(rows, []string{c.At.UTC().Format(time.DateTime), did})
	}
	u.table(nil, rows)
}

// changeDelegation builds, simulates, signs with the owner's key and sends an approval, or the
// delegation's end; or prints what is to be signed.
func (p *Program) changeDelegation(cmd *cobra.Command, ui *ui, f delegationFlags, revoke bool) error {
	if (f.keypair != "") == f.unsigned {
		return usagef("either --owner-keypair FILE signs and sends it, or --unsigned prints it")
	}
	return p.with(cmd, ui, nil, func(ctx context.Context, w *tools.Wallet) error {
		if network, isMeant := allowanceNetwork(w, f); isMeant {
			return changeAllowance(ctx, ui, w, f, network, revoke)
		}
		var key imported.Key
		if f.keypair != "" {
			var err error
			key, err = imported.Read(ctx, "solana", f.keypair, nil)
			if err != nil {
				return err
			}
			defer key.Wipe()
		}
		network, account, asset, err := ownersAccount(w, f, key)
		if err != nil {
			return err
		}
		defer ui.waiting("waiting for the node")()
		c, err := f.change(ctx, w, network, account, asset, revoke)
		if err != nil {
			return err
		}
		if f.keypair != "" && c.Owner != key.Address {
			return x402.Errorf(x402.InvalidArgument,
				"the token account %s belongs to %s, but the key in %s is that of %s", c.Account, c.Owner,
				f.keypair, key.Address).
				WithHint("name your own token account by --token-account, or its owner's key by " +
					"--owner-keypair")
		}
		if err := w.Solana.Simulate(ctx, c); err != nil {
			return err
		}
		out := changeOut{Network: c.Network, TokenAccount: c.Account, Owner: c.Owner, Delegate: c.Delegate}
		if c.Delegate != "" {
			out.Amount = money.NewAmount(c.Amount).String()
		}
		if f.unsigned { // for another signer of the owner's
			out.Transaction = c.Transaction([64]byte{})
			return ui.answer(out, func() {
				ui.note("%s must sign this and pays its fee; it is valid for about a minute:", c.Owner)
				ui.say("%s", out.Transaction)
			})
		}
		signature, err := key.SignDelegation(c.Message, imported.DelegationChange{
			Account: c.Account, Program: c.Program, Mint: c.Mint, Delegate: c.Delegate, Amount: c.Amount,
			Decimals: c.Decimals,
		})
		if err != nil {
			return err
		}
		out.Signature, err = w.Solana.Send(ctx, c, signature)
		if err != nil {
			return err
		}
		ui.noteChange(ctx, w, out, c.Mint)
		if c.Delegate == "" {
			return ui.answerLine(out, "revoked: only its owner can spend from %s; transaction %s", c.Account,
				out.Signature)
		}
		return ui.answerLine(out, "approved: the agent may spend up to %s %s from %s; transaction %s",
			money.NewAmount(c.Amount).Units(c.Decimals), asset.Symbol, c.Account, out.Signature)
	})
}

// noteChange writes into the audit chain what the owner sent. It is on its way all the same where that fails.
func (u *ui) noteChange(ctx context.Context, w *tools.Wallet, out changeOut, asset string) {
	err := report.NoteChange(ctx, w.Store, report.OwnersChange{Network: out.Network,
		Account: out.TokenAccount, Owner: out.Owner, Asset: asset, Delegate: out.Delegate, Amount: out.Amount,
		Transaction: cmp.Or(out.Signature, out.Hash)})
	if err != nil {
		u.note("the audit chain does not have it: %s", x402.AsError(err).Message)
	}
}

func (f delegationFlags) change(ctx context.Context, w *tools.Wallet, network, account string,
	asset x402.AssetInfo, revoke bool) (onchain.DelegationChange, error) {
	if revoke {
		return w.Solana.Revoke(ctx, network, account)
	}
	amount, err := tokens(f.amount, asset.Decimals)
	if err != nil {
		return onchain.DelegationChange{}, err
	}
	return w.Solana.Approve(ctx, network, account, asset, amount)
}

// ownersAccount is the token account that is meant: the one named, that of config.toml, or the
// owner's associated one.
func ownersAccount(w *tools.Wallet, f delegationFlags,
	key imported.Key) (network, account string, asset x402.AssetInfo, err error) {
	networks := configured(w, "solana", f.network)
	if len(networks) == 0 {
		return "", "", asset, notConfigured("Solana")
	}
	network = networks[0]
	asset, known := w.Engine.Assets.Named(network, f.symbol)
	switch {
	case !known:
		return "", "", asset, x402.Errorf(x402.UntrustedAsset, "%s is not an asset on %s", f.symbol,
			x402.Title(network)).WithHint("add it to config.toml under [[assets]]")
	case f.account != "":
		return network, f.account, asset, nil
	case w.TokenAccounts[network] != "":
		return network, w.TokenAccounts[network], asset, nil
	case f.keypair == "":
		return "", "", asset, usagef("without the owner's key, --token-account must name the account")
	}
	account, err = w.Solana.AssociatedAccount(key.Address, asset)
	return network, account, asset, err
}

// tokens reads an amount in whole tokens, exactly.
func tokens(text string, decimals uint8) (money.Amount, error) {
	if text == "" {
		return money.Amount{},
			usagef("--amount is required: the most the agent may spend, in whole tokens like 25 or 2.50")
	}
	if amount, err := money.ParseUnits(text, decimals); err == nil && !amount.IsZero() {
		return amount, nil
	}
	return money.Amount{}, usagef("--amount %s is not a number of tokens above 0 with at most %d decimals",
		text, decimals)
}
