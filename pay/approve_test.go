package pay

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/history"
	"x402-wallet/history/historytest"
	"x402-wallet/history/report"
	"x402-wallet/internal/must"
	"x402-wallet/seller"
	"x402-wallet/x402"
	"x402-wallet/x402/onchain"
	"x402-wallet/x402/wire"
)

// askedFor makes a call that a person has to approve, and is the approval's id.
func (b *bench) askedFor(t *testing.T, q Request) string {
	t.Helper()
	e := code(t, x402.ApprovalRequired, must.Err(b.Pay(t.Context(), q)))
	id := e.Details["approvalId"].(string)
	require.Contains(t, e.Hint, "x402-wallet approve "+id)
	require.Empty(t, e.Spent)
	return id
}

// sealed stands for the owner's seal, which noGuard believes.
func sealed(history.Approval) ([]byte, error) { return []byte("seal"), nil }

func strict(t *testing.T) *bench {
	b := newBench(t, "10000", honest)
	b.Rules.ApproveAbove = 9_999
	return b
}

func TestApproval(t *testing.T) {
	b := strict(t)
	q := get(testURL)
	id := b.askedFor(t, q)
	require.Equal(t, id, b.askedFor(t, q), "the same question")
	a := must.Get(b.store.Approval(t.Context(), id))(t)
	require.Equal(t, history.Pending, a.State)
	require.Equal(t, []any{"api.example", "GET", testURL, testNetwork, testUSDC, "USDC", "10000", "$0.01",
		testPayee, true},
		[]any{a.Host, a.Method, a.URL, a.Network, a.Asset, a.Symbol, a.Amount.String(), a.Price.Price(),
			a.PayTo, strings.Contains(a.Why, "$0.01 is above")})

	must.Get(b.store.Approve(t.Context(), id, "owner", sealed))(t)
	estimate := must.Get(b.Estimate(t.Context(), q))(t)
	require.True(t, estimate.Options[0].Payable, "and an estimate does not use it up")
	// picked up by whatever process gets the same call
	other := openBench(t, b.home, b.chain, "10000", honest)
	other.Rules.ApproveAbove = 9_999
	r := must.Get(other.Pay(t.Context(), q))(t)
	require.Equal(t, StatusPaid, r.Status)
	require.Equal(t, "owner", r.ApprovedBy)
	at := must.Get(time.Parse(time.RFC3339, r.ApprovedAt))(t)
	require.WithinDuration(t, time.Now(), at, time.Minute)
	other.Delivered(t.Context(), r.Status, r.PaymentID)
	a = must.Get(b.store.Approval(t.Context(), id))(t)
	require.Equal(t, history.Used, a.State)
	require.Equal(t, r.PaymentID, a.Payment)
	require.NotEqual(t, id, b.askedFor(t, q), "it was good for one")
	require.Equal(t, 1, b.chain.settlements())
}

// Whatever of a quote changes, the approval is not for it.
func TestAnApprovalIsForOneQuote(t *testing.T) {
	for name, change := range map[string]func(*bench, *Request){
		"payee": func(b *bench, _ *Request) {
			b.seller.payee = "0x0000000000000000000000000000000000000BAD"
		},
		"cheaper": func(b *bench, _ *Request) { b.seller.price, b.Rules.ApproveAbove = "9000", 1 },
		"dearer":  func(b *bench, _ *Request) { b.seller.price = "10001" },
		"path":    func(_ *bench, q *Request) { q.URL += "/tomorrow" },
		"query":   func(_ *bench, q *Request) { q.URL += "?a=1" },
		"host":    func(_ *bench, q *Request) { q.URL = strings.Replace(q.URL, "api.", "www.", 1) },
		"method":  func(_ *bench, q *Request) { q.Method = "POST" },
		"body":    func(_ *bench, q *Request) { q.Body = []byte("x") },
		"header":  func(_ *bench, q *Request) { q.Header = map[string][]string{"X-A": {"1"}} },
		"network, asset": func(b *bench, _ *Request) {
			b.seller.network, b.seller.asset = "eip155:8453", "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"
		},
		"flow": func(b *bench, _ *Request) { b.seller.flow = "upfront" },
	} {
		t.Run(name, func(t *testing.T) {
			b := strict(t)
			q := get(testURL)
			id := b.askedFor(t, q)
			must.Get(b.store.Approve(t.Context(), id, "owner", sealed))(t)
			first, before := q, []string{b.seller.payee, b.seller.price, b.seller.network, b.seller.asset,
				b.seller.flow}
			change(b, &q)
			require.NotEqual(t, id, b.askedFor(t, q))
			require.Zero(t, b.chain.signed)
			for i, was := range []*string{&b.seller.payee, &b.seller.price, &b.seller.network,
				&b.seller.asset, &b.seller.flow} {
				*was = before[i]
			}
			require.NoError(t, must.Err(b.Pay(t.Context(), first)), "and for its own it still is")
		})
	}
}

