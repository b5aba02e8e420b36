package cli

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"x402-wallet/history"
	"x402-wallet/scheme/batch"
	batchcheck "x402-wallet/scheme/batch/check"
	"x402-wallet/tools"
	"x402-wallet/wallet"
	"x402-wallet/wallet/imported"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// An owner funds a channel that the agent signs vouchers in (batch-settlement).

type depositFlags struct {
	owner, keypair, amount, network, signature string
}

// depositOut is a channel that an owner funds, and what is to be signed for it.
type depositOut struct {
	batch.OwnersChannel
	Deposit money.Amount    `json:"deposit,omitzero"`    // that the agent's next call brings, once signed
	Until   string          `json:"until,omitempty"`     // when it can be brought no more
	Sign    json.RawMessage `json:"typedData,omitempty"` // for eth_signTypedData_v4, by the owner
	Next    x402.Next       `json:"next"`
}

func (p *Program) channelDepositCommand(ui *ui) *cobra.Command {
	var f depositFlags
	cmd := &cobra.Command{
		Use: "deposit URL", Short: "Fund a channel from your own account, for the agent to pay from",
		Args: wants("URL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.with(cmd, ui, nil, func(ctx context.Context, w *tools.Wallet) error {
				return p.fundChannel(ctx, ui, w, args[0], f)
			})
		},
	}
	cmd.Flags().StringVar(&f.owner, "owner", "",
		"whose money it is: your own `ADDRESS`, if you sign elsewhere")
	cmd.Flags().StringVar(&f.keypair, "owner-keypair", "", "sign with the key in this `FILE` (a keystore of "+
		"go-ethereum, or hex); without it what is to be signed is printed for your own signer")
	cmd.Flags().StringVar(&f.amount, "amount", "",
		"how much, in whole `TOKENS`, like 5 or 2.50; 0: only write down what lies there")
	cmd.Flags().StringVar(&f.signature, "signature", "",
		"your `SIGNATURE` over what was printed, 0x and 130 hex digits")
	cmd.Flags().StringVar(&f.network, "network", "",
		"on this `NETWORK`, like base; default: the first one that the seller takes")
	cmd.MarkFlagsMutuallyExclusive("owner", "owner-keypair")
	cmd.MarkFlagsOneRequired("owner", "owner-keypair")
	cmd.MarkFlagsMutuallyExclusive("amount", "signature")
	cmd.MarkFlagsOneRequired("amount", "signature")
	return ui.loosens(cmd)
}

// fundChannel finds the channel, has the owner's deposit drafted, signed or completed, and writes it down.
func (p *Program) fundChannel(ctx context.Context, ui *ui, w *tools.Wallet, url string,
	f depositFlags) error {
	var key imported.Key
	if f.keypair != "" {
		var err error
		if key, err = ownersKey(ctx, ui, f.keypair); err != nil {
			return err
		}
		defer key.Wipe()
		f.owner = key.Address
	}
	network := ""
	if f.network != "" {
		var known bool
		network, known = x402.Network(f.network)
		if !known {
			return usagef("--network %s is not a network that is known", safe(f.network))
		}
	}
	c, err := waitFor(ui, "waiting for the seller", func() (batch.OwnersChannel, error) {
		return w.Deposits.FindOwners(ctx, url, f.owner, network)
	})
	if err != nil {
		return err
	}
	out := depositOut{OwnersChannel: c, Next: x402.Next{Do: x402.Done}}
	d, err := f.deposit(w, c, key)
	if err != nil {
		return err
	}
	if d != nil {
		out.Deposit, out.Until = d.Value, x402.Stamp(time.Unix(d.ValidBefore, 0))
		if d.Signature == "" {
			out.Sign, err = w.Deposits.TypedData(c, *d)
			if err != nil {
				return err
			}
			out.Next = x402.Next{Do: x402.AskPerson, Why: "the owner signs typedData " +
				"(eth_signTypedData_v4), and the same command with --signature in the place of --amount " +
				"takes it back"}
		}
	}
	lines := depositLines(out)
	for _, line := range lines {
		ui.note("  %s", safe(line))
	}
	err = w.Deposits.FundOwners(ctx, c, d, func(row history.Channel) ([]byte, error) {
		guard, done, err := p.ownerOf(ctx, ui, w.Store, loosening{
			prompt: "Passphrase, to let the agent sign for this channel: ", title: "Fund a channel",
			lines: lines})
		if err != nil {
			return nil, err
		}
		defer done()
		return guard.SealChannel(ctx, row)
	})
	if err != nil {
		return err
	}
	return ui.answer(out, func() { ui.funded(out) })
}

