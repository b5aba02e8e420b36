package evm

import (
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

func (f *fakeNode) received(e x402.Evidence) (x402.Status, error) {
	return f.exact(f.T, nil).Received(f.T.Context(), e)
}

func (f *fakeNode) usedWith(e x402.Evidence, at uint64, logs ...LogEntry) string {
	hash := f.Settle(e, at, "", "", 0, 1)
	for i := range logs {
		logs[i].BlockNumber, logs[i].TransactionHash = hexutil.Uint64(at), common.HexToHash(hash)
	}
	f.Receipts[hash].(map[string]any)["logs"] = logs
	return hash
}

func usedLog(payer, nonce string) LogEntry {
	return LogEntry{Address: common.HexToAddress(usdc.Address), Data: hexutil.Bytes{},
		Topics: []common.Hash{topicUsed, topic(payer), common.HexToHash(nonce)}}
}

func transferLog(from, to string, amount uint64) LogEntry {
	value := money.NewAmount(amount).Bytes32()
	return LogEntry{Address: common.HexToAddress(usdc.Address), Data: value[:],
		Topics: []common.Hash{TopicTransfer, topic(from), topic(to)}}
}

// Of a stranger's key only exactly what was signed is settled; what his nonce was used for instead
// is never that, and cannot become it once it is final.
func TestReceived(t *testing.T) {
	const otherNonce = "0x02"
	e := paid(time.Minute)
	e.Payer = stranger
	const self, friend = stranger, us
	used, other := usedLog(self, e.Nonce), usedLog(self, otherNonce)
	exact := transferLog(self, payee, 10000)
	fake := exact
	fake.Address = common.HexToAddress("0x1111111111111111111111111111111111111111")
	fakeUsed, approval, dropped := used, exact, exact
	fakeUsed.Address, dropped.Removed = fake.Address, true
	approval.Topics = []common.Hash{{1}, exact.Topics[1], exact.Topics[2]}
	back := transferLog(self, self, 10000)
	for name, test := range map[string]struct {
		logs  []LogEntry
		final x402.StatusState // when the block is; before, all but settled is open
	}{
		"exact": {[]LogEntry{used, exact}, x402.Settled},
		"exact, among others": {[]LogEntry{other, transferLog(self, friend, 1), used, exact},
			x402.Settled},
		"the coin's own log between": {[]LogEntry{used, fake, exact}, x402.Settled}, // as on Arc
		"another's log, and no use":  {[]LogEntry{used, fake, back}, x402.Expired},
		"to himself":                 {[]LogEntry{used, back}, x402.Expired},
		"to a friend":                {[]LogEntry{used, transferLog(self, friend, 10000)}, x402.Expired},
		"less":                       {[]LogEntry{used, transferLog(self, payee, 9999)}, x402.Expired},
		"more":                       {[]LogEntry{used, transferLog(self, payee, 10001)}, x402.Expired},
		"a fee is kept": {[]LogEntry{used, transferLog(self, payee, 9990), transferLog(self, friend, 10)},
			x402.Expired},
		"of another payer":       {[]LogEntry{used, transferLog(friend, payee, 10000)}, x402.Open},
		"of another token":       {[]LogEntry{used, fake}, x402.Open},
		"another token's nonce":  {[]LogEntry{fakeUsed, exact}, x402.Open},
		"with another nonce":     {[]LogEntry{used, back, other, exact}, x402.Expired},
		"with another, before":   {[]LogEntry{other, exact, used, back}, x402.Expired},
		"before its nonce":       {[]LogEntry{exact, used, transferLog(self, friend, 1)}, x402.Expired},
		"something between":      {[]LogEntry{used, other, exact}, x402.Expired},
		"an approval of as much": {[]LogEntry{used, approval}, x402.Open},
		"nothing":                {[]LogEntry{used}, x402.Open},
		"dropped":                {[]LogEntry{used, dropped}, x402.Expired},
	} {
		t.Run(name, func(t *testing.T) {
			for _, final := range []bool{false, true} {
				f := newFakeNode(t)
				at := f.Head - 40
				hash := f.usedWith(e, at, test.logs...)
				want := test.final
				if final {
					f.Final = at
				} else if want == x402.Expired {
					want = x402.Open
				}
				got := must.Get(f.received(e))(t)
				require.Equal(t, want, got.State, got.Note)
				require.Equal(t, hash, got.Transaction)
				require.Equal(t, want == x402.Settled, got.Note == "", got.Note)
			}
		})
	}
}

// A used nonce that cannot be shown to have paid has not: without its event, without its receipt,
// in a transaction that failed, or cancelled.
func TestReceivedWithoutProof(t *testing.T) {
	for name, test := range map[string]struct {
		spoil func(f *fakeNode, receipt map[string]any)
		final x402.StatusState
	}{
		"no event":      {func(f *fakeNode, _ map[string]any) { f.Logs = nil }, x402.Open},
		"removed":       {func(f *fakeNode, _ map[string]any) { f.Logs[0].Removed = true }, x402.Open},
		"no log search": {func(f *fakeNode, _ map[string]any) { f.MaxRange = 1 }, x402.Open},
		"no receipt":    {func(f *fakeNode, _ map[string]any) { clear(f.Receipts) }, x402.Open},
		"failed":        {func(_ *fakeNode, r map[string]any) { r["status"] = "0x0" }, x402.Open},
		"another's, shown": {func(_ *fakeNode, r map[string]any) { r["transactionHash"] = common.Hash{1} },
			x402.Open},
		"cancelled": {func(f *fakeNode, _ map[string]any) { f.Logs[0].Topics[0] = topicCanceled },
			x402.Expired},
	} {
		t.Run(name, func(t *testing.T) {
			for _, final := range []bool{false, true} {
				f := newFakeNode(t)
				e := paid(time.Minute)
				at := f.Head - 40
				hash := f.Settle(e, at, us, payee, 10000, 1)
				test.spoil(f, f.Receipts[hash].(map[string]any))
				want := x402.Open
				if final {
					f.Final, want = at, test.final
				}
				got := must.Get(f.received(e))(t)
				require.Equal(t, want, got.State, got.Note)
				require.NotEmpty(t, got.Note)
			}
		})
	}
}

// A payment that was not used yet is open until it has finally expired, whoever signed it.
func TestReceivedUnused(t *testing.T) {
	for ago, want := range map[time.Duration]x402.StatusState{-time.Minute: x402.Open,
		time.Minute: x402.Open, time.Hour: x402.Expired} {
		f := newFakeNode(t)
		got := must.Get(f.received(paid(ago)))(t)
		require.Equal(t, want, got.State, got.Note)
	}
}
