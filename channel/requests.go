package channel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"x402-wallet/history"
	"x402-wallet/pay"
	"x402-wallet/seller"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// underWay is the call that is being made, on disk before it is: should its answer be lost, the
// service will propose its cost with the next call, and this is what it may be.
type underWay struct {
	Method    string       `json:"method"`
	URL       string       `json:"url"`
	MaxAmount money.Amount `json:"maxAmount"`
}

// Call makes one payable call (seed 003's request manager): one at a time for each channel, in all
// processes of the wallet, and with one repetition where the service wants an earlier call paid
// first. Its order of steps is that of pay.Engine.Pay: what the call may cost is decided before it
// is made; its cost is held before it is signed for; what was signed is on disk, and the ledger
// marked, before it leaves, which is with the call after this one. Errors are *x402.Error.
func (m *Manager) Call(ctx context.Context, server string, q pay.Request) (result pay.Result, err error) {
	c := pay.Charge{Request: q}
	if err := m.Engine.CheckCharge(&c); err != nil {
		return result, err
	}
	if err := m.Transport.Check(c.Request.Request); err != nil {
		return result, err
	}
	ctx, cancel := context.WithTimeout(ctx, m.Engine.Policy.Deadline)
	defer cancel()
	p, err := m.place(ctx, server)
	if err != nil {
		return result, err
	}
	give, err := m.turn(ctx, p)
	if err != nil {
		return result, err
	}
	defer give()
	c.Network, c.PayTo = p.network, p.payee.DID()
	if result, done, err := m.Engine.Earlier(ctx, c); done || err != nil {
		return result, err
	}
	if err := m.Guard.CheckConfig(ctx); err != nil {
		return result, err
	}
	r, err := m.ready(ctx, p)
	if errors.Is(err, errUnopened) {
		if err := m.open(ctx, p, money.Amount{}); err != nil {
			return result, err
		}
		r, err = m.ready(ctx, p)
	}
	if err != nil {
		return result, m.unready(err)
	}
	call := &call{m: m, r: r, charge: m.charge(r, c.Request), ref: uuid()}
	result, err = call.make(ctx)
	return result, call.spent(err)
}

func (m *Manager) unready(err error) error {
	if errors.Is(err, errUnopened) {
		return x402.Errorf(x402.OutcomeUnknown, "the channel was opened and is not there yet").WithHint(
			"make the call again in a moment")
	}
	return err
}

func (m *Manager) turn(ctx context.Context, p *place) (func(), error) {
	give, err := m.Store.LockChannel(ctx, p.payee.DID(), p.keyID())
	if err != nil && ctx.Err() != nil {
		return nil, x402.Errorf(x402.Timeout, "other calls on this channel took too long").WithHint(
			"calls on one channel are made one after the other; try again")
	}
	return give, err
}

// call is one call on its way.
type call struct {
	m      *Manager
	r      *ready
	charge pay.Charge
	ref    string        // clientTxRef: the same for the repetition
	most   *money.Amount // what it may cost; nil: none is being made, an earlier one is recovered
	before *underWay     // an earlier call, whose answer never came; nil: none is known
	paid   *pay.Held     // for an earlier call, before this one was served; nil: nothing
}

func (c *call) make(ctx context.Context) (result pay.Result, err error) {
	most, err := c.room(ctx)
	if err != nil {
		return result, err
	}
	c.most = &most
	if err := c.begin(ctx); err != nil {
		return result, err
	}
	for tries := 0; ; tries++ {
		answer, err := c.send(ctx)
		if err != nil {
			return result, c.unanswered(ctx, err)
		}
		p := answer.paid
		switch {
		case p == nil || p.Error == nil:
			return c.answered(ctx, answer)
		case tries == 0 && (p.Error.Code == codePaymentRequired || p.Error.Code == codeConflict):
			if err := c.settle(ctx, p); err != nil {
				c.unserved(ctx)
				return result, err
			}
		default:
			return result, c.declined(ctx, p)
		}
	}
}

// room is the most that the call may cost. A person who said yes to the caller's offer made it
// more.
func (c *call) room(ctx context.Context) (money.Amount, error) {
	c.charge.UpTo = c.charge.Offered()
	return c.m.Engine.MaxPrice(ctx, c.charge)
}

