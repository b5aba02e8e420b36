package history

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"

	"x402-wallet/x402"
)

// The last step of a payment in a fleet's ledger, by the function finish: what became of it. And who works on
// it until then, by the function lease.

// finish records what became known of a payment.
func (e *fleet) finish(ctx context.Context, id string, o Outcome, more map[string]any) (Payment, error) {
	q, body := e.ending(id, o, more)
	p, err := e.pay(ctx, `finish(?::jsonb, ?)`, q, body)
	if isViolated(err, "approvals_open") { // somebody asked while the approval was given back: now it is not
		p, err = e.pay(ctx, `finish(?::jsonb, ?)`, q, body)
	}
	if err == nil && (o.ReleaseLease || o.State == Failed) {
		e.drives(id, false)
	}
	if err != nil {
		return p, e.tell(err)
	}
	return p, nil
}

// ending are the arguments of the function finish.
func (e *fleet) ending(id string, o Outcome, more map[string]any) (detail string, body []byte) {
	if o.packed == nil {
		o.packed = o.pack()
	}
	q := map[string]any{
		"writer":       e.Writer,
		"operation":    newID("op_"),
		"id":           id,
		"state":        o.State,
		"proof":        o.Proof,
		"transaction":  o.Transaction,
		"facilitator":  o.Facilitator,
		"note":         o.Note,
		"falseReceipt": o.FalseReceipt,
		"releaseLease": o.ReleaseLease,
		"clearWaiter":  o.ReleaseLease && o.ClearWaiter,
		"detail":       toJSON(o.detail()),
	}
	if o.packed.receipt != nil {
		q["receipt"] = base64.StdEncoding.EncodeToString(o.packed.receipt)
	}
	if o.packed.chainProof != nil {
		q["chainProof"] = base64.StdEncoding.EncodeToString(o.packed.chainProof)
	}
	body = []byte{}
	if c := o.Content; c != nil {
		body = append(body, c.Body...)
		truncated := 0
		if c.Truncated {
			truncated = 1
		}
		q["content"] = map[string]any{"status": c.Status, "type": c.Type, "truncated": truncated}
		q["contentDetail"] = toJSON(contentDetail{SHA256: encodeDigest(o.packed.content[:]),
			Bytes: int64(len(body)), Status: int64(c.Status), Type: c.Type, Truncated: c.Truncated})
	}
	maps.Copy(q, more)
	return toJSON(q), body
}

// release ends a hold of which nothing was signed.
func (e *fleet) release(ctx context.Context, id, why string) error {
	o := Outcome{State: Failed, Note: why, ReleaseLease: true, ClearWaiter: true}
	_, err := e.finish(ctx, id, o, map[string]any{"release": true, "leaseOwner": e.name(),
		"detail": toJSON(map[string]string{"why": why})})
	return err
}

// expire records that what was signed can never settle, or that it came to less than was signed for.
func (e *fleet) expire(ctx context.Context, id string, asked x402.Evidence, c *Charge, o Outcome) (Payment,
	error) {
	row, err := call(ctx, e, scanPayment, selectPayment+` WHERE id = ?`, id)
	if err != nil {
		return row, none(err, errNoPayment)
	}
	if toJSON(row.Evidence) != toJSON(asked) {
		return row, corrupt("payment %s was asked after by something else than what was signed", id)
	}
	more := map[string]any{}
	switch {
	case c != nil:
		if c.Amount.Cmp(row.Amount) >= 0 || c.Worth < 0 || c.Worth > row.Price || o.State != Settled ||
			o.Proof != Chain {
			return row, fmt.Errorf("%w: %s was not proven to be charged less", ErrTransition, id)
		}
		more["charged"], more["returned"] = c.Amount.String(), int64(row.Price-c.Worth)
	case row.State == Failed:
		return row, fmt.Errorf("%w: %s is %s", ErrTransition, id, row.State)
	case row.FromOwners() && !row.Prepaid():
		return row, x402.Errorf(x402.PolicyDenied, "payment %s promised something out of a channel that an "+
			"owner funds: that counts for good", id).
			WithHint("the channel can be funded again, and then it can be claimed")
	case row.IdempotencyKey != "":
		more["forgetKey"] = true
	}
	return e.finish(ctx, id, o, more)
}

// lease moves or ends the right to work on a payment, or notes that its answer was delivered; false: it is
// not this process's to do.
func (e *fleet) lease(ctx context.Context, do, id string, more map[string]any) (bool, error) {
	q := map[string]any{"writer": e.Writer, "operation": newID("op_"), "do": do, "id": id}
	maps.Copy(q, more)
	n, err := call(ctx, e, scanNumber, `SELECT lease(?::jsonb)`, toJSON(q))
	if err != nil {
		return false, e.tell(err)
	}
	return n == 1, nil
}
