package evm

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// paid is a payment's evidence whose authorization ended before seconds ago, by the fake node's
// latest block.
func paid(ago time.Duration) x402.Evidence {
	end := noon.Add(-ago).Unix()
	return x402.Evidence{Network: sepolia, Asset: usdc.Address, Payer: us, PayTo: payee,
		Amount: money.NewAmount(10000),
		Nonce:  "0x0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20", ValidBefore: end,
		ExpiresAt: time.Unix(end, 0)}
}

func (f *fakeNode) status(e x402.Evidence) (x402.Status, error) {
	return f.exact(f.T, testSigner(f.T)).Status(f.T.Context(), e)
}

// The fake's blocks come every 2 s; the last is 1,000,000 at noon, the finalized one 200 s older.
func TestStatusOfUnusedNonce(t *testing.T) {
	finalAge := 200 * time.Second
	for name, test := range map[string]struct {
		ago  time.Duration
		want x402.StatusState
	}{
		"still valid":                      {-time.Minute, x402.Open},
		"over, not finally":                {time.Minute, x402.Open},
		"finalized time is the end itself": {finalAge, x402.Open},
		"one second past":                  {finalAge + time.Second, x402.Expired},
		"long past":                        {24 * time.Hour, x402.Expired},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeNode(t)
			got := must.Get(f.status(paid(test.ago)))(t)
			require.Equal(t, test.want, got.State, got.Note)
			require.Equal(t, test.want == x402.Open, got.Unused, "that it is open is that it was not used")
			require.Equal(t, f.Final, got.Block)
			require.Equal(t, noon.Add(-finalAge).UTC(), got.At)
			require.NotEmpty(t, got.Note)
			require.Empty(t, got.Transaction)
		})
	}
}

// Expired rests on the state at the finalized block, not at another.
func TestExpiredIsAskedAtTheFinalizedBlock(t *testing.T) {
	f := newFakeNode(t)
	require.Equal(t, x402.Expired, must.Get(f.status(paid(time.Hour)))(t).State)
	require.Equal(t, []string{`"latest"`, fmt.Sprintf("%q", hexutil.Uint64(f.Final))}, f.StatesAt)
}

// A node that calls a block final which is later than its newest contradicts itself, and releases
// nothing.
func TestAFinalizedBlockOfTheFutureReleasesNothing(t *testing.T) {
	e := paid(-time.Minute)
	for name, block := range map[string]string{
		"time":   fmt.Sprintf(`{"number":"0x%x","timestamp":"0x%x"}`, 999_900, noon.Add(time.Hour).Unix()),
		"number": fmt.Sprintf(`{"number":"0x%x","timestamp":"0x%x"}`, 1_000_001, noon.Unix()),
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeNode(t)
			if name == "number" {
				e = paid(time.Minute)
			}
			f.Override["eth_getBlockByNumber"] = func(w http.ResponseWriter) bool {
				if f.Asked["eth_getBlockByNumber"] > 1 { // the first is for the finalized one
					return false
				}
				f.Write(w, `{"id":ID,"result":`+block+`}`)
				return true
			}
			got, err := f.status(e)
			require.True(t, x402.HasCode(err, x402.RPCError), err)
			require.Equal(t, x402.Open, got.State)
		})
	}
}

// A node whose "latest" comes from a backend that is behind cannot make a used nonce expired.
func TestABackendThatIsBehind(t *testing.T) {
	f := newFakeNode(t)
	e := paid(time.Hour)
	hash := f.Settle(e, f.Head-2000, us, payee, 10000, 1)
	tags := 0
	f.Override["eth_call"] = func(w http.ResponseWriter) bool {
		tags++
		if tags > 1 {
			return false
		}
		f.Write(w, `{"id":ID,"result":"`+common.Hash{}.Hex()+`"}`)
		return true
	}
	got := must.Get(f.status(e))(t)
	require.Equal(t, x402.Settled, got.State)
	require.Equal(t, hash, got.Transaction)
}

func TestStatusOfUsedNonce(t *testing.T) {
	for name, test := range map[string]struct {
		payer, to      string
		amount, status uint64
		want           x402.StatusState
		note           string
	}{
		"exact":             {us, payee, 10000, 1, x402.Settled, ""},
		"more":              {us, payee, 10001, 1, x402.Settled, "not as signed: 10001 to " + payee},
		"less":              {us, payee, 9999, 1, x402.Settled, "not as signed"},
		"another payee":     {us, stranger, 10000, 1, x402.Settled, "not as signed: 10000 to " + stranger},
		"another payer":     {stranger, payee, 10000, 1, x402.Open, "contradicts itself"},
		"nothing moved":     {"", "", 0, 1, x402.Open, "contradicts itself"},
		"failed, they say":  {us, payee, 10000, 0, x402.Open, "failed transaction"},
		"unknown status, 2": {us, payee, 10000, 2, x402.Open, "failed transaction"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeNode(t)
			e := paid(time.Minute)
			at := f.Head - 40
			hash := f.Settle(e, at, test.payer, test.to, test.amount, test.status)
			got := must.Get(f.status(e))(t)
			require.Equal(t, test.want, got.State, got.Note)
			require.Contains(t, got.Note, test.note)
			require.Equal(t, test.note == "", got.Note == "")
			require.Equal(t, hash, got.Transaction)
			require.Equal(t, at, got.Block)
			require.Equal(t, time.Unix(int64(f.Time(at)), 0).UTC(), got.At)
		})
	}
}

