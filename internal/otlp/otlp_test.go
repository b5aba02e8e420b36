package otlp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"

	"x402-wallet/internal/must"
	"x402-wallet/internal/otlp/otlptest"
	"x402-wallet/internal/steps"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// exporter is one whose end the test waits for.
type exporter struct {
	*Exporter
	log lines
}

func newExporter(t *testing.T, url string) *exporter {
	t.Helper()
	x := &exporter{}
	client := &http.Client{Transport: &http.Transport{}}
	x.Exporter = &Exporter{URL: url, HTTP: client, Ending: &sync.WaitGroup{},
		Of:  Resource{Service: "x402-wallet", Version: "1.2.3", Instance: "one", Host: "here"},
		Log: slog.New(slog.NewTextHandler(&x.log, nil)), wait: time.Millisecond,
		pauses: []time.Duration{0, time.Millisecond, time.Millisecond}}
	t.Cleanup(func() {
		x.Close()
		x.Ending.Wait()
		client.CloseIdleConnections()
	})
	return x
}

type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

var began = time.Date(2026, 11, 26, 12, 0, 0, 1, time.UTC)

func paid() steps.Report {
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	of, _ := steps.ParseTrace(trace)
	hold, node := steps.SpanID{1}, steps.SpanID{2}
	return steps.Report{Kind: steps.Payment, Name: "tools/call x402_pay", Agent: "research",
		Label: "team=research", Host: "api.example:8443", Outcome: "failed", Code: "RPC_ERROR",
		Paid: steps.Paid{PaymentID: "p1", Network: "eip155:8453", Scheme: "exact", Asset: "USDC",
			Amount: money.NewAmount(10_000), Price: 10_000, State: "failed"},
		Start: began, Took: time.Second, Trace: of, Caller: steps.SpanID{9},
		Steps: []steps.Step{
			{Name: steps.Node, Peer: "eip155:8453", What: "eth_call", Status: 503, Start: began.Add(2),
				Took: 3, Code: "RPC_ERROR", ID: node, Parent: hold},
			{Name: steps.Hold, Start: began.Add(1), Took: 10, ID: hold, Parent: of.Span},
			{Name: steps.Facilitator, Peer: "cdp", Host: "cdp.example", What: "settle", Status: 200,
				Start: began.Add(20), Took: 5, ID: steps.SpanID{3}, Parent: of.Span},
		}}
}

func attributesOf(list []*commonv1.KeyValue) map[string]any {
	all := map[string]any{}
	for _, a := range list {
		switch v := a.Value.Value.(type) {
		case *commonv1.AnyValue_StringValue:
			all[a.Key] = v.StringValue
		case *commonv1.AnyValue_IntValue:
			all[a.Key] = v.IntValue
		default:
			all[a.Key] = fmt.Sprintf("of type %T", v)
		}
	}
	return all
}

func TestOpenTelemetrysOwnTypesReadTheSpans(t *testing.T) {
	collector := otlptest.Start(t)
	x := newExporter(t, collector.URL)
	r := paid()
	x.Add(r)
	spans := collector.Spans(t, 4)
	require.Len(t, spans, 4)
	require.Equal(t, map[string]any{"service.name": "x402-wallet", "service.version": "1.2.3",
		"service.instance.id": "one", "host.name": "here"}, spans[0].Resource)
	for i, want := range []struct {
		name       string
		kind       tracev1.Span_SpanKind
		id, parent steps.SpanID
		start, end time.Duration // since began
		failed     bool
		flags      uint32
		attributes map[string]any
	}{
		{"tools/call x402_pay", tracev1.Span_SPAN_KIND_SERVER, r.Trace.Span, r.Caller, 0, time.Second, true,
			0x301,
			map[string]any{"x402.kind": "payment", "x402.outcome": "failed", "error.type": "RPC_ERROR",
				"x402.agent": "research", "x402.label": "team=research", "x402.payment.id": "p1",
				"x402.payment.state": "failed", "x402.network": "eip155:8453", "x402.scheme": "exact",
				"x402.asset": "USDC", "x402.amount": "10000", "x402.price": "0.01",
				"server.address": "api.example", "server.port": int64(8443)}},
		{"node eth_call", tracev1.Span_SPAN_KIND_CLIENT, steps.SpanID{2}, steps.SpanID{1}, 2, 5, true, 0x101,
			map[string]any{"x402.peer": "eip155:8453", "rpc.method": "eth_call", "error.type": "RPC_ERROR",
				"http.response.status_code": int64(503)}},
		{"hold", tracev1.Span_SPAN_KIND_INTERNAL, steps.SpanID{1}, r.Trace.Span, 1, 11, false, 0x101,
			map[string]any{}},
		{"facilitator settle", tracev1.Span_SPAN_KIND_CLIENT, steps.SpanID{3}, r.Trace.Span, 20, 25, false,
			0x101,
			map[string]any{"x402.peer": "cdp", "server.address": "cdp.example",
				"http.response.status_code": int64(200)}},
	} {
		s := spans[i]
		require.Equal(t, want.name, s.Name)
		require.Equal(t, want.kind, s.Kind, s.Name)
		require.Equal(t, r.Trace.ID[:], s.TraceId, s.Name)
		require.Equal(t, want.id[:], s.SpanId, s.Name)
		require.Equal(t, want.parent[:], s.ParentSpanId, s.Name)
		require.EqualValues(t, began.Add(want.start).UnixNano(), s.StartTimeUnixNano, s.Name)
		require.EqualValues(t, began.Add(want.end).UnixNano(), s.EndTimeUnixNano, s.Name)
		require.Equal(t, want.failed, s.Status.GetCode() == tracev1.Status_STATUS_CODE_ERROR, s.Name)
		require.Equal(t, want.flags, s.Flags, s.Name)
		require.Equal(t, want.attributes, attributesOf(s.Attributes), s.Name)
	}
}

