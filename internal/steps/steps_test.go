package steps

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/x402"
)

const (
	example = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01" // of W3C's Trace Context
	unasked = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
)

func TestParseTrace(t *testing.T) {
	for text, sampled := range map[string]bool{
		example: true,
		unasked: false,
		// other flags are kept to themselves
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-03": true,
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-02": false,
		// a later version, which may go on
		"cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01":              true,
		"cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-what-follows": true,
	} {
		got, ok := ParseTrace(text)
		require.True(t, ok, text)
		require.Equal(t, sampled, got.Sampled, text)
		require.Equal(t, "0af7651916cd43dd8448eb211c80319c", got.ID.String())
		require.Equal(t, "b7ad6b7169203331", got.Span.String())
	}
	for _, text := range []string{"", "00", example[:54], example + "-", example + "-x", " " + example[1:],
		"ff" + example[2:], "cc" + example[2:] + ".more",
		strings.ToUpper(example), strings.Replace(example, "-", "_", 1),
		"00-00000000000000000000000000000000-b7ad6b7169203331-01",
		"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
		"00-0af7651916cd43dd8448eb211c80319g-b7ad6b7169203331-01",
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0x",
		"0x-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	} {
		_, ok := ParseTrace(text)
		require.False(t, ok, text)
	}
}

func TestATraceIsWrittenAsItWasRead(t *testing.T) {
	for _, text := range []string{example, unasked} {
		got, _ := ParseTrace(text)
		require.Equal(t, text, got.String())
	}
}

// In _meta MCP names the trace of a call; the header is of the request that brings it.
func TestNamed(t *testing.T) {
	header := http.Header{"Traceparent": {unasked}}
	require.Equal(t, example, Named(map[string]any{"traceparent": example}, header))
	require.Equal(t, unasked, Named(map[string]any{"traceparent": 7}, header))
	require.Equal(t, unasked, Named(nil, header))
	require.Empty(t, Named(nil, nil))
}

func TestWhoIsSampled(t *testing.T) {
	for name, c := range map[string]struct {
		traces Traces
		named  string
		want   bool
	}{
		"no traces":                    {Traces{Sample: 1}, example, false},
		"all":                          {Traces{On: true, Sample: 1}, "", true},
		"none":                         {Traces{On: true}, "", false},
		"the caller wants it":          {Traces{On: true}, example, true},
		"the caller does not":          {Traces{On: true, Sample: 1}, unasked, false},
		"no trace that can be read":    {Traces{On: true, Sample: 1}, "no trace", true},
		"a stranger does not":          {Traces{On: true, Sample: 1, Strangers: true}, unasked, false},
		"a stranger wants it":          {Traces{On: true, Sample: 1, Strangers: true}, example, true},
		"a stranger's wish is no rule": {Traces{On: true, Strangers: true}, example, false},
	} {
		t.Run(name, func(t *testing.T) {
			_, r := Start(Calling(t.Context(), "", c.named), Payment, "", c.traces)
			require.Equal(t, c.want, r.EndAs("", "").Trace.Sampled)
		})
	}
}

// Strangers hear of a trace only where the owner wants it, and nobody where nothing is traced.
func TestWhoHearsOfATrace(t *testing.T) {
	for name, c := range map[string]struct {
		traces           Traces
		chosen, stranger bool
	}{
		"no traces": {Traces{PassOn: true}, false, false},
		"traces":    {Traces{On: true, Sample: 1}, true, false},
		"passed on": {Traces{On: true, Sample: 1, PassOn: true}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, r := Start(Calling(t.Context(), "", example), Payment, "", c.traces)
			ctx, step := Begin(ctx, Ask)
			want := strings.Replace(example, "b7ad6b7169203331", step.step.ID.String(), 1)
			for told, heard := range map[string]bool{Traceparent(ctx): c.chosen, PassedOn(ctx): c.stranger} {
				if heard {
					require.Equal(t, want, told)
				}
			}
			require.Equal(t, c.chosen, Traceparent(ctx) != "")
			require.Equal(t, c.stranger, PassedOn(ctx) != "")
			require.Equal(t, "b7ad6b7169203331", r.EndAs("", "").Caller.String())
		})
	}
	require.Empty(t, Traceparent(t.Context())+PassedOn(t.Context()))
}

func TestAReportHoldsNoMoreStepsThanItSays(t *testing.T) {
	ctx, r := Start(t.Context(), Payment, "", Traces{})
	for range maxSteps + 3 {
		_, step := Begin(ctx, Node)
		step.End(nil)
	}
	_, late := Begin(ctx, Ask)
	report := r.End("paid", nil)
	late.End(nil)
	require.Len(t, report.Steps, maxSteps)
	require.Equal(t, 3, report.Dropped)
	require.Len(t, r.report.Steps, maxSteps, "what ends later is in no report")
}

func TestTheCodeOfAStep(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{{nil, ""}, {x402.Errorf(x402.RPCError, "no"), "RPC_ERROR"}, {errors.New("no"), "INTERNAL"},
		{context.Canceled, Cancelled}} {
		ctx, r := Start(t.Context(), Payment, "", Traces{})
		_, step := Begin(ctx, Ask)
		step.End(c.err)
		require.Equal(t, c.want, r.End("", nil).Steps[0].Code)
	}
}
