package imported

import (
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/crypto"
	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/wallet"
	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/guarded"
	"x402-wallet/wallet/internal/keystore/keytest"
)

// A deposit of an owner is signed by their own key alone.
func TestAnOwnersDeposit(t *testing.T) {
	secret := must.Get(crypto.GenerateKey())(t)
	raw := [32]byte(crypto.FromECDSA(secret))
	owner := Key{guarded.NewPrivateKey(wallet.ChainEVM, crypto.PubkeyToAddress(secret.PublicKey).Hex(),
		raw[:])}
	d := wallet.ChannelDeposit{Channel: wallet.PaymentChannel{ChainID: 84532, Payer: owner.Address,
		Receiver:           "0x209693Bc6afc0C5328bA36FaF03C514EF312287C",
		ReceiverAuthorizer: "0x1111111111111111111111111111111111111111",
		Token:              "0x036CbD53842c5426634e7929541eC2318f3dCF7e", Delay: 900},
		Name: "USDC", Version: "2", Value: [32]byte{30: 0x13, 31: 0x88},
		ValidBefore: uint64(time.Now().Unix()) + 3600, Salt: [32]byte{1, 2, 3}}
	signature := must.Get(owner.SignDeposit(keytest.EVM, d))(t)
	ordered := must.Get(d.Order(keytest.EVM, owner.Address))(t)
	signature[64] -= 27
	by := must.Get(crypto.SigToPub(ordered.Digest[:], signature[:]))(t)
	require.Equal(t, owner.Address, crypto.PubkeyToAddress(*by).Hex())
	for name, spoil := range map[string]func(*wallet.ChannelDeposit, *Key){
		"another's channel": func(d *wallet.ChannelDeposit, _ *Key) {
			d.Channel.Payer = d.Channel.ReceiverAuthorizer
		},
		"the agent's own": func(d *wallet.ChannelDeposit, _ *Key) { d.Channel.Payer = "" },
		"nothing":         func(d *wallet.ChannelDeposit, _ *Key) { d.Value = [32]byte{} },
		"no key": func(_ *wallet.ChannelDeposit,
			i *Key) {
			*i = Key{guarded.PrivateKey{Chain: wallet.ChainEVM}}
		},
		"a key of Solana": func(_ *wallet.ChannelDeposit, i *Key) { i.Chain = wallet.ChainSolana },
	} {
		t.Run(name, func(t *testing.T) {
			d, i := d, owner
			spoil(&d, &i)
			require.ErrorIs(t, must.Err(i.SignDeposit(keytest.EVM, d)), coded.ErrUnsupported)
		})
	}
}
