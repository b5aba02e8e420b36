package cli

import (
	"cmp"
	"context"
	"encoding/hex"
	"strings"

	"github.com/spf13/cobra"

	"x402-wallet/scheme/batch"
	batchcheck "x402-wallet/scheme/batch/check"
	"x402-wallet/tools"
	"x402-wallet/wallet"
	"x402-wallet/wallet/imported"
	"x402-wallet/x402"
	"x402-wallet/x402/onchain"
)

// Channels with a deposit (batch-settlement): what lies in them, and how it comes back.

func (p *Program) channelRefundCommand(ui *ui, passphrase *passphraseSource) *cobra.Command {
	return &cobra.Command{
		Use: "refund HOST", Short: "Ask a seller to give back what it did not charge of your deposit",
		Args: wants("HOST"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.with(cmd, ui, passphrase.or(nil), func(ctx context.Context, w *tools.Wallet) error {
				return askWallet(ui, "waiting for the seller", func() (refundOut, error) {
					list, err := w.Deposits.Refund(ctx, strings.ToLower(args[0]))
					return refundOut{list}, err
				}, func(out refundOut) {
					if len(out.Refunds) == 0 {
						ui.say("nothing of a deposit lies with %s", safe(args[0]))
					}
					for _, r := range out.Refunds {
						ui.say("%s came back to %s", r.Price, whose(r.Payer, r.IsOwners))
					}
				})
			})
		},
	}
}

type refundOut struct {
	Refunds []batch.Refund `json:"refunds"`
}

// withdrawOut is a step of taking a deposit back without its seller.
type withdrawOut struct {
	Steps []withdrawStep `json:"steps"`
	Next  x402.Next      `json:"next"`
}

type withdrawStep struct {
	batch.Withdrawal
	Made *vaultTransfer `json:"transaction,omitempty"`
}

func (p *Program) channelWithdrawCommand(ui *ui, passphrase *passphraseSource) *cobra.Command {
	var sign bool
	var keypair string
	cmd := &cobra.Command{
		Use: "withdraw HOST", Short: "Take your deposit back without the seller: in two steps",
		Args: wants("HOST"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.with(cmd, ui, passphrase.or(nil), func(ctx context.Context, w *tools.Wallet) error {
				by := withdrawer{isAgent: sign}
				if keypair != "" {
					key, err := ownersKey(ctx, ui, keypair)
					if err != nil {
						return err
					}
					defer key.Wipe()
					by.owner = &key
				}
				return ui.withdraw(ctx, w, strings.ToLower(args[0]), by)
			})
		},
	}
	cmd.Flags().BoolVar(&sign, "sign", false, "sign with the wallet's key and send: the agent's account "+
		"pays the gas; without it the transaction is printed")
	cmd.Flags().StringVar(&keypair, "owner-keypair", "", "of a channel that you fund: sign with the key in "+
		"this `FILE` (a keystore of go-ethereum, or hex) and send")
	cmd.MarkFlagsMutuallyExclusive("sign", "owner-keypair")
	return cmd
}

// withdrawer is who signs what takes a deposit back; neither: it is printed.
type withdrawer struct {
	isAgent bool          // the wallet's own key
	owner   *imported.Key // the key of an owner who funds the channel
}

// send makes a step's transaction; nil: nobody signs it here.
func (by withdrawer) send(ctx context.Context, w *tools.Wallet, b batch.Withdrawal) (*vaultTransfer,
	error) {
	switch {
	case by.isAgent:
		return sendWithdrawal(ctx, w, b)
	case by.owner == nil:
		return nil, nil
	case by.owner.Address != b.Transaction.From:
		return nil, x402.Errorf(x402.InvalidArgument, "%s funds the channel, but the key is that of %s",
			b.Transaction.From, by.owner.Address).WithHint("name its owner's key by --owner-keypair")
	}
	shown := shownTransaction(b.Transaction)
	var err error
	shown.Hash, err = signOwners(ctx, w, *by.owner, b.Transaction)
	return &shown, err
}

// whose is an account as the person is told it.
func whose(payer string, isOwners bool) string {
	if isOwners {
		return "its owner's account " + payer
	}
	return "the agent's account"
}

// withdrawSigner is the wallet's own key, for the only transactions that it signs.
type withdrawSigner interface {
	SignWithdrawal(ctx context.Context, t wallet.Withdrawal) ([65]byte, error)
}

