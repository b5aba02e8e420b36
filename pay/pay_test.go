package pay

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"x402-wallet/budget"
	"x402-wallet/facilitator"
	"x402-wallet/history"
	"x402-wallet/history/historytest"
	"x402-wallet/history/verify"
	"x402-wallet/internal/must"
	"x402-wallet/seller"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/wire"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("database/sql.(*DB).connectionOpener"))
}

func code(t *testing.T, want x402.Code, err error) *x402.Error {
	t.Helper()
	require.Error(t, err)
	coded := x402.AsError(err)
	require.Equal(t, want, coded.Code, "%v", err)
	return coded
}

func TestFreeCostsNothing(t *testing.T) {
	b := newBench(t, "", honest)
	r := b.mustPay(t, testURL)
	require.Equal(t, StatusFree, r.Status)
	require.False(t, r.PaymentRequired)
	require.Equal(t, "free", r.Content)
	require.Zero(t, b.chain.signed)
}

func TestPaidOnceWithReceiptAndBudget(t *testing.T) {
	b := newBench(t, "10000", honest)
	r := b.mustBuy(t, testURL)
	require.Equal(t, "sunny", r.Content)
	require.Equal(t, "10000", r.AmountPaid.String())
	require.Equal(t, "$0.01", r.Price)
	require.Empty(t, r.Asset, "its symbol says as much")
	require.Equal(t, "claimed", *r.Proof)
	require.Equal(t, money.Dollars(10_000), r.Budget.Day.Spent)
	require.Nil(t, r.Budget.Month, "more is left of it")
	require.Equal(t, uint64(990_000), b.chain.balance)
	p := b.only(t)
	require.Equal(t, history.Settled, p.State)
	require.Equal(t, r.TransactionSignature, p.Transaction)
	require.Empty(t, b.settler.seen, "the seller settles")
	require.Equal(t, 1, b.chain.settlements())
}

// Written down before it is sent: when the seller sees the payment, the ledger has its bytes.
func TestTheSignedBytesAreOnDiskBeforeTheyLeave(t *testing.T) {
	b := newBench(t, "10000", nil)
	b.seller.script = func(s *scriptedSeller, nonce string, amount uint64) (*seller.Answer, error) {
		p := b.only(t)
		require.Equal(t, history.Submitted, p.State)
		require.Equal(t, nonce, p.Evidence.Nonce)
		require.NotEmpty(t, p.Payload)
		return honest(s, nonce, amount)
	}
	b.mustPay(t, testURL)
}

// beforeAsked has something happen just before the seller is asked.
type beforeAsked struct {
	*scriptedSeller
	happens func()
}

func (s beforeAsked) Ask(ctx context.Context, r seller.Request) (*seller.Answer, error) {
	s.happens()
	return s.scriptedSeller.Ask(ctx, r)
}

// A client that cancels and makes the same call at another process at once buys nothing twice: what
// was still waited for when that process looked is looked at again when money is to be held.
func TestALeftCallIsTakenUpByAnotherProcess(t *testing.T) {
	serve := make(chan struct{})
	b := newBench(t, "10000", func(s *scriptedSeller, nonce string, amount uint64) (*seller.Answer, error) {
		<-serve
		return honest(s, nonce, amount)
	})
	left, leave := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = b.Pay(left, get(testURL))
	}()
	require.Eventually(t, func() bool { return len(b.seller.sent()) == 1 }, time.Minute, time.Millisecond)

	other := openBench(t, b.home, b.chain, "10000", honest)
	other.Transport = beforeAsked{other.seller, func() {
		leave()
		require.Eventually(t, func() bool { return b.only(t).Waiter == "" }, time.Minute, time.Millisecond)
		close(serve)
	}}
	r := other.mustPay(t, testURL)
	<-done
	require.Equal(t, StatusReplayed, r.Status)
	require.Equal(t, b.only(t).ID, r.PaymentID)
	require.Equal(t, 1, b.chain.signed)
}

