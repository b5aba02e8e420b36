package batch

import (
	"crypto/ecdsa"
	"encoding/json"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/stretchr/testify/require"

	"x402-wallet/chain/evm/evmtest"
	"x402-wallet/chain/evm/message"
	"x402-wallet/chain/evm/payload"
	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/onchain"
)

// ownersOrder is a call at the vectors' seller in a channel that somebody else funds, with a deposit of
// 5000 that they signed.
func ownersOrder(t *testing.T, c *Contract) (o onchain.Order, owner *ecdsa.PrivateKey) {
	t.Helper()
	owner = must.Get(crypto.GenerateKey())(t)
	o = batchOrder(t, batchVectors(t)["batch_voucher_second"], 1700, 0)
	o.Channel.Config.Payer = crypto.PubkeyToAddress(owner.PublicKey).Hex()
	draft := must.Get(c.DraftOwners(money.NewAmount(5000), noon))(t)
	signed := signOwners(t, c, o, draft, owner)
	o.Channel.Owners = &signed
	return o, owner
}

func signOwners(t *testing.T, c *Contract, o onchain.Order, d x402.OwnersDeposit,
	key *ecdsa.PrivateKey) x402.OwnersDeposit {
	t.Helper()
	draft := must.Get(readDraft(d))(t)
	digest := must.Get(payload.DepositDigest(usdc, o.Channel.Config, draft))(t)
	made := must.Get(crypto.Sign(digest[:], key))(t)
	made[64] += 27
	return must.Get(c.Signed(usdc, o.Channel.Config, d, [65]byte(made)))(t)
}

// An owner's deposit goes beside the agent's voucher, which is all that the agent signs; what the chain is
// asked by is the voucher.
func TestAnOwnersDepositIsBrought(t *testing.T) {
	signer := testSigner(t)
	c := newFakeNode(t).contractFor(signer, 24*time.Hour)
	o, owner := ownersOrder(t, c)
	made := must.Get(c.Authorize(t.Context(), o))(t)
	require.Len(t, signer.Digests, 1)
	require.True(t, made.Evidence.IsVoucher())
	require.Equal(t, o.Channel.Config.Payer, made.Evidence.Payer)
	sent := must.JSON[struct {
		Type    string
		Deposit struct {
			Amount        string
			Authorization struct {
				By3009 struct{ Signature string } `json:"erc3009Authorization"`
			}
		}
	}](made.Payload)(t)
	require.Equal(t, "deposit", sent.Type)
	require.Equal(t, "5000", sent.Deposit.Amount)
	require.Equal(t, o.Channel.Owners.Signature, sent.Deposit.Authorization.By3009.Signature)

	o.Channel.Owners = nil
	made = must.Get(c.Authorize(t.Context(), o))(t)
	require.NoError(t, json.Unmarshal(made.Payload, &sent))
	require.Equal(t, "voucher", sent.Type)

	for name, spoil := range map[string]func(o *onchain.Order, d *x402.OwnersDeposit){
		"of another amount": func(_ *onchain.Order,
			d *x402.OwnersDeposit) {
			d.Value = money.NewAmount(5001)
		},
		"of another time": func(_ *onchain.Order, d *x402.OwnersDeposit) { d.ValidBefore-- },
		"into another channel": func(_ *onchain.Order, d *x402.OwnersDeposit) {
			d.Salt = message.Hex(make([]byte, 32))
		},
		"that is over": func(o *onchain.Order, _ *x402.OwnersDeposit) { o.Now = noon.Add(OwnersTime) },
		"of the agent's beside it": func(o *onchain.Order, _ *x402.OwnersDeposit) {
			o.Channel.Deposit = money.NewAmount(7)
		},
		"of the agent's alone": func(o *onchain.Order, _ *x402.OwnersDeposit) {
			o.Channel.Owners, o.Channel.Deposit = nil, money.NewAmount(7)
		},
	} {
		t.Run(name, func(t *testing.T) {
			o, _ := ownersOrder(t, c)
			deposit := *o.Channel.Owners
			o.Channel.Owners = &deposit
			spoil(&o, &deposit)
			before := len(signer.Digests)
			require.Error(t, must.Err(c.Authorize(t.Context(), o)))
			require.Len(t, signer.Digests, before, "nothing was signed")
		})
	}
	draft := must.Get(c.DraftOwners(money.NewAmount(5000), noon))(t)
	signed := signOwners(t, c, o, draft, owner)
	other := o.Channel.Config
	other.Payer = us
	_, err := c.Signed(usdc, other, signed, [65]byte(common.FromHex(signed.Signature)))
	requireCode(t, x402.InvalidArgument, err)
}

