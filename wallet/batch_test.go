package wallet

import (
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/rlp"
	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/keystore/keytest"
)

func goodChannel() PaymentChannel {
	return PaymentChannel{ChainID: 84532, Receiver: "0x209693Bc6afc0C5328bA36FaF03C514EF312287C",
		ReceiverAuthorizer: "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC",
		Token:              "0x036CbD53842c5426634e7929541eC2318f3dCF7e", Delay: 900}
}

func goodDeposit(t *testing.T) ChannelDeposit {
	d := ChannelDeposit{Channel: goodChannel(), Name: "USDC", Version: "2",
		Value: [32]byte{30: 0x13, 31: 0x88}, ValidBefore: uint64(kindsNow.Unix()) + 3600}
	copy(d.Salt[:], keytest.Unhex(t, "0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20"))
	return d
}

func channelWallet(t *testing.T) *Wallet {
	w := goldenWallet(t)
	w.now = func() time.Time { return kindsNow }
	return w
}

// What the reference client 2.27 signs for the same channel (chain/evm/testdata/batch-vectors.json,
// batch_deposit_eip3009 and batch_voucher_second).
func TestChannelSignatures(t *testing.T) {
	w := channelWallet(t)
	voucher := must.Get(w.SignVoucher(t.Context(), goodChannel(), [32]byte{30: 0x06, 31: 0xa4}))(t)
	require.Equal(t, keytest.Unhex(t, "015ae595260ba2f8dfd4c20d3e3d6b955954705f9b8334367598c92bbe6c2013"+
		"415d95ba87997508dd36583494f4e41f971f510e069f5fdf5a358ea688716c8e1b"), voucher[:])
	deposit := must.Get(w.SignDeposit(t.Context(), goodDeposit(t)))(t)
	require.Equal(t, keytest.Unhex(t, "937502835f8b626d3880542488efac80f103f415aa55c0bba8c7f002e65c9350"+
		"61694000178adea581c6e4ddb003e1696be2fc32e7d6536ee57a5307471fec6f1c"), deposit[:])
}

// Nothing but a deposit into a channel that pays back to this wallet, and vouchers out of one.
func TestChannelsRefused(t *testing.T) {
	w := channelWallet(t)
	for name, spoil := range map[string]func(c *PaymentChannel){
		"no network":             func(c *PaymentChannel) { c.ChainID = 0 },
		"to nobody":              func(c *PaymentChannel) { c.Receiver = "0x" + strings.Repeat("0", 40) },
		"to no address":          func(c *PaymentChannel) { c.Receiver = "0x12" },
		"to this wallet":         func(c *PaymentChannel) { c.Receiver = keytest.EVM },
		"to the token":           func(c *PaymentChannel) { c.Receiver = c.Token },
		"claimed by this wallet": func(c *PaymentChannel) { c.ReceiverAuthorizer = keytest.EVM },
		"claimed by nobody": func(c *PaymentChannel) {
			c.ReceiverAuthorizer = "0x" + strings.Repeat("0", 40)
		},
		"of this wallet as token": func(c *PaymentChannel) { c.Token = keytest.EVM },
		"of the contract":         func(c *PaymentChannel) { c.Token = batchContract },
		"a short delay":           func(c *PaymentChannel) { c.Delay = leastDelay - 1 },
		"a long delay":            func(c *PaymentChannel) { c.Delay = mostDelay + 1 },
	} {
		t.Run(name, func(t *testing.T) {
			c, d := goodChannel(), goodDeposit(t)
			spoil(&c)
			spoil(&d.Channel)
			require.ErrorIs(t, must.Err(w.SignVoucher(t.Context(), c, [32]byte{31: 1})), coded.ErrUnsupported)
			require.ErrorIs(t, must.Err(w.SignDeposit(t.Context(), d)), coded.ErrUnsupported)
			_, err := w.SignWithdrawal(t.Context(), Withdrawal{Channel: c})
			require.ErrorIs(t, err, coded.ErrUnsupported)
		})
	}
	for name, ceiling := range map[string][32]byte{"nothing": {}, "more than 128 bits": {15: 1}} {
		t.Run(name, func(t *testing.T) {
			_, err := w.SignVoucher(t.Context(), goodChannel(), ceiling)
			require.ErrorIs(t, err, coded.ErrUnsupported)
			d := goodDeposit(t)
			d.Value = ceiling
			require.ErrorIs(t, must.Err(w.SignDeposit(t.Context(), d)), coded.ErrUnsupported)
		})
	}
	for name, spoil := range map[string]func(d *ChannelDeposit){
		"over":         func(d *ChannelDeposit) { d.ValidBefore = uint64(kindsNow.Unix()) },
		"for two days": func(d *ChannelDeposit) { d.ValidBefore += 2 * 24 * 3600 },
		"no token":     func(d *ChannelDeposit) { d.Name = "" },
	} {
		t.Run(name, func(t *testing.T) {
			d := goodDeposit(t)
			spoil(&d)
			require.ErrorIs(t, must.Err(w.SignDeposit(t.Context(), d)), coded.ErrUnsupported)
		})
	}
}

func goodPermitDeposit(t *testing.T) PermitTransfer {
	p, into := goodPermit(t), goodChannel()
	p.To, p.Into, p.Value, p.Deadline = "", &into, [32]byte{30: 0x13, 31: 0x88},
		uint64(kindsNow.Unix())+3600
	return p
}