func TestALostAnswerIsNeverPaidTwice(t *testing.T) {
	b := newBench(t, "10000", cutAfterSettling)
	e := b.mustRefuse(t, x402.OutcomeUnknown, testURL)
	require.False(t, e.Unsafe)
	require.Equal(t, "10000", e.Spent)
	require.Equal(t, b.only(t).ID, e.PaymentID)

	for range 50 {
		r, err := b.Pay(t.Context(), get(testURL))
		require.NoError(t, err, "the chain knows that it is settled; the seller serves nothing")
		require.Equal(t, StatusUnserved, r.Status)
		require.Equal(t, x402.Repeat, r.Next.Do)
		require.Contains(t, r.Next.Why, b.only(t).Evidence.ExpiresAt.UTC().Format(time.RFC3339))
	}
	sent := b.seller.sent()
	for _, s := range sent {
		require.Equal(t, sent[0], s, "the very same bytes")
	}
	require.Equal(t, 1, b.chain.signed)
	require.Equal(t, 1, b.chain.settlements())
	require.Equal(t, history.Chain, b.only(t).Proof)

	b.seller.script = func(*scriptedSeller, string, uint64) (*seller.Answer, error) {
		return &seller.Answer{Status: 200, Content: []byte("at last")}, nil
	}
	r := b.mustBuy(t, testURL)
	require.Equal(t, "at last", r.Content)
	require.Equal(t, 1, b.chain.signed)
}

func TestNoSecondSignatureBeforeTheFirstHasExpired(t *testing.T) {
	b := newBench(t, "10000", silent)
	b.mustRefuse(t, x402.OutcomeUnknown, testURL)
	b.seller.script = honest
	b.chain.down = true // a node that cannot be reached releases nothing
	b.reconcile(t)
	require.Equal(t, history.Unknown, b.only(t).State)
	b.chain.down = false
	b.chain.dead[b.only(t).Evidence.Nonce] = true
	b.later()
	b.mustBuy(t, testURL)
	require.Equal(t, 2, b.chain.signed)
	require.Equal(t, 1, b.chain.settlements())
}

// A seller that is not there for the payment has not got it, but whoever reads the ledger has: it
// is held until it has expired.
func TestAnUnreachableSellerFreesNothing(t *testing.T) {
	b := newBench(t, "10000", unreachable)
	e := b.mustRefuse(t, x402.PayFailed, testURL)
	require.Equal(t, "10000", e.Spent)
	p := b.only(t)
	require.Equal(t, history.Unknown, p.State)
	b.seller.script = honest
	r := b.mustPay(t, testURL)
	require.Equal(t, p.ID, r.PaymentID, "the same call brings the same bytes")

	b.seller.script = unreachable
	b.mustRefuse(t, x402.PayFailed, testURL+"?dead")
	list := b.rows(t)
	b.chain.dead[list[0].Evidence.Nonce] = true
	b.later()
	report := b.reconcile(t)
	require.Equal(t, 1, report.Failed)
	require.Zero(t, b.budgets(t.Context()).Day.Held)
}

func TestIdempotencyKey(t *testing.T) {
	b := newBench(t, "10000", honest)
	q := get(testURL)
	q.IdempotencyKey = "order-1"
	var wait sync.WaitGroup
	statuses := make([]string, 8)
	for i := range statuses {
		wait.Go(func() {
			r, err := b.Pay(context.Background(), q)
			if err == nil {
				statuses[i] = r.Status
			} else {
				statuses[i] = err.Error()
			}
		})
	}
	wait.Wait()
	paid := 0
	for _, s := range statuses {
		if s == StatusPaid {
			paid++
		} else {
			require.Equal(t, StatusReplayed, s)
		}
	}
	require.Equal(t, 1, paid, "%v", statuses)
	require.Equal(t, 1, b.chain.settlements())

	b.Delivered(t.Context(), StatusPaid, b.only(t).ID)
	r := must.Get(b.Pay(t.Context(), q))(t)
	require.Equal(t, StatusReplayed, r.Status)
	require.Equal(t, "sunny", r.Content)
}

// A client that cancels or dies gets what it paid for by making the call again.
func TestACallerThatLeftGetsItsAnswerNextTime(t *testing.T) {
	b := newBench(t, "10000", nil)
	ctx, leave := context.WithCancel(t.Context())
	b.seller.script = func(s *scriptedSeller, nonce string, amount uint64) (*seller.Answer, error) {
		leave()
		require.Eventually(t, func() bool { return b.only(t).Waiter == "" }, time.Minute, time.Millisecond,
			"the leaving is noted while the seller works")
		return honest(s, nonce, amount)
	}
	require.NoError(t, must.Err(b.Pay(ctx, get(testURL))), "the bookkeeping is finished all the same")
	require.Equal(t, history.Settled, b.only(t).State)
	r := b.mustPay(t, testURL)
	require.Equal(t, StatusReplayed, r.Status)
	require.Equal(t, "sunny", r.Content)
	require.Equal(t, 1, b.chain.settlements())
}

