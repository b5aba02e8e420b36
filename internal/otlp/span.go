package otlp

import (
	"net"
	"strconv"
	"time"

	"x402-wallet/internal/steps"
	"x402-wallet/x402"
)

type Resource struct {
	Service, Version string // service.name, service.version
	Instance         string // service.instance.id: another one for each process
	Host             string // host.name; "": it is not known
}

// The types of opentelemetry-proto's trace/v1, in the JSON that OTLP has for them: ids in hex, whole numbers
// of 64 bits as text, enums as numbers.
type (
	request struct {
		ResourceSpans []resourceSpans `json:"resourceSpans"`
	}
	resourceSpans struct {
		Resource   resource     `json:"resource"`
		ScopeSpans []scopeSpans `json:"scopeSpans"`
	}
	resource struct {
		Attributes []attribute `json:"attributes"`
	}
	scopeSpans struct {
		Scope scope  `json:"scope"`
		Spans []span `json:"spans"`
	}
	scope struct {
		Name    string `json:"name"`
		Version string `json:"version,omitempty"`
	}
	span struct {
		TraceID    string      `json:"traceId"`
		SpanID     string      `json:"spanId"`
		ParentID   string      `json:"parentSpanId,omitempty"`
		Flags      uint32      `json:"flags"`
		Name       string      `json:"name"`
		Kind       int         `json:"kind"`
		Start      int64       `json:"startTimeUnixNano,string"`
		End        int64       `json:"endTimeUnixNano,string"`
		Attributes []attribute `json:"attributes,omitempty"`
		Status     *status     `json:"status,omitempty"`
	}
	status struct {
		Code int `json:"code"`
	}
	attribute struct {
		Key   string `json:"key"`
		Value value  `json:"value"`
	}
	value struct {
		Text   *string `json:"stringValue,omitempty"`
		Number *int64  `json:"intValue,omitempty,string"`
	}
)

// Kinds of spans, and the status of one that failed.
const (
	kindInternal = 1
	kindServer   = 2
	kindClient   = 3
	statusFailed = 2
)

// Flags of a span: sampled, and whether its parent is another process's.
const (
	flagSampled     = 0x001
	flagKnowsRemote = 0x100
	flagRemote      = 0x200
)

func requestOf(of Resource, list []span) request {
	var about attributes
	about.text("service.name", of.Service)
	about.text("service.version", of.Version)
	about.text("service.instance.id", of.Instance)
	about.text("host.name", of.Host)
	return request{ResourceSpans: []resourceSpans{{Resource: resource{Attributes: about},
		ScopeSpans: []scopeSpans{{Scope: scope{Name: of.Service, Version: of.Version}, Spans: list}}}}}
}

// spansOf are those of a call and of its steps, the call's first.
func spansOf(r steps.Report) []span {
	list := make([]span, 0, 1+len(r.Steps))
	list = append(list, root(r))
	for _, s := range r.Steps {
		list = append(list, stepSpan(r, s))
	}
	return list
}

// root is a call's own span. By whom it was made shows its kind.
func root(r steps.Report) span {
	s := newSpan(r, r.Trace.Span, r.Caller, r.Name, r.Start, r.Took, r.Code)
	s.Kind = kindServer
	if r.Caller != (steps.SpanID{}) {
		s.Flags |= flagRemote
	}
	var a attributes
	a.text("x402.kind", string(r.Kind))
	a.text("x402.outcome", r.Outcome)
	a.text("error.type", r.Code)
	a.text("x402.agent", r.Agent)
	a.text("x402.label", r.Label)
	a.text("x402.tool", r.Tool)
	a.text("x402.payment.id", r.PaymentID)
	a.text("x402.payment.state", r.State)
	a.text("x402.network", r.Network)
	a.text("x402.scheme", r.Scheme)
	a.text("x402.asset", r.Asset)
	if r.PaymentID != "" {
		a.text("x402.amount", r.Amount.String())
		a.text("x402.price", r.Price.String())
	}
	a.server(r.Host)
	if r.Dropped > 0 {
		a.number("x402.steps.dropped", r.Dropped)
	}
	s.Attributes = a
	return s
}

// clients are steps in which somebody is asked.
var clients = map[steps.Name]bool{steps.Ask: true, steps.Send: true, steps.Facilitator: true,
	steps.Node: true}

func stepSpan(r steps.Report, step steps.Step) span {
	name := string(step.Name)
	if step.What != "" {
		name += " " + step.What
	}
	s := newSpan(r, step.ID, step.Parent, name, step.Start, step.Took, step.Code)
	if clients[step.Name] {
		s.Kind = kindClient
	}
	var a attributes
	a.text("x402.peer", step.Peer)
	a.server(step.Host)
	if step.Name == steps.Node {
		a.text("rpc.method", step.What)
	}
	if step.Status > 0 {
		a.number("http.response.status_code", step.Status)
	}
	a.text("error.type", step.Code)
	s.Attributes = a
	return s
}

func newSpan(r steps.Report, id, parent steps.SpanID, name string, start time.Time, took time.Duration,
	code string) span {
	s := span{TraceID: r.Trace.ID.String(), SpanID: id.String(), Name: name, Kind: kindInternal,
		Flags: flagSampled | flagKnowsRemote, Start: start.UnixNano(), End: start.Add(took).UnixNano()}
	if parent != (steps.SpanID{}) {
		s.ParentID = parent.String()
	}
	if code != "" {
		s.Status = &status{Code: statusFailed}
	}
	return s
}

// maxText bounds an attribute, in letters: a host's name has at most 253.
const maxText = 256

// attributes are those of a span or a resource; what is not known is left out.
type attributes []attribute

func (a *attributes) text(key, text string) {
	if text != "" {
		text = x402.Clip(text, maxText)
		*a = append(*a, attribute{Key: key, Value: value{Text: &text}})
	}
}

func (a *attributes) number(key string, n int) {
	number := int64(n)
	*a = append(*a, attribute{Key: key, Value: value{Number: &number}})
}

// server is who is asked, by OpenTelemetry's names.
func (a *attributes) server(host string) {
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		a.text("server.address", host)
		return
	}
	a.text("server.address", name)
	if n, err := strconv.Atoi(port); err == nil {
		a.number("server.port", n)
	}
}
