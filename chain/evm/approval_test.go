package evm

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/stretchr/testify/require"

	"x402-wallet/chain/evm/message"
	"x402-wallet/chain/evm/payload"
	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// approvingOrder is a payment of 10,000 whose seller brings an approval in one of these ways, at a wallet
// whose owner lets one cost so much.
func approvingOrder(t *testing.T, f *fakeNode, most uint64, offers ...string) (*Permitted, x402.Order) {
	o := permit2Vectors(t)["exact_permit2_eip2612"].order(t)
	o.Extensions = map[string]json.RawMessage{}
	for _, offered := range offers {
		o.Extensions[offered] = json.RawMessage(`{"info":{"version":"1"},"schema":{}}`)
	}
	e := f.exact(t, testSigner(t))
	if most > 0 {
		e.gasOfApprovals = map[string]money.Amount{sepolia: money.NewAmount(most)}
	}
	return e.ByPermit2(), o
}

const enoughGas = 100_000_000_250_000 // what approvingNode's transactions cost

// A transaction approves Permit2 for the payment's amount, with the account's next nonce and the node's fees,
// and nothing else is in it.
func TestAnApprovalThatTheSellerSends(t *testing.T) {
	f := approvingNode(t)
	f.sends.coins = 0 // the facilitator sends what lacks
	p, o := approvingOrder(t, f, enoughGas, x402.ERC20Sponsoring)
	made := must.Get(p.Authorize(t.Context(), o))(t)
	require.Len(t, made.Extensions, 1)
	var sent struct {
		Info struct{ From, Asset, Spender, Amount, SignedTransaction string }
	}
	require.NoError(t, json.Unmarshal(made.Extensions[x402.ERC20Sponsoring], &sent))
	raw := must.Get(hexutil.Decode(sent.Info.SignedTransaction))(t)
	require.Equal(t, []string{us, usdc.Address, message.Permit2Address, "10000"},
		[]string{sent.Info.From, sent.Info.Asset, sent.Info.Spender, sent.Info.Amount})
	tx := must.Get(payload.RecoverTransaction(raw))(t)
	require.Equal(t, payload.SignedTransaction{ChainID: 84532, Nonce: 7, Tip: money.NewAmount(5),
		MaxFee: money.NewAmount(2_000_000_005), Gas: 50_000, From: us, To: usdc.Address,
		Data: common.FromHex("095ea7b3000000000000000000000000000000000022d473030f116ddee9f6b43ac78ba3" +
			"0000000000000000000000000000000000000000000000000000000000002710"), Hash: tx.Hash}, tx)
}

// Where the seller brings both, the signature (EIP-2612) is what is given, which costs no gas and needs no
// turn, as long as the token takes one.
func TestAnApprovalBySignatureGoesFirst(t *testing.T) {
	f := approvingNode(t)
	p, o := approvingOrder(t, f, enoughGas, x402.ERC20Sponsoring, x402.EIP2612Sponsoring)
	made := must.Get(p.Authorize(t.Context(), o))(t)
	require.Contains(t, made.Extensions, x402.EIP2612Sponsoring)
	require.Len(t, made.Extensions, 1)
	f.noPermits = true
	made = must.Get(p.Authorize(t.Context(), o))(t)
	require.Contains(t, made.Extensions, x402.ERC20Sponsoring)
	require.Len(t, made.Extensions, 1)
	f.allowance = money.NewAmount(10_000)
	made = must.Get(p.Authorize(t.Context(), o))(t)
	require.Empty(t, made.Extensions, "what is approved needs no approval")
}

// Nothing is signed where the owner lets none be, where its gas may cost more than they say, where it would
// fail or is not the account's next transaction.
func TestAnApprovalThatIsNotSent(t *testing.T) {
	for name, c := range map[string]struct {
		most  uint64
		world func(f *fakeNode)
		code  x402.Code
	}{
		"not let":           {0, func(*fakeNode) {}, x402.NoDelegation},
		"too much gas":      {enoughGas - 1, func(*fakeNode) {}, x402.PolicyDenied},
		"the token refuses": {enoughGas, func(f *fakeNode) { f.sends.reverts = true }, x402.CheckFailed},
		"one is under way":  {enoughGas, func(f *fakeNode) { f.sends.pending = 8 }, x402.CheckFailed},
		"no Permit2":        {enoughGas, func(f *fakeNode) { f.noPermit2 = true }, x402.CheckFailed},
		"a node that lies":  {enoughGas, func(f *fakeNode) { f.sends.gas = maxGas + 1 }, x402.RPCError},
	} {
		t.Run(name, func(t *testing.T) {
			f := approvingNode(t)
			c.world(f)
			p, o := approvingOrder(t, f, c.most, x402.ERC20Sponsoring)
			made, err := p.Authorize(t.Context(), o)
			require.True(t, x402.HasCode(err, c.code), "%v", err)
			require.Empty(t, made.Payload)
			require.Empty(t, p.signer.(*keySigner).digests, "the signer was asked")
		})
	}
}

func TestABadApprovalIsDropped(t *testing.T) {
	p, o := approvingOrder(t, approvingNode(t), enoughGas, x402.ERC20Sponsoring)
	p.signer = strangersApproval{testSigner(t)}
	made, err := p.Authorize(t.Context(), o)
	require.True(t, x402.HasCode(err, x402.Internal), "%v", err)
	require.Empty(t, made.Payload)
	require.Empty(t, made.Extensions)
}

type strangersApproval struct{ *keySigner }

func (s strangersApproval) SignPermit2(ctx context.Context, d message.PermitDraft) (permit, approval [65]byte,
	err error) {
	d.Authorization.Amount = money.NewAmount(10_001) // of which the approval is for more
	return s.keySigner.SignPermit2(ctx, d)
}
