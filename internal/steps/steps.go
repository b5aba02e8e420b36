// Package steps notes what a call is made of: its steps with when each began, how long it took and how it
// ended. Whoever is told of the whole at its end (Report) makes a log line, metrics or spans of it.
//
// What must stay true: a step's words are ours or the owner's (a facilitator's name and host, a network), so
// that nobody else makes series; nothing that a stranger wrote is in a step, and nothing that is secret
// anywhere. Where nobody listens nothing is noted, and that costs a look into the context alone.
package steps

import (
	"context"
	"crypto/rand"
	"errors"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// Name is what is done in a step.
type Name string

// The steps of a payment, in their order; a channel's own are among them where it signs and records.
const (
	Gate    Name = "gate"    // waits for its turn, of all the calls that are made at once
	Resume  Name = "resume"  // looks whether this call was made before
	Ask     Name = "ask"     // the seller, without payment
	Funds   Name = "funds"   // read from the chain; they may be read while the seller is asked
	SignIn  Name = "sign-in" // where what was bought before is had without paying
	Hold    Name = "hold"    // chooses an option, holds its money: funds, facts and reserve are parts of it
	Facts   Name = "facts"   // the ledger's, and the decision
	Reserve Name = "reserve" // the money, in the ledger
	Hook    Name = "hook"    // the owner's program is asked whether it may be made
	Float   Name = "float"   // what it takes comes from the owner's account
	Sign    Name = "sign"    // seals checked, authorized, signed
	Submit  Name = "submit"  // the signed bytes to the ledger, sealed
	Settle  Name = "settle"  // by the wallet, at the facilitators
	Send    Name = "send"    // to the seller, with payment or proof
	Record  Name = "record"  // what became of it
	Chain   Name = "chain"   // asked what became of it

	Deferred Name = "deferred" // a call of a seller that serves first and is paid with the next one
)

// The steps of a sale.
const (
	Offer  Name = "offer"  // what the call costs, and who settles it
	Verify Name = "verify" // the payment, at the facilitators
	Take   Name = "take"   // the sale in the book: one payment, one run
	Run    Name = "run"    // what was bought
)

// Calls of others that the owner chose; they are parts of the steps above.
const (
	Facilitator Name = "facilitator" // Peer is its name
	Node        Name = "node"        // Peer is its network
)

// Kind is what is reported.
type Kind string

// Payment is a call that may pay, Sale one that is paid for.
const (
	Payment Kind = "payment"
	Sale    Kind = "sale"
)

// Step is one that has ended.
type Step struct {
	Name   Name
	Peer   string // of Facilitator and Node: who was asked, as config.toml names them; else ""
	Host   string // of a facilitator: its host, as in config.toml; else ""
	What   string // of Facilitator and Node: what was asked, as "settle", "eth_call"; else ""
	Status int    // of HTTP; 0: none came
	Start  time.Time
	Took   time.Duration
	Code   string // why it failed: an error code, of a facilitator its outcome; "" : it did not

	ID, Parent SpanID // Parent is the step that it is a part of, or the call
}

// Report is a call that has ended. Text of strangers is in Host, and of the owner in Labels; both are for
// people to read, and label no metric.
type Report struct {
	Kind  Kind
	Name  string // how the call is made, as "tools/call x402_pay"
	Agent string // in the owner's rules; "": a caller without a name
	Label string // the agent's in the owner's books, as "team=research"
	Host  string // the seller's; of a sale ""
	Tool  string // of a sale: what was sold, as the owner names it

	Paid

	Outcome string // what the call came to: a status of an answer ("paid", "free", …) or Failed
	Code    string // of the error, if it ended with one
	Start   time.Time
	Took    time.Duration
	Steps   []Step // in the order in which they ended
	Dropped int    // steps beyond those

	Trace  Trace  // the call's own; Trace.Span is the Parent of its steps. Not Sampled: it is in no trace
	Caller SpanID // the caller's; zero: it named none
}

// Paid is the payment that a call made or took up, or that a sale took; all empty where there is none.
type Paid struct {
	PaymentID, Network, Scheme, Asset string // Asset is its symbol
	Amount                            money.Amount
	Price                             money.Dollars
	State                             string // in the ledger
}

// Failed is the outcome of a call that ended with an error.
const Failed = "failed"

// maxSteps bounds those of one call: a call has some twenty, and one that waits for funds or tries each
// facilitator three times a hundred.
const maxSteps = 256

// Traces says whether calls are traced; the zero value: they are not.
type Traces struct {
	On bool
	// Sample is the part of the calls whose caller named no trace that is sampled: 0 to 1. Else the caller
	// decides, unless Strangers are the callers: then what they do not want sampled is not, and of the rest
	// this part is.
	Sample    float64
	Strangers bool
	// PassOn lets sellers and MCP servers hear which trace a call belongs to, and not only those whom the
	// owner chose: facilitators and nodes.
	PassOn bool
}

// sampled decides for a call, by the trace that its caller named, if any.
func (t Traces) sampled(named Trace) bool {
	switch isNamed := named.IsValid(); {
	case !t.On, isNamed && !named.Sampled:
		return false
	case isNamed && !t.Strangers:
		return true
	}
	return mathrand.Float64() < t.Sample //nolint:gosec // no secret
}

// Recorder notes the steps of one call. A nil one notes nothing. It is safe for concurrent use.
type Recorder struct {
	mu     sync.Mutex
	report Report
	ended  bool
	traces Traces // does not change
}

type (
	recorderKey struct{}
	spanKey     struct{}
)

// Start begins a call: what is done with the context is noted from now on. How the call is made, and
// whose trace it belongs to, the context says (Calling).
func Start(ctx context.Context, kind Kind, agent string, traces Traces) (context.Context, *Recorder) {
	r := &Recorder{traces: traces, report: Report{Kind: kind, Name: string(kind), Agent: agent,
		Start: time.Now(), Trace: newTrace()}}
	from, _ := ctx.Value(callerKey{}).(caller)
	if from.name != "" {
		r.report.Name = from.name
	}
	if from.trace.IsValid() {
		r.report.Trace.ID, r.report.Caller = from.trace.ID, from.trace.Span
	}
	r.report.Trace.Sampled = traces.sampled(from.trace)
	return context.WithValue(ctx, recorderKey{}, r), r
}

// From is the recorder of a context's call; nil: nobody listens.
func From(ctx context.Context) *Recorder {
	r, _ := ctx.Value(recorderKey{}).(*Recorder)
	return r
}

// At says whose call it is: a seller's host, or what is sold.
func (r *Recorder) At(host, tool string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Host, r.report.Tool = host, tool
}

// About says which payment the call makes or takes up, as it now stands.
func (r *Recorder) About(p Paid) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Paid = p
}

