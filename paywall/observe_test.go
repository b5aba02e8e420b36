package paywall

import (
	"context"
	"errors"
	"maps"
	"math"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"x402-wallet/facilitator"
	"x402-wallet/internal/steps"
	"x402-wallet/paywall/book"
)

// watched is a lab whose requests are reported, and whose facilitator's requests are seen.
type watched struct {
	*lab
	mu     sync.Mutex
	seen   []steps.Report
	traces []string // that the facilitator was told: traceparent, or ""
}

func newWatched(t *testing.T, traces steps.Traces) *watched {
	t.Helper()
	w := &watched{}
	w.lab = newLab(t, func(l *lab, o *Options) {
		o.Traces = traces
		o.Observe = func(r steps.Report) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.seen = append(w.seen, r)
		}
		through := &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			w.mu.Lock()
			w.traces = append(w.traces, r.Header.Get(steps.Header))
			w.mu.Unlock()
			return http.DefaultTransport.RoundTrip(r)
		})}
		o.Facilitators = facilitator.New(facilitator.Options{HTTP: through,
			List:  []facilitator.Facilitator{{Name: "sandbox", URL: l.FacilitatorURL}},
			Sleep: func(ctx context.Context, _ time.Duration) error { return ctx.Err() }})
	})
	return w
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (w *watched) last(t *testing.T) (r steps.Report, names []steps.Name, failed map[steps.Name]string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	require.NotEmpty(t, w.seen)
	r, failed = w.seen[len(w.seen)-1], map[steps.Name]string{}
	for _, s := range r.Steps {
		names = append(names, s.Name)
		if s.Code != "" {
			failed[s.Name] = s.Code
		}
	}
	return r, names, failed
}

func TestASaleIsReportedWithItsSteps(t *testing.T) {
	w := newWatched(t, steps.Traces{})
	c := w.call(t, nil, nil).challenge()
	asked, names, _ := w.last(t)
	require.Equal(t, []steps.Name{steps.Facilitator, steps.Offer, steps.Record}, names)
	require.Equal(t, "asked", asked.Outcome)
	require.Empty(t, asked.Code+asked.PaymentID)

	w.call(t, nil, meta(c, w.payer.sign(t, c, 0, nil)))
	sold, names, failed := w.last(t)
	require.Empty(t, failed)
	require.Equal(t, []steps.Name{steps.Offer, steps.Facilitator, steps.Verify, steps.Take, steps.Run,
		steps.Facilitator, steps.Settle, steps.Record}, names)
	row := w.sales(t)[0]
	require.Equal(t, steps.Paid{PaymentID: row.ID, Network: row.Network, Scheme: "exact", Asset: "USDC",
		Amount: row.Amount, Price: row.Price, State: "settled"}, sold.Paid)
	require.Equal(t, []string{"sale", "search", "delivered", ""},
		[]string{string(sold.Kind), sold.Tool, sold.Outcome, sold.Code})
	for _, s := range sold.Steps {
		if s.Name == steps.Facilitator {
			require.Equal(t, "sandbox", s.Peer)
			require.Contains(t, w.FacilitatorURL, "http://"+s.Host)
			require.Equal(t, http.StatusOK, s.Status)
		}
	}
	for _, told := range w.traces {
		require.Empty(t, told, "nothing is traced")
	}
}

// A sale that comes to nothing says at which step, and why.
func TestASaleThatFailsIsReportedWithTheStepThatFailed(t *testing.T) {
	for name, c := range map[string]struct {
		fault                          string
		tool                           func(*lab)
		failed                         steps.Name
		outcome, code, state, stepCode string
	}{
		"not valid": {fault: "facilitator refuses verify", failed: steps.Verify, outcome: "refused",
			code: "PAYMENT_REJECTED", stepCode: "PAYMENT_REJECTED"},
		"nobody verifies": {fault: "facilitator down", failed: steps.Facilitator, outcome: "unavailable",
			code: "FACILITATOR_ERROR", stepCode: "FACILITATOR_ERROR"},
		"the tool": {tool: func(l *lab) {
			l.tool = func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return nil, errors.New("no such city")
			}
		}, failed: steps.Run, outcome: "tool_failed", code: "TOOL_FAILED", stepCode: "TOOL_FAILED",
			state: "failed"},
		"settled or not": {fault: "facilitator pending", failed: steps.Settle, outcome: "unavailable",
			code: "OUTCOME_UNKNOWN", stepCode: "OUTCOME_UNKNOWN", state: "unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWatched(t, steps.Traces{})
			ch := w.call(t, nil, nil).challenge()
			if c.fault != "" {
				w.Inject(c.fault, math.MaxInt)
			} else {
				c.tool(w.lab)
			}
			w.call(t, nil, meta(ch, w.payer.sign(t, ch, 0, nil)))
			r, _, failed := w.last(t)
			require.Equal(t, c.stepCode, failed[c.failed])
			require.Equal(t, []string{c.outcome, c.code, c.state}, []string{r.Outcome, r.Code, r.State})
		})
	}
	w := newWatched(t, steps.Traces{})
	ch := w.call(t, nil, nil).challenge()
	shown := meta(ch, w.payer.sign(t, ch, 0, nil))
	w.call(t, nil, shown)
	w.call(t, nil, shown)
	r, _, _ := w.last(t)
	require.Equal(t, []string{"rejected", "PAYMENT_USED"}, []string{r.Outcome, r.Code})
}

