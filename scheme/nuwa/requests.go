package nuwa

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"x402-wallet/history"
	"x402-wallet/pay"
	"x402-wallet/seller"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// pendingCall is the call that is being made, on disk before it is: should its answer be lost, the
// service will propose its cost with the next call, and this is what it may be.
type pendingCall struct {
	Method    string       `json:"method"`
	URL       string       `json:"url"`
	MaxAmount money.Amount `json:"maxAmount"`
}

// readPending is the call that was being made when the row was written; nil: none is known.
func readPending(row history.Channel) *pendingCall {
	var p pendingCall
	if row.PendingCall == nil || json.Unmarshal(row.PendingCall, &p) != nil {
		return nil
	}
	return &p
}

// Buy makes one payable call: one at a time for each channel, in all processes of the wallet, and
// with one repetition where the service wants an earlier call paid first. Its order of steps is
// that of pay.Engine.Pay: what the call may cost is decided before it is made; its cost is held
// before it is signed for; what was signed is on disk, and the ledger marked, before it leaves,
// which is with the call after this one. Errors are *x402.Error.
func (m *Manager) Buy(ctx context.Context, server string, charge pay.Charge) (result pay.Result, err error) {
	ctx, cancel := context.WithTimeout(ctx, m.Engine.Policy.Deadline)
	defer cancel()
	err = m.with(ctx, server, func(s *service) error {
		charge := charge.At(s.node.Network, s.payee.did())
		earlier, done, err := m.Engine.Earlier(ctx, charge)
		if done || err != nil {
			result = earlier
			return err
		}
		if err := m.Guard.CheckConfig(ctx); err != nil {
			return err
		}
		r, err := m.readyOrOpen(ctx, s)
		if err != nil {
			return err
		}
		c := &call{m: m, r: r, charge: m.charge(r, charge), ref: uuid()}
		result, err = c.make(ctx)
		return c.addEarlier(err)
	})
	return result, err
}

// readyOrOpen is ready, and opens the channel where it is not open.
func (m *Manager) readyOrOpen(ctx context.Context, s *service) (*readyChannel, error) {
	r, err := m.ready(ctx, s)
	if !errors.Is(err, errUnopened) {
		return r, err
	}
	if err := m.open(ctx, s, money.Amount{}); err != nil {
		return nil, err
	}
	r, err = m.ready(ctx, s)
	if errors.Is(err, errUnopened) {
		return nil, x402.Errorf(x402.OutcomeUnknown, "the channel was opened and is not there yet").
			WithHint("make the call again in a moment")
	}
	return r, err
}

type call struct {
	m       *Manager
	r       *readyChannel
	charge  pay.Charge
	ref     string        // clientTxRef: the same for the repetition
	max     *money.Amount // what it may cost; nil: none is being made, an earlier one is recovered
	ceiling pay.Ceiling   // where max comes from
	before  *pendingCall  // an earlier call, whose answer never came; nil: none is known
	earlier *pay.Purchase // what was paid for an earlier call, before this one was served; nil: nothing
}

func (c *call) make(ctx context.Context) (result pay.Result, err error) {
	c.charge, c.ceiling, err = c.m.Engine.Ceiling(ctx, c.charge)
	if err != nil {
		return result, err
	}
	c.max = &c.ceiling.Most
	if err := c.recordStart(ctx); err != nil {
		return result, err
	}
	const repetitions = 1
	for tries := 0; ; tries++ {
		answer, err := c.send(ctx)
		if err != nil {
			return result, c.unanswered(ctx, err)
		}
		p := answer.paid
		if p == nil || p.Error == nil {
			return c.answered(ctx, answer)
		}
		wantsEarlier := p.Error.Code == codePaymentRequired || p.Error.Code == codeConflict
		if !wantsEarlier || tries == repetitions {
			return result, c.declined(ctx, p)
		}
		if err := c.payEarlier(ctx, p); err != nil {
			c.recordEnd(ctx, c.before)
			return result, err
		}
	}
}

// recordStart puts the call on disk before it is made. A SubRAV that leaves with it was on disk
// before; the ledger's checkpoint is too.
func (c *call) recordStart(ctx context.Context) error {
	if err := c.m.Guard.VerifySeals(ctx); err != nil {
		return err
	}
	pending := c.pending()
	c.before = readPending(c.r.row)
	if c.before != nil && c.before.MaxAmount.Cmp(pending.MaxAmount) > 0 {
		pending = *c.before // its cost is still to come, should this answer be lost too
	}
	var err error
	c.r.row.PendingCall, err = compact(pending)
	if err != nil {
		return err
	}
	if err := c.m.Store.SaveChannel(ctx, c.r.row); err != nil {
		return err
	}
	return c.m.Guard.Checkpoint(ctx)
}

