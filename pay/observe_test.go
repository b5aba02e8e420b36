package pay

import (
	"cmp"
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
	"x402-wallet/facilitator"
	"x402-wallet/history"
	"x402-wallet/history/historytest"
	"x402-wallet/internal/must"
	"x402-wallet/internal/steps"
	"x402-wallet/seller"
	"x402-wallet/x402"
)

func watch(b *bench) *[]steps.Report {
	var seen []steps.Report
	b.Observe = func(r steps.Report) { seen = append(seen, r) }
	return &seen
}

// made are the names of a report's steps, in their order of ending, and the codes of those that failed.
func made(r steps.Report) (names []steps.Name, failed map[steps.Name]string) {
	failed = map[steps.Name]string{}
	for _, s := range r.Steps {
		names = append(names, s.Name)
		if s.Code != "" {
			failed[s.Name] = s.Code
		}
	}
	return names, failed
}

func TestAPaymentIsReportedWithItsSteps(t *testing.T) {
	b := newBench(t, "10000", honest)
	b.Rules.Agents = map[string]budget.Agent{"researcher": {}}
	seen := watch(b)
	paid := must.Get(b.Pay(WithAgent(t.Context(), "researcher"), get(testURL)))(t)
	require.Len(t, *seen, 1)
	r := (*seen)[0]
	names, failed := made(r)
	require.Empty(t, failed)
	require.Equal(t, []steps.Name{steps.Gate, steps.Resume, steps.Ask, steps.Funds, steps.Facts,
		steps.Reserve, steps.Hold, steps.Submit, steps.Sign, steps.Send, steps.Record}, names)
	row := b.only(t)
	require.Equal(t, steps.Paid{PaymentID: paid.PaymentID, Network: row.Network, Scheme: "exact",
		Asset: "USDC", Amount: row.Amount, Price: row.Price, State: "settled"}, r.Paid)
	require.Equal(t, steps.Payment, r.Kind)
	require.Equal(t, "researcher", r.Agent)
	require.Equal(t, row.Host, r.Host)
	require.Equal(t, StatusPaid, r.Outcome)
	require.Empty(t, r.Code)
	for _, s := range r.Steps {
		require.False(t, s.Start.Before(r.Start), s.Name)
		require.LessOrEqual(t, s.Start.Add(s.Took).Sub(r.Start), r.Took, s.Name)
	}

	// Each step belongs to the one that it is a part of.
	ids := map[steps.SpanID]steps.Name{r.Trace.Span: "the call"}
	for _, s := range r.Steps {
		ids[s.ID] = s.Name
	}
	within := map[steps.Name]steps.Name{}
	for _, s := range r.Steps {
		within[s.Name] = ids[s.Parent]
	}
	require.Equal(t, map[steps.Name]steps.Name{steps.Gate: "the call", steps.Resume: "the call",
		steps.Ask: "the call", steps.Hold: "the call", steps.Funds: steps.Hold, steps.Facts: steps.Hold,
		steps.Reserve: steps.Hold, steps.Sign: "the call", steps.Submit: steps.Sign, steps.Send: "the call",
		steps.Record: "the call"}, within)
}

