package facilitator

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"x402-wallet/x402"
	"x402-wallet/x402/wire"
)

// pauses are before the tries at one facilitator; after the last comes the next facilitator.
var pauses = []time.Duration{0, 500 * time.Millisecond, time.Second}

// answerTime is how long a facilitator may take for its answers, where the next one may get the same bytes:
// what has not come by then may never come, and a chain confirms a payment sooner. Pauses do not count.
const answerTime = 15 * time.Second

// maxWait bounds what facilitators can make us wait by Retry-After, in all of one settleRun.
const maxWait = 30 * time.Second

// Settle brings a payment to the facilitators in their order. It ends with the first definite
// answer of any of them, or when all tries are used up, or when the payment's validity or ctx ends. One that
// says nothing for answerTime is followed by the next; with Sticky, where nobody may follow, it has all of
// the payment's validity.
// The caller has stored the signed payload before: after [Unknown] only the same bytes may be sent
// again, which Settle may be called for again. It is safe for concurrent use.
func (c *Client) Settle(ctx context.Context, s Submission) Result {
	ctx, cancel := context.WithTimeout(ctx, s.Validity)
	defer cancel()
	body, err := s.body()
	if err != nil {
		return Result{Err: err}
	}
	run := &settleRun{client: c, submission: s, body: body, waitBudget: maxWait}
	for f := range c.route(ctx, s) {
		done := run.tryAt(ctx, f) || ctx.Err() != nil
		if done || (s.Sticky && run.unknown) {
			break // on Solana nobody else can settle these bytes, and other bytes could pay twice
		}
	}
	return run.result(ctx)
}

// body is the request of /settle and /verify, byte for byte the same each time.
func (s Submission) body() ([]byte, error) {
	if !json.Valid(s.Payload) || !json.Valid(s.Requirements) {
		return nil, x402.Errorf(x402.Internal, "the payment or its requirement is not JSON")
	}
	const around = len(`{"x402Version":,"paymentPayload":,"paymentRequirements":}`) + len("2")
	body := make([]byte, 0, around+len(s.Payload)+len(s.Requirements))
	return fmt.Appendf(body, `{"x402Version":%d,"paymentPayload":%s,"paymentRequirements":%s}`, s.Version,
		s.Payload, s.Requirements), nil
}

type settleRun struct {
	client     *Client
	submission Submission
	body       []byte
	waitBudget time.Duration
	unknown    bool // a try may have settled, and nobody knows
	unknownAt  try
	usedBefore bool // it was used before any try could have used it
	last       *wire.Settlement
	tries      []try
}

// tryAt tries one facilitator up to three times. done means that nothing is left to try anywhere.
func (r *settleRun) tryAt(ctx context.Context, f *remote) (done bool) {
	left := r.submission.Validity
	if !r.submission.Sticky && f.Command == nil {
		left = answerTime
	}
	for _, pause := range pauses {
		if len(r.tries) > 0 && pause > 0 && r.client.sleep(ctx, pause) != nil {
			return true
		}
		began := time.Now()
		limited, cancel := context.WithTimeout(ctx, left)
		asking, step := begin(limited, f, "settle")
		reply := r.client.call(asking, f, http.MethodPost, "settle", nil, r.body)
		cancel()
		left -= time.Since(began)
		v := judge(reply, r.submission)
		if f.Command != nil && v.outcome == Unknown {
			v.final = true // see Command
		}
		step.Answered(reply.status)
		step.EndAs(stepCodes[v.outcome])
		r.tries = append(r.tries, try{Facilitator: f.Name, Status: reply.status, Outcome: v.outcome,
			Err: v.err})
		if v.settlement != nil {
			r.last = v.settlement
		}
		if v.outcome == Unknown && !r.unknown {
			r.unknown, r.unknownAt, r.usedBefore = true, r.tries[len(r.tries)-1], v.used
		}
		if v.final || ctx.Err() != nil {
			return true
		}
		if reply.unusable || left <= 0 || !r.wait(ctx, reply) {
			return false
		}
	}
	return false
}

// wait obeys Retry-After as far as maxWait allows; false says to go on to the next facilitator.
func (r *settleRun) wait(ctx context.Context, reply reply) bool {
	asked := retryAfter(reply.header, r.client.now())
	if asked == 0 {
		return true
	}
	if asked > r.waitBudget {
		return false
	}
	r.waitBudget -= asked
	return r.client.sleep(ctx, asked) == nil
}