// End is the report of a call that has ended, by what it came to; with an error that is Failed. Steps that
// end later are in none.
func (r *Recorder) End(outcome string, err error) Report {
	if err != nil {
		outcome = Failed
	}
	return r.EndAs(outcome, codeOf(err))
}

// EndAs is End with a word of ours for why it failed; "": it did not.
func (r *Recorder) EndAs(outcome, code string) Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	r.report.Took = time.Since(r.report.Start)
	r.report.Outcome, r.report.Code = outcome, code
	return r.report
}

// Span is a step under way. A nil one notes nothing.
type Span struct {
	recorder *Recorder
	step     Step
}

// Begin begins a step, nil where nobody listens. What is done with the context that it gives is a part of it.
func Begin(ctx context.Context, name Name) (context.Context, *Span) {
	r := From(ctx)
	if r == nil {
		return ctx, nil
	}
	s := &Span{recorder: r, step: Step{Name: name, Start: time.Now(), ID: newSpanID()}}
	if outer, ok := ctx.Value(spanKey{}).(*Span); ok && outer.recorder == r {
		s.step.Parent = outer.step.ID
	} else {
		s.step.Parent = r.report.Trace.Span
	}
	return context.WithValue(ctx, spanKey{}, s), s
}

// Asked says who is asked for what, where they are the owner's; host may be "".
func (s *Span) Asked(peer, host, what string) {
	if s != nil {
		s.step.Peer, s.step.Host, s.step.What = peer, host, what
	}
}

// Answered says with what HTTP status.
func (s *Span) Answered(status int) {
	if s != nil {
		s.step.Status = status
	}
}

// End ends a step, with the code of err where it is not nil.
func (s *Span) End(err error) {
	if s != nil {
		s.EndAs(codeOf(err))
	}
}

// EndAs ends a step; code is a word of ours for why it failed, "": it did not.
func (s *Span) EndAs(code string) {
	if s == nil {
		return
	}
	s.step.Took, s.step.Code = time.Since(s.step.Start), code
	r := s.recorder
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.ended:
	case len(r.report.Steps) >= maxSteps:
		r.report.Dropped++
	default:
		r.report.Steps = append(r.report.Steps, s.step)
	}
}

// Cancelled is the code of a step that was not needed any more, or whose caller went away.
const Cancelled = "CANCELLED"

func codeOf(err error) string {
	if err == nil {
		return ""
	}
	code := x402.AsError(err).Code
	if code == x402.Internal && errors.Is(err, context.Canceled) {
		return Cancelled
	}
	return string(code)
}

func newSpanID() (id SpanID) {
	for id == (SpanID{}) { // zero is none
		_, _ = rand.Read(id[:]) // never fails
	}
	return id
}