func (c *call) pending() pendingCall {
	q := c.charge.Request()
	return pendingCall{Method: q.Method, URL: q.URL, MaxAmount: *c.max}
}

func (c *call) send(ctx context.Context) (reply, error) {
	payload := requestPayload{Version: payloadVersion, ClientTxRef: c.ref, MaxAmount: c.max.String()}
	if c.r.row.Signed != nil && !c.r.row.Delivered {
		payload.Signed = new(signedSubRAV)
		if err := json.Unmarshal(c.r.row.Signed, payload.Signed); err != nil {
			return reply{}, fmt.Errorf("read our last SubRAV: %w", err)
		}
	}
	q := c.charge.Request()
	return c.r.adapter(q.Method).send(ctx, c.m.tokens(c.r.service), q, payload)
}

// nothingPaid adds to why a call may not cost more that it cost nothing, though the service ran it.
func nothingPaid(why error) error {
	e := *x402.AsError(why)
	return e.WithHint("nothing was paid for it; %s", e.Hint)
}

// unanswered is a call without an answer that can be read. It may have been served: its cost then
// comes with the next call.
func (c *call) unanswered(ctx context.Context, err error) error {
	coded := x402.AsError(err)
	nothingRan := []x402.Code{x402.InvalidArgument, x402.ToolNotFound, x402.WalletLocked}
	send, ok := errors.AsType[*seller.SendError](err)
	notSent := ok && !send.Sent // provably nothing of the call left
	if notSent || slices.Contains(nothingRan, coded.Code) {
		c.recordEnd(ctx, nil)
		return coded
	}
	c.m.services.Delete(c.r.server) // it is discovered again
	coded.Unsafe = true
	return coded.WithDetail("mayCost", dollars(*c.max))
}

// recordEnd says that this call is over, or was not made after all. The cost of the one before it
// may still be to come.
func (c *call) recordEnd(ctx context.Context, before *pendingCall) {
	c.r.row.PendingCall = nil
	if before != nil {
		c.r.row.PendingCall, _ = compact(*before) // it was read from there
	}
	if err := c.m.Store.SaveChannel(context.WithoutCancel(ctx), c.r.row); err != nil {
		c.m.Log.Error("note that a call is over", "service", c.r.row.Service, "err", err)
	}
}

// payEarlier does what the service wants before it serves: a SubRAV for an earlier call, whose
// answer was lost. Where nothing is known of that call it is paid out of what this one may cost:
// whoever makes this one offered no more.
func (c *call) payEarlier(ctx context.Context, p *responsePayload) error {
	row := &c.r.row
	switch {
	case p.SubRAV == nil && row.Signed != nil && !row.Delivered: // it has our last SubRAV, and wants none
		row.Delivered = true
		return c.m.Store.SaveChannel(ctx, *row)
	case p.SubRAV == nil:
		return c.declined(ctx, p)
	case row.Signed != nil && p.SubRAV.Nonce == row.Nonce: // it lost our last SubRAV
		var last signedSubRAV
		if err := json.Unmarshal(row.Signed, &last); err != nil || last.SubRAV != *p.SubRAV {
			return c.m.refuse(ctx, c.r, p, wrong("nonce", row.Nonce+1, p.SubRAV.Nonce))
		}
		row.Delivered = false
		return c.m.Store.SaveChannel(ctx, *row)
	}
	charge, b := c.charge.WithoutKey(), bounds{MaxCost: c.max}
	if c.before != nil {
		charge = charge.ForEarlier(c.before.Method, c.before.URL)
		b.MaxCost = &c.before.MaxAmount
	}
	held, err := c.pay(ctx, charge, p, b, nil)
	if held != nil {
		c.earlier = held
		held.End(false)
		held.Abandon(ctx)
	}
	return err
}

// addEarlier adds to an error what was paid for an earlier call before.
func (c *call) addEarlier(err error) error {
	if err == nil || c.earlier == nil {
		return err
	}
	coded := *x402.AsError(err)
	sum, _ := money.ParseAmount(coded.Spent)
	sum, _ = sum.Add(c.earlier.Payment.Amount)
	coded.Spent = sum.String()
	return coded.WithDetail("paidForAnEarlierCall", c.earlier.Payment.ID)
}

