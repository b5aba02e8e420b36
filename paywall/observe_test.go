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
)

// watched is a lab whose requests are reported, and whose facilitator's requests are seen.
type watched struct {
	*lab
	mu     sync.Mutex
	seen   []steps.Report
	traces []string // that the facilitator was told: traceparent, or ""
}

func newWatched(t *testing.T, traces steps.Traces) *watched {
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
		fault           string
		tool            func(*lab)
		failed          steps.Name
		outcome, code   string
		state, stepCode string
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