// deposit is what the owner deposits: drafted, and signed where their key is here, or what was drafted before
// with their signature; nil: nothing.
func (f depositFlags) deposit(w *tools.Wallet, c batch.OwnersChannel, key imported.Key) (*x402.OwnersDeposit,
	error) {
	if f.signature != "" {
		draft, err := c.Unsigned()
		if err != nil {
			return nil, err
		}
		signature, err := readSignature(f.signature)
		if err != nil {
			return nil, err
		}
		signed, err := w.Deposits.SignedOwners(c, draft, signature)
		return &signed, err
	}
	if f.amount == "0" {
		return nil, nil
	}
	amount, err := wholeUnits("amount", f.amount, c.Token)
	if err != nil {
		return nil, err
	}
	draft, err := w.Deposits.DraftOwners(amount)
	if err != nil || f.keypair == "" {
		return &draft, err
	}
	signature, err := signDeposit(key, c, draft)
	if err != nil {
		return nil, err
	}
	signed, err := w.Deposits.SignedOwners(c, draft, signature)
	return &signed, err
}

// signDeposit signs a deposit with its owner's key, which reads it from its parts.
func signDeposit(key imported.Key, c batch.OwnersChannel, d x402.OwnersDeposit) (sig [65]byte, err error) {
	of, err := batchcheck.PaymentChannel(c.Network, c.Config)
	if err != nil {
		return sig, err
	}
	salt, err := hex.DecodeString(strings.TrimPrefix(d.Salt, "0x"))
	if err != nil || len(salt) != 32 {
		return sig, x402.Errorf(x402.Internal, "the deposit's salt is none")
	}
	return key.SignDeposit(c.Agent, wallet.ChannelDeposit{Channel: of, Name: c.Token.Name,
		Version: c.Token.Version, Value: d.Value.Bytes32(), ValidBefore: uint64(d.ValidBefore),
		Salt: [32]byte(salt)})
}

// readSignature reads r ‖ s ‖ v; v of 0 or 1, as some signers have it, is 27 or 28.
func readSignature(text string) (sig [65]byte, err error) {
	digits, is0x := strings.CutPrefix(text, "0x")
	raw, err := hex.DecodeString(digits)
	if err != nil || len(raw) != len(sig) || !is0x {
		return sig, usagef("--signature is not 0x and 130 hex digits")
	}
	copy(sig[:], raw)
	if sig[64] < 27 {
		sig[64] += 27
	}
	return sig, nil
}

// depositLines are the terms of a channel, as the owner is shown them before they seal it.
func depositLines(out depositOut) []string {
	units := func(a money.Amount) string { return a.Units(out.Token.Decimals) + " " + out.Symbol }
	lines := []string{"channel with: " + out.Server + " (" + out.Channel + ")",
		"on: " + x402.Title(out.Network), "funded by: " + out.Owner + ", to whom it comes back",
		"vouchers signed by: " + out.Agent + " (the agent)", "paid to: " + out.Receiver,
		"claimed by: " + out.ReceiverAuthorizer, "price of this call: " + out.Price,
		"comes back without the seller after: " + out.WithdrawDelay,
		"in it: " + units(out.Balance) + ", of which " + units(out.Claimed) + " are claimed"}
	if !out.MinDeposit.IsZero() {
		lines = append(lines, "the seller wants deposits of: "+units(out.MinDeposit)+" at least")
	}
	if !out.Deposit.IsZero() {
		lines = append(lines, "deposit: "+units(out.Deposit)+", which the agent's next call brings until "+
			out.Until+"; the seller's facilitator pays the gas")
	}
	return lines
}

func (u *ui) funded(out depositOut) {
	switch {
	case out.Sign != nil:
		u.note("%s signs this (eth_signTypedData_v4):", out.Owner)
		u.say("%s", string(out.Sign))
		u.note("then: the same command with --signature in the place of --amount")
	case !out.Deposit.IsZero():
		u.say("signed: the agent's next call to %s brings the deposit", safe(out.Server))
	default:
		u.say("the agent pays %s from this channel", safe(out.Server))
	}
}