// begin puts the call on disk before it is made. A promise that leaves with it was on disk before;
// the ledger's mark is too.
func (c *call) begin(ctx context.Context) error {
	if err := c.m.Guard.VerifySeals(ctx); err != nil {
		return err
	}
	now := c.now()
	if before := new(underWay); c.r.row.Call != nil && json.Unmarshal(c.r.row.Call, before) == nil {
		if c.before = before; before.MaxAmount.Cmp(now.MaxAmount) > 0 {
			// its cost is still to come, should this answer be lost too
			now = *before
		}
	}
	var err error
	if c.r.row.Call, err = compact(now); err != nil {
		return err
	}
	if err := c.m.Store.SaveChannel(ctx, c.r.row); err != nil {
		return err
	}
	return c.m.Guard.Checkpoint(ctx)
}

func (c *call) now() underWay {
	return underWay{Method: c.charge.Method, URL: c.charge.URL, MaxAmount: *c.most}
}

func (c *call) send(ctx context.Context) (reply, error) {
	payload := requestPayload{Version: payloadVersion, ClientTxRef: c.ref, MaxAmount: c.most.String()}
	if c.r.row.Signed != nil && !c.r.row.Known {
		payload.Signed = new(Signed)
		if err := json.Unmarshal(c.r.row.Signed, payload.Signed); err != nil {
			return reply{}, fmt.Errorf("read our last promise: %w", err)
		}
	}
	return c.r.adapter(c.charge.Method).Send(ctx, c.m.authorize(c.r.place), c.charge.Request.Request, payload)
}

// unanswered is a call without an answer that can be read. It may have been served: its cost then
// comes with the next call.
func (c *call) unanswered(ctx context.Context, err error) error {
	coded := x402.AsError(err)
	if unsent(err) || slices.Contains([]x402.Code{x402.InvalidArgument, x402.ToolNotFound, x402.WalletLocked},
		coded.Code) {
		// nothing ran
		c.over(ctx)
		return coded
	}
	c.m.forget(c.r.server)
	coded.Unsafe = true
	return coded.WithDetail("mayCost", *c.most)
}

// unserved says that this call was not made after all: the one before it may still be to come.
func (c *call) unserved(ctx context.Context) {
	c.r.row.Call = nil
	if c.before != nil {
		c.r.row.Call, _ = compact(*c.before) // it was read from there
	}
	c.save(ctx)
}

// over says that no call is under way any more, whose cost is still to come.
func (c *call) over(ctx context.Context) {
	c.r.row.Call = nil
	c.save(ctx)
}

func (c *call) save(ctx context.Context) {
	if err := c.m.Store.SaveChannel(context.WithoutCancel(ctx), c.r.row); err != nil {
		c.m.Log.Error("note that a call is over", "service", c.r.row.Service, "err", err)
	}
}

// settle does what the service wants before it serves: a promise for an earlier call, whose answer
// was lost. Where nothing is known of one it is paid out of what this call may cost: whoever makes
// this one offered no more.
func (c *call) settle(ctx context.Context, p *responsePayload) error {
	row := &c.r.row
	switch {
	case p.SubRAV == nil && row.Signed != nil && !row.Known: // it has our last promise, and wants none
		row.Known = true
		return c.m.Store.SaveChannel(ctx, *row)
	case p.SubRAV == nil:
		return c.declined(ctx, p)
	case row.Signed != nil && p.SubRAV.Nonce == row.Nonce: // it lost our last promise
		var last Signed
		if err := json.Unmarshal(row.Signed, &last); err != nil || last.SubRAV != *p.SubRAV {
			return c.m.refuse(ctx, c.r, p, wrong("nonce", row.Nonce+1, p.SubRAV.Nonce))
		}
		row.Known = false
		return c.m.Store.SaveChannel(ctx, *row)
	}
	charge, b := c.charge, bounds{Most: c.most}
	if c.before != nil {
		charge.Method, charge.URL, charge.Body, b.Most = c.before.Method, c.before.URL, []byte("{}"),
			&c.before.MaxAmount
	}
	charge.IdempotencyKey, charge.UpTo = "", nil
	held, err := c.promise(ctx, charge, p, b, nil)
	if held != nil {
		c.paid = held
		held.End(false)
		c.m.Engine.Abandoned(ctx, held.Payment)
	}
	return err
}

