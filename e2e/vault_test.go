package e2e

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"encoding/json"
	"math/big"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
	"x402-wallet/e2e/vault"
	"x402-wallet/internal/must"
)

const (
	vaultPerPayment, vaultPerPeriod = 60_000, 100_000
	vaultPeriod, vaultWindow        = 3600, 600
	invalidSignature                = "invalid_exact_evm_signature" // whatever the vault has against it
)

// vaultAgent pays from an owner's vault at the reference facilitator.
type vaultAgent struct {
	lab          *Lab
	chain        *vault.Chain
	owner, vault common.Address
	create       vault.Call // what made it
	key          *ecdsa.PrivateKey
}

func newEVMKey(t *testing.T) (*ecdsa.PrivateKey, common.Address) {
	t.Helper()
	key := must.Get(crypto.GenerateKey())(t)
	return key, crypto.PubkeyToAddress(key.PublicKey)
}

func newVaultAgent(t *testing.T, lab *Lab) *vaultAgent {
	t.Helper()
	chain := must.Get(vault.New(lab.EVM.URL, common.HexToAddress(lab.EVM.Asset)))(t)
	build := must.Get(vault.ReadBuild(".."))(t)
	a := &vaultAgent{lab: lab, chain: chain}
	var agent common.Address
	a.key, agent = newEVMKey(t)
	_, a.owner = newEVMKey(t)
	rule := vault.Rule{Agent: agent, PerPeriod: big.NewInt(vaultPerPeriod), Period: big.NewInt(vaultPeriod),
		PerPayment: big.NewInt(vaultPerPayment), MaxWindow: big.NewInt(vaultWindow)}
	a.create, a.vault = build.Create(a.owner, a.owner, chain.Token, rule)
	lab.EVMMint(a.owner.Hex(), 1_000_000)
	return a
}

func (a *vaultAgent) send(t *testing.T, to common.Address, data []byte) vault.Receipt {
	t.Helper()
	receipt := must.Get(a.chain.Send(vault.Call{From: a.owner, To: &to, Data: data}))(t)
	require.EqualValues(t, 1, receipt.Status)
	return receipt
}

// cheque is signed by key and valid for so many seconds from the chain's now.
func (a *vaultAgent) cheque(t *testing.T, amount, window int64, from common.Address,
	key *ecdsa.PrivateKey) (c vault.Cheque, bare []byte) {
	t.Helper()
	c = vault.Cheque{To: common.HexToAddress(a.lab.EVM.PayTo), Value: big.NewInt(amount),
		ValidAfter: new(big.Int), ValidBefore: big.NewInt(evmTime(t, a.lab, "latest") + window)}
	_, _ = rand.Read(c.Nonce[:])
	return c, vault.Sign(c.Digest(a.chain.Domain, from), key)
}

// payment is a cheque as a facilitator takes it.
func (a *vaultAgent) payment(c vault.Cheque, signature []byte) map[string]any {
	requirement := map[string]any{"scheme": "exact", "network": a.lab.EVM.Network, "asset": a.lab.EVM.Asset,
		"payTo": c.To, "amount": c.Value.String(), "maxTimeoutSeconds": 60,
		"extra": map[string]any{"name": a.lab.EVM.Name, "version": a.lab.EVM.Version}}
	authorization := map[string]any{"from": a.vault, "to": c.To, "value": c.Value.String(),
		"validAfter": c.ValidAfter.String(), "validBefore": c.ValidBefore.String(),
		"nonce": common.Hash(c.Nonce)}
	payload := map[string]any{"authorization": authorization, "signature": hexutil.Bytes(signature)}
	return map[string]any{"x402Version": 2, "paymentRequirements": requirement,
		"paymentPayload": map[string]any{"x402Version": 2, "accepted": requirement, "payload": payload}}
}

func (a *vaultAgent) pays(t *testing.T, amount int64) map[string]any {
	t.Helper()
	c, bare := a.cheque(t, amount, 60, a.vault, a.key)
	return a.payment(c, c.Wrap(bare))
}

