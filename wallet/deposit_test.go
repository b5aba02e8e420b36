package wallet

import (
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/crypto"
	"github.com/stretchr/testify/require"
)

// A voucher is signed in a channel that somebody else funds, and over who funds it; a deposit of theirs is
// signed by their own key alone, and by no wallet.
func TestAnOwnersChannel(t *testing.T) {
	w := channelWallet(t)
	secret, err := crypto.GenerateKey()
	require.NoError(t, err)
	raw := [32]byte(crypto.FromECDSA(secret))
	owner := Imported{NewPrivateKey(ChainEVM, crypto.PubkeyToAddress(secret.PublicKey).Hex(), raw[:])}
	own := goodChannel()
	of := own
	of.Payer = owner.Address
	one, err := w.SignVoucher(t.Context(), own, [32]byte{31: 1})
	require.NoError(t, err)
	other, err := w.SignVoucher(t.Context(), of, [32]byte{31: 1})
	require.NoError(t, err)
	require.NotEqual(t, one, other)
	require.NotEqual(t, own.id(goldenEVM), of.id(goldenEVM))

	d := goodDeposit(t)
	d.Channel = of
	_, err = w.SignDeposit(t.Context(), d)
	require.ErrorIs(t, err, errUnsupported, "the agent's key is not the payer's")
	signature, err := owner.SignDeposit(goldenEVM, d)
	require.NoError(t, err)
	ordered, err := d.order(goldenEVM, owner.Address)
	require.NoError(t, err)
	signature[64] -= 27
	by, err := crypto.SigToPub(ordered.Digest[:], signature[:])
	require.NoError(t, err)
	require.Equal(t, owner.Address, crypto.PubkeyToAddress(*by).Hex())
	for name, spoil := range map[string]func(*ChannelDeposit, *Imported){
		"another's channel": func(d *ChannelDeposit, _ *Imported) {
			d.Channel.Payer = d.Channel.ReceiverAuthorizer
		},
		"the agent's own": func(d *ChannelDeposit, _ *Imported) { d.Channel.Payer = "" },
		"nothing":         func(d *ChannelDeposit, _ *Imported) { d.Value = [32]byte{} },
		"no key":          func(_ *ChannelDeposit, i *Imported) { *i = Imported{PrivateKey{Chain: ChainEVM}} },
		"a key of Solana": func(_ *ChannelDeposit, i *Imported) { i.Chain = ChainSolana },
	} {
		t.Run(name, func(t *testing.T) {
			d, i := d, owner
			spoil(&d, &i)
			_, err := i.SignDeposit(goldenEVM, d)
			require.ErrorIs(t, err, errUnsupported)
		})
	}
	for name, payer := range map[string]string{"nobody": "0x" + strings.Repeat("0", 40), "no address": "0x1",
		"who is paid": own.Receiver} {
		t.Run("funded by "+name, func(t *testing.T) {
			c := of
			c.Payer = payer
			_, err := w.SignVoucher(t.Context(), c, [32]byte{31: 1})
			require.ErrorIs(t, err, errUnsupported)
		})
	}
}