// retryAfter reads the header (RFC 9110 §10.2.3): seconds or a date; 0 when there is none.
func retryAfter(header http.Header, now time.Time) time.Duration {
	value := header.Get("Retry-After")
	if seconds, err := strconv.ParseUint(value, 10, 64); err == nil {
		return time.Duration(min(seconds, uint64(maxWait/time.Second)+1)) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(at.Sub(now), 0)
	}
	return 0
}

// result makes one outcome of all tries. Settled wins: the facilitator claims it itself. Unknown
// beats every refusal after it.
func (r *settleRun) result(ctx context.Context) Result {
	out := Result{Settlement: r.last, Tries: r.tries}
	var last try
	if len(r.tries) > 0 {
		last = r.tries[len(r.tries)-1]
		out.Outcome = last.Outcome
	}
	if out.Outcome != NotSent {
		out.Facilitator, out.Status = last.Facilitator, last.Status
	}
	if r.unknown && out.Outcome != Settled {
		at := r.unknownAt
		out.Outcome, out.Facilitator, out.Status, out.UsedBefore = Unknown, at.Facilitator, at.Status,
			r.usedBefore
	}
	e := &x402.Error{Err: last.Err}
	switch out.Outcome {
	case Settled:
		return out
	case Refused:
		e.Code, e.Message = x402.SettlementFailed, "the facilitator "+last.Facilitator+" refused to settle"
	case Unknown:
		e.Code = x402.OutcomeUnknown
		e.Message = "the facilitator " + r.unknownAt.Facilitator + " may have settled, or not"
	case NotSent:
		e.Code, e.Message = x402.FacilitatorError, "no facilitator took the payment"
		if len(r.tries) == 0 {
			e.Message = "no facilitator is configured for " + r.submission.Network
			if ctx.Err() != nil {
				e.Message = "there was no time left to ask a facilitator"
			}
		}
	}
	out.Err = e.WithDetail("tries", out.Said())
	return out
}

// Said is what came of each try, in words.
func (r Result) Said() (said []string) {
	for _, t := range r.Tries {
		text := t.Facilitator + ": " + outcomeNames[t.Outcome]
		switch {
		case t.Err != nil:
			text += ": " + t.Err.Error()
		case t.Status != 0:
			text += fmt.Sprintf(": status %d", t.Status)
		}
		said = append(said, text)
	}
	return said
}

// judgement is what one try means.
type judgement struct {
	outcome    Outcome
	final      bool // the facilitator answered: no more tries, and nobody else is asked
	used       bool // it says that the payment is used, and names no transaction of its own
	settlement *wire.Settlement
	err        error
}

// judge is the table of outcomes. It is pure.
//
//	#  what came back                                            outcome    and then
//	1  no connection: refused, unknown host, TLS, no credentials  not sent   again, then the next
//	2  a connection, but no whole answer (in its time)            unknown    the same bytes again
//	3  2xx, success, a transaction, our network                   settled    –
//	4  success, but not as in 3, or of another payer              unknown    final
//	5  no success, but a transaction, or a reason that leaves
//	   open whether it happened (settlement_pending, …)           unknown    final
//	6  no success, any status                                     refused    final
//	7  4xx without a settlement that can be read                  refused    final
//	   … but one of the reasons of 5 in its text                  unknown    final
//	8  408, 425, 429                                              unknown    again, when it says
//	9  everything else: 3xx, 5xx, 2xx that cannot be read         unknown    the same bytes again
func judge(r reply, s Submission) judgement {
	if r.err != nil {
		outcome := NotSent
		if r.connected {
			outcome = Unknown
		}
		return judgement{outcome: outcome, err: r.err}
	}
	answer, err := wire.DecodeSettlement(r.body)
	if err == nil {
		return judgeSettlement(r, s, answer)
	}
	text := fmt.Errorf("status %d: %s", r.status, x402.Quote(string(r.body)))
	switch {
	case r.status == http.StatusRequestTimeout, r.status == http.StatusTooEarly,
		r.status == http.StatusTooManyRequests:
		return judgement{outcome: Unknown, err: text}
	case r.status >= 400 && r.status < 500 && isUncertain(string(r.body)):
		return judgement{outcome: Unknown, final: true, used: isUsed(string(r.body)), err: text}
	case r.status >= 400 && r.status < 500:
		return judgement{outcome: Refused, final: true, err: text}
	default:
		return judgement{outcome: Unknown, used: isUsed(string(r.body)), err: text}
	}
}

