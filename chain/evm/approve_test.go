package evm

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/stretchr/testify/require"

	"x402-wallet/chain/evm/message"
	"x402-wallet/chain/evm/payload"
	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/onchain"
)

// sending is what a fake node says of the agent's own account and its transactions; without gas it knows
// nothing of that.
type sending struct {
	gas                        uint64 // that it estimates
	baseFee, tip               uint64 // wei
	coins                      uint64 // wei that the account has
	count, pending             uint64 // of its transactions, in a block and altogether
	reverts                    bool
	estimated                  hexutil.Bytes // what it was asked to estimate
	estimatedTo, estimatedFrom common.Address
}

func (s *sending) answer(t testing.TB, method string, params []json.RawMessage) (any, string) {
	t.Helper()
	switch method {
	case "eth_maxPriorityFeePerGas":
		return hexutil.Uint64(s.tip), ""
	case "eth_getBalance":
		require.Equal(t, []string{`"` + us + `"`, `"latest"`}, []string{string(params[0]), string(params[1])})
		return hexutil.Uint64(s.coins), ""
	case "eth_getTransactionCount":
		if string(params[1]) == `"pending"` {
			return hexutil.Uint64(s.pending), ""
		}
		return hexutil.Uint64(s.count), ""
	case "eth_estimateGas":
		message := must.JSON[struct {
			From, To common.Address
			Data     hexutil.Bytes
		}](params[0])(t)
		s.estimated, s.estimatedTo, s.estimatedFrom = message.Data, message.To, message.From
		if s.reverts {
			return nil, "execution reverted"
		}
		return hexutil.Uint64(s.gas), ""
	}
	return nil, "method not found"
}

func approvingNode(t *testing.T) *fakeNode {
	f := newFakeNode(t)
	f.sends = sending{gas: 40_000, baseFee: 1_000_000_000, tip: 5, coins: 1e15, count: 7, pending: 7}
	return f
}

// The transaction is approve(Permit2, amount) of the registry's token by the agent's account, with its next
// nonce and the node's fees.
func TestApprovePermit2(t *testing.T) {
	f := approvingNode(t)
	got := must.Get(f.exact(t, testSigner(t)).ApprovePermit2(t.Context(), usdc, money.NewAmount(10_000)))(t)
	data := common.FromHex("095ea7b3000000000000000000000000000000000022d473030f116ddee9f6b43ac78ba3" +
		"0000000000000000000000000000000000000000000000000000000000002710")
	require.Equal(t, onchain.OwnerTransaction{Network: sepolia, ChainID: 84532, From: us, To: usdc.Address,
		Data: data, Does: "say what Permit2 may move", Nonce: 7, Gas: 50_000,
		MaxFee: money.NewAmount(2_000_000_005), Tip: money.NewAmount(5)}, got)
	require.Equal(t, hexutil.Bytes(data), f.sends.estimated)
	require.Equal(t, []common.Address{common.HexToAddress(usdc.Address), common.HexToAddress(us)},
		[]common.Address{f.sends.estimatedTo, f.sends.estimatedFrom})
	require.Equal(t, "100000000250000", got.MaxCost().String())
}