// The process dies while the seller holds the request; another one gets the same call.
func TestAnotherProcessResumesWhatAnEndedOneLeft(t *testing.T) {
	for _, settledBefore := range []bool{false, true} {
		t.Run(fmt.Sprint("settled before the death: ", settledBefore), func(t *testing.T) {
			ended := newBench(t, "10000", nil)
			reached := make(chan struct{})
			hang := make(chan struct{})
			ended.seller.script = func(s *scriptedSeller, nonce string, amount uint64) (*seller.Answer,
				error) {
				if settledBefore {
					s.chain.settle(nonce, amount)
				}
				close(reached)
				<-hang
				return nil, &seller.SendError{Sent: true, Err: errors.New("died")}
			}
			done := make(chan struct{})
			go func() { defer close(done); ended.Pay(context.Background(), get(testURL)) }()
			<-reached
			require.NoError(t, ended.store.Close()) // the kernel lets go of its lock

			next := openBench(t, ended.home, ended.chain, "10000", honest)
			r := next.mustPay(t, testURL)
			require.Equal(t, map[bool]string{false: StatusPaid, true: StatusUnserved}[settledBefore],
				r.Status)
			require.Equal(t, 1, next.chain.signed)
			require.Equal(t, 1, next.chain.settlements())
			require.Equal(t, ended.seller.sent()[0], next.seller.sent()[0])
			close(hang)
			<-done
		})
	}
}

// Died between the hold and the signature: nothing left, so the hold goes and the call begins again.
func TestAHoldWithoutASignatureIsReleasedOnceItsProcessIsGone(t *testing.T) {
	b := newBench(t, "10000", honest)
	q := get(testURL)
	must.Get(historytest.Reserve(t.Context(), b.store, history.Hold{
		Payment: history.Payment{Fingerprint: q.fingerprint("", ""), URL: q.URL, Target: q.URL, Method: "GET",
			Network: testNetwork, Amount: money.NewAmount(1), Price: 1},
		Funds: x402.Funds{Free: money.NewAmount(10)},
	}))(t)
	require.NoError(t, b.store.Close())
	next := openBench(t, b.home, b.chain, "10000", honest)
	report := next.reconcile(t)
	require.Equal(t, Report{Checked: 1, Failed: 1}, report)
	must.Get(next.Pay(t.Context(), q))(t)
}

func TestRefusalsSignNothingAndHoldNothing(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*bench, *Request)
		code   x402.Code
	}{
		"maxAmount in atomic units": {func(_ *bench, q *Request) {
			q.MaxAmount = "9999"
		}, x402.AmountExceedsMax},
		"maxAmount in dollars": {func(_ *bench, q *Request) {
			q.MaxAmount = "$0.009999"
		}, x402.AmountExceedsMax},
		"maxAmount that is none": {func(_ *bench, q *Request) { q.MaxAmount = "-1" }, x402.InvalidArgument},
		"maxAmount in hex":       {func(_ *bench, q *Request) { q.MaxAmount = "0x10" }, x402.InvalidArgument},
		"session spent": {func(b *bench, _ *Request) {
			var none money.Dollars
			b.Rules.Session = &none
		}, x402.BudgetExceeded},
		"per call": {func(b *bench, _ *Request) { b.Rules.PerCall = 9_999 }, x402.BudgetExceeded},
		"above approval": {func(b *bench, _ *Request) {
			b.Rules.ApproveAbove = 9_999
		}, x402.ApprovalRequired},
		"rate":          {func(b *bench, _ *Request) { b.Rules.Rate = 0 }, x402.RateLimited},
		"no funds":      {func(b *bench, _ *Request) { b.chain.balance = 9_999 }, x402.InsufficientFunds},
		"node down":     {func(b *bench, _ *Request) { b.chain.down = true }, x402.RPCError},
		"unknown asset": {func(b *bench, _ *Request) { b.Assets = &x402.Registry{} }, x402.UntrustedAsset},
		"a token that is no dollar, without a rate": {func(b *bench, _ *Request) {
			usdc, _ := b.Assets.Named("eip155:84532", "")
			usdc.USD = 0
			b.Assets = x402.NewRegistry([]x402.AssetInfo{usdc})
		}, x402.UntrustedAsset},
		"another network": {func(_ *bench, q *Request) { q.Network = "solana" }, x402.InvalidRequirement},
		"unknown network": {func(_ *bench, q *Request) { q.Network = "atlantis" }, x402.InvalidArgument},
		"denied host": {func(b *bench, _ *Request) {
			b.Rules.DenyHosts = []string{"api.example"}
		}, x402.PolicyDenied},
		"no scheme": {func(b *bench, _ *Request) { b.Policy.Schemes = nil }, x402.InvalidRequirement},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "10000", honest)
			q := get(testURL)
			c.change(b, &q)
			e := code(t, c.code, must.Err(b.Pay(t.Context(), q)))
			require.Empty(t, e.Spent)
			require.Empty(t, e.PaymentID)
			if name == "denied host" || name == "another network" {
				require.NotEmpty(t, e.Hint, "what to do")
			}
			require.Zero(t, b.chain.signed)
			require.Empty(t, b.seller.sent())
			list := b.rows(t)
			require.Empty(t, list)
		})
	}
}

