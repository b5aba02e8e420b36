package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/must"
)

func anvil(t testing.TB, lab *Lab, method string, params ...any) json.RawMessage {
	t.Helper()
	question := must.Get(json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": method,
		"params": params}))(t)
	response := must.Get(http.Post(lab.EVM.URL, "application/json", bytes.NewReader(question)))(t)
	defer func() { _ = response.Body.Close() }()
	var out struct{ Result, Error json.RawMessage }
	require.NoError(t, json.NewDecoder(response.Body).Decode(&out))
	require.Empty(t, out.Error)
	return out.Result
}

// floatAgent is an agent that takes floats of 0.005 from an owner who has 0.5.
type floatAgent struct {
	t    *testing.T
	lab  *Lab
	bin  string
	home testworld.Home
	key  string // the owner's, in a file
}

// An account of anvil's, with ether for gas.
const (
	floatOwner    = "0x23618e81E3f5cdF7f54C3d65f7FBc0aBf5B21E8f"
	floatOwnerKey = "0xdbda1821b80551c9d65939329250298aa3472ba22feea921c0cf5d620ea67b97"
	ownersMoney   = 500_000
)

func newFloatAgent(t *testing.T, lab *Lab, budget string) *floatAgent {
	a := &floatAgent{t: t, lab: lab, bin: testworld.Build(t), key: filepath.Join(t.TempDir(), "owner.hex")}
	a.home = testworld.NewHome(t,
		lab.Config(ConfigOptions{Budget: budget, Owner: floatOwner, Float: "0.005"}))
	writePrivate(t, a.key, floatOwnerKey)
	lab.EVMMint(floatOwner, ownersMoney-min(ownersMoney, lab.EVMBalance(floatOwner)))
	a.gas("0x2386f26fc10000") // 0.01
	return a
}

func (a *floatAgent) gas(wei string) { anvil(a.t, a.lab, "anvil_setBalance", a.home.EVM, wei) }

func (a *floatAgent) owner(code int, args ...string) (out delegationAnswer) {
	a.t.Helper()
	args = append([]string{"delegation"}, append(args, "--network", a.lab.EVM.Network)...)
	endWallet(a.t, a.home, a.bin, code, &out, args...)
	return out
}

func (a *floatAgent) approve(amount string) {
	a.t.Helper()
	require.NotEmpty(a.t, a.owner(0, "approve", "--amount", amount, "--owner-keypair", a.key).TransactionHash)
}

type delegationAnswer struct {
	Error, Message, Transaction, TransactionHash, Config       string
	OwnerTokenAccount, Delegate, RemainingAmount, Balance      string
	OriginalAmount, Float, GasWei, TokenAccount, Owner, Amount string
	IsActive, IsOurAgent                                       bool

	Changes []struct{ Delegate, Amount, Transaction string }
}

// The owner approves a sum, and the agent pays from there through the reference facilitator as from its own
// account: in lumps, never more than was approved, until the owner takes it back.
func TestTheWalletTakesAFloat(t *testing.T) {
	lab := Start(t)
	a := newFloatAgent(t, lab, plenty)
	require.Equal(t, "0", a.owner(0, "show").RemainingAmount)
	w := testworld.StartWallet(t, a.bin, a.home)
	p := payFor(t, w, lab.Seller+"/evm")
	require.Equal(t, "DELEGATION_EXHAUSTED", p.Error, "%+v", p)

	unsigned := a.owner(0, "approve", "--amount", "0.008", "--unsigned")
	require.Contains(t, unsigned.Transaction, "0x02")
	require.Equal(t, floatOwner, unsigned.Owner)
	a.approve("0.008")
	shown := a.owner(0, "show")
	require.True(t, shown.IsActive && shown.IsOurAgent, "%+v", shown)
	require.Equal(t, []string{floatOwner, "8000", "500000", "0", a.home.EVM}, []string{
		shown.OwnerTokenAccount, shown.RemainingAmount, shown.Balance, shown.Float, shown.Delegate})

	floats := []uint64{4_000, 3_000, 2_000, 1_000, 0, 2_000, 1_000, 0} // after each of eight payments
	for i, left := range floats {
		p := buyAnew(t, w, lab.Seller+"/evm")
		require.Equal(t, "paid", p.Status, "%d: %+v", i, p)
		require.Equal(t, left, lab.EVMBalance(a.home.EVM), "%d", i)
	}
	require.Equal(t, uint64(ownersMoney-8_000), lab.EVMBalance(floatOwner))
	p = buyAnew(t, w, lab.Seller+"/evm")
	require.Equal(t, "DELEGATION_EXHAUSTED", p.Error, "%+v", p)
	require.Contains(t, p.Message, "$0.00 may still be taken")

	a.approve("0.1")
	require.Equal(t, "paid", buyAnew(t, w, lab.Seller+"/evm").Status)
	var revoke struct{ Owner, Transaction, Command, TokenAccount string }
	r, err := w.Call(t.Context(), "x402_revoke_delegation", map[string]any{"tokenAccount": floatOwner})
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(r.Structured, &revoke))
	require.Equal(t, floatOwner, revoke.Owner)
	require.Contains(t, revoke.Transaction, "0x02")
	ended := a.owner(0, "revoke", "--owner-keypair", a.key)
	var did []string
	for _, c := range a.owner(0, "show").Changes {
		did = append(did, c.Delegate+" "+c.Amount)
		require.NotEmpty(t, c.Transaction)
	}
	require.Equal(t, []string{a.home.EVM + " 8000", a.home.EVM + " 100000", " "}, did)
	require.Contains(t, fmt.Sprint(a.owner(0, "show").Changes), ended.TransactionHash)
	for range 4 { // the float stays
		require.Equal(t, "paid", buyAnew(t, w, lab.Seller+"/evm").Status)
	}
	require.Equal(t, "DELEGATION_EXHAUSTED", buyAnew(t, w, lab.Seller+"/evm").Error)
	require.Equal(t, uint64(ownersMoney-13_000), lab.EVMBalance(floatOwner))

	var balance struct {
		Networks []struct{ Network, Owner, Balance, Delegated, Available string }
	}
	r = must.Get(w.Call(t.Context(), "x402_check_balance", map[string]any{"network": lab.EVM.Network}))(t)
	require.NoError(t, json.Unmarshal(r.Structured, &balance))
	require.Equal(t, floatOwner, balance.Networks[0].Owner)
	require.Equal(t, "0", balance.Networks[0].Available)
	a.verify()
}

func (a *floatAgent) verify() {
	a.t.Helper()
	var out struct{ OK bool }
	runWallet(a.t, a.home, a.bin, &out, "history", "verify")
}
