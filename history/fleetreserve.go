package history

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"time"

	"x402-wallet/budget"
	"x402-wallet/history/postgres"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// The first step of a payment in a fleet's ledger: its money is held, by the function reserve of
// postgres_functions.sql, if everything is still as it was decided by.

func (e *fleet) reserve(ctx context.Context, h Hold, owner string) (Payment, error) {
	p, q := e.toReserve(h, owner)
	held, err := whenSettled(ctx, e, func() (heldPayment, error) {
		return call(ctx, e, scanHeld, `SELECT * FROM reserve(?::jsonb)`, func() string {
			q["clock"] = micros(e.now())
			return toJSON(q)
		})
	})
	if err == nil {
		e.drives(p.ID, true)
		return held.of(p), nil
	}
	return p, e.whyNotHeld(ctx, h, p, err)
}

// heldPayment is what only the ledger knows of a payment that it has just held.
type heldPayment struct {
	number  int64
	session string
	created int64
}

func scanHeld(row scanner) (h heldPayment, err error) {
	err = row.Scan(&h.number, &h.session, &h.created)
	return h, err
}

// of is p as it stands.
func (h heldPayment) of(p Payment) Payment {
	p.Number, p.Session = h.number, h.session
	p.Created = fromMicros(h.created)
	p.Updated = p.Created
	return p
}

// toReserve is a hold as the function reserve takes it, but for the clock, and the payment as it will stand.
func (e *fleet) toReserve(h Hold, owner string) (p Payment, q map[string]any) {
	p = h.Payment
	p.ID = orID(p.ID, e.now())
	p.LeaseOwner, p.Waiter, p.State = owner, owner, Reserved
	fresh := newID("ses_")
	p.Session = cmp.Or(h.Decision.Session, fresh)
	record := packPlain(p.Requirement, nil, nil)
	q = map[string]any{
		"writer":  e.Writer,
		"payment": columnsOf(p, record),
		"session": h.Decision.Session,
		"detail": toJSON(reservedDetail{Row: p.digest(), Key: p.IdempotencyKey,
			Stored: digestOf(record)}),
		"tolerance":     budget.ClockTolerance.Microseconds(),
		"resume":        h.Resume,
		"caps":          capsOf(h.Decision, e.now()),
		"low":           lowOf(h, e.now()),
		"rates":         ratesOf(h.Decision),
		"maxFailures":   h.Decision.MaxFailures,
		"failuresSince": micros(h.Decision.FailuresSince),
		"seller":        sellerOf(h.Decision, p),
		"funds":         map[string]any{},
		"approval":      map[string]any{},
	}
	if h.Decision.Session == "" { // it begins one
		q["newSession"], q["sessionCap"] = fresh, (*int64)(h.SessionCap)
		q["sessionDetail"] = toJSON(map[string]any{"id": fresh, "cap": h.SessionCap, "seal": digestOf(nil)})
	}
	if d := h.Funds.Delegated; d != nil && x402.IsSolana(p.Network) { // see seenDelegated
		q["delegated"] = map[string]any{"account": h.Funds.Source, "largest": d.String(),
			"detail": toJSON(map[string]any{"network": p.Network, "account": h.Funds.Source, "largest": d})}
	}
	if !p.ByVoucher() {
		q["funds"] = map[string]any{"source": h.Funds.Source, "free": h.Funds.Free.String(),
			"readAt": micros(h.Funds.ReadAt)}
	}
	if a := h.Approval; a != nil {
		q["approval"] = map[string]any{
			"id":      a.ID,
			"expires": micros(a.Expires),
			"seal":    hex.EncodeToString(a.Seal),
			"detail":  toJSON(usedDetail{Quote: hexOf(a.Quote), ID: a.ID, Payment: p.ID}),
		}
	}
	if e.demanded() == asynchronous {
		q["settle"] = e.settle.Microseconds()
	}
	return p, q
}

func orID(id string, at time.Time) string {
	if id == "" {
		return NewID(at)
	}
	return id
}

// whyNotHeld is the answer to a hold that the ledger refused.
func (e *fleet) whyNotHeld(ctx context.Context, h Hold, p Payment, err error) error {
	var f *postgres.Failure
	if !errors.As(err, &f) {
		return err
	}
	taken := func(where string, args ...any) error {
		other, err := call(ctx, e, scanPayment, selectPayment+where, args...)
		if err != nil {
			return moved("the purchase that it would be again is gone")
		}
		return &AlreadyPaying{Payment: other}
	}
	switch {
	case f.Kind == postgres.Violated && f.Constraint == "payments_by_key":
		return taken(` WHERE idempotency_key = ? AND agent = ? AND state <> 'failed'`, p.IdempotencyKey,
			p.Agent)
	case f.Kind == postgres.Violated && f.Constraint == "cap":
		return moved("a budget was used up")
	case f.State == "X4A01":
		var d struct{ ID string }
		if json.Unmarshal([]byte(f.Detail), &d) == nil {
			return taken(` WHERE id = ?`, d.ID)
		}
	case f.State == "X4F01":
		return e.frozen(ctx, p)
	case f.State == "X4S01":
		var d struct{ Held money.Amount }
		if json.Unmarshal([]byte(f.Detail), &d) == nil {
			return &ShortOfFunds{Free: h.Funds.Free, Held: d.Held, Wanted: p.Amount}
		}
	}
	return e.tell(err)
}