// What would fail, cannot be paid for, or would have the nonce of another transaction is not prepared.
func TestApprovePermit2Refused(t *testing.T) {
	for name, c := range map[string]struct {
		world func(f *fakeNode)
		code  x402.Code
	}{
		"the token refuses":        {func(f *fakeNode) { f.sends.reverts = true }, x402.CheckFailed},
		"there is no Permit2":      {func(f *fakeNode) { f.noPermit2 = true }, x402.CheckFailed},
		"another one is under way": {func(f *fakeNode) { f.sends.pending = 8 }, x402.CheckFailed},
		"another chain":            {func(f *fakeNode) { f.chainID = 1 }, x402.CheckFailed},
		"too little for the gas": {func(f *fakeNode) { f.sends.coins = 100_000_000_249_999 },
			x402.InsufficientFunds},
		"more gas than max_gas": {func(f *fakeNode) {
			f.sends.baseFee = 6_000_000_000
		}, x402.PolicyDenied},
		"gas that no transaction has": {func(f *fakeNode) { f.sends.gas = maxGas + 1 }, x402.RPCError},
	} {
		t.Run(name, func(t *testing.T) {
			f := approvingNode(t)
			c.world(f)
			e := f.exact(t, testSigner(t))
			e.allowances = map[string]x402.AllowanceRule{sepolia: {Owner: owner,
				MaxGas: money.NewAmount(500_000_000_000_000)}}
			requireCode(t, c.code, must.Err(e.ApprovePermit2(t.Context(), usdc, money.NewAmount(10_000))))
		})
	}
	f := approvingNode(t)
	f.sends.coins = 100_000_000_250_000
	_, err := f.exact(t, testSigner(t)).ApprovePermit2(t.Context(), usdc, money.Amount{})
	require.NoError(t, err, "the very gas is enough")
	least, _ := money.AmountFromBytes(bytes.Repeat([]byte{0xff}, 12))
	_, err = f.exact(t, testSigner(t)).ApprovePermit2(t.Context(), usdc, least)
	require.True(t, x402.HasCode(err, x402.InvalidArgument), "without a limit: %v", err)
}

func TestReadPermitted(t *testing.T) {
	f := approvingNode(t)
	f.allowance, f.balance = money.NewAmount(3), money.NewAmount(5)
	e := f.exact(t, testSigner(t))
	got := must.Get(e.ReadPermitted(t.Context(), usdc))(t)
	require.Equal(t, onchain.OwnAccount{Network: sepolia, Address: us, Asset: usdc.Address,
		Balance: money.NewAmount(5), Permitted: money.NewAmount(3), Gas: money.NewAmount(1e15)}, got)

	evidence := pulled()
	f.receiptOf(evidence, 999_990, owner, us, 5_000, 1)
	cost := must.Get(e.GasOf(t.Context(), sepolia, evidence.Transaction))(t)
	require.Equal(t, "57000000000000", cost.String())
	f.receipts["0x01"] = f.receipts[evidence.Transaction]
	_, err := e.GasOf(t.Context(), sepolia, "0x01")
	require.True(t, x402.HasCode(err, x402.RPCError), "another's receipt: %v", err)
	cost = must.Get(e.GasOf(t.Context(), sepolia, "0x02"))(t)
	require.True(t, cost.IsZero(), "not in a block")
}

// approvingOrder is a payment of 10,000 whose seller brings an approval in one of these ways, at a wallet
// whose owner lets one cost so much.
func approvingOrder(t *testing.T, f *fakeNode, most uint64, offers ...string) (*Permitted, onchain.Order) {
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
			requireCode(t, c.code, err)
			require.Empty(t, made.Payload)
			require.Empty(t, p.signer.(*keySigner).digests, "the signer was asked")
		})
	}
}