// A call that fails says at which step, and what became of its payment.
func TestACallThatFailsIsReportedWithTheStepThatFailed(t *testing.T) {
	for name, c := range map[string]struct {
		breaks func(*bench)
		ask    Request
		failed steps.Name // the innermost one; "": none began
		code   x402.Code
		// of the step; "": the call's
		stepCode x402.Code
		state    string
	}{
		"its arguments": {ask: Request{
			Request: seller.Request{URL: testURL}, MaxAmount: "much"}, code: x402.InvalidArgument},
		"a host": {breaks: func(b *bench) { b.Rules.DenyHosts = []string{"*"} }, code: x402.PolicyDenied},
		"the seller": {breaks: func(b *bench) { b.Transport = deafSeller{b.seller} }, failed: steps.Ask,
			code: x402.NetworkError},
		"the node": {breaks: func(b *bench) { b.chain.down = true }, failed: steps.Funds,
			code: x402.RPCError},
		"no funds": {breaks: func(b *bench) { b.chain.balance = 0 }, failed: steps.Hold,
			code: x402.InsufficientFunds},
		"the budget": {breaks: func(b *bench) { b.Rules.Day = 1 }, failed: steps.Facts,
			code: x402.BudgetExceeded},
		"the ledger": {breaks: func(b *bench) { b.Store = noRoom{b.Store} }, failed: steps.Reserve,
			code: x402.LedgerUnavailable},
		"the rules' seal": {breaks: func(b *bench) { b.Guard = brokenSeal{b.Guard} }, failed: steps.Sign,
			code: x402.PolicyUnsealed, state: "failed"},
		"the signature's record": {breaks: func(b *bench) { b.Guard = lostSignature{b.Guard} },
			failed: steps.Submit, code: x402.LedgerUnavailable, state: "failed"},
		"the facilitator": {breaks: func(b *bench) {
			b.seller.header, b.seller.settleFirst = "X-Payment-Required", true
			b.settler.outcome = facilitator.Refused
		}, failed: steps.Settle, code: x402.SettlementFailed, state: "unknown"},
		"the seller, paid": {breaks: func(b *bench) { b.seller.script = refusesConnections },
			failed: steps.Send, stepCode: x402.NetworkError, code: x402.PayFailed, state: "unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "10000", honest)
			if c.breaks != nil {
				c.breaks(b)
			}
			if c.ask.URL == "" {
				c.ask = get(testURL)
			}
			seen := watch(b)
			require.Equal(t, c.code, x402.AsError(must.Err(b.Pay(t.Context(), c.ask))).Code)
			require.Len(t, *seen, 1)
			r := (*seen)[0]
			require.Equal(t, steps.Failed, r.Outcome)
			require.Equal(t, string(c.code), r.Code)
			require.Equal(t, c.state, r.State)
			if _, failed := made(r); c.failed == "" {
				require.Empty(t, failed)
			} else {
				require.Equal(t, string(cmp.Or(c.stepCode, c.code)), failed[c.failed])
			}
		})
	}
}

type (
	deafSeller    struct{ *scriptedSeller }
	noRoom        struct{ Store }
	brokenSeal    struct{ Guard }
	lostSignature struct{ Guard }
)

func (deafSeller) Ask(context.Context, seller.Request) (*seller.Answer, error) {
	return nil, x402.Errorf(x402.NetworkError, "nobody is there")
}

func (noRoom) Reserve(context.Context, history.Hold) (history.Payment, error) {
	return history.Payment{}, diskError()
}

func (brokenSeal) VerifySeals(context.Context) error {
	return x402.Errorf(x402.PolicyUnsealed, "nobody sealed it")
}

func (lostSignature) Submit(context.Context, history.Payment, history.Signed, bool) error {
	return diskError()
}

func refusesConnections(*scriptedSeller, string, uint64) (*seller.Answer, error) {
	return nil, &seller.SendError{Err: x402.Errorf(x402.NetworkError, "it refuses connections")}
}

func TestATraceIsPassedOnUnderSealedRulesAlone(t *testing.T) {
	for _, isSealed := range []bool{true, false} {
		b := newBench(t, "10000", honest)
		watch(b)
		b.Traces = steps.Traces{On: true, Sample: 1, PassOn: true}
		if !isSealed {
			b.Guard = unsealed{historytest.Guard{Store: b.store}}
		}
		told := &listening{scriptedSeller: b.seller}
		b.Transport = told
		_, err := b.Pay(t.Context(), get(testURL))
		require.Equal(t, isSealed, err == nil, err)
		require.Equal(t, isSealed, told.trace != "", told.trace)
	}
}

// listening is a seller that notes what trace it is told when it is asked.
type listening struct {
	*scriptedSeller
	trace string
}

func (l *listening) Ask(ctx context.Context, r seller.Request) (*seller.Answer, error) {
	l.trace = steps.PassedOn(ctx)
	return l.scriptedSeller.Ask(ctx, r)
}

// What nobody listens to costs nothing but looks into the context.
func TestNothingIsNotedWhereNobodyListens(t *testing.T) {
	ctx := WithAgent(context.Background(), "researcher")
	none := testing.AllocsPerRun(100, func() {
		ctx, step := steps.Begin(ctx, steps.Ask)
		step.Asked("a", "b", "c")
		step.Answered(200)
		step.End(nil)
		steps.From(ctx).About(steps.Paid{})
		_ = steps.Traceparent(ctx)
	})
	require.Zero(t, none)
}
