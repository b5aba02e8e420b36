package cli

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"x402-wallet/channel"
	"x402-wallet/tools"
	"x402-wallet/wallet"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

type channelFlags struct {
	passphraseFD int
	deposit      string
}

func (p *Program) channelCommand(ui *ui) *cobra.Command {
	var f channelFlags
	cmd := &cobra.Command{
		Use: "channel", Short: "Payment channels: see, open, recover, commit", Args: wants(),
		Long: "Payment channels (Nuwa, on Rooch): services that serve first and are paid by a signed " +
			"voucher with the next call. They need\n" +
			"[channel] and a [networks.\"rooch:…\"] in config.toml, and this wallet's key in the DID " +
			"document of its owner.",
		RunE: func(cmd *cobra.Command, _ []string) error { return p.listChannels(cmd, ui) },
	}
	list := &cobra.Command{
		Use: "list", Short: "List the channels of this wallet", Args: wants(),
		RunE: func(cmd *cobra.Command, _ []string) error { return p.listChannels(cmd, ui) },
	}
	show := &cobra.Command{
		Use: "show [SERVER]", Short: "Show a channel as service and chain see it; without SERVER, this " +
			"wallet's key",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return wants("SERVER")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return p.listChannels(cmd, ui)
			}
			return p.channel(cmd, ui, f, func(ctx context.Context, m *channel.Manager) error {
				return ui.channelStatus(m.Show(ctx, args[0]))
			})
		},
	}
	recovered := &cobra.Command{
		Use: "recover SERVER", Short: "Ask a service for what it waits for, and sign it",
		Args: wants("SERVER"),
		Long: "Ask a service what it knows of the channel. A payment it waits for is signed if it " +
			"passes the same checks and budgets as one\n" +
			"that comes with a call.",
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.channel(cmd, ui, f, func(ctx context.Context, m *channel.Manager) error {
				return ui.channelStatus(m.Recover(ctx, args[0]))
			})
		},
	}
	open, commit := p.channelOpenCommand(ui, &f), p.channelCommitCommand(ui, &f)
	for _, sub := range []*cobra.Command{show, open, recovered, commit} {
		sub.Flags().IntVar(&f.passphraseFD, "passphrase-fd", noFD, passphraseFDUsage)
		hideDefault(sub, "passphrase-fd")
	}
	cmd.AddCommand(list, show, open, recovered, commit)
	return cmd
}

func (p *Program) channelOpenCommand(ui *ui, f *channelFlags) *cobra.Command {
	cmd := ui.loosens(&cobra.Command{
		Use: "open SERVER", Short: "Open the channel to a service (you are asked)", Args: wants("SERVER"),
		Long: "Open the channel to a service of config.toml, or let this wallet's key into it. It is a " +
			"spend: the chain's fee, and the deposit\n" +
			"where one is made, are held in the budgets and bounded by channel.deposit_cap, and you are " +
			"asked for each.",
		Example: "  x402-wallet channel open nuwa\n  x402-wallet channel open nuwa --deposit 0.50",
		RunE: func(cmd *cobra.Command, args []string) error {
			var deposit money.Dollars
			if f.deposit != "" {
				var err error
				if deposit, err = money.ParseDollars(f.deposit); err != nil {
					return usageError{text: "--deposit " + f.deposit +
						"is not an amount of dollars like 0.50"}
				}
			}
			return p.withKey(cmd, ui, passphraseSource{fd: f.passphraseFD}.or(nil),
				func(ctx context.Context, w *tools.Wallet) error {
					return p.openChannel(ctx, ui, w, args[0], deposit)
				})
		},
	})
	cmd.Flags().StringVar(&f.deposit, "deposit", "",
		"also put this many `DOLLARS` of RGas into your payment hub")
	return cmd
}

