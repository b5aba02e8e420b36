package evm

import (
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/stretchr/testify/require"

	"x402-wallet/chain/evm/message"
	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

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
	f.Receipts[e.Transaction] = map[string]any{"transactionHash": hash, "blockNumber": hexutil.Uint64(at),
		"status": hexutil.Uint64(status), "gasUsed": hexutil.Uint64(57_000),
		"effectiveGasPrice": "0x3b9aca00",
		"logs": []LogEntry{{Address: common.HexToAddress(e.Asset), Data: value[:],
			Topics: []common.Hash{TopicTransfer, topic(from), topic(to)}, TransactionHash: hash,
			BlockNumber: hexutil.Uint64(at)}}}
}

func TestPullStatus(t *testing.T) {
	final, fresh := uint64(999_900), uint64(999_990)
	type world func(f *fakeNode, e x402.Evidence)
	mined := func(at uint64, from, to string, amount, status uint64) world {
		return func(f *fakeNode, e x402.Evidence) { f.receiptOf(e, at, from, to, amount, status) }
	}
	count := func(n uint64) world { return func(f *fakeNode, _ x402.Evidence) { f.Count = n } }
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
	other := f.Receipts[e.Transaction].(map[string]any)
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
