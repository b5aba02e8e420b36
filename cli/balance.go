package cli

import (
	"context"
	"errors"
	"io/fs"
	"slices"

	"github.com/spf13/cobra"

	"x402-wallet/budget/standing"
	"x402-wallet/internal/config"
	"x402-wallet/tools"
	"x402-wallet/wallet"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

func (p *Program) balanceCommand(ui *ui) *cobra.Command {
	var network, asset string
	cmd := &cobra.Command{
		Use: "balance", Short: "What can be spent: on the chains, and of each budget", Args: wants(),
		RunE: p.onWallet(ui, func(ctx context.Context, w *tools.Wallet, _ []string) error {
			out, err := waitFor(ui, "waiting for the nodes", func() (tools.BalanceOut, error) {
				return w.Balance(ctx, network, asset)
			})
			if err != nil {
				return err
			}
			isKnown := func(row tools.BalanceRow) bool { return row.Error == "" }
			ok := len(out.Networks) == 0 || slices.ContainsFunc(out.Networks, isKnown)
			return ui.answerChecked(out, ok, func() {
				ui.balances(out)
				ui.say("")
				ui.budgets(out.Budget)
			})
		}),
	}
	cmd.Flags().StringVar(&network, "network", "", "only this `NETWORK`, like base or eip155:8453; "+
		"all: each that can be paid on")
	cmd.Flags().StringVar(&asset, "asset", "", "only this `ASSET`, a symbol or an address")
	addAccountFlag(cmd.Flags())
	return cmd
}

func (u *ui) balances(out tools.BalanceOut) {
	list := out.Networks
	var rows [][]string
	for _, row := range list {
		if row.Error != "" {
			rows = append(rows, []string{x402.NetworkName(row.Network), row.Symbol, "?", "?", "?", "?"})
			continue
		}
		cells := []string{x402.NetworkName(row.Network), row.Symbol}
		for _, amount := range []*money.Amount{row.Balance, row.Delegated, row.Held, row.Available} {
			cell := "-"
			if amount != nil {
				cell = amount.Units(row.Decimals)
			}
			cells = append(cells, cell)
		}
		rows = append(rows, cells)
	}
	empty := true
	u.painted([]string{"NETWORK", "ASSET", "BALANCE", "DELEGATED", "HELD", "AVAILABLE"}, rows,
		func(row, column int) string {
			switch available := list[row].Available; {
			case list[row].Error != "":
				return yellow
			case available == nil:
				return ""
			case column == 5 && !available.IsZero():
				return green
			}
			return ""
		})
	for _, row := range list {
		if row.Error != "" {
			u.note("%s %s: %s (%s)", paint(u.colorErr, yellow, "?"), x402.NetworkName(row.Network),
				safe(row.Error), row.ErrorCode)
		}
		empty = empty && (row.IsCoin() || (row.Available != nil && row.Available.IsZero()))
	}
	if out.More != "" {
		u.note("%s (--network all shows each)", out.More)
	}
	for _, c := range out.Channels {
		u.note("%s of the channel that %s funds with %s on %s", c.Price, c.Owner, safe(c.Host),
			x402.NetworkName(c.Network))
		empty = empty && c.Available.IsZero()
	}
	if empty && len(list) > 0 { // known to be, everywhere
		u.note("there is nothing to spend yet: %s shows where to send USDC", out.Next.Command)
	}
}

func (u *ui) budgets(b standing.Report) {
	type named struct {
		name string
		standing.Line
	}
	rows := [][]string{{"one call", b.PerCall.Price()}}
	used := []float64{0}
	windows := []named{{"session", b.Session}, {"day", b.Day}, {"month", b.Month}}
	for _, team := range b.Teams {
		for _, w := range []named{{"day of " + team.Name, team.Day}, {"month of " + team.Name, team.Month}} {
			if w.Limit != nil {
				windows = append(windows, w)
			}
		}
	}
	for _, line := range windows {
		limit, left, bar, part := "none", "", "", 0.0
		if line.Limit != nil {
			limit, left = line.Limit.Price(), line.Remaining.Price()
			bar, part = gauge(int64(line.Spent), int64(line.Held), int64(*line.Limit))
		}
		used = append(used, part)
		rows = append(rows, []string{line.name, limit, line.Spent.Price(), line.Held.Price(), left, bar,
			moment(line.ResetsAt)})
	}
	u.painted([]string{"BUDGET", "LIMIT", "SPENT", "HELD", "LEFT", "USED", "RESETS (UTC)"}, rows,
		func(row, column int) string {
			switch {
			case column != 4 && column != 5:
				return ""
			case used[row] >= 1:
				return red
			case used[row] >= nearlyUsed:
				return yellow
			}
			return green
		})
}

type addressOut struct {
	Chain   string `json:"chain"`
	Address string `json:"address"`
}

// addresses are an account's, as they are shown.
func addresses(keys *wallet.Account) []addressOut {
	solana, evm := keys.Addresses()
	return []addressOut{{Chain: wallet.ChainSolana, Address: solana}, {Chain: wallet.ChainEVM, Address: evm}}
}

func title(chain string) string {
	if chain == wallet.ChainEVM {
		return "EVM (Base and other EVM networks)"
	}
	return "Solana"
}

// whoSigns is the wallet with the signers of its rules. An address that stands in rules which the owner did
// not seal is shown to nobody: somebody would send money there.
func (p *Program) whoSigns(ctx context.Context) (*wallet.Wallet, *config.Config, error) {
	if err := p.haveWallet(); err != nil {
		return nil, nil, err
	}
	rules, err := p.Rules()
	if errors.Is(err, fs.ErrNotExist) {
		err = config.Missing(p.Home)
	}
	if err != nil {
		return nil, nil, err
	}
	if len(rules.Signers) > 0 {
		guard, err := p.rules(ctx)
		if err != nil {
			return nil, nil, err
		}
		err = guard.CheckConfig(ctx)
		_ = guard.Store.Close()
		if err != nil {
			return nil, nil, err
		}
	}
	keys, err := p.OpenKeys(rules)
	return keys, rules, err
}

// addressCommand needs no passphrase: addresses are in the keystore's header, and are checked
// against the keys whenever these are decrypted.
func (p *Program) addressCommand(ui *ui) *cobra.Command {
	var qr bool
	cmd := &cobra.Command{
		Use: "address", Short: "Show the addresses to fund", Args: wants(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			keys, _, err := p.whoSigns(cmd.Context())
			if err != nil {
				return err
			}
			defer func() { _ = keys.Close() }()
			name, _ := cmd.Flags().GetString(accountFlag)
			account, err := accountKeys(keys, name)
			if err != nil {
				return err
			}
			list := addresses(account)
			return ui.answer(map[string]any{"addresses": list}, func() {
				if qr {
					ui.addresses(list)
					return
				}
				ui.table(nil, each(list, func(a addressOut) []string {
					return []string{title(a.Chain), a.Address}
				}))
			})
		},
	}
	cmd.Flags().BoolVar(&qr, "qr", false, "with QR codes")
	addAccountFlag(cmd.Flags())
	return cmd
}

// addresses prints each with its QR code.
func (u *ui) addresses(list []addressOut) {
	for _, a := range list {
		u.say("%s\n  %s\n", title(a.Chain), a.Address)
		u.qr(a.Address)
		u.say("")
	}
}
