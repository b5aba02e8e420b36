package buyer

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"x402-wallet/x402"
)

// EventType says what happened to a payment.
type EventType string

// The events of one payment, in their order: an attempt, then a success or a failure. A call that could not be signed for is a
// failure without an attempt.
const (
	Attempt EventType = "attempt" // signed, about to be sent
	Success EventType = "success" // the answer came, and no word against the payment
	Failure EventType = "failure" // refused, or nobody knows
)

// Event is what a program is told.
type Event struct {
	Type        EventType
	Time        time.Time
	Method      string // "tools/call", "resources/read", "prompts/get"
	Name        string // of the tool or prompt, or the resource's URI
	Option      Option // zero when none was chosen
	Payer       string
	Transaction string // as the server's receipt says; "" without one
	Again       bool   // a payment that was sent before
	Duration    time.Duration
	Err         error
}

// payment is signed and may have been sent.
type payment struct {
	option  Option
	dialect x402.Dialect
	payload json.RawMessage
	payer   string
	expires time.Time
}

// buy is the life of one call: ask, choose, hold, sign, send once, judge. send sends the request with a _meta.
func buy[R mcp.Result](ctx context.Context, s *Session, method, name string, params mcp.Params, send func(context.Context, mcp.Meta) (R, error)) (R, error) {
	var none R
	b := call{Session: s, ctx: ctx, event: Event{Method: method, Name: name}, started: s.options.Now()}
	given := maps.Clone(mcp.Meta(params.GetMeta()))
	key, err := requestKey(method, params)
	if err != nil {
		return none, err
	}

	p, again := s.takeOpen(key)
	if !again {
		result, err := send(ctx, given)
		c, broken := challenge(result, err)
		if broken != nil {
			return none, broken
		}
		if c == nil {
			return result, err
		}
		if p, err = b.sign(c); err != nil {
			return none, b.fail(err)
		}
	}
	b.event.Option, b.event.Payer, b.event.Again = p.option, p.payer, again
	b.tell(Attempt)
	meta := given
	if meta == nil {
		meta = mcp.Meta{}
	}
	for at, value := range x402.Attach(p.dialect, p.payload).Meta {
		meta[at] = value
	}
	result, err := send(ctx, meta)
	settlement, served, failure := judge(p, result, err)
	if settlement != nil {
		b.event.Transaction = settlement.Transaction
	}
	settled := settlement != nil && settlement.Success
	if !settled && !served {
		s.leaveOpen(key, p)
	}
	if failure != nil {
		return none, b.fail(failure)
	}
	b.tell(Success)
	return result, err
}

// requestKey names a request, whatever its _meta: a progress token differs from call to call.
func requestKey(method string, params mcp.Params) (string, error) {
	text, err := json.Marshal(params)
	if err != nil {
		return "", err
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return "", err
	}
	delete(members, "_meta")
	text, err = json.Marshal(members)
	return method + " " + string(text), err
}

// call is one call under way.
type call struct {
	*Session
	ctx     context.Context //nolint:containedctx // lives as long as the call
	event   Event
	started time.Time
}

func (b *call) tell(t EventType) {
	if b.options.Event == nil {
		return
	}
	e := b.event
	e.Type, e.Time = t, b.options.Now()
	e.Duration = e.Time.Sub(b.started)
	b.options.Event(e)
}

func (b *call) fail(err error) error {
	b.event.Err = err
	b.tell(Failure)
	return err
}

// sign tries the options in their order until one is signed. Nothing leaves.
func (b *call) sign(c *x402.Challenge) (payment, error) {
	if !c.Dialect.MCP() {
		return payment{}, x402.Errorf(x402.NoRequirements, "the server asks in a way that is not MCP's")
	}
	options, err := b.choices(b.ctx, c)
	if err != nil {
		return payment{}, err
	}
	var why error // of the best option
	for _, o := range options {
		if b.event.Option = o; b.options.Approve != nil {
			if err := b.options.Approve(b.ctx, b.event.Name, o); err != nil {
				return payment{}, &x402.Error{Code: x402.ApprovalDeclined, Message: "the payment was not approved: " + err.Error(), Err: err}
			}
		}
		p, err := b.authorize(c, o)
		if err == nil {
			return p, nil
		}
		if why == nil {
			why = x402.AsError(err)
		}
	}
	return payment{}, why
}