// What the owner's rules remember comes from the ledger: whom this host paid before, and at what price.
func TestMemory(t *testing.T) {
	const other = "0x0000000000000000000000000000000000000BAD"
	for name, c := range map[string]struct {
		change func(*bench)
		code   x402.Code
	}{
		"payee refused": {func(b *bench) {
			b.seller.payee, b.Rules.PayeeChange = other, budget.RuleRefuse
		}, x402.PayeeChanged},
		"payee asked": {func(b *bench) {
			b.seller.payee, b.Rules.PayeeChange = other, budget.RuleAsk
		}, x402.ApprovalRequired},
		"payee allowed": {func(b *bench) {
			b.seller.payee, b.Rules.PayeeChange = other, budget.RuleAllow
		}, ""},
		"new payee refused": {func(b *bench) {
			b.seller.payee, b.Rules.NewPayee = other, budget.RuleRefuse
		}, x402.PolicyDenied},
		"a payee of the owner's list": {func(b *bench) {
			b.seller.payee, b.Rules.NewPayee = other, budget.RuleRefuse
			b.Rules.Payees = []string{strings.ToLower(other)}
		}, ""},
		"not on the owner's list": {func(b *bench) {
			b.Rules.Payees = []string{strings.ToLower(other)}
		}, x402.PolicyDenied},
		"known payee": {func(b *bench) {
			b.Rules.NewPayee, b.Rules.PayeeChange = budget.RuleRefuse, budget.RuleRefuse
		}, ""},
		"in another case": {func(b *bench) {
			b.seller.payee, b.Rules.PayeeChange = strings.ToLower(testPayee), budget.RuleRefuse
		}, ""},
		"price below a jump": {func(b *bench) { b.seller.price, b.Rules.PriceJump = "29999", 3 }, ""},
		"price jump": {func(b *bench) {
			b.seller.price, b.Rules.PriceJump = "30000", 3
		}, x402.ApprovalRequired},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "10000", honest)
			r := b.mustPay(t, testURL)
			b.Delivered(t.Context(), r.Status, r.PaymentID)
			c.change(b)
			q := get(testURL + "?city=Lisbon")
			require.Equal(t, c.code, must.Get(b.Estimate(t.Context(), q))(t).Options[0].Code)
			_, err := b.Pay(t.Context(), q)
			if c.code == "" {
				require.NoError(t, err)
				return
			}
			code(t, c.code, err)
			require.Equal(t, 1, b.chain.signed)
			require.Equal(t, r.PaymentID, b.only(t).ID)
		})
	}
}

func TestASellersClockFarAwayStopsSigning(t *testing.T) {
	b := newBench(t, "10000", honest)
	b.Now = func() time.Time { return time.Now().Add(time.Hour) }
	b.Transport = dated{b.seller}
	b.mustRefuse(t, x402.ClockSuspect, testURL)
	require.Zero(t, b.chain.signed)
}

type dated struct{ *scriptedSeller }

func (d dated) Ask(ctx context.Context, r seller.Request) (*seller.Answer, error) {
	a, err := d.scriptedSeller.Ask(ctx, r)
	a.Date = time.Now()
	return a, err
}

// newSettlingBench is a bench whose seller asks in the X-Payment-Required dialect: the wallet settles, then
// proves. The seller serves for proofs that begin in this way.
func newSettlingBench(t *testing.T, served string) *bench {
	b := newBench(t, "10000", func(_ *scriptedSeller, proof string, _ uint64) (*seller.Answer, error) {
		if !strings.HasPrefix(proof, served) {
			return &seller.Answer{Status: 402}, nil
		}
		return &seller.Answer{Status: 200, Content: []byte("sunny")}, nil
	})
	b.seller.header, b.seller.settleFirst = "X-Payment-Required", true
	return b
}

