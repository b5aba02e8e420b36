package permit2

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/stretchr/testify/require"

	"x402-wallet/chain/evm"
	"x402-wallet/chain/evm/evmtest"
	"x402-wallet/chain/evm/message"
	"x402-wallet/chain/evm/payload"
	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/onchain"
)

func approvingNode(t *testing.T) *fakeNode {
	f := newFakeNode(t)
	f.Sends = evmtest.Sending{Gas: 40_000, BaseFee: 1_000_000_000, Tip: 5, Coins: 1e15, Count: 7, Pending: 7}
	return f
}

// The transaction is approve(Permit2, amount) of the registry's token by the agent's account, with its next
// nonce and the node's fees.
func TestApprovePermit2(t *testing.T) {
	f := approvingNode(t)
	got := must.Get(f.payer(testSigner(t)).Approve(t.Context(), usdc, money.NewAmount(10_000)))(t)
	data := common.FromHex("095ea7b3000000000000000000000000000000000022d473030f116ddee9f6b43ac78ba3" +
		"0000000000000000000000000000000000000000000000000000000000002710")
	require.Equal(t, onchain.OwnerTransaction{Network: sepolia, ChainID: 84532, From: us, To: usdc.Address,
		Data: data, Does: "say what Permit2 may move", Nonce: 7, Gas: 50_000,
		MaxFee: money.NewAmount(2_000_000_005), Tip: money.NewAmount(5)}, got)
	require.Equal(t, hexutil.Bytes(data), f.Sends.Estimated)
	require.Equal(t, []common.Address{common.HexToAddress(usdc.Address), common.HexToAddress(us)},
		[]common.Address{f.Sends.EstimatedTo, f.Sends.EstimatedFrom})
	require.Equal(t, "100000000250000", got.MaxCost().String())
}

// What would fail, cannot be paid for, or would have the nonce of another transaction is not prepared.
func TestApprovePermit2Refused(t *testing.T) {
	for name, c := range map[string]struct {
		world func(f *fakeNode)
		code  x402.Code
	}{
		"the token refuses":        {func(f *fakeNode) { f.Sends.Reverts = true }, x402.CheckFailed},
		"there is no Permit2":      {func(f *fakeNode) { f.NoPermit2 = true }, x402.CheckFailed},
		"another one is under way": {func(f *fakeNode) { f.Sends.Pending = 8 }, x402.CheckFailed},
		"another chain":            {func(f *fakeNode) { f.ChainID = 1 }, x402.CheckFailed},
		"too little for the gas": {func(f *fakeNode) { f.Sends.Coins = 100_000_000_249_999 },
			x402.InsufficientFunds},
		"more gas than max_gas": {func(f *fakeNode) {
			f.Sends.BaseFee = 6_000_000_000
		}, x402.PolicyDenied},
		"gas that no transaction has": {func(f *fakeNode) { f.Sends.Gas = 1<<40 + 1 }, x402.RPCError},
	} {
		t.Run(name, func(t *testing.T) {
			f := approvingNode(t)
			c.world(f)
			p := NewPayer(evm.New(evm.Options{Signer: testSigner(t), RPC: map[string]string{sepolia: f.URL},
				Now: func() time.Time { return noon }, Allowances: map[string]x402.AllowanceRule{
					sepolia: {Owner: owner, MaxGas: money.NewAmount(500_000_000_000_000)}}}), nil)
			requireCode(t, c.code, must.Err(p.Approve(t.Context(), usdc, money.NewAmount(10_000))))
		})
	}
	f := approvingNode(t)
	f.Sends.Coins = 100_000_000_250_000
	_, err := f.payer(testSigner(t)).Approve(t.Context(), usdc, money.Amount{})
	require.NoError(t, err, "the very gas is enough")
	least, _ := money.AmountFromBytes(bytes.Repeat([]byte{0xff}, 12))
	_, err = f.payer(testSigner(t)).Approve(t.Context(), usdc, least)
	require.True(t, x402.HasCode(err, x402.InvalidArgument), "without a limit: %v", err)
}