// The node's own filter is not trusted: events of others, other tokens and dropped blocks are
// passed over, and a nonce that is used with its event out of reach is settled when that is final
// (Status's comment says why).
func TestStatusOfUsedNonceWithoutEvent(t *testing.T) {
	for name, spoil := range map[string]func(f *fakeNode){
		"no event":      func(f *fakeNode) { f.Logs = nil },
		"another token": func(f *fakeNode) { f.Logs[0].Address = common.HexToAddress(stranger) },
		"another payer": func(f *fakeNode) { f.Logs[0].Topics[1] = topic(stranger) },
		"another nonce": func(f *fakeNode) { f.Logs[0].Topics[2] = common.Hash{1} },
		"another event": func(f *fakeNode) { f.Logs[0].Topics[0] = TopicTransfer },
		"no topics":     func(f *fakeNode) { f.Logs[0].Topics = nil },
		"removed":       func(f *fakeNode) { f.Logs[0].Removed = true },
		"out of reach": func(f *fakeNode) {
			f.Logs[0].BlockNumber = hexutil.Uint64(f.Head - (MaxLogQueries+1)*LogWindow)
		},
		"after its end": func(f *fakeNode) { f.Logs[0].BlockNumber = hexutil.Uint64(f.Head - 10) },
		"no log search": func(f *fakeNode) { f.MaxRange = 1 },
		"no method": func(f *fakeNode) {
			f.Say("eth_getLogs", 200, `{"id":ID,"error":{"code":-32601,"message":"no"}}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeNode(t)
			e := paid(time.Minute)
			f.Settle(e, f.Head-40, us, payee, 10000, 1)
			spoil(f)
			got := must.Get(f.status(e))(t)
			require.Equal(t, x402.Open, got.State,
				"one backend of several says so, or a block that is dropped again")
			require.Equal(t, "nonce used; event not found, and not final yet", got.Note)
			require.LessOrEqual(t, f.TimesAsked("eth_getLogs"), MaxLogQueries)

			f.Final = f.Head - 40
			got = must.Get(f.status(e))(t)
			require.Equal(t, x402.Settled, got.State)
			require.Equal(t, "nonce used; event not found", got.Note)
			require.Empty(t, got.Transaction)
		})
	}
}

func TestReceiptIsGone(t *testing.T) {
	f := newFakeNode(t)
	e := paid(time.Minute)
	hash := f.Settle(e, f.Head-40, us, payee, 10000, 1)
	clear(f.Receipts)
	got := must.Get(f.status(e))(t)
	require.Equal(t, x402.Settled, got.State)
	require.Equal(t, hash, got.Transaction)
	require.Contains(t, got.Note, "receipt was not found")
}

func TestStatusOfCancelledNonce(t *testing.T) {
	for _, final := range []bool{false, true} {
		f := newFakeNode(t)
		e := paid(time.Minute)
		at := f.Head - 40
		hash := f.Settle(e, at, "", "", 0, 1)
		f.Logs[0].Topics[0] = topicCanceled
		if final {
			f.Final = at
		}
		got := must.Get(f.status(e))(t)
		require.Equal(t, map[bool]x402.StatusState{false: x402.Open, true: x402.Expired}[final], got.State)
		require.Contains(t, got.Note, "cancelled")
		require.Equal(t, hash, got.Transaction)
	}
}

// A payment is found again a second or a year later, with few questions, on nodes that limit ranges
// and forget blocks.
func TestSearchInReach(t *testing.T) {
	for _, ago := range []time.Duration{-time.Minute, 0, time.Second, time.Hour, 48 * time.Hour,
		20 * 24 * time.Hour} {
		for _, maxRange := range []uint64{0, 2000, 500, 10} {
			t.Run(fmt.Sprint(ago, maxRange), func(t *testing.T) {
				f := newFakeNode(t)
				f.MaxRange = maxRange
				e := paid(ago)
				at := min(f.Head, f.Head-uint64(max(ago, 0)/(2*time.Second))-20)
				if ago > 47*time.Hour {
					f.Pruned = at - 30
				}
				hash := f.Settle(e, at, us, payee, 10000, 1)
				got := must.Get(f.status(e))(t)
				require.Equal(t, hash, got.Transaction, got.Note)
				require.Less(t, f.TimesAsked("eth_getBlockByNumber"), 40)
				require.Less(t, f.TimesAsked("eth_getLogs"), 10)
			})
		}
	}
}

// A day's validity is searched to its beginning.
func TestSearchReachesTheLongestValidity(t *testing.T) {
	f := newFakeNode(t)
	e := paid(0)
	hash := f.Settle(e, f.Head-uint64(MaxValidity/(2*time.Second)), us, payee, 10000, 1)
	require.Equal(t, hash, must.Get(f.status(e))(t).Transaction)
}

func TestLastBefore(t *testing.T) {
	f := newFakeNode(t)
	f.Born, f.Head = 1000, 100_000 // block n at 1000+2n
	n := f.exact(t, nil).nodes[sepolia]
	tip := must.Get(n.Block(t.Context(), Latest))(t)
	for seconds, want := range map[uint64]uint64{0: 0, 1000: 0, 1001: 0, 1002: 0, 1003: 1, 1004: 1, 1005: 2,
		100_000: 49_499,
		200_998: 99_998, 200_999: 99_999, 201_000: 99_999, 201_001: 100_000, 1 << 50: 100_000} {
		t.Run(fmt.Sprint(seconds), func(t *testing.T) {
			got := must.Get(n.LastBefore(t.Context(), tip, seconds))(t)
			require.Equal(t, want, got, "before %d", seconds)
		})
	}
}

// Any failure of the node leaves the payment open, with RPC_ERROR.
func TestStatusWhenTheNodeFails(t *testing.T) {
	const block = `{"id":ID,"result":{"number":"0xf4240"`
	for name, test := range map[string]struct {
		used   bool
		method string
		status int
		body   string
	}{
		"state: an error": {false, "eth_call", 200,
			`{"id":ID,"error":{"code":-32000,"message":"header not found"}}`},
		"state: no code":     {false, "eth_call", 200, `{"id":ID,"result":"0x"}`},
		"state: 2":           {false, "eth_call", 200, `{"id":ID,"result":"0x` + fmt.Sprintf("%064d", 2) + `"}`},
		"finalized: unknown": {false, "eth_getBlockByNumber", 200, `{"id":ID,"result":null}`},
		"finalized: refused": {false, "eth_getBlockByNumber", 200,
			`{"id":ID,"error":{"code":-32602,"message":"invalid block tag"}}`},
		"finalized: no time":   {false, "eth_getBlockByNumber", 200, block + `}}`},
		"finalized: null time": {false, "eth_getBlockByNumber", 200, block + `,"timestamp":null}}`},
		"finalized: a number":  {false, "eth_getBlockByNumber", 200, block + `,"timestamp":99999999999}}`},
		"finalized: far future": {false, "eth_getBlockByNumber", 200, block +
			`,"timestamp":"0xffffffffffffffff"}}`},
		"finalized: 503": {false, "eth_getBlockByNumber", 503, block + `,"timestamp":"0xffffffff"}}`},
		"tip: unknown":   {true, "eth_getBlockByNumber", 200, `{"id":ID,"result":null}`},
		"logs: 429":      {true, "eth_getLogs", 429, `{"id":ID,"error":{"code":-32005,"message":"rate"}}`},
		"logs: nonsense": {true, "eth_getLogs", 200, `{"id":ID,"result":{}}`},
		"receipt: an error": {true, "eth_getTransactionReceipt", 200,
			`{"id":ID,"error":{"code":1,"message":"no"}}`},
		"receipt: nonsense": {true, "eth_getTransactionReceipt", 200, `{"id":ID,"result":[]}`},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeNode(t)
			e := paid(time.Hour)
			if test.used {
				e = paid(-time.Minute)
				f.Settle(e, f.Head-5, us, payee, 10000, 1)
			}
			f.Say(test.method, test.status, test.body)
			got, err := f.status(e)
			requireCode(t, x402.RPCError, err)
			require.Zero(t, got)
			require.NotZero(t, f.TimesAsked(test.method))
		})
	}
}

func TestEvidenceMustBeReadable(t *testing.T) {
	f := newFakeNode(t)
	for i, spoil := range []func(*x402.Evidence){
		func(e *x402.Evidence) {
			e.Asset = ""
		}, func(e *x402.Evidence) { e.Payer = "x" }, func(e *x402.Evidence) { e.PayTo = "" },
		func(e *x402.Evidence) { e.Nonce = "0x01" }, func(e *x402.Evidence) { e.ValidBefore = 0 },
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			e := paid(time.Hour)
			spoil(&e)
			got, err := f.status(e)
			requireCode(t, x402.Internal, err)
			require.Equal(t, x402.Open, got.State)
		})
	}
	e := paid(time.Hour)
	e.Network = "eip155:1"
	got, err := f.status(e)
	requireCode(t, x402.RPCError, err)
	require.Equal(t, x402.Open, got.State)
	require.Empty(t, f.Asked)
}