// authorize holds the price and has the option's signer sign.
func (b *call) authorize(c *x402.Challenge, o Option) (p payment, err error) {
	if err := b.hold(o.Price); err != nil {
		return p, err
	}
	defer func() {
		if err != nil {
			b.release(o.Price)
		}
	}()
	signer := b.options.Signers[o.Signer]
	funds, err := fundsOf(b.ctx, signer, &o)
	if err != nil {
		return p, err
	}
	a, err := signer.Authorize(b.ctx, x402.Order{
		Requirement: o.Requirement, Asset: o.Asset, Source: funds.Source,
		Validity: min(o.Requirement.MaxTimeout, b.options.Validity), Now: b.options.Now(),
	})
	if err != nil {
		return p, err
	}
	payload, err := x402.EncodePayload(c, o.Requirement, a.Payload, nil)
	return payment{o, o.Requirement.Dialect, payload, a.Evidence.Payer, a.Evidence.ExpiresAt}, err
}

// challenge is what an unpaid answer asks for; nil when it asks for nothing.
func challenge(result mcp.Result, err error) (*x402.Challenge, error) {
	m, ok := message(result, err)
	if !ok {
		return nil, nil
	}
	return x402.ReadMCPChallenge(m)
}

// message is an answer as x402 reads it. ok is false where there is none.
func message(result mcp.Result, err error) (m x402.MCPMessage, ok bool) {
	var refused *jsonrpc.Error
	if errors.As(err, &refused) {
		return x402.MCPMessage{Code: refused.Code, Data: refused.Data}, true
	}
	if err != nil {
		return m, false
	}
	m.Result, err = json.Marshal(result)
	return m, err == nil
}

// judge says what the answer to a payment means. A failure leaves the payment open, because a signed payment is good until it expires.
//
//	what came back                              settlement   served   failure
//	no answer                                   –            no       OUTCOME_UNKNOWN
//	receipt: success                            it           yes      –
//	receipt: failure                            it           no       SETTLEMENT_FAILED
//	asks again, on the same terms               –            no       PAYMENT_REJECTED
//	asks again, on other terms                  –            no       PRICE_CHANGED
//	another JSON-RPC error                      –            no       PAYMENT_REJECTED
//	a tool's own failure, no receipt            –            no       – (the result says it)
//	an answer without a receipt                 –            yes      –
func judge(p payment, result mcp.Result, err error) (settlement *x402.Settlement, served bool, failure *x402.Error) {
	m, ok := message(result, err)
	if !ok {
		return nil, false, open(p, x402.OutcomeUnknown, "the payment was sent, and no answer came", err)
	}
	settlement, _ = x402.ReadMCPSettlement(m) // one that cannot be read is none
	if settlement != nil && settlement.Success {
		return settlement, true, nil
	}
	if settlement != nil {
		return settlement, false, open(p, x402.SettlementFailed, "the server says that the settlement failed", err)
	}
	switch c, bad := x402.ReadMCPChallenge(m); {
	case c != nil && !asksTheSame(c, p):
		return nil, false, open(p, x402.PriceChanged, "the server asks for something else after it was paid", err)
	case c != nil || bad != nil || err != nil:
		return nil, false, open(p, x402.PaymentRejected, "the server refused the payment", err)
	}
	tool, isTool := result.(*mcp.CallToolResult)
	return nil, !isTool || !tool.IsError, nil
}

func asksTheSame(c *x402.Challenge, p payment) bool {
	for _, r := range c.Accepts {
		if o := p.option.Requirement; r.AssetKey() == o.AssetKey() && r.Amount == o.Amount && r.PayTo == o.PayTo {
			return true
		}
	}
	return false
}

// open is the error of a payment of which it is not known what became of it.
func open(p payment, code x402.Code, message string, cause error) *x402.Error {
	e := x402.Errorf(code, "%s", message).WithDetail("amount", p.option.Requirement.Amount).WithDetail("price", p.option.Price.Price()).
		WithHint("the very same call presents the same signed payment again and cannot pay twice")
	e.Spent, e.Err = p.option.Requirement.Amount.String(), cause
	return e
}

// grace is how long after its expiry a payment may still show up as settled: blocks carry their own time.
const grace = 2 * time.Minute

// takeOpen takes up a payment that was sent for the same request, and that may still be settled. One that has expired stays
// counted in the total: whether it was settled is not known here.
func (s *Session) takeOpen(key string) (payment, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for list := s.open[key]; len(list) > 0; {
		p := list[0]
		list = list[1:]
		if s.open[key] = list; len(list) == 0 {
			delete(s.open, key)
		}
		if s.options.Now().Before(p.expires.Add(grace)) {
			return p, true
		}
	}
	return payment{}, false
}

func (s *Session) leaveOpen(key string, p payment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[key] = append(s.open[key], p)
}