func TestTheWalletSettles(t *testing.T) {
	b := newSettlingBench(t, "0xsettled")
	r := b.mustBuy(t, testURL)
	require.Equal(t, "lab0", r.Facilitator)
	require.Equal(t, "0xsettled", r.TransactionSignature)
	require.True(t, strings.EqualFold(b.seller.sent()[0], "X-Payment-Signature: 0xsettled"),
		b.seller.sent()[0])
	require.Equal(t, 1, b.chain.settlements())
}

func TestAFacilitatorThatLeavesItOpenGetsTheSameBytesAgain(t *testing.T) {
	b := newSettlingBench(t, "")
	for outcome, want := range map[facilitator.Outcome]x402.Code{
		facilitator.Unknown: x402.OutcomeUnknown, facilitator.Refused: x402.SettlementFailed,
		facilitator.NotSent: x402.FacilitatorError,
	} {
		t.Run(fmt.Sprint(outcome), func(t *testing.T) {
			b.settler.outcome = outcome
			require.Equal(t, "10000", code(t, want, must.Err(b.Pay(t.Context(), get(testURL)))).Spent)
		})
	}
	require.Empty(t, b.seller.sent(), "no proof, nothing to show")
	b.settler.outcome = facilitator.Settled
	b.mustBuy(t, testURL)
	require.Equal(t, 1, b.chain.signed)
	for _, seen := range b.settler.seen {
		require.Equal(t, b.settler.seen[0], seen)
	}
}

// A facilitator that settles and names another transaction is not believed twice: the same call
// shows the one that the chain knows.
func TestTheSameCallShowsTheTransactionThatTheChainKnows(t *testing.T) {
	b := newSettlingBench(t, "0xchain")
	r := b.mustPay(t, testURL)
	require.Equal(t, StatusUnserved, r.Status)
	r = b.mustPay(t, testURL)
	require.Equal(t, StatusPaid, r.Status)
	require.Equal(t, "chain", *r.Proof)
	require.Equal(t, 1, b.chain.settlements())
}

// A facilitator that says so and settled nothing holds its call no longer than the payment lives:
// then the same call pays again.
func TestTheSameCallPaysAgainWhenAClaimHasExpired(t *testing.T) {
	b := newSettlingBench(t, "nothing")
	b.mustPay(t, testURL)
	first := b.only(t)
	clear(b.chain.settled)
	b.chain.dead[first.Evidence.Nonce] = true
	b.later()
	r := b.mustPay(t, testURL)
	require.NotEqual(t, first.ID, r.PaymentID)
	first, _ = b.store.Payment(t.Context(), first.ID)
	require.Equal(t, history.Failed, first.State)
	require.True(t, first.FalseReceipt)
}

func TestReconcileTurnsClaimsIntoProofOrFlagsThem(t *testing.T) {
	b := newBench(t, "10000", honest)
	b.mustPay(t, testURL)
	// lies
	b.seller.script = func(_ *scriptedSeller, nonce string, _ uint64) (*seller.Answer, error) {
		return served(nonce), nil
	}
	b.mustPay(t, testURL+"?lie")
	list := b.rows(t)
	lie, truth := list[0], list[1]

	b.reconcile(t)
	truth, _ = b.store.Payment(t.Context(), truth.ID)
	require.Equal(t, history.Chain, truth.Proof)
	lie, _ = b.store.Payment(t.Context(), lie.ID)
	require.Equal(t, history.Claimed, lie.Proof, "open on the chain: still counted")

	b.chain.dead[lie.Evidence.Nonce] = true
	b.later()
	b.reconcile(t)
	lie, _ = b.store.Payment(t.Context(), lie.ID)
	require.Equal(t, history.Failed, lie.State)
	require.True(t, lie.FalseReceipt)
	require.Equal(t, money.Dollars(10_000), b.budgets(t.Context()).Day.Spent, "released once")
	must.Get(verify.Ledger(t.Context(), b.store, history.Head{}))(t)
}

// Two processes that look up the same payment agree, whichever of them wrote it down.
func TestReconcileKeepsWhatAnotherProcessFoundMeanwhile(t *testing.T) {
	b := newBench(t, "10000", silent)
	_, err := b.Pay(t.Context(), get(testURL))
	require.True(t, x402.HasCode(err, x402.OutcomeUnknown), err)
	read := b.only(t)
	b.chain.dead[read.Evidence.Nonce] = true
	b.later()
	must.Get(openBench(t, b.home, b.chain, "10000", nil).Reconcile(t.Context()))(t)
	var said bytes.Buffer
	b.Log = slog.New(slog.NewTextHandler(&said, nil))
	require.Equal(t, history.Failed, b.AskChain(t.Context(), read).State)
	require.Empty(t, said.String())
}