func (p *Program) channelCommitCommand(ui *ui, f *channelFlags) *cobra.Command {
	return &cobra.Command{
		Use: "commit SERVER", Short: "Give a service the last voucher without a call", Args: wants("SERVER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.channel(cmd, ui, *f, func(ctx context.Context, m *channel.Manager) error {
				out, err := m.Commit(ctx, args[0])
				if err != nil {
					return err
				}
				if ui.json {
					return ui.printJSON(out)
				}
				if out.Committed {
					ui.say("committed, up to voucher %d", out.Nonce)
				}
				if out.Note != "" {
					ui.note("%s", out.Note)
				}
				return nil
			})
		},
	}
}

func (p *Program) channel(cmd *cobra.Command, ui *ui, f channelFlags,
	use func(ctx context.Context, m *channel.Manager) error) error {
	return p.withKey(cmd, ui, passphraseSource{fd: f.passphraseFD}.or(nil),
		func(ctx context.Context, w *tools.Wallet) error {
			m, err := channelsOf(w)
			if err != nil {
				return err
			}
			defer ui.waiting("waiting for the service and its chain")()
			return use(ctx, m)
		})
}

func channelsOf(w *tools.Wallet) (*channel.Manager, error) {
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

// approveHere is approve, in the middle of another command.
func (p *Program) approveHere(ctx context.Context, ui *ui, w *tools.Wallet, id string) error {
	a, err := w.Store.Approval(ctx, id)
	if err != nil {
		return decisionError(id, err)
	}
	ui.terms(a)
	l := loosening{prompt: "Passphrase, to approve this: ", title: "Open a payment channel"}
	for _, row := range termsOf(a) {
		l.lines = append(l.lines, row[0]+": "+safe(row[1]))
	}
	guard, done, err := p.ownerOf(ctx, ui, w.Store, l)
	if err != nil {
		return err
	}
	defer done()
	_, err = guard.Approve(ctx, a, "owner")
	return err
}

func (p *Program) listChannels(cmd *cobra.Command, ui *ui) error {
	return p.with(cmd, ui, func(ctx context.Context, w *tools.Wallet) error {
		m, unset := channelsOf(w)
		solana, _ := w.Keys.Addresses()
		// to set them up with
		out := channel.List{PublicKey: wallet.ChannelKey(solana), Servers: []string{},
			Channels: []channel.Report{}}
		if unset == nil {
			var err error
			if out, err = m.List(ctx); err != nil {
				return err
			}
		}
		if ui.json {
			return ui.printJSON(out)
		}
		if out.DID != "" {
			ui.note("the owner's DID: %s", safe(out.DID))
		}
		ui.note("this wallet's key, for its document: %s (Ed25519VerificationKey2020)", out.PublicKey)
		if unset != nil {
			ui.note("%s: %s", x402.AsError(unset).Message, x402.AsError(unset).Hint)
			return nil
		}
		var rows [][]string
		for _, s := range out.Channels {
			rows = append(rows, []string{s.Server, s.Service, s.Network, strconv.FormatUint(s.Nonce, 10),
				s.Signed.String(), s.Claimed.String(), s.Channel})
		}
		ui.table([]string{"SERVER", "SERVICE", "NETWORK", "VOUCHERS", "SIGNED", "CLAIMED", "CHANNEL"}, rows)
		return nil
	})
}

func (u *ui) channelStatus(s channel.Report, err error) error {
	if err != nil {
		return err
	}
	if u.json {
		return u.printJSON(s)
	}
	rows := [][]string{{"service", s.Service}, {"our key", s.Key}, {"network", s.Network},
		{"channel", s.Channel}, {"state", s.State},
		{"vouchers", strconv.FormatUint(s.Nonce, 10) + ", in epoch " + strconv.FormatUint(s.Epoch, 10)},
		{"signed", s.Signed.String() + " units of RGas"}, {"claimed", s.Claimed.String() + " units"}}
	if s.Hub != nil {
		rows = append(rows, []string{"in the hub", s.Hub.String() + " units"})
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
