package wallet

import (
	"math/big"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/keystore/keytest"
)

func goodApproval() Permit2Approval {
	return Permit2Approval{ChainID: 84532, Nonce: 7, Gas: 58_000, Tip: [32]byte{31: 1},
		MaxFee: [32]byte{28: 2}, Token: "0x036CbD53842c5426634e7929541eC2318f3dCF7e",
		Amount: [32]byte{30: 0x27}}
}

// What is signed is EIP-1559's hash of an approval of Permit2 by this wallet, as go-ethereum's encoder writes
// it; nothing is approved any more by zero.
func TestPermit2Approval(t *testing.T) {
	for name, amount := range map[string][32]byte{"an amount": {30: 0x27}, "nothing": {},
		"the most": {20: 0xff, 21: 0xff, 22: 0xff, 23: 0xff, 24: 0xff, 25: 0xff, 26: 0xff, 27: 0xff, 28: 0xff,
			29: 0xff, 30: 0xff, 31: 0xfe}} {
		t.Run(name, func(t *testing.T) {
			a := goodApproval()
			a.Amount = amount
			data := append(common.FromHex("095ea7b3000000000000000000000000000000000022d473030f116ddee9f6b4"+
				"3ac78ba3"), amount[:]...)
			signature := must.Get(goldenWallet(t).SignPermit2Approval(t.Context(), a))(t)
			requireTransactionSigned(t, signature, a.ChainID, a.Nonce, big.NewInt(1),
				new(big.Int).SetBytes(a.MaxFee[:]), a.Gas, common.FromHex(a.Token), new(big.Int), data,
				[]any{})
		})
	}
}

// Nothing without a limit, nothing but an approval of a token, for the gas of one.
func TestPermit2ApprovalRefused(t *testing.T) {
	zero := "0x" + strings.Repeat("0", 40)
	for name, spoil := range map[string]func(*Permit2Approval){
		"of no token":         func(a *Permit2Approval) { a.Token = zero },
		"of no token address": func(a *Permit2Approval) { a.Token = "" },
		"of this wallet":      func(a *Permit2Approval) { a.Token = strings.ToLower(keytest.EVM) },
		"a call of Permit2":   func(a *Permit2Approval) { a.Token = permit2Contract },
		"without a limit": func(a *Permit2Approval) {
			for i := range a.Amount {
				a.Amount[i] = 0xff
			}
		},
		"without one at tokens of 96 bits": func(a *Permit2Approval) { a.Amount = unlimited },
		"above it":                         func(a *Permit2Approval) { a.Amount = [32]byte{19: 1} },
		"no chain":                         func(a *Permit2Approval) { a.ChainID = 0 },
		"more gas":                         func(a *Permit2Approval) { a.Gas = maxApproveGas + 1 },
		"a tip above the fee":              func(a *Permit2Approval) { a.Tip = [32]byte{0: 1} },
	} {
		t.Run(name, func(t *testing.T) {
			a := goodApproval()
			spoil(&a)
			require.ErrorIs(t, must.Err(a.order(keytest.EVM)), coded.ErrUnsupported)
		})
	}
	w := goldenWallet(t)
	require.ErrorIs(t, must.Err(w.SignPermit2Approval(t.Context(), Permit2Approval{})), coded.ErrUnsupported)
	require.True(t, w.Locked(), "it is not even unlocked for that")
}
