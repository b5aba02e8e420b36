package steps

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"net/http"
)

// TraceID and SpanID name a trace and a part of it, as W3C's Trace Context and OpenTelemetry do.
type (
	TraceID [16]byte
	SpanID  [8]byte
)

func (t TraceID) String() string { return hex.EncodeToString(t[:]) }
func (s SpanID) String() string  { return hex.EncodeToString(s[:]) }

// Trace is a place in a trace: what a traceparent says.
type Trace struct {
	ID      TraceID
	Span    SpanID
	Sampled bool
}

// newTrace begins one. Its numbers cannot be guessed from others, so that a trace gives nothing else away.
func newTrace() (t Trace) {
	_, _ = rand.Read(t.ID[:]) // never fails, and 16 zeros are none that anybody sees
	t.Span = newSpanID()
	return t
}

// IsValid reports whether a trace and a part of it are named: zeros are not.
func (t Trace) IsValid() bool { return t.ID != TraceID{} && t.Span != SpanID{} }

// Header is the traceparent (W3C Trace Context, version 00).
const Header = "traceparent"

// String is the value of a traceparent.
func (t Trace) String() string {
	flags := "00"
	if t.Sampled {
		flags = "01"
	}
	return "00-" + t.ID.String() + "-" + t.Span.String() + "-" + flags
}

// ParseTrace reads a traceparent; ok is false where it is none, and then a new trace begins (W3C Trace
// Context, 4.3). Of later versions what the first one knows is read. Their letters are small.
func ParseTrace(text string) (t Trace, ok bool) {
	const length = len("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	if len(text) < length || (len(text) > length && (text[:2] == "00" || text[length] != '-')) {
		return Trace{}, false
	}
	text = text[:length]
	if text[2] != '-' || text[35] != '-' || text[52] != '-' || text[:2] == "ff" {
		return Trace{}, false
	}
	var version, flags [1]byte
	ok = smallHex(version[:], text[:2]) && smallHex(t.ID[:], text[3:35]) &&
		smallHex(t.Span[:], text[36:52]) && smallHex(flags[:], text[53:])
	if !ok || !t.IsValid() {
		return Trace{}, false
	}
	t.Sampled = flags[0]&1 == 1
	return t, true
}

func smallHex(into []byte, text string) bool {
	for _, c := range text {
		if c >= 'A' && c <= 'F' {
			return false
		}
	}
	_, err := hex.Decode(into, []byte(text))
	return err == nil
}

type callerKey struct{}

// caller is how a call is made, and the trace that its caller named.
type caller struct {
	name  string
	trace Trace
}

// Calling is a context of a call, by how it is made: "tools/call x402_pay". traceparent is the caller's;
// what is none is passed over.
func Calling(ctx context.Context, name, traceparent string) context.Context {
	trace, _ := ParseTrace(traceparent)
	return context.WithValue(ctx, callerKey{}, caller{name: name, trace: trace})
}

// Named is the traceparent that a request of MCP names: in its _meta, where MCP has it, or else in the header
// that came with it. "": none.
func Named(meta map[string]any, header http.Header) string {
	if named, isText := meta[Header].(string); isText {
		return named
	}
	return header.Get(Header)
}

// Traceparent is what those who are asked in a step are told, where the owner chose them: the place of the
// innermost step in the call's trace. "": calls are not traced.
func Traceparent(ctx context.Context) string {
	r := From(ctx)
	if r == nil || !r.traces.On {
		return ""
	}
	at := r.report.Trace // does not change
	if s, ok := ctx.Value(spanKey{}).(*Span); ok && s.recorder == r {
		at.Span = s.step.ID
	}
	return at.String()
}

// PassedOn is Traceparent for sellers and MCP servers: "" as well where the owner does not want them to know.
func PassedOn(ctx context.Context) string {
	if r := From(ctx); r == nil || !r.traces.PassOn {
		return ""
	}
	return Traceparent(ctx)
}