// pay takes the channel one SubRAV further: guard, hold, sign, and put on disk. After an error
// nothing was signed, or what was signed is nowhere. A proposal that is refused is kept as
// evidence. bought nil: it is for a call whose answer was lost, and another one is under way.
//
// A SubRAV is signed when its cost is proposed, and leaves with the next call, after the ledger's
// checkpoint: after a crash the same bytes go out.
func (c *call) pay(ctx context.Context, charge pay.Charge, p *responsePayload, b bounds,
	bought *history.Content) (held *pay.Purchase, err error) {
	b.Hub, b.Claimed = c.r.hub, c.r.claimed
	cost, err := guard(*p.SubRAV, c.r.last, b)
	if x402.HasCode(err, x402.AmountExceedsMax) && b.MaxCost == c.max { // it is this call's limit that is met
		err = c.overCost(ctx, err)
	}
	if err != nil {
		if p.SubRAV.Nonce <= c.r.row.Nonce { // it has forgotten, or pretends to: the next call reminds it
			c.r.row.Delivered = false
			c.recordEnd(ctx, nil)
		}
		return nil, c.m.refuse(ctx, c.r, p, err)
	}
	ctx = context.WithoutCancel(ctx) // the service has served, and waits for its money
	charge.Requirement, err = compact(p.SubRAV)
	if err != nil {
		return nil, err
	}
	charge.Amount = cost
	var reserved history.Payment
	here := false
	if !cost.IsZero() {
		if held, err = c.m.Engine.Reserve(ctx, charge); err != nil {
			return nil, c.m.refuse(ctx, c.r, p, err)
		}
		reserved, here = held.Payment, held.ApprovedHere()
	}
	next, err := c.sign(ctx, *p.SubRAV)
	if err == nil {
		err = c.leavePending(&next, cost, bought != nil)
	}
	var paid history.Payment
	if err == nil {
		paid, err = c.m.Guard.RecordVoucher(ctx, reserved, c.m.signed(c.r, next, charge), next,
			outcome(p, bought), here)
	}
	if err != nil {
		if held != nil {
			err = held.NotSent(ctx, err)
			held.End(false)
		}
		return nil, err
	}
	if held != nil {
		held.Payment = paid
	}
	c.r.row, c.r.last = next, *p.SubRAV
	c.before = nil
	return held, nil
}

// overCost adds to the refusal of a proposal what keeps the call from costing so much.
func (c *call) overCost(ctx context.Context, refused error) error {
	why, e := x402.AsError(c.ceiling.Over(ctx)), x402.AsError(refused)
	e.Code, e.FixedBy = why.Code, why.FixableBy()
	maps.Copy(e.Details, why.Details)
	return e.WithHint("nothing was signed; %s", why.Message).WithNext(why.NextStep())
}

// leavePending sets which call is under way when a SubRAV is recorded: none, where it was for the call
// itself. Where an earlier one of which nothing was known was paid for, this call may cost as much less.
func (c *call) leavePending(next *history.Channel, cost money.Amount, forThisCall bool) (err error) {
	next.PendingCall = nil
	if forThisCall || c.max == nil {
		return nil
	}
	if c.before == nil {
		left := c.max.SubFloor(cost)
		c.max = &left
	}
	next.PendingCall, err = compact(c.pending())
	return err
}

// sign is the channel with one SubRAV more, which is nowhere yet.
func (c *call) sign(ctx context.Context, s subRAV) (next history.Channel, err error) {
	if err := c.m.Guard.VerifySeals(ctx); err != nil {
		return next, err
	}
	signature, err := c.m.Keys.SignSubRAV(ctx, c.r.key, SubRAV(s).bytes(), SubRAV(s))
	if err != nil {
		return next, err
	}
	next = c.r.row
	next.Nonce, next.Amount, next.Delivered = s.Nonce, s.Amount, false
	next.Signed, err = compact(signedSubRAV{SubRAV: s, Signature: multibase(signature)})
	return next, err
}

// signed is a SubRAV as the ledger keeps it.
func (m *Manager) signed(r *readyChannel, row history.Channel, charge pay.Charge) history.Signed {
	nonce, epoch := decimal(row.Nonce), decimal(row.Epoch)
	return history.Signed{
		Payload: row.Signed, Requirement: charge.Requirement,
		Evidence: x402.Evidence{
			Network: r.node.Network, Asset: coinRGas, Payer: r.keyID(), PayTo: charge.PayTo,
			Amount: charge.Amount, Nonce: nonce, Source: row.ID,
			Memo: dollars(row.Amount) + " in all, epoch " + epoch,
		},
		UniqueKey: r.node.Network + " " + row.ID + " " + r.keyID() + " " + epoch + " " + nonce,
	}
}