// The facilitator hears of the buyer's trace, where sales are traced, and of the step in which it is asked.
func TestAFacilitatorHearsOfTheBuyersTrace(t *testing.T) {
	const id = "0af7651916cd43dd8448eb211c80319c"
	w := newWatched(t, steps.Traces{On: true, Sample: 1, Strangers: true})
	ch := w.call(t, nil, nil).challenge()
	shown := maps.Clone(meta(ch, w.payer.sign(t, ch, 0, nil)))
	shown[steps.Header] = "00-" + id + "-b7ad6b7169203331-01"
	w.traces = nil
	w.call(t, nil, shown)
	r, _, _ := w.last(t)
	require.Equal(t, id, r.Trace.ID.String())
	require.Equal(t, "b7ad6b7169203331", r.Caller.String())
	var told []string
	for _, s := range r.Steps {
		if s.Name == steps.Facilitator {
			told = append(told, "00-"+id+"-"+s.ID.String()+"-01")
		}
	}
	require.Len(t, told, 2)
	require.Equal(t, told, w.traces)

	shown[steps.Header] = "00-" + id + "-b7ad6b7169203331-00" // which its sender does not want sampled
	w.call(t, nil, shown)
	r, _, _ = w.last(t)
	require.False(t, r.Trace.Sampled)
}