// spent adds to an error what was paid for an earlier call before.
func (c *call) spent(err error) error {
	if err == nil || c.paid == nil {
		return err
	}
	told := *x402.AsError(err)
	sum, _ := money.ParseAmount(told.Spent)
	sum, _ = sum.Add(c.paid.Payment.Amount)
	told.Spent = sum.String()
	return told.WithDetail("paidForAnEarlierCall", c.paid.Payment.ID)
}

// promise takes the channel one call further: guard, hold, sign, and put on disk. After an error
// nothing was signed, or what was signed is nowhere. What the service proposes and is refused is
// kept as evidence. bought nil: it is for a call whose answer was lost, and another one is under
// way.
func (c *call) promise(ctx context.Context, charge pay.Charge, p *responsePayload, b bounds,
	bought *history.Content) (held *pay.Held, err error) {
	b.Hub, b.Paid = c.r.hub, c.r.paid
	delta, err := guard(*p.SubRAV, c.r.terms, c.r.last, b)
	if err != nil {
		if p.SubRAV.Nonce <= c.r.row.Nonce { // it has forgotten, or pretends to: the next call reminds it
			c.r.row.Known = false
			c.over(ctx)
		}
		return nil, c.m.refuse(ctx, c.r, p, err)
	}
	ctx = context.WithoutCancel(ctx) // the service has served, and waits for its money
	if charge.Requirement, err = compact(p.SubRAV); err != nil {
		return nil, err
	}
	charge.Amount = delta
	maySign, id := c.m.Guard.VerifySeals, ""
	if !delta.IsZero() {
		if held, err = c.m.Engine.HoldCharge(ctx, charge); err != nil {
			return nil, c.m.refuse(ctx, c.r, p, err)
		}
		maySign, id = held.MaySign, held.Payment.ID
	}
	next, err := c.sign(ctx, *p.SubRAV, maySign)
	if next.Call = nil; err == nil && bought == nil && c.most != nil {
		if c.before == nil {
			left := c.most.SubFloor(delta)
			c.most = &left
		}
		next.Call, err = compact(c.now())
	}
	if err == nil {
		var paid history.Payment
		if paid, err = c.m.Store.RecordVoucher(ctx, id, c.m.signed(c.r, next, charge), next,
			outcome(p, bought)); err == nil {
			if held != nil {
				held.Payment = paid
			}
			c.r.row, c.r.last = next, baseline{next.Nonce, next.Amount}
			c.before = nil
			return held, c.m.Guard.Checkpoint(ctx)
		}
	}
	if held != nil {
		err = held.Release(ctx, err)
		held.End(false)
	}
	return nil, err
}

// sign is the channel with one promise more, which is nowhere yet.
func (c *call) sign(ctx context.Context, s SubRAV, may func(context.Context) error) (next history.Channel,
	err error) {
	if err := may(ctx); err != nil {
		return next, err
	}
	signature, err := c.m.Keys.SignSubRAV(ctx, c.r.key, s)
	if err != nil {
		return next, err
	}
	next = c.r.row
	next.Nonce, next.Amount, next.Known = s.Nonce, s.Amount, false
	next.Signed, err = compact(Signed{s, multibase(signature)})
	return next, err
}

// signed is a promise as the ledger keeps it.
func (m *Manager) signed(r *ready, row history.Channel, charge pay.Charge) history.Signed {
	evidence := x402.Evidence{Network: r.network, Asset: RGas, Payer: r.keyID(), PayTo: charge.PayTo,
		Amount: charge.Amount,
		Nonce:  decimal(row.Nonce), Source: row.ID, Memo: row.Amount.String() + " in all, epoch " +
			decimal(row.Epoch)}
	return history.Signed{Payload: row.Signed, Requirement: charge.Requirement, Evidence: evidence,
		UniqueKey: r.network + " " + row.ID + " " + r.keyID() + " " + decimal(row.Epoch) + " " +
			decimal(row.Nonce)}
}

// outcome is a charge that its seller named and that was promised: settled, by claim, until the
// chain shows that it was taken.
func outcome(p *responsePayload, bought *history.Content) history.Outcome {
	receipt, _ := compact(map[string]string{"clientTxRef": x402.Brief(p.ClientTxRef),
		"serviceTxRef": x402.Brief(p.ServiceTxRef), "costUsd": x402.Brief(p.CostUSD)})
	o := history.Outcome{State: history.Settled, Proof: history.Claimed, Receipt: receipt, Content: bought,
		ReleaseLease: true}
	if bought == nil {
		o.Note = "its answer was lost; the service asked for its cost with the next call"
	}
	return o
}

