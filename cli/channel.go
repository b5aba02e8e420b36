package cli

import (
	"context"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"x402-wallet/scheme/batch"
	"x402-wallet/scheme/nuwa"
	"x402-wallet/tools"
	walletnuwa "x402-wallet/wallet/nuwa"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

func (p *Program) channelCommand(ui *ui) *cobra.Command {
	var passphrase passphraseSource
	list := p.onWallet(ui, ui.channels)
	status := func(of func(*nuwa.Manager, context.Context, string) (nuwa.Report, error)) runs {
		return p.onChannel(ui, &passphrase, func(ctx context.Context, m *nuwa.Manager,
			server string) error {
			return ui.channelStatus(of(m, ctx, server))
		})
	}
	cmd := &cobra.Command{Use: "channel", Args: wants(), RunE: list,
		Short: "Payment channels: see, open, recover, commit, deposit, refund, withdraw"}
	cmd.AddCommand(&cobra.Command{Use: "list", Short: "List the channels of this wallet", Args: wants(),
		RunE: list})
	show := &cobra.Command{
		Use: "show [SERVER]", Short: "Show a channel as service and chain see it; without SERVER, all, and " +
			"this wallet's key",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return wants("SERVER")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return list(cmd, args)
			}
			return p.showChannel(ui, status((*nuwa.Manager).Show))(cmd, args)
		},
	}
	recovered := &cobra.Command{Use: "recover SERVER",
		Short: "Ask a service for what it waits for, and sign it", Args: wants("SERVER"),
		RunE: status((*nuwa.Manager).Recover)}
	open, commit := p.channelOpenCommand(ui, &passphrase), p.channelCommitCommand(ui, &passphrase)
	refund, withdraw := p.channelRefundCommand(ui, &passphrase), p.channelWithdrawCommand(ui, &passphrase)
	subs := []*cobra.Command{show, open, recovered, commit, p.channelDepositCommand(ui), refund, withdraw}
	for _, sub := range subs {
		passphrase.addFD(sub, "", "the passphrase")
	}
	cmd.AddCommand(subs...)
	return cmd
}

// showChannel shows the channels with a deposit at a host, or else that of a service.
func (p *Program) showChannel(ui *ui, service runs) runs {
	return func(cmd *cobra.Command, args []string) error {
		found := false
		err := p.with(cmd, ui, nil, func(ctx context.Context, w *tools.Wallet) error {
			list, err := w.Deposits.List(ctx, strings.ToLower(args[0]))
			if x402.HasCode(err, x402.InvalidArgument) {
				return nil
			}
			found = err == nil
			if err != nil {
				return err
			}
			return ui.answer(list, func() { ui.deposits(list) })
		})
		if found || err != nil {
			return err
		}
		return service(cmd, args)
	}
}

func (p *Program) channelOpenCommand(ui *ui, passphrase *passphraseSource) *cobra.Command {
	var dollars string
	cmd := ui.loosens(&cobra.Command{
		Use: "open SERVER", Short: "Open the channel to a service (you are asked)", Args: wants("SERVER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var deposit money.Dollars
			if dollars != "" {
				var err error
				if deposit, err = money.ParseDollars(dollars); err != nil {
					return usagef("--deposit %s is not an amount of dollars like 0.50", dollars)
				}
			}
			return p.with(cmd, ui, passphrase.or(nil), func(ctx context.Context, w *tools.Wallet) error {
				return p.openChannel(ctx, ui, w, args[0], deposit)
			})
		},
	})
	cmd.Flags().StringVar(&dollars, "deposit", "",
		"also put this many `DOLLARS` of RGas into your payment hub")
	return cmd
}

func (p *Program) channelCommitCommand(ui *ui, passphrase *passphraseSource) *cobra.Command {
	return &cobra.Command{
		Use: "commit SERVER", Short: "Give a service the last voucher without a call", Args: wants("SERVER"),
		RunE: p.onChannel(ui, passphrase, func(ctx context.Context, m *nuwa.Manager, server string) error {
			out, err := m.Commit(ctx, server)
			if err != nil {
				return err
			}
			return ui.answer(out, func() {
				if out.Committed {
					ui.say("committed, up to voucher %d", out.Nonce)
				}
				if out.Note != "" {
					ui.note("%s", out.Note)
				}
			})
		}),
	}
}