// One row per line of judge's table.
func TestOutcomes(t *testing.T) {
	paid := func(f facts) facts { // a payment that a facilitator verified
		f.presented, f.verification = matching, valid
		return f
	}
	upfront := func(f facts) facts {
		f.upfront = true
		return paid(f)
	}
	for name, row := range map[string]struct {
		facts facts
		want  verdict
	}{
		"1": {facts{presented: noPayment}, verdict{answer: challenge, err: ErrPaymentRequired}},
		"2": {facts{presented: unreadable}, verdict{answer: reject, err: ErrInvalidRequest}},
		"3": {facts{presented: mismatched}, verdict{answer: challenge, err: ErrPaymentRejected}},
		"4": {facts{presented: matching, priorUse: replayable},
			verdict{answer: deliver, receipt: true, state: book.SaleSettled}},
		"5": {facts{presented: matching, priorUse: alreadyUsed},
			verdict{answer: reject, err: ErrPaymentUsed}},
		"5, a race": {paid(facts{priorUse: alreadyUsed}), verdict{answer: reject, err: ErrPaymentUsed}},
		"6": {facts{presented: matching, verification: invalid},
			verdict{answer: challenge, err: ErrPaymentRejected}},
		"7": {facts{presented: matching, verification: noAnswer},
			verdict{answer: unavailable, err: ErrVerifyUnavailable}},
		"8": {paid(facts{run: needsInput}), verdict{answer: inputRequired}},
		"9": {paid(facts{run: failed}),
			verdict{answer: toolFailed, state: book.SaleFailed, err: ErrToolExecutionFailed}},
		"10": {paid(facts{run: stopped}),
			verdict{answer: unavailable, state: book.SaleFailed, err: ErrAborted}},
		"11": {paid(facts{run: tooLate}),
			verdict{answer: unavailable, state: book.SaleFailed, err: ErrTooLate}},
		"12": {paid(facts{run: cancelled}),
			verdict{answer: unavailable, state: book.SaleFailed, err: ErrGone}},
		"13": {paid(facts{run: succeeded, verifyOnly: true}),
			verdict{answer: deliver, state: book.SaleVerified}},
		"14": {paid(facts{run: succeeded, settlement: settled}),
			verdict{answer: deliver, receipt: true, state: book.SaleSettled}},
		"15": {paid(facts{run: succeeded, settlement: refused}),
			verdict{answer: challenge, receipt: true, state: book.SaleFailed, err: ErrSettlementFailed}},
		"16": {paid(facts{run: succeeded, settlement: unknown}),
			verdict{answer: unavailable, receipt: true, state: book.SaleUnknown,
				err: ErrSettlementUnknown}},
		"17": {paid(facts{run: succeeded, settlement: notSent}),
			verdict{answer: unavailable, receipt: true, state: book.SaleFailed, err: ErrSettlementFailed}},
		"18": {upfront(facts{settlement: refused}),
			verdict{answer: challenge, receipt: true, state: book.SaleFailed, err: ErrSettlementFailed}},
		"19": {upfront(facts{settlement: unknown}),
			verdict{answer: unavailable, receipt: true, state: book.SaleUnknown,
				err: ErrSettlementUnknown}},
		"20": {upfront(facts{settlement: notSent}),
			verdict{answer: unavailable, receipt: true, state: book.SaleFailed, err: ErrSettlementFailed}},
		"21": {upfront(facts{settlement: settled, run: succeeded}),
			verdict{answer: deliver, receipt: true, state: book.SaleSettled}},
		"22": {upfront(facts{settlement: settled, run: failed}),
			verdict{answer: toolFailed, receipt: true, state: book.SaleSettled,
				err: ErrToolExecutionFailed}},
		"23 stopped": {upfront(facts{settlement: settled, run: stopped}),
			verdict{answer: unavailable, receipt: true, state: book.SaleSettled, err: ErrAborted}},
		"23 cancelled": {upfront(facts{settlement: settled, run: cancelled}),
			verdict{answer: unavailable, receipt: true, state: book.SaleSettled, err: ErrGone}},
		"23 needs input": {upfront(facts{settlement: settled, run: needsInput}),
			verdict{answer: inputRequired, receipt: true, state: book.SaleSettled}},
		"24": {paid(facts{run: succeeded, settlement: elsewhere}),
			verdict{answer: reject, receipt: true, state: book.SaleFailed, err: ErrPaymentUsed}},
		"25": {upfront(facts{settlement: elsewhere}),
			verdict{answer: reject, receipt: true, state: book.SaleFailed, err: ErrPaymentUsed}},
		"nobody tried to settle": {paid(facts{run: succeeded}),
			verdict{answer: unavailable, state: book.SaleFailed, err: ErrSettlementFailed}},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, row.want, judge(row.facts)) })
	}
}

// Over all combinations of facts: what is delivered is paid, or its owner only verifies; what may
// be paid is delivered, or kept in doubt.
func TestOutcomesGiveNothingAway(t *testing.T) {
	everyCombination(func(f facts) {
		v := judge(f)
		require.NotZero(t, v.answer, "%+v", f)
		isVerified := f.presented == matching && f.priorUse == unused && f.verification == valid
		isSettled := f.settlement == settled
		if v.answer == deliver && f.priorUse != replayable {
			require.True(t, f.presented == matching && f.verification == valid, "%+v", f)
			require.True(t, f.run == succeeded || isSettled, "%+v", f)
			require.True(t, isSettled || f.verifyOnly, "%+v", f)
		}
		if isVerified && f.settlement == unknown {
			require.Equal(t, book.SaleUnknown, v.state, "%+v", f)
			require.Equal(t, unavailable, v.answer, "never a challenge: %+v", f)
		}
		if v.state == book.SaleSettled && f.priorUse != replayable {
			require.True(t, isSettled, "%+v", f)
		}
	})
}

func everyCombination(see func(facts)) {
	flags := []bool{false, true}
	for p := noPayment; p <= matching; p++ {
		for u := unused; u <= alreadyUsed; u++ {
			for v := notVerified; v <= valid; v++ {
				for r := notRun; r <= cancelled; r++ {
					for s := notSettled; s <= elsewhere; s++ {
						for _, upfront := range flags {
							for _, verifyOnly := range flags {
								see(facts{
									presented: p, priorUse: u, verification: v, run: r, settlement: s,
									upfront: upfront, verifyOnly: verifyOnly,
								})
							}
						}
					}
				}
			}
		}
	}
}
