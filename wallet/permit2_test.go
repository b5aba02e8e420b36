package wallet

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/keystore/keytest"
)

func goodPermit(t *testing.T) PermitTransfer {
	p := PermitTransfer{
		ChainID: 84532, Token: "0x036CbD53842c5426634e7929541eC2318f3dCF7e",
		From: keytest.EVM, To: "0x209693Bc6afc0C5328bA36FaF03C514EF312287C",
		Value: [32]byte{31: 0x10, 30: 0x27}, Deadline: uint64(kindsNow.Unix()) + 60,
	}
	copy(p.Nonce[:], keytest.Unhex(t, "0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20"))
	return p
}

// The digests and signatures that viem makes of the same messages
// (chain/evm/testdata/permit2-vectors.json, exact_permit2_eip2612 and upto_partial).
func TestPermitDigest(t *testing.T) {
	w := goldenWallet(t)
	w.now = func() time.Time { return kindsNow }
	exact := goodPermit(t)
	exact.Approval = &TokenApproval{Name: "USDC", Version: "2", Nonce: [32]byte{31: 3}}
	digest := exact.digest()
	require.Equal(t,
		keytest.Unhex(t, "bddae7c872683be5479dae159073f1410832e19321082aee28f0b3664730be32"), digest[:])
	permit, approval, err := w.SignPermit2(t.Context(), exact)
	require.NoError(t, err)
	require.Equal(t, keytest.Unhex(t,
		"d9ee36df7c6801f4e0a711a5e9c928afac77f31323a76a32460d73e812ada5531805d035189d0b"+
			"6850b750156df1cfc434f1f01853aa72c8548723062d73b8751c"), permit[:])
	require.Equal(t, keytest.Unhex(t,
		"fa9b379eca14db385e37a242f4ab952327563797a8b68b95837b604a1acdd07a173a2dd33b96a3"+
			"5bab54c5c75ae4a7504be678fd93ac6e8e5dcab49721de91b01c"), approval[:])

	upto := goodPermit(t)
	upto.Value = [32]byte{31: 0x50, 30: 0xc3}
	upto.Facilitator = "0x857b06519E91e3A54538791bDbb0E22373e36b66"
	digest = upto.digest()
	require.Equal(t,
		keytest.Unhex(t, "13e69db37667d7c71bd56e06aa2214d8d23f66aa06d82ae58ee5f0bce5092517"), digest[:])
	permit, approval, err = w.SignPermit2(t.Context(), upto)
	require.NoError(t, err)
	require.Equal(t, keytest.Unhex(t,
		"7b786e97ed6e3712a45e050fed846f815512e488053ecef469100d5eb9a8ee781216f017e783a3"+
			"b1630d70f70f04d6a7e125c850fffe5793f4fb651f8facb5461c"), permit[:])
	require.Zero(t, approval)
}

// Nothing but a payment out of this wallet that is good now and ends within a day.
func TestPermitRefused(t *testing.T) {
	now, zero := uint64(kindsNow.Unix()), "0x"+strings.Repeat("0", 40)
	for name, spoil := range map[string]func(*PermitTransfer){
		"from another":        func(p *PermitTransfer) { p.From = p.To },
		"from a third":        func(p *PermitTransfer) { p.From = testVault },
		"from nobody":         func(p *PermitTransfer) { p.From = "" },
		"to ourselves":        func(p *PermitTransfer) { p.To = strings.ToLower(p.From) },
		"to zero":             func(p *PermitTransfer) { p.To = zero },
		"to the token":        func(p *PermitTransfer) { p.To = p.Token },
		"to no hex":           func(p *PermitTransfer) { p.To = "0xz" + p.To[3:] },
		"to Permit2":          func(p *PermitTransfer) { p.To = permit2Contract },
		"to a proxy":          func(p *PermitTransfer) { p.To = strings.ToLower(uptoProxy) },
		"no token":            func(p *PermitTransfer) { p.Token = zero },
		"Permit2 as token":    func(p *PermitTransfer) { p.Token = permit2Contract },
		"nothing":             func(p *PermitTransfer) { p.Value = [32]byte{} },
		"no chain":            func(p *PermitTransfer) { p.ChainID = 0 },
		"over":                func(p *PermitTransfer) { p.Deadline = now },
		"for ever":            func(p *PermitTransfer) { p.Deadline = 1<<64 - 1 },
		"a second too long":   func(p *PermitTransfer) { p.Deadline = now + 86401 },
		"not yet":             func(p *PermitTransfer) { p.NotBefore = now + 1 },
		"settled by nobody":   func(p *PermitTransfer) { p.Facilitator = zero },
		"settled by no hex":   func(p *PermitTransfer) { p.Facilitator = "0x12" },
		"approved by no name": func(p *PermitTransfer) { p.Approval = &TokenApproval{Version: "2"} },
		"approved twice": func(p *PermitTransfer) {
			p.Approval, p.ApprovalGas = &TokenApproval{Name: "USDC", Version: "2"}, &ApprovalGas{}
		},
		"approved by no version": func(p *PermitTransfer) {
			p.Approval = &TokenApproval{Name: "USDC"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := goodPermit(t)
			spoil(&p)
			require.ErrorIs(t, p.check(keytest.EVM, kindsNow), coded.ErrUnsupported)
		})
	}
	p := goodPermit(t)
	p.Deadline = now + 86400
	require.NoError(t, p.check(keytest.EVM, kindsNow))

	w := goldenWallet(t)
	w.now = func() time.Time { return kindsNow }
	p.From = p.To
	_, _, err := w.SignPermit2(t.Context(), p)
	require.ErrorIs(t, err, coded.ErrUnsupported)
	require.True(t, w.Locked(), "it is not even unlocked for that")
}

// The approval that goes with a payment may be a transaction: of this account, for Permit2 and the payment's
// token and amount, whatever the caller says of its gas.
func TestPermitApprovedByTransaction(t *testing.T) {
	w := goldenWallet(t)
	w.now = func() time.Time { return kindsNow }
	p := goodPermit(t)
	p.ApprovalGas = &ApprovalGas{Nonce: 7, Gas: 50_000, Tip: [32]byte{31: 5}, MaxFee: [32]byte{31: 9}}
	_, approval, err := w.SignPermit2(t.Context(), p)
	require.NoError(t, err)
	want := must.Get(w.SignPermit2Approval(t.Context(), Permit2Approval{ChainID: 84532, Nonce: 7,
		Gas: 50_000, Tip: [32]byte{31: 5}, MaxFee: [32]byte{31: 9}, Token: p.Token, Amount: p.Value}))(t)
	require.Equal(t, want, approval)

	for name, spoil := range map[string]func(*PermitTransfer){
		"more gas than an approval takes": func(p *PermitTransfer) { p.ApprovalGas.Gas = maxApproveGas + 1 },
		"a tip above the fee":             func(p *PermitTransfer) { p.ApprovalGas.Tip = [32]byte{31: 10} },
		"without a limit":                 func(p *PermitTransfer) { p.Value = unlimited },
	} {
		w, p := goldenWallet(t), goodPermit(t)
		w.now = func() time.Time { return kindsNow }
		p.ApprovalGas = &ApprovalGas{Gas: 50_000, MaxFee: [32]byte{31: 9}}
		spoil(&p)
		permit, approval, err := w.SignPermit2(t.Context(), p)
		require.ErrorIs(t, err, coded.ErrUnsupported, name)
		require.Zero(t, permit, name)
		require.Zero(t, approval, name)
		require.True(t, w.Locked(), name)
	}
}