// answered is a call that was served, or failed on its own.
func (c *call) answered(ctx context.Context, answer reply) (result pay.Result, err error) {
	p, sent := answer.paid, c.r.row.Signed != nil && !c.r.row.Known
	if p == nil || p.SubRAV == nil && (p.Cost == nil || p.Cost.IsZero()) {
		// it costs nothing, and took what it was given
		c.r.row.Known = c.r.row.Known || sent && !answer.failed
		c.over(ctx)
		if answer.failed {
			return result, toolFailed(answer.answer)
		}
		return c.m.Engine.Free(ctx, answer.answer), nil
	}
	if p.SubRAV == nil || p.Cost == nil {
		why := x402.Errorf(x402.InvalidRequirement,
			"the service names a cost without a proposal, or a proposal without its cost: nothing was signed")
		return result, c.m.refuse(ctx, c.r, p, why)
	}
	bought := &history.Content{Status: http.StatusOK, Type: answer.answer.ContentType,
		Truncated: answer.answer.Truncated, Body: answer.answer.Content}
	held, err := c.promise(ctx, c.charge, p, bounds{Cost: p.Cost, Most: c.most}, bought)
	if held != nil {
		held.End(err == nil && ctx.Err() == nil)
		if err != nil || ctx.Err() != nil {
			c.m.Engine.Abandoned(ctx, held.Payment)
		}
	}
	switch {
	case err != nil:
		return result, err
	case answer.failed:
		e := x402.AsError(toolFailed(answer.answer))
		e.Spent, e.Unsafe = p.Cost.String(), true
		if held != nil {
			e.PaymentID = held.Payment.ID
		}
		return result, e
	case held == nil:
		return c.m.Engine.Free(ctx, answer.answer), nil
	}
	return c.m.Engine.Bought(context.WithoutCancel(ctx), held.Payment, answer.answer), nil
}

func toolFailed(a *seller.Answer) error {
	text := string(a.Content)
	return x402.Errorf(x402.ToolExecutionFailed, "the service failed with status %d", a.Status).
		WithHint("look at details.said; other arguments may help").WithDetail("said", x402.Quote(text))
}

// declined is a call that the service does not serve, or does not take the payment for.
func (c *call) declined(ctx context.Context, p *responsePayload) error {
	c.m.forget(c.r.server)
	code, said := p.Error.Code, x402.Quote(p.Error.Message)
	if code == codeMaxExceeded { // it ran the tool, and asks nothing for that; it looked at our promise first
		c.r.row.Known = true
		c.over(ctx)
		return c.tooDear(ctx)
	}
	e := x402.Errorf(x402.PaymentRejected, "the service refuses the call: %s", x402.Brief(code))
	switch code {
	case codeHubFunds:
		e.Code, e.Hint = x402.InsufficientFunds, "the owner has to put more into the payment hub"
	case codeContextMissing:
		e.Hint = "the service does not know the caller: the DID document, the key in it, or this " +
			"machine's clock is not what it expects"
	case codeConflict, codePaymentRequired:
		e.Hint = "wallet and service do not agree on what was promised; the owner can look: x402-wallet " +
			"channel show"
	default:
		e.Hint = "try again later"
	}
	return e.WithDetail("service", x402.Brief(code)).WithDetail("said", said)
}

// tooDear says what kept the call from costing more. Where the caller offered more than is paid
// without asking, a person is asked.
func (c *call) tooDear(ctx context.Context) error {
	if offered := c.charge.UpTo; offered != nil && offered.Cmp(*c.most) > 0 {
		if err := c.m.Engine.AskAbout(ctx, c.charge); err != nil {
			return err
		}
	}
	return x402.Errorf(x402.AmountExceedsMax, "the call costs more than the %s (%s units) that it was "+
		"allowed to", c.charge.Asset.Dollars(*c.most).Price(), *c.most).
		WithHint("nothing was paid for it; the same call with a higher maxAmount passes, if it is worth "+
			"that and the owner's rules let it").
		WithDetail("maxAmount", *c.most)
}
