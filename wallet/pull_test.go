package wallet

import (
	"math/big"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/rlp"
	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/keystore/keytest"
)

func goodPull() PullTransaction {
	return PullTransaction{ChainID: 84532, Nonce: 7, Gas: 71_000, Tip: [32]byte{31: 1},
		MaxFee: [32]byte{28: 2}, Token: "0x036CbD53842c5426634e7929541eC2318f3dCF7e", Owner: testVault,
		Amount: [32]byte{30: 0x27}}
}

// What is signed is EIP-1559's hash of a transferFrom from the owner to this wallet, as go-ethereum's encoder
// writes it.
func TestPullTransaction(t *testing.T) {
	p := goodPull()
	data := common.FromHex("23b872dd")
	for _, word := range [][]byte{common.FromHex(p.Owner), common.FromHex(keytest.EVM), p.Amount[:]} {
		data = append(data, common.LeftPadBytes(word, 32)...)
	}
	signature := must.Get(goldenWallet(t).SignPull(t.Context(), p))(t)
	requireTransactionSigned(t, signature, p.ChainID, p.Nonce, big.NewInt(1),
		new(big.Int).SetBytes(p.MaxFee[:]), p.Gas, common.FromHex(p.Token), new(big.Int), data, []any{})
}

// requireTransactionSigned wants the golden wallet's signature over a transaction of EIP-1559.
func requireTransactionSigned(t *testing.T, signature [65]byte, fields ...any) {
	t.Helper()
	encoded := must.Get(rlp.EncodeToBytes(fields))(t)
	signature[64] -= 27
	key := must.Get(crypto.SigToPub(crypto.Keccak256([]byte{2}, encoded), signature[:]))(t)
	require.Equal(t, keytest.EVM, crypto.PubkeyToAddress(*key).Hex())
}

// Nothing but a transfer of a token out of somebody else's account, for the gas of one.
func TestPullRefused(t *testing.T) {
	zero := "0x" + strings.Repeat("0", 40)
	for name, spoil := range map[string]func(*PullTransaction){
		"out of this wallet":  func(p *PullTransaction) { p.Owner = strings.ToLower(keytest.EVM) },
		"out of the token":    func(p *PullTransaction) { p.Owner = p.Token },
		"out of nobody":       func(p *PullTransaction) { p.Owner = zero },
		"out of no address":   func(p *PullTransaction) { p.Owner = "0x12" },
		"of no token":         func(p *PullTransaction) { p.Token = zero },
		"of no token address": func(p *PullTransaction) { p.Token = "" },
		"of this wallet":      func(p *PullTransaction) { p.Token = keytest.EVM },
		"nothing":             func(p *PullTransaction) { p.Amount = [32]byte{} },
		"no chain":            func(p *PullTransaction) { p.ChainID = 0 },
		"more gas":            func(p *PullTransaction) { p.Gas = maxPullGas + 1 },
		"a tip above the fee": func(p *PullTransaction) { p.Tip = [32]byte{0: 1} },
	} {
		t.Run(name, func(t *testing.T) {
			p := goodPull()
			spoil(&p)
			require.ErrorIs(t, must.Err(p.order(keytest.EVM)), coded.ErrUnsupported)
		})
	}
	w := goldenWallet(t)
	require.ErrorIs(t, must.Err(w.SignPull(t.Context(), PullTransaction{})), coded.ErrUnsupported)
	require.True(t, w.Locked(), "it is not even unlocked for that")
}