func judgeSettlement(r reply, s Submission, answer *wire.Settlement) judgement {
	j := judgement{outcome: Refused, final: true, settlement: answer}
	isOurs := answer.Network == "" || answer.Network == s.Network
	switch {
	case answer.Success && !s.isPayer(answer.Payer):
		j.outcome, j.err = Unknown, fmt.Errorf("settled a payment of %s, it says", x402.Quote(answer.Payer))
	case answer.Success && r.status < 300 && answer.Transaction != "" && isOurs:
		j.outcome = Settled
		return j
	case answer.Success && !isOurs:
		j.outcome, j.err = Unknown, fmt.Errorf("settled on %s, it says", x402.Quote(answer.Network))
	case answer.Success:
		j.outcome, j.err = Unknown, fmt.Errorf("success with status %d and transaction %s", r.status,
			x402.Quote(answer.Transaction))
	default:
		j.err = fmt.Errorf("status %d: %s %s", r.status, x402.Quote(answer.ErrorReason),
			x402.Quote(answer.ErrorMessage))
		reason := answer.ErrorReason + " " + answer.ErrorMessage
		if answer.Transaction != "" || isUncertain(reason) {
			j.outcome, j.used = Unknown, answer.Transaction == "" && isUsed(reason)
		}
	}
	return j
}

// isPayer reports whether a facilitator's word for who pays is the payer, where both are said. Only EVM has
// one way to say it.
func (s Submission) isPayer(said string) bool {
	isKnown := strings.HasPrefix(s.Payer, "0x") && strings.HasPrefix(said, "0x")
	return !isKnown || strings.EqualFold(s.Payer, said)
}

// uncertainReasons are those after which the money may have moved or may still move: the same
// payment is being settled, a confirmation did not come in time, the facilitator broke off in the
// middle. So do usedReasons.
var uncertainReasons = []string{"pending", "timed out", "timeout", "post settlement",
	"transfer event mismatch", "unexpected settle error", "node failure"}

// usedReasons say that the payment is used or being used, whoever did that. Facilitators also pass
// on what the chain said: the last four.
var usedReasons = []string{"nonce already used", "nonce used", "duplicate settlement", "already settled",
	"authorization is used", "already been processed", "already processed"}

func isUncertain(reason string) bool { return contains(reason, uncertainReasons) || isUsed(reason) }

func isUsed(reason string) bool { return contains(reason, usedReasons) }

// contains finds one of parts in a reason, however its words are joined.
func contains(reason string, parts []string) bool {
	reason = strings.NewReplacer("_", " ", "-", " ").Replace(strings.ToLower(reason))
	return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(reason, part) })
}

// Verdict is what a facilitator says of a payment before it settles it.
type Verdict struct {
	Valid  bool
	Reason string                     // the facilitator's own word, bounded
	Extra  map[string]json.RawMessage // what its scheme says besides; of batch-settlement the channel
}

// Verify asks whether a payment would settle. It shows the signed payment to the first facilitator
// that answers, so it is for payments that are meant to go there.
func (c *Client) Verify(ctx context.Context, s Submission) (v Verdict, err error) {
	body, err := s.body()
	if err != nil {
		return v, err
	}
	var failures []string
	for f := range c.route(ctx, s) {
		short, cancel := context.WithTimeout(ctx, f.short())
		short, step := begin(short, f, "verify")
		reply := c.call(short, f, http.MethodPost, "verify", nil, body)
		cancel()
		var answer struct {
			IsValid *bool                      `json:"isValid"`
			Reason  string                     `json:"invalidReason"`
			Message string                     `json:"invalidMessage"`
			Payer   string                     `json:"payer"`
			Extra   map[string]json.RawMessage `json:"extra"`
		}
		if reply.err == nil {
			reply.err = x402.DecodeStrict(reply.body, maxReply, &answer)
		}
		step.Answered(reply.status)
		if reply.err == nil && !s.isPayer(answer.Payer) {
			reply.err = fmt.Errorf("its verdict is of a payment of %s", x402.Quote(answer.Payer))
		}
		isVerdict := reply.err == nil && answer.IsValid != nil && (!*answer.IsValid || reply.status < 300)
		step.EndAs(codeIf(!isVerdict))
		if isVerdict {
			return Verdict{Valid: *answer.IsValid, Extra: answer.Extra,
				Reason: x402.Brief(strings.TrimSpace(answer.Reason + " " + answer.Message))}, nil
		}
		if reply.err == nil {
			reply.err = fmt.Errorf("status %d without a verdict", reply.status)
		}
		failures = append(failures, f.Name+": "+reply.err.Error())
	}
	return v, x402.Errorf(x402.FacilitatorError, "no facilitator could verify the payment").
		WithDetail("tries", failures)
}