// A transaction that is to be looked up is shown whole: 66 characters on EVM, 88 on Solana.
func TestAnOpenSettlementNamesItsTransaction(t *testing.T) {
	transaction := strings.Repeat("5", 88)
	b := newBench(t, "10000", func(*scriptedSeller, string, uint64) (*seller.Answer, error) {
		return &seller.Answer{Status: 402, Settlement: &wire.Settlement{Transaction: transaction,
			ErrorReason: "settlement_pending"}}, nil
	})
	_, err := b.Pay(t.Context(), get(testURL))
	require.Equal(t, transaction, x402.AsError(err).Details["transaction"], err)
}

func TestEstimateSignsAndHoldsNothing(t *testing.T) {
	b := newBench(t, "10000", honest)
	out := b.estimate(t, testURL)
	require.True(t, out.PaymentRequired)
	require.Equal(t, 0, *out.Chosen)
	require.Equal(t, "$0.01", out.Options[0].Price)
	b.chain.balance = 1
	out = b.estimate(t, testURL)
	require.Nil(t, out.Chosen)
	require.Equal(t, x402.InsufficientFunds, out.Options[0].Code)
	b.Guard = unsealed{historytest.Guard{Store: b.store}}
	out = b.estimate(t, testURL)
	require.Equal(t, x402.PolicyUnsealed, out.Options[0].Code, "as Pay would say")
	require.Zero(t, b.chain.signed)
}

func TestValidityIsCappedByTheOwner(t *testing.T) {
	b := newBench(t, "10000", silent) // the challenge asks for 60 seconds
	b.Policy.MaxTimeout = 10 * time.Second
	began := time.Now()
	b.mustRefuse(t, x402.OutcomeUnknown, testURL)
	expires := b.only(t).Evidence.ExpiresAt
	require.False(t, expires.Before(began.Add(10*time.Second).Truncate(time.Second)), expires)
	require.False(t, expires.After(time.Now().Add(10*time.Second)), expires)
}

// A window that is full only of expired payments is not full.
func TestExpiredHoldsAreLookedUpBeforeARefusal(t *testing.T) {
	b := newBench(t, "10000", silent)
	limit := money.Dollars(10_000)
	b.Rules.Session = &limit
	b.mustRefuse(t, x402.OutcomeUnknown, testURL)
	b.seller.script = honest
	b.mustRefuse(t, x402.BudgetExceeded, testURL+"?2")
	b.chain.dead[b.only(t).Evidence.Nonce] = true
	b.later()
	b.mustBuy(t, testURL+"?2")
}

// A seller that offers to remember purchases gets an id with the payment: the ledger's own, so it
// is the same for ever.
func TestThePurchaseIsNamedWhereTheSellerOffers(t *testing.T) {
	b := newBench(t, "10000", honest)
	b.Transport = remembers{b.seller}
	r := b.mustPay(t, testURL)
	_, header, _ := strings.Cut(b.seller.sent()[0], ": ")
	payload := must.Get(base64.StdEncoding.DecodeString(header))(t)
	require.Contains(t, string(payload), `"id":"`+r.PaymentID+`"`)
	require.Contains(t, string(payload), `"required":true`)
}

type remembers struct{ *scriptedSeller }

func (s remembers) Ask(ctx context.Context, r seller.Request) (*seller.Answer, error) {
	a, err := s.scriptedSeller.Ask(ctx, r)
	a.Challenge.Extensions = map[string]json.RawMessage{"payment-identifier": json.RawMessage(
		`{"info":{"required":true}}`)}
	return a, err
}

type hangs struct{ *scriptedSeller }

func (s hangs) Present(ctx context.Context, r seller.Request, with wire.Attachment) (*seller.Answer, error) {
	_, _ = s.present(r, with.Header, with.Value)
	<-ctx.Done()
	return nil, &seller.SendError{Sent: true, Err: ctx.Err()}
}

// A seller that never answers uses up the call's whole time; the outcome is recorded all the same,
// and the next call goes on.
func TestASellerThatHangsDoesNotBlockThePayment(t *testing.T) {
	b := newBench(t, "10000", honest)
	b.Transport = hangs{b.seller}
	whole := b.Policy.Deadline
	ctx := OnStage(t.Context(), func(s Stage, _ history.Payment) {
		if s == StageHeld { // what comes before may take its time on a busy machine
			b.Policy.Deadline = 50 * time.Millisecond
		}
	})
	code(t, x402.OutcomeUnknown, must.Err(b.Pay(ctx, get(testURL))))
	b.Transport, b.Policy.Deadline = b.seller, whole
	p := b.only(t)
	require.Equal(t, history.Unknown, p.State)
	require.Empty(t, p.LeaseOwner)
	require.Empty(t, p.Waiter)
	r := b.mustPay(t, testURL)
	require.Equal(t, StatusUnserved, r.Status)
}

