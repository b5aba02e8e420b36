package cli

import (
	"context"

	"github.com/spf13/cobra"

	"x402-wallet/internal/config"
	"x402-wallet/tools"
	"x402-wallet/wallet"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/onchain"
)

// What Permit2 may move out of the agent's own account, which is needed to pay a seller by Permit2 who brings
// no approval of it: shown, set and ended. It is a transaction with the wallet's own key, so it takes the
// passphrase, typed by the owner at that moment, whatever else unlocks the wallet.

type permit2Flags struct {
	network, symbol, amount string
	revoke                  bool
}

// permit2Out is what Permit2 may move of an account, and what a change of that cost.
type permit2Out struct {
	Network string       `json:"network"`
	Account string       `json:"account"` // the agent's own
	Asset   string       `json:"asset"`
	Symbol  string       `json:"symbol"`
	Amount  money.Amount `json:"amount"`  // atomic units that Permit2 may move
	Balance money.Amount `json:"balance"` // atomic units that are there
	Coins   money.Amount `json:"gasWei"`  // wei that the account has for gas
	Hash    string       `json:"transactionHash,omitempty"`
	Paid    string       `json:"paidGasWei,omitempty"`
}

func (p *Program) permit2Command(ui *ui) *cobra.Command {
	var f permit2Flags
	cmd := &cobra.Command{
		Use: "permit2", Short: "What Permit2 may move from the agent's own account (asks for the passphrase)",
		Args: wants(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.with(cmd, ui, nil, func(ctx context.Context, w *tools.Wallet) error {
				isChange := f.amount != "" || f.revoke
				asset, err := permit2Asset(w, f)
				if err == nil && isChange { // before a node is asked
					err = w.Engine.Guard.CheckConfig(ctx)
				}
				if err != nil {
					return err
				}
				out, err := ui.permitted(ctx, w, asset)
				if err != nil {
					return err
				}
				if isChange {
					return p.changePermitted(ctx, ui, w, f, asset, out)
				}
				return ui.answer(out, func() { ui.showPermitted(out, asset) })
			})
		},
	}
	cmd.Flags().StringVar(&f.network, "network", "",
		"on this `NETWORK`, like base; default: the preferred one")
	cmd.Flags().StringVar(&f.symbol, "asset", "",
		"of this `ASSET`, a symbol or an address; default: the network's dollars")
	cmd.Flags().StringVar(&f.amount, "amount", "",
		"let it move exactly this from now on, in whole `TOKENS`, like 25 or 2.50")
	cmd.Flags().BoolVar(&f.revoke, "revoke", false, "let it move nothing any more")
	cmd.MarkFlagsMutuallyExclusive("amount", "revoke")
	return ui.loosens(cmd)
}

func permit2Asset(w *tools.Wallet, f permit2Flags) (asset x402.AssetInfo, err error) {
	networks := configured(w, "eip155", f.network)
	if len(networks) == 0 {
		return asset, notConfigured("EVM")
	}
	asset, known := w.Engine.Assets.Named(networks[0], f.symbol)
	if !known {
		return asset, x402.Errorf(x402.UntrustedAsset, "%s is not an asset on %s", x402.Quote(f.symbol),
			x402.Title(networks[0])).WithHint("add it to config.toml under [[assets]]")
	}
	return asset, nil
}

func (u *ui) permitted(ctx context.Context, w *tools.Wallet, asset x402.AssetInfo) (out permit2Out,
	err error) {
	a, err := waitFor(u, "waiting for the node", func() (onchain.OwnAccount, error) {
		return w.Permits.ReadPermitted(ctx, asset)
	})
	return permit2Out{Network: a.Network, Account: a.Address, Asset: a.Asset, Symbol: asset.Symbol,
		Amount: a.Permitted, Balance: a.Balance, Coins: a.Gas}, err
}

func (u *ui) showPermitted(out permit2Out, asset x402.AssetInfo) {
	u.table(nil, [][]string{{"the agent's account", out.Account}, {"network", x402.Title(out.Network)},
		{"token", out.Asset}, {"Permit2 may move", out.Amount.Units(asset.Decimals) + " " + asset.Symbol},
		{"balance", out.Balance.Units(asset.Decimals) + " " + asset.Symbol},
		{"for gas", coins(out.Coins)}})
}

func coins(wei money.Amount) string {
	const decimals = 18
	return wei.Units(decimals) + " of the network's coin"
}