// onChannel is a command on the channel to the service that its argument names.
func (p *Program) onChannel(ui *ui, passphrase *passphraseSource,
	f func(ctx context.Context, m *nuwa.Manager, server string) error) runs {
	return func(cmd *cobra.Command, args []string) error {
		return p.with(cmd, ui, passphrase.or(nil), func(ctx context.Context, w *tools.Wallet) error {
			m, err := channelsOf(w)
			if err != nil {
				return err
			}
			defer ui.waiting("waiting for the service and its chain")()
			return f(ctx, m, args[0])
		})
	}
}

func channelsOf(w *tools.Wallet) (*nuwa.Manager, error) {
	if w.Channels == nil {
		return nil, x402.Errorf(x402.SetupFailed, "no payment channels are set up").
			WithHint("add did under [channel] and rpc under [networks.\"rooch:main\"] to config.toml, and " +
				"seal it with x402-wallet policy seal")
	}
	return w.Channels, nil
}

// openChannel asks for each of the transactions that opening takes, where there is somebody to ask.
func (p *Program) openChannel(ctx context.Context, ui *ui, w *tools.Wallet, server string,
	deposit money.Dollars) error {
	m, err := channelsOf(w)
	if err != nil {
		return err
	}
	const transactions = 2 // a deposit, and the opening
	for asked := 0; ; asked++ {
		s, err := m.Open(ctx, server, deposit)
		id, _ := x402.AsError(err).Details["approvalId"].(string)
		nobody := !ui.page && !isTerminal(p.Stdin) // nobody is there to be asked
		if err == nil || id == "" || asked == transactions || nobody {
			return ui.channelStatus(s, err)
		}
		if err := p.approveHere(ctx, ui, w, id); err != nil {
			return err
		}
	}
}

func (p *Program) approveHere(ctx context.Context, ui *ui, w *tools.Wallet, id string) error {
	a, err := w.Store.Approval(ctx, id)
	if err != nil {
		return decisionError(id, err)
	}
	_, err = p.approveShown(ctx, ui, w.Store, a, loosening{prompt: "Passphrase, to approve this: ",
		title: "Open a payment channel"})
	return err
}

func (u *ui) channels(ctx context.Context, w *tools.Wallet, _ []string) (err error) {
	m, unset := channelsOf(w)
	solana, _ := w.Keys.Addresses()
	// to set them up with
	out := nuwa.List{PublicKey: walletnuwa.ChannelKey(solana), Servers: []string{},
		Channels: []nuwa.Report{}}
	if unset == nil {
		out, err = m.List(ctx)
	}
	if err != nil {
		return err
	}
	deposits, err := w.Deposits.List(ctx, "")
	if err != nil {
		return err
	}
	all := struct {
		nuwa.List
		Deposits []batch.Report `json:"deposits"`
	}{out, append([]batch.Report{}, deposits...)}
	return u.answer(all, func() {
		u.deposits(deposits)
		if out.DID != "" {
			u.note("the owner's DID: %s", safe(out.DID))
		}
		u.note("this wallet's key, for its document: %s (Ed25519VerificationKey2020)", out.PublicKey)
		if unset != nil {
			u.note("%s: %s", x402.AsError(unset).Message, x402.AsError(unset).Hint)
			return
		}
		rows := each(out.Channels, func(s nuwa.Report) []string {
			return []string{s.Server, s.Service, s.Network, strconv.FormatUint(s.Nonce, 10),
				s.Prices.Signed, s.Prices.Claimed, s.Channel}
		})
		u.table([]string{"SERVER", "SERVICE", "NETWORK", "VOUCHERS", "SIGNED", "CLAIMED", "CHANNEL"}, rows)
	})
}

func (u *ui) channelStatus(s nuwa.Report, err error) error {
	if err != nil {
		return err
	}
	if u.json {
		return u.printJSON(s)
	}
	rows := [][]string{{"service", s.Service}, {"our key", s.Key}, {"network", s.Network},
		{"channel", s.Channel}, {"state", s.State},
		{"vouchers", strconv.FormatUint(s.Nonce, 10) + ", in epoch " + strconv.FormatUint(s.Epoch, 10)},
		{"signed", s.Prices.Signed}, {"claimed", s.Prices.Claimed}}
	if s.Hub != nil {
		rows = append(rows, []string{"in the hub", s.Prices.Hub})
	}
	if !s.Delivered {
		rows = append(rows, []string{"outstanding", "the last voucher goes with the next call"})
	}
	if s.Refused != nil {
		rows = append(rows, []string{"last refused", string(s.Refused)})
	}
	u.table(nil, rows)
	return nil
}