// The payment goes to the URL that asked for it, also when another process brings it again.
func TestThePaymentGoesWhereTheURLLed(t *testing.T) {
	b := newBench(t, "10000", silent)
	b.Transport = &led{scriptedSeller: b.seller}
	b.mustRefuse(t, x402.OutcomeUnknown, testURL)
	next := openBench(t, b.home, b.chain, "10000", honest)
	way := &led{scriptedSeller: next.seller}
	next.Transport = way
	next.mustPay(t, testURL)
	require.Equal(t, testURL+"/", way.presented)
}

type led struct {
	*scriptedSeller
	presented string
}

func (l *led) Ask(ctx context.Context, r seller.Request) (*seller.Answer, error) {
	a, err := l.scriptedSeller.Ask(ctx, r)
	a.FinalURL = r.URL + "/"
	return a, err
}

func (l *led) Present(ctx context.Context, r seller.Request, with wire.Attachment) (*seller.Answer, error) {
	l.presented = r.URL
	return l.scriptedSeller.Present(ctx, r, with)
}

// What is signed does not go out again for a caller that offers less; the payment stays as it is.
func TestSignedBytesAreNotSentForALowerOffer(t *testing.T) {
	b := newBench(t, "10000", silent)
	b.mustRefuse(t, x402.OutcomeUnknown, testURL)
	p, sent := b.only(t), len(b.seller.sent())

	for most, price := range map[string]string{"9999": "9999", "$0.0099": "$0.0099", "0": "0"} {
		t.Run(most, func(t *testing.T) {
			less := get(testURL)
			less.MaxAmount = most
			e := code(t, x402.AmountExceedsMax, must.Err(b.Pay(t.Context(), less)))
			require.Equal(t, []any{p.ID, "10000", price}, []any{e.PaymentID, e.Spent, e.Details["maxAmount"]})
		})
	}
	require.Len(t, b.seller.sent(), sent)
	require.Equal(t, history.Unknown, b.only(t).State)
}

// noCheckpoint is a disk on which the ledger's checkpoint cannot be renewed.
type noCheckpoint struct{ historytest.Guard }

func (noCheckpoint) Checkpoint(context.Context) error {
	return x402.Errorf(x402.LedgerUnavailable, "no room")
}

func (g noCheckpoint) Submit(ctx context.Context, p history.Payment, signed history.Signed, here bool) error {
	if err := g.Guard.Submit(ctx, p, signed, here); err != nil {
		return err
	}
	return g.Checkpoint(ctx)
}

type unchecked struct{ historytest.Guard }

func (unchecked) VerifySeals(context.Context) error {
	return x402.Errorf(x402.LedgerCorrupt, "rolled back")
}

// Bytes that are signed and on disk are held, though they could not be sent; they leave when the
// checkpoint knows of them.
func TestSignedWithoutCheckpointIsHeld(t *testing.T) {
	b := newBench(t, "10000", honest)
	b.Guard = noCheckpoint{historytest.Guard{Store: b.store}}
	for range 2 {
		e := b.mustRefuse(t, x402.LedgerUnavailable, testURL)
		require.Equal(t, []any{b.only(t).ID, "10000"}, []any{e.PaymentID, e.Spent})
	}
	require.Equal(t, history.Submitted, b.only(t).State)
	require.Empty(t, b.seller.sent())
	b.Guard = unchecked{historytest.Guard{Store: b.store}}
	b.mustRefuse(t, x402.LedgerCorrupt, testURL)
	require.Empty(t, b.seller.sent(), "it leaves as from its signing")
	b.Guard = historytest.Guard{Store: b.store}
	r := b.mustPay(t, testURL)
	require.Equal(t, b.only(t).ID, r.PaymentID)
	require.Equal(t, 1, b.chain.signed)
}

type slow struct{ historytest.Guard }