type facilitated struct {
	IsValid, Success                               bool
	Payer, InvalidReason, ErrorReason, Transaction string
}

func askFacilitator(t *testing.T, l *Lab, op string, payment map[string]any) (answer facilitated) {
	t.Helper()
	body := must.Get(json.Marshal(payment))(t)
	response := must.Get(http.Post(l.Facilitators[0]+"/"+op, "application/json", bytes.NewReader(body)))(t)
	require.NoError(t, json.Unmarshal([]byte(bodyOf(t, response)), &answer))
	return answer
}

// settles verifies and settles, which moves amount from the vault.
func (a *vaultAgent) settles(t *testing.T, payment map[string]any, amount int64) {
	t.Helper()
	answer := askFacilitator(t, a.lab, "verify", payment)
	require.True(t, answer.IsValid, "%+v", answer)
	require.Equal(t, a.vault.Hex(), common.HexToAddress(answer.Payer).Hex())
	before := a.lab.EVMBalance(a.vault.Hex())
	answer = askFacilitator(t, a.lab, "settle", payment)
	require.True(t, answer.Success, "%+v", answer)
	require.Equal(t, a.vault.Hex(), common.HexToAddress(answer.Payer).Hex())
	require.Equal(t, []EVMTransfer{{From: a.vault.Hex(), To: a.lab.EVM.PayTo, Amount: uint64(amount)}},
		a.lab.EVMTransfers(answer.Transaction))
	require.Equal(t, before-uint64(amount), a.lab.EVMBalance(a.vault.Hex()))
}

// refused is verified and settled in vain.
func (a *vaultAgent) refused(t *testing.T, reason string, payment map[string]any) {
	t.Helper()
	before := a.lab.EVMBalance(a.vault.Hex())
	answer := askFacilitator(t, a.lab, "verify", payment)
	require.False(t, answer.IsValid, "%+v", answer)
	require.Equal(t, reason, answer.InvalidReason)
	require.False(t, askFacilitator(t, a.lab, "settle", payment).Success)
	require.Equal(t, before, a.lab.EVMBalance(a.vault.Hex()))
}

// A vault has an address before it is made. Facilitators do not make it unless they are told to
// (ERC-6492). Once it is there, a facilitator that knows nothing of vaults settles what its agent signed, and
// nothing above its rule or of anybody else (package e2e/vault has the rest of the contract).
func TestAVaultBeforeItIsThere(t *testing.T) {
	lab := Start(t)
	a := newVaultAgent(t, lab)
	lab.EVMMint(a.vault.Hex(), 500_000)
	c, bare := a.cheque(t, 20_000, 60, a.vault, a.key)
	mark := bytes.Repeat([]byte{0x64, 0x92}, 16)
	inner, create := c.Wrap(bare), []byte(a.create.Data)
	offset := 3*32 + 32 + (len(create)+31)/32*32
	wrapped := append(vault.Words(*a.create.To, 3*32, offset, create, inner), mark...)
	a.refused(t, "eip6492_factory_not_allowed", a.payment(c, wrapped))

	a.send(t, *a.create.To, a.create.Data)
	a.settles(t, a.payment(c, inner), 20_000)
	a.refused(t, invalidSignature, a.pays(t, vaultPerPayment+1))
	stranger, _ := newEVMKey(t)
	c, bare = a.cheque(t, 1000, 60, a.vault, stranger)
	a.refused(t, invalidSignature, a.payment(c, c.Wrap(bare)))
}

// One of anvil's own accounts, which has ether for gas.
const (
	vaultOwner    = "0x9965507D1a55bcC2695C58ba16FB37d819B0A4dc"
	vaultOwnerKey = "0x8b3a350cf5c34c9194ca85829a2df0ec3153be0318b5e2d3348e872092edffba"
)

type vaultAnswer struct {
	Error, Message, Vault, Owner, Config string
	Transactions                         []struct {
		Does, Unsigned,
		TransactionHash string
	}
	IsActive, IsOurAgent                                      bool
	RemainingAmount, Balance, PerPayment, PerPeriod, Delegate string
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