// outcome is a charge that its seller named and that was signed for: settled, by claim, until the
// chain shows that it was taken.
func outcome(p *responsePayload, bought *history.Content) history.Outcome {
	receipt, _ := compact(map[string]string{
		"clientTxRef": x402.Brief(p.ClientTxRef), "serviceTxRef": x402.Brief(p.ServiceTxRef),
		"costUsd": x402.Brief(p.CostUSD),
	})
	o := history.Outcome{State: history.Settled, Proof: history.Claimed, Receipt: receipt, Content: bought,
		ReleaseLease: true}
	if bought == nil {
		o.Note = "its answer was lost; the service asked for its cost with the next call"
	}
	return o
}

// answered is a call that was served, or failed on its own.
func (c *call) answered(ctx context.Context, answer reply) (result pay.Result, err error) {
	p := answer.paid
	if p == nil || (p.SubRAV == nil && (p.Cost == nil || p.Cost.IsZero())) { // it asks for nothing
		return c.answeredFree(ctx, answer)
	}
	if p.SubRAV == nil || p.Cost == nil {
		why := x402.Errorf(x402.InvalidRequirement,
			"the service names a cost without a proposal, or a proposal without its cost: nothing was signed")
		return result, c.m.refuse(ctx, c.r, p, why)
	}
	bought := &history.Content{Status: http.StatusOK, Type: answer.answer.ContentType,
		Truncated: answer.answer.Truncated, Body: answer.answer.Content}
	held, err := c.pay(ctx, c.charge, p, bounds{Cost: p.Cost, MaxCost: c.max}, bought)
	if held != nil {
		waited := err == nil && ctx.Err() == nil
		held.End(waited)
		if !waited {
			held.Abandon(ctx)
		}
	}
	switch {
	case err != nil:
		return result, err
	case answer.failed:
		e := x402.Errorf(x402.ToolExecutionFailed, "the tool failed, and its service takes %s for that",
			dollars(*p.Cost)).WithDetail("said", x402.Quote(string(answer.answer.Content))).
			WithNext(x402.Next{Do: x402.Change, Why: "it was paid; the same call costs again. details.said " +
				"is the service's reason: other arguments may help"})
		e.Spent, e.Unsafe = p.Cost.String(), true
		if held != nil {
			e.PaymentID = held.Payment.ID
		}
		return result, e
	case held == nil:
		return c.m.Engine.Free(ctx, answer.answer), nil
	}
	return held.Result(context.WithoutCancel(ctx), answer.answer), nil
}

// answeredFree is a call that costs nothing. If it did not fail, the service took the SubRAV
// that came with it.
func (c *call) answeredFree(ctx context.Context, answer reply) (pay.Result, error) {
	if c.r.row.Signed != nil && !answer.failed {
		c.r.row.Delivered = true
	}
	c.recordEnd(ctx, nil)
	return c.m.Engine.Free(ctx, answer.answer), nil
}

// declined is a call that the service does not serve, or does not take the payment for.
func (c *call) declined(ctx context.Context, p *responsePayload) error {
	c.m.services.Delete(c.r.server) // it is discovered again
	if p.Error.Code == codeMaxExceeded {
		// it ran the tool, and asks nothing for that; it looked at our SubRAV first
		c.r.row.Delivered = true
		c.recordEnd(ctx, nil)
		return nothingPaid(c.ceiling.Over(ctx))
	}
	e := x402.Errorf(x402.PaymentRejected, "the service refuses the call: %s", x402.Quote(p.Error.Code))
	switch p.Error.Code {
	case codeHubFunds:
		e.Code, e.Hint = x402.InsufficientFunds, "the owner has to put more into the payment hub"
	case codeContextMissing:
		e.Hint = "the service does not know the caller: the DID document, the key in it, or this " +
			"machine's clock is not what it expects"
	case codeConflict, codePaymentRequired:
		e.Hint = "wallet and service do not agree on what was signed for; the owner can look: x402-wallet " +
			"channel show"
	default:
		e.Hint = "try again later"
	}
	return e.WithDetail("service", x402.Brief(p.Error.Code)).WithDetail("said", x402.Quote(p.Error.Message))
}