func (slow) VerifySeals(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// A call whose time is over before anything is signed says so, and holds nothing.
func TestADeadlineBeforeTheSignature(t *testing.T) {
	b := newBench(t, "10000", honest)
	b.Policy.Deadline = 1500 * time.Millisecond
	b.Guard = slow{historytest.Guard{Store: b.store}}
	e := b.mustRefuse(t, x402.Timeout, testURL)
	require.Contains(t, e.Message, "not signed within 1.5s")
	require.Contains(t, e.Hint, "policy.deadline")
	require.Equal(t, history.Failed, b.only(t).State)
	require.Zero(t, b.chain.signed)
}

type delegating struct {
	*chain
	worth uint64
	err   error
	asked int
}

func (d *delegating) Funds(context.Context, string, x402.AssetInfo) (x402.Funds, error) {
	d.asked++
	delegated := money.NewAmount(d.worth)
	return x402.Funds{Delegated: &delegated}, d.err
}

// What was delegated on Solana is the cap of a session that begins with a payment on another chain,
// too.
func TestWhatWasDelegatedIsTheCapOfEverySession(t *testing.T) {
	const solana = "solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1"
	for name, test := range map[string]struct {
		node          delegating
		named, passes bool
	}{
		"delegated": {node: delegating{worth: 9_999}},
		"enough":    {node: delegating{worth: 10_000}, passes: true},
		"nothing delegated": {node: delegating{err: x402.Errorf(x402.NoDelegation, "none")}, named: true,
			passes: true},
		"silent, and unused": {node: delegating{err: x402.Errorf(x402.RPCError, "silent")}, passes: true},
		"silent, and named":  {node: delegating{err: x402.Errorf(x402.RPCError, "silent")}, named: true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "10000", honest)
			b.Rules.Session = nil
			test.node.chain = b.chain
			b.Schemes[SchemeKey{Scheme: x402.Exact, Family: "solana"}] = &test.node
			b.Policy.Networks = []string{solana}
			b.Delegated = Delegation{Networks: b.Policy.Networks, Assets: b.Assets, Funds: test.node.Funds,
				IsNamed: func(string) bool { return test.named }, Log: b.Log}.Limit
			estimate, err := b.Estimate(t.Context(), get(testURL))
			require.NoError(t, err, name)
			require.Equal(t, test.passes, estimate.Chosen != nil,
				"%s: an estimate knows the cap of the session that the payment would begin", name)
			require.Equal(t, 1, test.node.asked, name)
			test.node.asked = 0
			_, err = b.Pay(t.Context(), get(testURL))
			require.Equal(t, test.passes, err == nil, "%s: %v", name, err)
			require.Equal(t, 1, test.node.asked, name)
			if err != nil {
				require.Equal(t, x402.AsError(err).Code, estimate.Options[0].Code, name)
			}
			if test.passes {
				_, err = b.Pay(t.Context(), get(testURL+"?again"))
				require.Equal(t, test.node.worth != 10_000, err == nil, "%s: %v", name, err)
				require.Equal(t, 1, test.node.asked, "%s: only where a session begins", name)
			}
		})
	}
}

// A way that another account than the wallet's own has not is no unknown network.
func TestUnpaid_Account(t *testing.T) {
	b := newBench(t, "10000", honest)
	o := &option{Requirement: x402.Requirement{Scheme: x402.BatchSettlement, Network: testNetwork}}
	b.Rules.Account = "research"
	require.ErrorContains(t, b.unpaid(o), `"research" pays nothing by batch-settlement`)
	o.Network = "near:mainnet"
	require.ErrorContains(t, b.unpaid(o), "not one this wallet pays on")
}

// What is delegated to another account than the wallet's own is no cap of a session that all of them share.
func TestAnAccountsDelegationIsNoCapOfASession(t *testing.T) {
	const solana = "solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1"
	b := newBench(t, "10000", honest)
	b.Rules.Session = nil
	b.Rules.Teams = budget.Teams{"research": {Agents: []string{"research"}, Account: true}}
	b.Rules.Agents = map[string]budget.Agent{"research": {}}
	b.Rules.Account = "research"
	node := &delegating{chain: b.chain, worth: 9_999}
	b.Schemes[SchemeKey{Scheme: x402.Exact, Family: "solana"}] = node
	b.Policy.Networks = []string{solana}
	code(t, x402.PolicyDenied, must.Err(b.Pay(t.Context(), get(testURL)))) // nobody's but its agents'
	must.Get(b.Pay(WithAgent(t.Context(), "research"), get(testURL)))(t)
	require.Zero(t, node.asked)
	w := b.propose(history.Payment{Agent: "research"}, option{asset: x402.AssetInfo{Decimals: 6}},
		x402.Funds{Delegated: new(money.Amount)})
	require.Nil(t, w.hold.SessionCap)
}