func TestReadPermitted(t *testing.T) {
	f := approvingNode(t)
	f.Allowance, f.Balance = money.NewAmount(3), money.NewAmount(5)
	e := f.payer(testSigner(t))
	got := must.Get(e.ReadPermitted(t.Context(), usdc))(t)
	require.Equal(t, onchain.OwnAccount{Network: sepolia, Address: us, Asset: usdc.Address,
		Balance: money.NewAmount(5), Permitted: money.NewAmount(3), Gas: money.NewAmount(1e15)}, got)

	hash := common.Hash{1}.Hex()
	f.Receipts[hash] = map[string]any{"transactionHash": hash, "status": "0x1",
		"gasUsed": hexutil.Uint64(57_000), "effectiveGasPrice": "0x3b9aca00"}
	cost := must.Get(e.GasOf(t.Context(), sepolia, hash))(t)
	require.Equal(t, "57000000000000", cost.String())
	f.Receipts["0x01"] = f.Receipts[hash]
	_, err := e.GasOf(t.Context(), sepolia, "0x01")
	require.True(t, x402.HasCode(err, x402.RPCError), "another's receipt: %v", err)
	cost = must.Get(e.GasOf(t.Context(), sepolia, "0x02"))(t)
	require.True(t, cost.IsZero(), "not in a block")
}

// approvingOrder is a payment of 10,000 whose seller brings an approval in one of these ways, at a wallet
// whose owner lets one cost so much.
func approvingOrder(t *testing.T, f *fakeNode, by onchain.Signer, most uint64, offers ...string) (*Payer,
	onchain.Order) {
	o := permit2Vectors(t)["exact_permit2_eip2612"].order(t)
	o.Extensions = map[string]json.RawMessage{}
	for _, offered := range offers {
		o.Extensions[offered] = json.RawMessage(`{"info":{"version":"1"},"schema":{}}`)
	}
	p := f.payer(by)
	if most > 0 {
		p.approvalGas = map[string]money.Amount{sepolia: money.NewAmount(most)}
	}
	return p, o
}

const enoughGas = 100_000_000_250_000 // what approvingNode's transactions cost

// A transaction approves Permit2 for the payment's amount, with the account's next nonce and the node's fees,
// and nothing else is in it.
func TestAnApprovalThatTheSellerSends(t *testing.T) {
	f := approvingNode(t)
	f.Sends.Coins = 0 // the facilitator sends what lacks
	p, o := approvingOrder(t, f, testSigner(t), enoughGas, x402.ERC20Sponsoring)
	made := must.Get(p.Authorize(t.Context(), o))(t)
	require.Len(t, made.Extensions, 1)
	sent := must.JSON[struct {
		Info struct{ From, Asset, Spender, Amount, SignedTransaction string }
	}](made.Extensions[x402.ERC20Sponsoring])(t)
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
	p, o := approvingOrder(t, f, testSigner(t), enoughGas, x402.ERC20Sponsoring, x402.EIP2612Sponsoring)
	made := must.Get(p.Authorize(t.Context(), o))(t)
	require.Contains(t, made.Extensions, x402.EIP2612Sponsoring)
	require.Len(t, made.Extensions, 1)
	f.NoPermits = true
	made = must.Get(p.Authorize(t.Context(), o))(t)
	require.Contains(t, made.Extensions, x402.ERC20Sponsoring)
	require.Len(t, made.Extensions, 1)
	f.Allowance = money.NewAmount(10_000)
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
		"the token refuses": {enoughGas, func(f *fakeNode) { f.Sends.Reverts = true }, x402.CheckFailed},
		"one is under way":  {enoughGas, func(f *fakeNode) { f.Sends.Pending = 8 }, x402.CheckFailed},
		"no Permit2":        {enoughGas, func(f *fakeNode) { f.NoPermit2 = true }, x402.CheckFailed},
		"a node that lies":  {enoughGas, func(f *fakeNode) { f.Sends.Gas = 1<<40 + 1 }, x402.RPCError},
	} {
		t.Run(name, func(t *testing.T) {
			f := approvingNode(t)
			c.world(f)
			signer := testSigner(t)
			p, o := approvingOrder(t, f, signer, c.most, x402.ERC20Sponsoring)
			made, err := p.Authorize(t.Context(), o)
			requireCode(t, c.code, err)
			require.Empty(t, made.Payload)
			require.Empty(t, signer.Digests, "the signer was asked")
		})
	}
}

func TestABadApprovalIsDropped(t *testing.T) {
	p, o := approvingOrder(t, approvingNode(t), strangersApproval{testSigner(t)}, enoughGas,
		x402.ERC20Sponsoring)
	made, err := p.Authorize(t.Context(), o)
	requireCode(t, x402.Internal, err)
	require.Empty(t, made.Payload)
	require.Empty(t, made.Extensions)
}

type strangersApproval struct{ *keySigner }

func (s strangersApproval) Sign(ctx context.Context, d onchain.Draft) ([]byte, error) {
	d.Signs[1] = make([]byte, 32) // the approval is of something else
	return s.keySigner.Sign(ctx, d)
}