// protobuf's own reader takes whole numbers of 64 bits in both forms, OTLP's JSON has one.
func TestWholeNumbersAreText(t *testing.T) {
	collector := otlptest.Start(t)
	x := newExporter(t, collector.URL)
	x.Add(paid())
	bodies, _ := collector.Requests(t, 1)
	must.JSON[request]([]byte(bodies[0]))(t)
	require.Contains(t, bodies[0], fmt.Sprintf(`"startTimeUnixNano":"%d"`, began.UnixNano()))
	require.Contains(t, bodies[0], `"intValue":"8443"`)
}

func TestWhatIsNotSampledIsNotSent(t *testing.T) {
	x := newExporter(t, "http://127.0.0.1:1")
	r := paid()
	r.Trace.Sampled = false
	x.Add(r)
	require.Nil(t, x.closing, "it has nothing to do")
}

func TestSpansOfManyCallsLeaveTogether(t *testing.T) {
	collector := otlptest.Start(t)
	x := newExporter(t, collector.URL)
	x.wait = time.Hour
	const calls = maxBatch / 4 // of four spans each
	for range calls {
		x.Add(paid())
	}
	require.Len(t, collector.Spans(t, maxBatch), maxBatch)
	bodies, _ := collector.Requests(t, 1)
	require.Len(t, bodies, 1)
}

// What is put aside when it is closed has its moment.
func TestClosingSendsTheRest(t *testing.T) {
	collector := otlptest.Start(t)
	x := newExporter(t, collector.URL)
	x.wait = time.Hour
	x.Add(paid())
	x.Close()
	x.Ending.Wait()
	require.Len(t, collector.Spans(t, 4), 4)
	x.Add(paid())
	x.Close()
	require.Empty(t, x.waiting, "what comes later is not put aside")
}

// A collector that never answers keeps no process from ending.
func TestACollectorThatHangsHoldsNobodyUp(t *testing.T) {
	until := make(chan struct{})
	hung := make(chan struct{}, 1)
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		select {
		case hung <- struct{}{}:
		default:
		}
		<-until
	}))
	defer s.Close()
	defer close(until)
	x := newExporter(t, s.URL)
	x.pauses = make([]time.Duration, 1000) // it would be tried for hours
	x.Add(paid())
	<-hung
	x.Close()
	x.Ending.Wait() // within closeTime, or the test hangs
	require.Contains(t, x.log.String(), "spans=4")
}

// What OTLP says may be tried again is, with the same spans; nothing else is.
func TestWhatIsTriedAgain(t *testing.T) {
	for status, again := range map[int]bool{429: true, 502: true, 503: true, 504: true,
		400: false, 401: false, 404: false, 500: false, 302: false} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			collector := otlptest.Start(t)
			times := 0
			collector.Answer(func(rw http.ResponseWriter) bool {
				times++
				if times > 1 {
					return false
				}
				rw.Header().Set("Location", "/v1/traces")
				rw.WriteHeader(status)
				return true
			})
			x := newExporter(t, collector.URL)
			x.Add(paid())
			if again {
				require.Len(t, collector.Spans(t, 4), 4)
				return
			}
			collector.Requests(t, 1)
			x.Close()
			x.Ending.Wait()
			bodies, _ := collector.Requests(t, 1)
			require.Len(t, bodies, 1)
			require.Contains(t, x.log.String(), fmt.Sprintf("HTTP status %d", status))
			require.Contains(t, x.log.String(), "spans=4")
		})
	}
}

