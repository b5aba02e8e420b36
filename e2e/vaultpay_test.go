package e2e

import (
	"context"
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/must"
)

// One of anvil's own accounts, which has ether for gas.
const (
	vaultOwner    = "0x9965507D1a55bcC2695C58ba16FB37d819B0A4dc"
	vaultOwnerKey = "0x8b3a350cf5c34c9194ca85829a2df0ec3153be0318b5e2d3348e872092edffba"
)

type vaultAnswer struct {
	Error, Message, Vault, Owner, Config string
	Transactions                         []struct{ Does, Unsigned, TransactionHash string }
	IsActive, IsOurAgent                 bool
	RemainingAmount, Balance             string
	PerPayment, PerPeriod, Delegate      string
}

// The owner makes a vault, puts money into it, and the agent pays from it through the reference
// facilitator, which asks the contract: in all no more than the owner allowed, until the owner allows more
// or takes it back.
func TestTheWalletPaysFromAVault(t *testing.T) {
	lab := Start(t)
	bin := testworld.Build(t)
	home := testworld.NewHome(t, lab.Config(ConfigOptions{Budget: plenty}))
	file := filepath.Join(t.TempDir(), "owner.hex")
	writePrivate(t, file, vaultOwnerKey)
	run := func(code int, args ...string) (out vaultAnswer) {
		t.Helper()
		args = append([]string{"vault"}, append(args, "--network", lab.EVM.Network)...)
		endWallet(t, home, bin, code, &out, args...)
		return out
	}
	signed := func(args ...string) []string { return append(args, "--owner-keypair", file) }
	limits := []string{"--per-payment", "0.002", "--per-period", "0.003", "--period", "1h"}

	require.Equal(t, "NO_DELEGATION", run(4, "show").Error)
	printed := run(0, append([]string{"deploy", "--owner", vaultOwner}, limits...)...)
	require.Len(t, printed.Transactions, 1)
	require.NotEmpty(t, printed.Transactions[0].Unsigned)
	made := run(0, signed(append([]string{"deploy"}, limits...)...)...)
	require.Equal(t, printed.Vault, made.Vault, "nobody signed the first one")
	require.Contains(t, made.Config, made.Vault)
	vault := made.Vault
	withConfig(t, home, bin, lab.Config(ConfigOptions{Budget: plenty, Vault: vault}))

	lab.EVMMint(vaultOwner, 500_000)
	before := run(0, "deposit", "--amount", "0.4")
	require.Equal(t, "let the vault take the deposit", before.Transactions[0].Does)
	require.Len(t, run(0, signed("deposit", "--amount", "0.4")...).Transactions, 2)
	require.Equal(t, uint64(400_000), lab.EVMBalance(vault))
	shown := run(0, "show")
	require.True(t, shown.IsActive && shown.IsOurAgent, "%+v", shown)
	require.Equal(t, []string{"3000", "400000", "2000", "3000", home.EVM}, []string{shown.RemainingAmount,
		shown.Balance, shown.PerPayment, shown.PerPeriod, shown.Delegate})

	w := testworld.StartWallet(t, bin, home)
	for range 3 {
		p := buyAnew(t, w, lab.Seller+"/evm")
		require.Equal(t, "paid", p.Status, "%+v", p)
	}
	require.Equal(t, uint64(397_000), lab.EVMBalance(vault))
	require.Len(t, lab.EVMSpentNonces(vault), 3)
	p := buyAnew(t, w, lab.Seller+"/evm")
	require.Equal(t, "DELEGATION_EXHAUSTED", p.Error, "%+v", p)
	require.Equal(t, uint64(397_000), lab.EVMBalance(vault))

	lab.EVMMint(home.EVM, 1_000) // the agent's own is the other way
	require.Equal(t, "paid", buyAnew(t, w, lab.Seller+"/evm").Status)
	require.Zero(t, lab.EVMBalance(home.EVM))
	require.Equal(t, uint64(397_000), lab.EVMBalance(vault))

	run(0, signed("allow", "--per-payment", "0.0005", "--per-period", "1")...)
	p = buyAnew(t, w, lab.Seller+"/evm")
	require.Equal(t, "DELEGATION_EXHAUSTED", p.Error, "%+v", p)
	require.Contains(t, p.Message, "lets one payment be $0.0005 at most")
	run(0, signed("allow", "--per-payment", "0.001", "--per-period", "1")...)
	p = buyAnew(t, w, lab.Seller+"/evm")
	require.Equal(t, "paid", p.Status, "%+v", p)
	require.Equal(t, uint64(396_000), lab.EVMBalance(vault))

	var looked vaultAnswer
	r := must.Get(w.Call(t.Context(), "x402_check_delegation", map[string]any{"tokenAccount": vault}))(t)
	require.NoError(t, json.Unmarshal(r.Structured, &looked))
	require.Equal(t, "396000", looked.RemainingAmount, "all that lies there")
	var revoke struct{ Owner, Transaction, Command, TokenAccount string }
	r = must.Get(w.Call(t.Context(), "x402_revoke_delegation",
		map[string]any{"tokenAccount": vault, "freeze": true}))(t)
	require.NoError(t, json.Unmarshal(r.Structured, &revoke))
	require.Equal(t, vaultOwner, revoke.Owner)
	require.Contains(t, revoke.Transaction, "0x02")
	require.Equal(t, "WALLET_FROZEN", buyAnew(t, w, lab.Seller+"/evm").Error)

	doctor := func() string {
		ctx, cancel := context.WithTimeout(t.Context(), cliWait)
		defer cancel()
		text, _ := home.Command(ctx, bin, "doctor").Output() // with other findings, it exits as it likes
		return string(text)
	}
	require.Contains(t, doctor(), "$0.396 in USDC can be spent now from your vault, which holds $0.396")
	run(0, signed("revoke")...)
	require.False(t, run(0, "show").IsActive)
	require.Contains(t, doctor(),
		"x402-wallet vault show --network "+lab.EVM.Network+"; then x402-wallet vault allow")
	require.Equal(t, "INSUFFICIENT_FUNDS", run(4, signed("withdraw", "--amount", "0.5")...).Error)
	run(0, signed("withdraw", "--amount", "0.396")...)
	require.Equal(t, uint64(100_000+396_000), lab.EVMBalance(vaultOwner))
}