// An approval without the owner's seal is good in the process whose client gave it, and in no
// other: anybody could have written it.
func TestAnUnsealedApprovalOfAnotherProcessIsRefused(t *testing.T) {
	b := strict(t)
	id := b.askedFor(t, get(testURL))
	must.Get(b.store.Accept(t.Context(), id, "client"))(t) // by whoever writes to the ledger
	require.Equal(t, id, b.askedFor(t, get(testURL)))
	require.Zero(t, b.chain.signed)
	require.NoError(t, b.Accept(t.Context(), id, "client"))
	b.mustPay(t, testURL)
}

func TestAHundredCallsShareOneApproval(t *testing.T) {
	b := strict(t)
	must.Get(b.store.Approve(t.Context(), b.askedFor(t, get(testURL)), "owner", sealed))(t)
	second := openBench(t, b.home, b.chain, "10000", honest)
	second.Rules.ApproveAbove = 9_999
	var paid, asked atomic.Int64
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			switch _, err := []*bench{b, second}[i%2].Pay(context.Background(), get(testURL)); {
			case err == nil:
				paid.Add(1)
			case x402.HasCode(err, x402.ApprovalRequired):
				asked.Add(1)
			}
		})
	}
	all.Wait()
	require.EqualValues(t, []int64{1, 99}, []int64{paid.Load(), asked.Load()})
	require.Equal(t, 1, b.chain.settlements())
}

func TestNoQuestionWithoutMoney(t *testing.T) {
	b := strict(t)
	b.chain.balance = 9_999
	b.mustRefuse(t, x402.InsufficientFunds, testURL)
	require.Empty(t, must.Get(report.OpenApprovals(t.Context(), b.store))(t))
}

type frozenMeanwhile struct {
	*chain
	b *bench
}

func (f frozenMeanwhile) Authorize(ctx context.Context, o onchain.Order) (onchain.Authorization, error) {
	if err := f.b.store.Freeze(ctx, history.Freeze{By: "owner", Why: "stop"}); err != nil {
		return onchain.Authorization{}, err
	}
	return f.chain.Authorize(ctx, o)
}

func TestFrozenBetweenHoldAndSending(t *testing.T) {
	b := newBench(t, "10000", honest)
	b.Schemes = map[SchemeKey]Scheme{exactEVM: frozenMeanwhile{b.chain, b}}
	e := b.mustRefuse(t, x402.WalletFrozen, testURL)
	require.Empty(t, e.Spent)
	require.Empty(t, b.seller.sent(), "nothing left")
	require.Equal(t, history.Failed, b.only(t).State, "and nothing is held")

	estimate := b.estimate(t, testURL)
	require.Equal(t, x402.WalletFrozen, estimate.Options[0].Code)
	b.mustRefuse(t, x402.WalletFrozen, testURL)
	must.Get(b.store.Unfreeze(t.Context(), nil))(t)
	b.Schemes = map[SchemeKey]Scheme{exactEVM: b.chain}
	b.mustPay(t, testURL)
}

