package evm

import (
	"bytes"
	"encoding/json"
	"math/big"
	"slices"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/accounts/abi"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/stretchr/testify/require"

	"x402-wallet/chain/evm/message"
	"x402-wallet/chain/evm/payload"
	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/onchain"
)

const (
	vault = "0x5FbDB2315678afecb367f032d93F642f64180aa3"
	owner = "0x90F79bf6EB2c4f870365E785982E1f101E93b906"
)

func stateOf(agent string, available uint64) []byte {
	word := func(n uint64) []byte { return message.WordOfUint(n) }
	return slices.Concat(message.Word(common.HexToAddress(owner)),
		message.Word(common.HexToAddress(usdc.Address)),
		message.Word(common.HexToAddress(agent)), word(1_000_000), word(available), word(60_000), word(600),
		word(100_000), word(3600), word(uint64(noon.Unix())+1800))
}

func (f *fakeNode) payingFromVault(t testing.TB, signer onchain.Signer) *Exact {
	return New(Options{Signer: signer, RPC: map[string]string{sepolia: f.URL}, Rand: &counting{},
		Vaults: map[string]string{sepolia: vault}, Now: func() time.Time { return noon }}).FromVaults()
}

func TestAVaultIsRead(t *testing.T) {
	f := newFakeNode(t)
	f.Vault = stateOf(us, 40_000)
	e := f.payingFromVault(t, testSigner(t))
	funds := must.Get(e.Funds(t.Context(), sepolia, usdc))(t)
	available, perPayment := money.NewAmount(40_000), money.NewAmount(60_000)
	require.Equal(t, x402.Funds{Source: vault, Balance: money.NewAmount(1_000_000), Delegated: &available,
		Free: available, ReadAt: noon, MaxPayment: &perPayment, MaxValidity: 9 * time.Minute,
		MoreAt: noon.Add(30 * time.Minute).UTC()}, funds)
	v := must.Get(e.ReadVault(t.Context(), sepolia, vault))(t)
	require.Equal(t, onchain.Vault{Network: sepolia, Address: vault, Owner: owner, Asset: usdc.Address,
		Agent: us, IsOurs: true, Balance: money.NewAmount(1_000_000), Available: available,
		PerPayment: perPayment,
		PerPeriod:  money.NewAmount(100_000), Period: time.Hour, NextPeriod: noon.Add(30 * time.Minute).UTC(),
		MaxWindow: 10 * time.Minute}, v)
}

func TestAVaultThatDoesNotLetUsSpend(t *testing.T) {
	zero := common.Address{}.Hex()
	huge := bytes.Repeat([]byte{0xff}, 32)
	for name, c := range map[string]struct {
		state []byte
		code  x402.Code
	}{
		"no contract":      {nil, x402.NoDelegation},
		"another contract": {message.WordOfUint(1), x402.NoDelegation},
		"revoked":          {stateOf(zero, 0), x402.NoDelegation},
		"another agent":    {stateOf(stranger, 1), x402.DelegateMismatch},
		"another token": {with(stateOf(us, 1), 1, message.Word(common.HexToAddress(stranger))),
			x402.DelegateMismatch},
		"no time to settle": {with(stateOf(us, 1), 6, message.WordOfUint(65)), x402.DelegateMismatch},
		"no limit at all":   {with(with(stateOf(us, 1), 6, huge), 9, huge), ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeNode(t)
			f.Vault = c.state
			funds, err := f.payingFromVault(t, testSigner(t)).Funds(t.Context(), sepolia, usdc)
			if c.code == "" {
				require.NoError(t, err)
				require.Greater(t, funds.MaxValidity, 24*time.Hour)
				require.Zero(t, funds.MoreAt)
				return
			}
			requireCode(t, c.code, err)
			require.Zero(t, funds)
		})
	}
}

func with(state []byte, i int, word []byte) []byte {
	return slices.Concat(state[:i*32], word, state[(i+1)*32:])
}

// The signature of a payment out of a vault is what its contract decodes: abi.encode of what was signed,
// with the agent's own signature over it.
func TestTheSignatureThatAVaultTakes(t *testing.T) {
	f := newFakeNode(t)
	o := order(2)
	o.Source = vault
	signer := testSigner(t)
	made := must.Get(f.payingFromVault(t, signer).Authorize(t.Context(), o))(t)
	require.Equal(t, vault, made.Evidence.Payer)

	sent := must.JSON[struct {
		Authorization json.RawMessage
		Signature     string
	}](made.Payload)(t)
	a := must.Get(message.DecodeAuthorization(sent.Authorization))(t)
	require.Equal(t, vault, a.From)
	kinds := abi.Arguments{}
	for _, name := range []string{"address", "uint256", "uint256", "uint256", "bytes32", "bytes"} {
		kinds = append(kinds, abi.Argument{Type: must.Get(abi.NewType(name, "", nil))(t)})
	}
	wrapped := common.FromHex(sent.Signature)
	read := must.Get(kinds.Unpack(wrapped))(t)
	require.Equal(t, must.Get(kinds.Pack(read...))(t), wrapped, "canonical")
	require.Equal(t, common.HexToAddress(payee), read[0])
	require.Equal(t, big.NewInt(10_000), read[1])
	require.Equal(t, a.Nonce, read[4])
	signature := read[5].([]byte)
	require.Len(t, signature, 65)
	digest := must.Get(payload.Digest(usdc, a))(t)
	require.Equal(t, [][32]byte{digest}, signer.Digests)
	signature[64] -= 27
	key := must.Get(crypto.SigToPub(digest[:], signature))(t)
	require.Equal(t, us, crypto.PubkeyToAddress(*key).Hex())

	agent, _, err := payload.RecoverAgent(sepolia, usdc, made.Payload)
	require.NoError(t, err)
	require.Equal(t, us, agent)
	_, _, err = payload.Recover(sepolia, usdc, made.Payload)
	require.Error(t, err, "it is no signature of the payer")
}

// Nothing is signed that is not exactly a payment out of that vault.
func TestOrdersThatNoVaultPays(t *testing.T) {
	for name, spoil := range map[string]func(o *onchain.Order, e *Exact){
		"no source":       func(o *onchain.Order, _ *Exact) { o.Source = "" },
		"the agent's own": func(o *onchain.Order, _ *Exact) { o.Source = us },
		"a stranger's":    func(o *onchain.Order, _ *Exact) { o.Source = stranger },
		"to the vault":    func(o *onchain.Order, _ *Exact) { o.Requirement.PayTo = vault },
		"to the agent":    func(o *onchain.Order, _ *Exact) { o.Requirement.PayTo = us },
		"a challenge of MPP": func(o *onchain.Order, _ *Exact) {
			o.Requirement.Charge = &x402.Charge{ID: "x", Realm: "y"}
		},
		"no vault named": func(_ *onchain.Order, e *Exact) { e.vaults = nil },
		"tampered with": func(_ *onchain.Order, e *Exact) {
			e.encode = func(a message.Authorization3009) ([]byte, error) {
				a.From = us
				return payload.EncodeAuthorization(a)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, signer, o := newFakeNode(t), testSigner(t), order(2)
			o.Source = vault
			e := f.payingFromVault(t, signer)
			spoil(&o, e)
			require.Error(t, must.Err(e.Authorize(t.Context(), o)))
			require.Empty(t, signer.Digests)
		})
	}
}