func (u *ui) withdraw(ctx context.Context, w *tools.Wallet, host string, by withdrawer) error {
	out := withdrawOut{Steps: []withdrawStep{}, Next: x402.Next{Do: x402.Done}}
	again := x402.Command("channel", "withdraw", host)
	err := w.Deposits.Withdraw(ctx, host, by.isAgent, func(b batch.Withdrawal) error {
		step := withdrawStep{Withdrawal: b}
		var err error
		if !b.Ready.IsZero() {
			out.Next = x402.Next{Do: x402.Wait, At: x402.Stamp(b.Ready), Command: again}
			out.Steps = append(out.Steps, step)
			return nil
		}
		step.Made, err = by.send(ctx, w, b)
		switch {
		case err != nil:
		case step.Made == nil:
			shown := shownTransaction(b.Transaction)
			shown.Unsigned, err = unsigned(w, b.Transaction)
			step.Made = &shown
			out.Next = x402.Next{Do: x402.AskPerson, Command: again, Why: "the transaction is that of " +
				whose(b.Config.Payer, b.Config.Payer != b.Config.PayerAuthorizer) +
				": its signer sends it, or --sign sends one of the agent's account"}
		case !b.IsLast:
			out.Next = x402.Next{Do: x402.Wait, Command: again + " " + by.flag(),
				Why: "the channel's delay has to pass"}
		}
		out.Steps = append(out.Steps, step)
		return err
	})
	if err != nil {
		return err
	}
	return u.answer(out, func() {
		if len(out.Steps) == 0 {
			u.say("nothing of a deposit lies with %s", safe(host))
		}
		for _, s := range out.Steps {
			switch {
			case !s.Ready.IsZero():
				u.say("%s was asked back, and can be taken from %s", s.Price, x402.Stamp(s.Ready))
			case s.Made.Hash != "":
				u.say("%s: %s, transaction %s", s.Price, s.Made.Does, s.Made.Hash)
			default:
				u.say("%s: %s; to be signed by %s:\n%s", s.Price, s.Made.Does, s.Made.From, s.Made.Unsigned)
			}
		}
		if out.Next.Command != "" {
			u.note("next: %s", out.Next.Command)
		}
	})
}

// flag is what says on the command line who signs.
func (by withdrawer) flag() string {
	if by.isAgent {
		return "--sign"
	}
	return "--owner-keypair FILE"
}

func shownTransaction(t onchain.OwnerTransaction) vaultTransfer {
	return vaultTransfer{Does: t.Does, ChainID: t.ChainID, From: t.From, To: t.To,
		Data: "0x" + hex.EncodeToString(t.Data), Nonce: t.Nonce, Gas: t.Gas, MaxFee: t.MaxFee.String(),
		Tip: t.Tip.String()}
}

// sendWithdrawal signs a step with the wallet's key, which reads it from its parts, and sends it.
func sendWithdrawal(ctx context.Context, w *tools.Wallet, b batch.Withdrawal) (*vaultTransfer, error) {
	signer, isOne := w.Keys.(withdrawSigner)
	if !isOne {
		return nil, x402.Errorf(x402.Internal, "the channel cannot be signed for")
	}
	t := b.Transaction
	channel, err := batchcheck.PaymentChannel(t.Network, b.Config)
	if err != nil {
		return nil, err
	}
	of := wallet.Withdrawal{Channel: channel, Nonce: t.Nonce, Gas: t.Gas, Tip: t.Tip.Bytes32(),
		MaxFee: t.MaxFee.Bytes32()}
	if !b.IsLast {
		of.Amount = b.Amount.Bytes32()
	}
	signature, err := signer.SignWithdrawal(ctx, of)
	if err != nil {
		return nil, err
	}
	shown := shownTransaction(t)
	shown.Hash, err = w.EVM.SendOwner(ctx, t, signature)
	return &shown, err
}

func (u *ui) deposits(list []batch.Report) {
	if len(list) == 0 {
		return
	}
	rows := each(list, func(r batch.Report) []string {
		money := "the agent"
		if r.IsOwners {
			money = r.Payer
		}
		return []string{r.Server, r.Network, money, r.Prices["deposited"], r.Prices["charged"],
			cmp.Or(r.Prices["claimed"], "-"), r.Prices["locked"], cmp.Or(r.Stopped, "open")}
	})
	u.table([]string{"DEPOSIT AT", "NETWORK", "OF", "BALANCE", "CHARGED", "CLAIMED", "LOCKED", "STATE"}, rows)
}