// What was signed before does not go out while its account is frozen: neither once more, nor for
// the first time.
func TestNothingSignedGoesOutWhileFrozen(t *testing.T) {
	for name, spoil := range map[string]func(b *bench){
		"sent":          func(b *bench) { b.seller.script = silent },
		"unreachable":   func(b *bench) { b.seller.script = unreachable },
		"no checkpoint": func(b *bench) { b.Guard = noCheckpoint{historytest.Guard{Store: b.store}} },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "10000", honest)
			spoil(b)
			require.Error(t, must.Err(b.Pay(t.Context(), get(testURL))))
			p, sent := b.only(t), len(b.seller.sent())
			b.seller.script, b.Guard = honest, historytest.Guard{Store: b.store}
			require.NoError(t, b.store.Freeze(t.Context(), history.Freeze{Network: p.Network,
				Account: p.Source, By: "agent", Why: "stop"}))
			e := b.mustRefuse(t, x402.WalletFrozen, testURL)
			require.Equal(t, []any{p.ID, "10000"}, []any{e.PaymentID, e.Spent}, "it is held")
			require.Len(t, b.seller.sent(), sent)
			must.Get(b.store.Unfreeze(t.Context(), nil))(t)
			r := b.mustPay(t, testURL)
			require.Equal(t, p.ID, r.PaymentID)
		})
	}
}

// What a seller says that it settled, and the chain does not show, can still be settled: it goes out as
// little as what is open. Once the chain shows it, it moves nothing more, and its content can be asked for.
func TestWhatIsSettledByWordAloneDoesNotGoOutWhileFrozen(t *testing.T) {
	unserved := func(*scriptedSeller, string, uint64) (*seller.Answer, error) {
		return &seller.Answer{Status: 500, Settlement: &wire.Settlement{Success: true, Transaction: "0xtx",
			Raw: json.RawMessage(`{"success":true}`)}}, nil
	}
	for name, c := range map[string]struct {
		spoil func(b *bench, p history.Payment)
		code  x402.Code // "": it goes out
	}{
		"frozen": {func(b *bench, _ history.Payment) {
			require.NoError(t, b.store.Freeze(t.Context(), history.Freeze{By: "owner", Why: "stop"}))
		}, x402.WalletFrozen},
		"rules that are not sealed": {func(b *bench, _ history.Payment) {
			b.Guard = unsealed{historytest.Guard{Store: b.store}}
		}, x402.PolicyUnsealed},
		"frozen, and the chain shows it": {func(b *bench, p history.Payment) {
			require.True(t, b.chain.settle(p.Evidence.Nonce, 10_000))
			require.NoError(t, b.store.Freeze(t.Context(), history.Freeze{By: "owner", Why: "stop"}))
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "10000", unserved)
			r := b.mustPay(t, testURL)
			require.Equal(t, StatusUnserved, r.Status)
			p := b.only(t)
			require.Equal(t, history.Settled, p.State)
			c.spoil(b, p)
			_, err := b.Pay(t.Context(), get(testURL))
			if c.code == "" {
				require.NoError(t, err)
				require.Len(t, b.seller.sent(), 2)
				return
			}
			require.Equal(t, p.ID, code(t, c.code, err).PaymentID)
			require.Len(t, b.seller.sent(), 1)
		})
	}
}

// The breaker's finding outlasts its reason: only the owner starts the wallet again.
func TestTheBreakerLasts(t *testing.T) {
	b := newBench(t, "1", silent)
	b.Rules.MaxFailures = 3
	for i := range 3 {
		q := get(testURL)
		q.IdempotencyKey = string(rune('a' + i))
		code(t, x402.OutcomeUnknown, must.Err(b.Pay(t.Context(), q)))
	}
	b.mustRefuse(t, x402.WalletFrozen, testURL+"?new")
	list := must.Get(b.store.Freezes(t.Context()))(t)
	require.Len(t, list, 1)
	require.Equal(t, "breaker", list[0].By)

	b.seller.script = honest // and were every payment to turn out well after all
	payments := must.Get(b.store.Recent(t.Context(), 10))(t)
	for _, p := range payments {
		require.True(t, b.chain.settle(p.Evidence.Nonce, 1))
		q := get(testURL)
		q.IdempotencyKey = p.IdempotencyKey
		require.NoError(t, must.Err(b.Pay(t.Context(), q)), "what is paid is fetched")
	}
	b.mustRefuse(t, x402.WalletFrozen, testURL+"?new")
	must.Get(b.store.Unfreeze(t.Context(), nil))(t)
	b.mustPay(t, testURL+"?new")
}