// changePermitted shows the transaction, takes the passphrase for exactly that, signs it, sends it and waits
// until it is in a block.
func (p *Program) changePermitted(ctx context.Context, ui *ui, w *tools.Wallet, f permit2Flags,
	asset x402.AssetInfo, before permit2Out) error {
	var amount money.Amount
	var err error
	if !f.revoke {
		if amount, err = tokens(f.amount, asset.Decimals); err != nil {
			return err
		}
	}
	if err := noFloatUnderWay(ctx, w, asset.Network); err != nil {
		return err
	}
	t, err := waitFor(ui, "waiting for the node", func() (onchain.OwnerTransaction, error) {
		return w.Permits.Approve(ctx, asset, amount)
	})
	if err != nil {
		return err
	}
	units := func(a money.Amount) string { return a.Units(asset.Decimals) + " " + asset.Symbol }
	l := loosening{prompt: "Passphrase, to sign this: ", title: "What Permit2 may move",
		lines: []string{
			"Permit2 may move: " + units(amount) + ", and no more (now " + units(before.Amount) + ")",
			"from the agent's account: " + t.From, "token: " + t.To, "on: " + x402.Title(t.Network),
			"gas: up to " + coins(t.MaxCost())}}
	for _, line := range l.lines {
		ui.note("  %s", safe(line))
	}
	keys, err := p.owner(ctx, ui, l)
	if err != nil {
		return err
	}
	defer func() { _ = keys.Close() }()
	if err := p.stillSealed(ctx, w, keys); err != nil {
		return err
	}
	rules, err := p.Rules()
	if err != nil {
		return err
	}
	keys.Signers = p.SignersByChain(rules)
	account, err := accountKeys(keys, w.Engine.Rules.Account)
	if err != nil {
		return err
	}
	signature, err := account.SignPermit2Approval(ctx, wallet.Permit2Approval{ChainID: t.ChainID,
		Nonce: t.Nonce, Gas: t.Gas, Tip: t.Tip.Bytes32(), MaxFee: t.MaxFee.Bytes32(), Token: t.To,
		Amount: amount.Bytes32()})
	if err != nil {
		return err
	}
	hash, err := waitFor(ui, "waiting for the transaction", func() (string, error) {
		return w.EVM.SendOwner(ctx, t, signature)
	})
	if err != nil {
		again := x402.Command("delegation", "permit2", "--network", t.Network)
		if name := w.Engine.Rules.Account; name != "" {
			again += " --" + accountFlag + " " + name
		}
		return x402.AsError(err).WithHint("what Permit2 may move now is shown by %s", again).
			WithDetail("transaction", hash)
	}
	out, err := ui.permitted(ctx, w, asset)
	if err != nil {
		return err
	}
	out.Hash = hash
	gas, err := w.Permits.GasOf(ctx, t.Network, hash)
	if err != nil {
		return err
	}
	out.Paid = gas.String()
	return ui.answerLine(out, "Permit2 may move %s of the agent's account now; transaction %s, gas %s",
		units(out.Amount), out.Hash, coins(gas))
}

// stillSealed checks with the owner's key that the rules that the wallet was opened with, which name the node
// and the token, are the owner's.
func (p *Program) stillSealed(ctx context.Context, w *tools.Wallet, keys *wallet.Wallet) error {
	rules, err := config.Load(p.Home)
	if err != nil {
		return err
	}
	if err := p.Guard(w.Store, rules, keys).VerifySeals(ctx); err != nil {
		return err
	}
	if w.Stale != nil && w.Stale() {
		return x402.Errorf(x402.CheckFailed, "config.toml was changed meanwhile").
			WithHint("nothing was signed; run the command again")
	}
	return nil
}

// noFloatUnderWay refuses while a float is on its way to the agent's account: it has that account's next
// nonce, of which the chain takes one transaction.
func noFloatUnderWay(ctx context.Context, w *tools.Wallet, network string) error {
	rule := w.EVM.AllowanceOn(network)
	if rule == nil {
		return nil
	}
	open, err := w.Store.OpenFrom(ctx, network, rule.Owner)
	if err != nil {
		return err
	}
	for _, p := range open {
		if p.IsPull() {
			return x402.Errorf(x402.CheckFailed, "a float is on its way to the agent's account on %s",
				x402.Title(network)).WithHint("nothing was signed; run the command again in a " +
				"minute, after x402-wallet reconcile")
		}
	}
	return nil
}