// A collector that is not there is tried as often as there are pauses, and what it does not get is counted.
func TestACollectorThatIsNotThere(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	s.Close()
	x := newExporter(t, s.URL+"/v1/traces?key=sekret")
	x.Add(paid())
	x.Close()
	x.Ending.Wait()
	require.Contains(t, x.log.String(), "spans=4")
	require.NotContains(t, x.log.String(), "sekret")
}

func TestRetryAfter(t *testing.T) {
	at := func(value string) time.Duration { return retryAfter(http.Header{"Retry-After": {value}}) }
	require.Equal(t, 7*time.Second, at("7"))
	require.InDelta(t, time.Hour, at(time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)), 2e9)
	require.Zero(t, at("soon"))
	require.Zero(t, at(""))
}

// The pause that the collector asks for is kept, also where it is longer than ours.
func TestACollectorsPauseIsKept(t *testing.T) {
	collector := otlptest.Start(t)
	var at []time.Time
	collector.Answer(func(rw http.ResponseWriter) bool {
		at = append(at, time.Now())
		if len(at) > 1 {
			return false
		}
		rw.Header().Set("Retry-After", "1")
		rw.WriteHeader(http.StatusTooManyRequests)
		return true
	})
	x := newExporter(t, collector.URL)
	x.Add(paid())
	collector.Spans(t, 4)
	require.GreaterOrEqual(t, at[1].Sub(at[0]), time.Second)
}

func TestACollectorThatTakesOnlySome(t *testing.T) {
	collector := otlptest.Start(t)
	collector.Answer(func(rw http.ResponseWriter) bool {
		_, _ = io.WriteString(rw, `{"partialSuccess":{"rejectedSpans":"3","errorMessage":"too\nold"}}`)
		return true
	})
	x := newExporter(t, collector.URL)
	x.Add(paid())
	collector.Requests(t, 1)
	x.Close()
	x.Ending.Wait()
	require.Contains(t, x.log.String(), "spans=3")
	require.Equal(t, 2, strings.Count(x.log.String(), "\n"), "its words make no line of their own")
	bodies, _ := collector.Requests(t, 1)
	require.Len(t, bodies, 1, "it is not tried again")
}

// There is a bound to what is put aside, and it is said once that it is reached.
func TestMoreThanIsPutAsideIsDroppedAndCounted(t *testing.T) {
	x := newExporter(t, "http://127.0.0.1:1")
	x.wait = time.Hour
	x.Sealed = func(context.Context) error { return errors.New("nobody sealed it") }
	x.mu.Lock()
	x.work()
	x.waiting = make([]span, maxWaiting-4)
	x.mu.Unlock()
	for range 3 {
		x.Add(paid())
	}
	x.mu.Lock()
	require.LessOrEqual(t, len(x.waiting), maxWaiting)
	require.GreaterOrEqual(t, x.lost, 4)
	x.mu.Unlock()
	require.Equal(t, 1, strings.Count(x.log.String(), "spans are dropped"))
}

// Under rules that nobody sealed the collector hears nothing: whoever wrote them chose it.
func TestNothingIsSentUnderRulesThatAreNotSealed(t *testing.T) {
	collector := otlptest.Start(t)
	x := newExporter(t, collector.URL)
	x.Sealed = func(context.Context) error { return x402.Errorf(x402.PolicyUnsealed, "nobody sealed it") }
	x.Add(paid())
	x.Close()
	x.Ending.Wait()
	bodies, _ := collector.Requests(t, 0)
	require.Empty(t, bodies)
	require.Contains(t, x.log.String(), "not sealed")
}

func TestWhatTheCollectorKnowsTheWalletBy(t *testing.T) {
	collector := otlptest.Start(t)
	x := newExporter(t, collector.URL)
	x.Headers = func() (http.Header, error) {
		return http.Header{"X-Key": {"sekret"}, "Content-Type": {"text/plain"}}, nil
	}
	x.Add(paid())
	_, headers := collector.Requests(t, 1)
	require.Equal(t, "sekret", headers[0].Get("X-Key"))
	require.Equal(t, "application/json", headers[0].Get("Content-Type"))
	require.Len(t, collector.Spans(t, 4), 4)
}