// What an owner signs names every member as it is hashed.
func TestTypedDataOfAnOwnersDeposit(t *testing.T) {
	c := newFakeNode(t).contractFor(testSigner(t), 24*time.Hour)
	o, _ := ownersOrder(t, c)
	text := must.Get(c.TypedData(usdc, o.Channel.Config, *o.Channel.Owners))(t)
	typed := must.JSON[struct {
		Types       map[string][]typeMember
		PrimaryType string
		Message     map[string]string
		Domain      map[string]any
	}](text)(t)
	require.Equal(t, "ReceiveWithAuthorization", typed.PrimaryType)
	require.Equal(t, typeMember{Name: "verifyingContract", Type: "address"}, typed.Types["EIP712Domain"][3])
	require.Len(t, typed.Types["ReceiveWithAuthorization"], len(typed.Message))
	for _, m := range typed.Types["ReceiveWithAuthorization"] {
		require.Contains(t, typed.Message, m.Name)
	}
	require.Equal(t, "5000", typed.Message["value"])
	require.Equal(t, o.Channel.Config.Payer, typed.Message["from"])
	require.Equal(t, common.HexToAddress("0x4020806089470a89826cB9fB1f4059150b550004"),
		common.HexToAddress(typed.Message["to"]))
	require.InDelta(t, 84532, typed.Domain["chainId"], 0)
}

// The reference client 2.27 signs and sends the same for a channel whose payer is an owner: their deposit,
// which the agent brings with its first voucher, and a voucher alone, for which no key of theirs is there.
func TestOwnersPayloadsEqualTheVectors(t *testing.T) {
	agentsKey, err := crypto.HexToECDSA("59c6995e998f97a5a0044966f0945389dc9e86dae88c7a8412f4603b6b78690d")
	require.NoError(t, err)
	agent := &keySigner{Key: agentsKey, Own: crypto.PubkeyToAddress(agentsKey.PublicKey).Hex()}
	c := newFakeNode(t).contractFor(agent, 24*time.Hour)
	all := batchVectors(t)
	for name, n := range map[string]struct{ ceiling, deposit uint64 }{
		"batch_deposit_owner_voucher_agent": {1000, 5000}, "batch_voucher_agent_only": {2000, 0},
	} {
		t.Run(name, func(t *testing.T) {
			o := batchOrder(t, all[name], n.ceiling, 0)
			o.Channel.Config.Payer, o.Channel.Config.PayerAuthorizer = us, agent.Own
			if n.deposit > 0 {
				draft := x402.OwnersDeposit{Value: money.NewAmount(n.deposit),
					ValidBefore: noon.Add(o.Validity).Unix()}
				salt := make([]byte, 32)
				_, _ = (&evmtest.Counting{}).Read(salt)
				draft.Salt = message.Hex(salt)
				signed := signOwners(t, c, o, draft, testSigner(t).Key)
				o.Channel.Owners = &signed
			}
			o.Source = ""
			made := must.Get(c.Authorize(t.Context(), o))(t)
			require.JSONEq(t, string(all[name].Payload.Payload), string(made.Payload))
		})
	}
}