func TestABadApprovalIsDropped(t *testing.T) {
	p, o := approvingOrder(t, approvingNode(t), enoughGas, x402.ERC20Sponsoring)
	p.signer = strangersApproval{testSigner(t)}
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

// pulled is the evidence of a pull of 5,000 with account nonce 7.
func pulled() x402.Evidence {
	e := message.PullEvidence(x402.Pull{Network: sepolia, Token: usdc.Address, Owner: owner, Agent: us,
		Amount: money.NewAmount(5_000), ChainID: 84532, Nonce: 7, Made: noon})
	e.Transaction = "0x29cbf838e8163dc80c915e0531d98fa6190ce908dc416fef64f3dbe6f1c2ff4c"
	return e
}

func (f *fakeNode) receiptOf(e x402.Evidence, at uint64, from, to string, amount uint64, status uint64) {
	value := money.NewAmount(amount).Bytes32()
	hash := common.HexToHash(e.Transaction)
	f.receipts[e.Transaction] = map[string]any{"transactionHash": hash, "blockNumber": hexutil.Uint64(at),
		"status": hexutil.Uint64(status), "gasUsed": hexutil.Uint64(57_000),
		"effectiveGasPrice": "0x3b9aca00",
		"logs": []logEntry{{Address: common.HexToAddress(e.Asset), Data: value[:],
			Topics: []common.Hash{topicTransfer, topic(from), topic(to)}, TransactionHash: hash,
			BlockNumber: hexutil.Uint64(at)}}}
}

func TestPullStatus(t *testing.T) {
	final, fresh := uint64(999_900), uint64(999_990)
	type world func(f *fakeNode, e x402.Evidence)
	mined := func(at uint64, from, to string, amount, status uint64) world {
		return func(f *fakeNode, e x402.Evidence) { f.receiptOf(e, at, from, to, amount, status) }
	}
	count := func(n uint64) world { return func(f *fakeNode, _ x402.Evidence) { f.count = n } }
	const contradicts, spent = "contradicts itself", "gas: 0.000057"
	for name, c := range map[string]struct {
		world  world
		state  x402.StatusState
		note   string
		unused bool
	}{
		"not in a block":            {count(7), x402.Open, "not in a block", true},
		"in a block":                {mined(fresh, owner, us, 5_000, 1), x402.Settled, spent, false},
		"in a final block":          {mined(final, owner, us, 5_000, 1), x402.Settled, spent, false},
		"of another sum":            {mined(final, owner, us, 4_999, 1), x402.Open, contradicts, false},
		"out of another account":    {mined(final, payee, us, 5_000, 1), x402.Open, contradicts, false},
		"to another account":        {mined(final, owner, payee, 5_000, 1), x402.Open, contradicts, false},
		"failed, and not final":     {mined(fresh, owner, us, 5_000, 0), x402.Open, "not final", false},
		"failed":                    {mined(final, owner, us, 5_000, 0), x402.Expired, "failed", false},
		"its nonce is used already": {count(8), x402.Expired, "nonce 7", false},
	} {
		t.Run(name, func(t *testing.T) {
			f, e := newFakeNode(t), pulled()
			c.world(f, e)
			status := must.Get(f.exact(t, testSigner(t)).Status(t.Context(), e))(t)
			require.Equal(t, c.state, status.State, status.Note)
			require.Equal(t, c.unused, status.Unused)
			require.Contains(t, status.Note, c.note)
		})
	}
	for name, spoil := range map[string]func(e *x402.Evidence){
		"no hash":    func(e *x402.Evidence) { e.Transaction = "0x12" },
		"no nonce":   func(e *x402.Evidence) { e.Nonce = "0x07" },
		"no account": func(e *x402.Evidence) { e.Source = "" },
	} {
		t.Run(name, func(t *testing.T) {
			e := pulled()
			spoil(&e)
			status, err := newFakeNode(t).exact(t, testSigner(t)).Status(t.Context(), e)
			requireCode(t, x402.Internal, err)
			require.Equal(t, x402.Open, status.State)
		})
	}
	f, e := newFakeNode(t), pulled()
	f.receiptOf(e, final, owner, us, 5_000, 1)
	other := f.receipts[e.Transaction].(map[string]any)
	other["transactionHash"] = common.HexToHash("0x1")
	_, err := f.exact(t, testSigner(t)).Status(t.Context(), e)
	require.True(t, x402.HasCode(err, x402.RPCError), "another transaction's receipt: %v", err)
}

// Of two pulls with one account nonce only one can happen, whatever they move.
func TestAPullIsKnownByItsAccountNonce(t *testing.T) {
	one := pulled()
	other := one
	other.Asset, other.Transaction = payee, "0x1"
	require.Equal(t, one.Unique(), other.Unique())
	other.Nonce = "8"
	require.NotEqual(t, one.Unique(), other.Unique())
	require.Equal(t, noon.UTC().Truncate(time.Second), one.ExpiresAt.UTC())
}