// What the reference client 2.27 signs for a deposit by Permit2 and its approval
// (chain/evm/testdata/batch-vectors.json, batch_deposit_permit2_eip2612).
func TestDepositByPermit2(t *testing.T) {
	w := channelWallet(t)
	p := goodPermitDeposit(t)
	p.Approval = &TokenApproval{Name: "USDC", Version: "2"}
	permit, approval, err := w.SignPermit2(t.Context(), p)
	require.NoError(t, err)
	require.Equal(t, keytest.Unhex(t, "76a0a82817f66019f0a2772ed4241b1367541962c0a9bf8cfbfc164e90c5e20b"+
		"5f55392e7881493c3624bc85ee5d527c78ec9d3a98036c67518bed1af6bf59f01b"), permit[:])
	require.Equal(t, keytest.Unhex(t, "ba9efe49c0c1ada7eb96714b06f85cbdf1bae1434f737fe7c5d2f306c5a51160"+
		"7cef1927ca9670c6c9e5bd5da0675cbb7e4f86d7b50e3e33ec5c1cd3af95c1981c"), approval[:])
}

// Nothing by Permit2 but a deposit of this wallet's into a channel that pays back to it.
func TestDepositByPermit2Refused(t *testing.T) {
	now := uint64(kindsNow.Unix())
	for name, spoil := range map[string]func(*PermitTransfer){
		"an owner's channel":         func(p *PermitTransfer) { p.Into.Payer = testVault },
		"an owner's money":           func(p *PermitTransfer) { p.From = testVault },
		"another token":              func(p *PermitTransfer) { p.Token = testVault },
		"another chain":              func(p *PermitTransfer) { p.ChainID = 1 },
		"and a payee":                func(p *PermitTransfer) { p.To = p.Into.Receiver },
		"and a facilitator":          func(p *PermitTransfer) { p.Facilitator = testVault },
		"not yet":                    func(p *PermitTransfer) { p.NotBefore = 1 },
		"nothing":                    func(p *PermitTransfer) { p.Value = [32]byte{} },
		"more than 128 bits":         func(p *PermitTransfer) { p.Value = [32]byte{15: 1} },
		"over":                       func(p *PermitTransfer) { p.Deadline = now },
		"for two days":               func(p *PermitTransfer) { p.Deadline = now + 2*24*3600 },
		"a channel with itself":      func(p *PermitTransfer) { p.Into.Receiver = keytest.EVM },
		"a channel that pays nobody": func(p *PermitTransfer) { p.Into.Receiver = p.Token },
		"Permit2 as token": func(p *PermitTransfer) {
			p.Token, p.Into.Token = permit2Contract, permit2Contract
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, p := channelWallet(t), goodPermitDeposit(t)
			spoil(&p)
			_, _, err := w.SignPermit2(t.Context(), p)
			require.ErrorIs(t, err, coded.ErrUnsupported)
			require.True(t, w.Locked(), "it is not even unlocked for that")
		})
	}
}

// The transaction that is signed is the one that go-ethereum writes: a call of the contract, and no coin.
func TestWithdrawalIsTheTransaction(t *testing.T) {
	w := channelWallet(t)
	for name, c := range map[string]struct {
		amount [32]byte
		call   string
	}{
		"ask back": {[32]byte{31: 7}, "initiateWithdraw(" + channelTuple + ",uint128)"},
		"take":     {[32]byte{}, "finalizeWithdraw(" + channelTuple + ")"},
	} {
		t.Run(name, func(t *testing.T) {
			of := Withdrawal{Channel: goodChannel(), Nonce: 3, Gas: 90_000, Tip: [32]byte{31: 1},
				MaxFee: [32]byte{31: 9}, Amount: c.amount}
			data := append(crypto.Keccak256([]byte(c.call))[:4], of.Channel.words(keytest.EVM)...)
			if c.amount != [32]byte{} {
				data = append(data, c.amount[:]...)
			}
			encoded, err := rlp.EncodeToBytes([]any{uint64(84532), uint64(3), big.NewInt(1), big.NewInt(9),
				uint64(90_000), common.HexToAddress(batchContract).Bytes(), new(big.Int), data, []any{}})
			require.NoError(t, err)
			signature := must.Get(w.SignWithdrawal(t.Context(), of))(t)
			signature[64] -= 27
			key := must.Get(crypto.SigToPub(crypto.Keccak256([]byte{2}, encoded), signature[:]))(t)
			require.Equal(t, keytest.EVM, crypto.PubkeyToAddress(*key).Hex())
		})
	}
}

// A voucher is signed in a channel that somebody else funds, and over who funds it; a deposit into it is
// signed by no wallet.
func TestAnOwnersChannel(t *testing.T) {
	w := channelWallet(t)
	own := goodChannel()
	of := own
	of.Payer = testVault
	one := must.Get(w.SignVoucher(t.Context(), own, [32]byte{31: 1}))(t)
	require.NotEqual(t, one, must.Get(w.SignVoucher(t.Context(), of, [32]byte{31: 1}))(t))
	require.NotEqual(t, own.id(keytest.EVM), of.id(keytest.EVM))

	d := goodDeposit(t)
	d.Channel = of
	_, err := w.SignDeposit(t.Context(), d)
	require.ErrorIs(t, err, coded.ErrUnsupported, "the agent's key is not the payer's")
	for name, payer := range map[string]string{"nobody": "0x" + strings.Repeat("0", 40), "no address": "0x1",
		"who is paid": own.Receiver} {
		t.Run("funded by "+name, func(t *testing.T) {
			c := of
			c.Payer = payer
			require.ErrorIs(t, must.Err(w.SignVoucher(t.Context(), c, [32]byte{31: 1})), coded.ErrUnsupported)
		})
	}
}