// frozen is the refusal by the freeze that stops a payment, or ErrMoved where it was lifted since.
func (e *fleet) frozen(ctx context.Context, p Payment) error {
	f, err := call(ctx, e, scanFreeze, selectFreezeOf, p.Network, p.Source)
	if err != nil {
		return moved("a freeze was lifted")
	}
	return f.refusal()
}

const selectPaymentOf = `SELECT ` + paymentColumns + `, record, receipt, chain_proof FROM `

// pay runs a function that answers with the payment as it then stands. An error of the server is returned as
// it is.
func (e *fleet) pay(ctx context.Context, function string, args ...any) (Payment, error) {
	return call(ctx, e, scanPayment, selectPaymentOf+function, args...)
}

// columnsOf are the columns of a new payment, as json_populate_record takes them.
func columnsOf(p Payment, record []byte) map[string]any {
	columns := map[string]any{
		"id":            p.ID,
		"fingerprint":   hexText(p.Fingerprint[:]),
		"method":        p.Method,
		"url":           p.URL,
		"target":        p.Target,
		"host":          p.Host,
		"network":       p.Network,
		"scheme":        p.Scheme,
		"dialect":       p.Dialect,
		"asset":         p.Asset,
		"symbol":        p.Symbol,
		"amount":        p.Amount.String(),
		"usd":           int64(p.Price),
		"pay_to":        p.PayTo,
		"source":        p.Source,
		"record":        hexText(record),
		"lease_owner":   p.LeaseOwner,
		"prefix_length": characters(urlPrefix(p.URL)),
		"agent":         p.Agent,
	}
	if p.IdempotencyKey != "" {
		columns["idempotency_key"] = p.IdempotencyKey
	}
	return columns
}

// capsOf are the caps of a decision, by the windows that the ledger keeps.
func capsOf(d budget.Decision, now time.Time) []map[string]any {
	caps := []map[string]any{} // nil would be no list
	for _, c := range d.Caps {
		id, win, starts := windowOf(c.Window)
		if win == "session" { // the owner's, which the ledger applies
			continue
		}
		caps = append(caps, map[string]any{
			"budget": id,
			"win":    win,
			"starts": starts,
			"limit":  int64(c.Limit),
			"alert": map[string]any{
				"id":      newTimedID("alr_", now),
				"subject": c.Title(),
				"win":     c.Window.Since.Format(time.DateOnly),
			},
		})
	}
	return caps
}

// lowOf is the alert that little is left of what a payment is made from; empty: there is none.
func lowOf(h Hold, now time.Time) map[string]any {
	if h.Low == nil {
		return map[string]any{}
	}
	subject, detail := h.Low.alert(h.Payment)
	return map[string]any{
		"id":      newTimedID("alr_", now),
		"subject": subject,
		"win":     dayOf(now),
		"detail":  toJSON(detail),
	}
}

// windowOf names a window as the ledger keeps it. On a month's first day its window is the day's too: they
// hold the same.
func windowOf(w budget.Window) (id, win string, starts int64) {
	id, win, starts = Organisation, "month", micros(w.Since)
	if w.Since.Equal(budget.DayOf(w.Since)) && !w.Since.Equal(budget.MonthOf(w.Since)) {
		win = "day"
	}
	switch {
	case w.Session != "":
		win = "session"
	case !w.IsAll():
		id = w.Node()
	case w.Host != "":
		id, win = "host:"+w.Host, "day"
	}
	return id, win, starts
}

func ratesOf(d budget.Decision) []map[string]any {
	rates := []map[string]any{}
	for _, r := range d.Rates {
		if r.Max > 0 {
			rates = append(rates, map[string]any{
				"budget":     r.Window.Node(),
				"most":       r.Max,
				"per":        r.Per.Microseconds(),
				"not_before": micros(r.NotBefore),
			})
		}
	}
	return rates
}

// sellerOf is what a decision needs to be so still of its payee.
func sellerOf(d budget.Decision, p Payment) map[string]any {
	expected := map[string]any{"known": d.PayeeKnown, "unchanged": d.PayeeUnchanged}
	if d.PayeeKnown {
		expected["payeeKey"] = hex.EncodeToString(payeeKey(p.Network, p.PayTo))
	}
	if d.PayeeUnchanged {
		expected["hereKey"] = hex.EncodeToString(paidHereKey(p.Host, p.Network, p.Asset, p.PayTo))
		expected["sellerKey"] = hex.EncodeToString(sellerKey(p.Host, p.Network, p.Asset))
	}
	if d.MinLastPrice != nil {
		expected["priceKey"] = hex.EncodeToString(priceKey(p.Resource()))
		expected["minPrice"] = hex.EncodeToString(binary.BigEndian.AppendUint64(nil, uint64(*d.MinLastPrice)))
	}
	return expected
}
