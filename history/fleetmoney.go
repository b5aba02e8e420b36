package history

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"x402-wallet/budget"
	"x402-wallet/history/postgres"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// The steps of a payment in a fleet's ledger: one reading of facts, and one call for each step.

// reading is a part of the facts: a query, and what becomes of its answer.
type reading struct {
	query string
	args  []any
	take  func(row scanner) error // for each row
}

// readings runs queries at one moment, in one round trip.
func (e *fleet) readings(ctx context.Context, list []reading) error {
	statements := make([]postgres.Statement, len(list))
	for i, r := range list {
		statements[i] = postgres.Statement{Query: r.query, Args: r.args}
	}
	return e.until(ctx, func(ctx context.Context) error {
		return e.pool.With(ctx, func(c *postgres.Conn) error {
			answers, err := c.Together(ctx, statements)
			if err != nil {
				return err
			}
			for i, answer := range answers {
				row := answerRows(answer)
				for row.next() == nil {
					if err := list[i].take(row); err != nil {
						return answered{err}
					}
				}
			}
			return nil
		})
	})
}

// facts reads what a decision needs. of is the payment that the facts are for and do not count; nil: none,
// and the windows are those of now. more is read at the same moment.
func (e *fleet) facts(ctx context.Context, q Question, of *Payment, more ...reading) (f Facts, err error) {
	at, now, clock := "(SELECT ledger_now())", time.Time{}, e.now() // once a statement, and not for each row
	var args []any
	if of != nil {
		at, args = "?1::bigint", []any{micros(of.Created)}
	}
	if !q.Rules.At.IsZero() {
		at, args = "?1::bigint", []any{micros(q.Rules.At)}
	}
	with := func(more ...any) []any { return append(slices.Clip(args), more...) }
	arg := func(n int) string { return fmt.Sprintf("?%d", len(args)+n) }
	purchase := func(row scanner) error {
		p, err := scanPayment(row)
		if f.Purchase == nil {
			f.Purchase = &p
		}
		return err
	}
	list := append(more, reading{`SELECT ` + at + `, ledger_now()`, args, func(row scanner) error {
		var day, ledger int64
		err := row.Scan(&day, &ledger)
		now = fromMicros(day)
		f.Facts.Now, f.Behind = now, fromMicros(ledger).Sub(clock)
		return err
	}})
	if key := q.Payment.IdempotencyKey; key != "" && of == nil {
		list = append(list, reading{selectPayment + ` WHERE idempotency_key = ? AND agent = ? AND state <>
			'failed'`,
			[]any{key, q.Payment.Agent}, purchase})
	}
	if q.Resume && of == nil {
		list = append(list, reading{selectPayment + ` WHERE fingerprint = ? AND (` + resumable + `) AND
			waiter = ''
			AND delivered = 0 ORDER BY created_at DESC LIMIT 1`, []any{q.Payment.Fingerprint[:]}, purchase})
	}
	if q.Payment.Network != "" {
		list = append(list, reading{selectFreeze + ` AND (account = '' OR network = ? AND account = ?)
			ORDER BY account LIMIT 1`, []any{q.Payment.Network, q.Payment.Source}, func(row scanner) error {
			frozen, err := scanFreeze(row)
			f.Frozen = &frozen
			return err
		}})
	}
	if q.Payment.Network != "" {
		list = append(list, reading{`SELECT stored, owed FROM content_use`, nil, func(row scanner) error {
			return row.Scan(&f.Content.Stored, &f.Content.Owed)
		}})
	}
	list = append(list, e.budgetReadings(&f.Facts, q.Rules, of, at, args, with, arg)...)
	for _, quote := range q.Quotes {
		list = append(list, reading{selectApproval + ` WHERE quote = ? AND state = 'approved' AND expires_at
			> (SELECT ledger_now())`,
			[]any{quote[:]}, func(row scanner) error {
				a, err := scanApproval(row)
				f.Approvals = append(f.Approvals, a)
				return err
			}})
	}
	again := f
	err = e.readings(ctx, list)
	if err != nil {
		return again, err
	}
	if f.Session.ID == "" || now.Sub(f.Session.Last) >= budget.SessionIdle {
		f.Session, f.Used.Session = budget.Session{Started: now, Last: now}, budget.Use{}
	}
	if of != nil {
		f.Session = budget.Session{ID: of.Session, Last: of.Created, Cap: f.Session.Cap}
		f.leaveOut(*of, q.Rules)
	}
	return f, nil
}

// leaveOut takes a payment out of what was used.
func (f *Facts) leaveOut(p Payment, q budget.Query) {
	less := func(u *budget.Use) {
		switch {
		case p.Prepaid():
		case u.Held >= p.Price:
			u.Held -= p.Price
		default:
			u.Spent = u.Spent.SubFloor(p.Price)
		}
	}
	less(&f.Used.Session)
	less(&f.Used.Day)
	less(&f.Used.Month)
	less(&f.Used.Agent.Day)
	less(&f.Used.Agent.Month)
	for name, use := range f.Used.Teams {
		less(&use.Day)
		less(&use.Month)
		f.Used.Teams[name] = use
	}
	for _, entry := range q.HostEntries {
		use := f.Used.HostDay[entry]
		less(&use)
		f.Used.HostDay[entry] = use
	}
}

// budgetReadings are the readings of the part that package budget decides by.
func (e *fleet) budgetReadings(f *budget.Facts, q budget.Query, of *Payment, at string, args []any,
	with func(...any) []any, arg func(int) string) (list []reading) {
	session := `ended = 0`
	sessionArgs := []any(nil)
	if of != nil {
		session, sessionArgs = `id = ?`, []any{of.Session}
	}
	list = append(list, reading{`SELECT id, started_at, ` + fleetSessionLast + `, cap FROM sessions WHERE
		` + session, sessionArgs,
		func(row scanner) error {
			var started, last int64
			err := row.Scan(&f.Session.ID, &started, &last, &f.Session.Cap)
			f.Session.Started, f.Session.Last = fromMicros(started), fromMicros(last)
			return err
		}})
	f.Used.HostDay = map[string]budget.Use{}
	ids := []any{"org"}
	for _, entry := range q.HostEntries {
		ids = append(ids, "host:"+entry)
	}
	if q.Agent != "" {
		ids = append(ids, "agent:"+q.Agent)
	}
	f.Used.Teams, f.NodeRates = map[string]budget.NodeUsage{}, map[string]budget.RateUse{}
	for _, team := range q.Teams {
		ids = append(ids, "team:"+team)
	}
	budgets := slices.Clone(ids)
	places := make([]string, len(ids))
	for i := range ids {
		places[i] = arg(i + 1)
	}
	counters := `SELECT budget, win, used FROM counters WHERE budget IN (` + strings.Join(places, ", ") + `)
		AND (
		win = 'day' AND starts = day_of(` + at + `) OR win = 'month' AND starts = month_of(` + at + `)
		OR win = 'session' AND starts = (SELECT number FROM sessions WHERE `
	if of != nil {
		counters += `id = ` + arg(len(ids)+1)
		ids = append(ids, of.Session)
	} else {
		counters += `ended = 0`
	}
	list = append(list, reading{counters + `))`, with(ids...), func(row scanner) error {
		var id, win string
		var used money.Dollars
		err := row.Scan(&id, &win, &used)
		setUse(&f.Used, id, win, budget.Use{Spent: used})
		return err
	}})
	list = append(list, e.heldReading(f, budgets, at, args))
	lifted := `coalesce((SELECT at FROM lifts WHERE at <= (SELECT ledger_now()) ORDER BY upto DESC LIMIT 1),
		0)`
	// how many there are, up to so many, and when the oldest of so many was made
	made := func(since, node string, most int, take func(n int, oldest time.Time)) reading {
		upTo, without := `9223372036854775807`, "" // of a payment that is there: those before it
		if of != nil {
			upTo, without = at, of.ID
		}
		return reading{fmt.Sprintf(`SELECT count(*), coalesce(min(at), 0) FROM payments_made(%s, %s, %s, %s,
			%d) AS at`,
			since, upTo, arg(1), arg(2), most),
			with(node, without), func(row scanner) error {
				var n int
				var oldest int64
				err := row.Scan(&n, &oldest)
				if n < most {
					take(n, time.Time{})
				} else {
					take(n, fromMicros(oldest))
				}
				return err
			}}
	}
	if q.Rate > 0 {
		list = append(list, made(fmt.Sprintf(`%s -
			%d`, at, budget.RateWindow.Microseconds()), "org", q.Rate, func(n int, oldest time.Time) {
			f.LastMinute, f.RateSince = n, oldest
		}))
	}
	for _, limit := range q.NodeRates {
		node := limit.Window.Node()
		list = append(list, made(fmt.Sprintf(`%s -
			%d`, at, limit.Per.Microseconds()), node, limit.Max, func(n int, oldest time.Time) {
			f.NodeRates[node] = budget.RateUse{LastMinute: n, Since: oldest}
		}))
	}
	if q.EachAgent {
		list = append(list, e.agentReading(f, q, at, args))
	}
	if q.MaxFailures > 0 || q.BusyHour {
		list = append(list, reading{`SELECT ` + lifted, nil, func(row scanner) error {
			var at int64
			err := row.Scan(&at)
			f.LastUnfreeze = fromMicros(at)
			return err
		}})
	}
	if q.MaxFailures > 0 {
		list = append(list, reading{`SELECT failures_since(` + lifted + `, ?)`, []any{q.MaxFailures},
			func(row scanner) error { return row.Scan(&f.ConsecutiveFailures) }})
	}
	if q.BusyHour {
		hour := budget.BusyWindow.Microseconds()
		list = append(list, made(fmt.Sprintf(`greatest(%s - %d, %s)`, at, hour, lifted), "org", maxHourly,
			func(n int, _ time.Time) { f.LastHour = n }))
	}
	return append(list, e.memoryReadings(&f.Payee, q)...)
}

// agentReading sums what each agent used on a day and in its month, and from that what the teams did.
func (e *fleet) agentReading(f *budget.Facts, q budget.Query, at string, args []any) reading {
	f.Used.Agents = map[string]budget.NodeUsage{}
	inDay, inMonth := map[string]budget.Use{}, map[string]budget.Use{}
	sum := func(state, since string) string {
		return `coalesce(sum(usd - returned) FILTER (WHERE state ` + state + ` 'settled' AND created_at >=
			` + since + `(` + at + `)), 0)`
	}
	return reading{`SELECT agent,
		` + strings.Join([]string{sum("=", "day_of"), sum("<>", "day_of"), sum("=", "month_of"),
		sum("<>", "month_of")}, ", ") + ` FROM payments WHERE created_at >= month_of(` + at + `) AND agent <>
			''
		AND state <> 'failed' GROUP BY agent`, args, func(row scanner) error {
		var agent string
		var use budget.NodeUsage
		err := row.Scan(&agent, &use.Day.Spent, &use.Day.Held, &use.Month.Spent, &use.Month.Held)
		f.Used.Agents[agent], inDay[agent], inMonth[agent] = use, use.Day, use.Month
		maps.Copy(f.Used.Teams, teamsOf(q, inDay, inMonth))
		return err
	}}
}

// heldReading tells what of the windows is held: it is part of what they hold in all.
func (e *fleet) heldReading(f *budget.Facts, asked []any, at string, args []any) reading {
	sum := func(condition string) string {
		return `coalesce(sum(usd - returned) FILTER (WHERE ` + condition + `), 0)`
	}
	return reading{`SELECT b, ` + sum(`created_at >= day_of(`+at+`)`) + `, ` + sum(`created_at >=
		month_of(`+at+`)`) + `, ` +
		sum(`session = (SELECT id FROM sessions WHERE ended = 0)`) + ` FROM payments, unnest(budgets) AS b
			WHERE ` + unfinished +
		` GROUP BY b`, args, func(row scanner) error {
		var id string
		var day, month, session money.Dollars
		err := row.Scan(&id, &day, &month, &session)
		if !slices.Contains(asked, any(id)) {
			return err
		}
		for win, held := range map[string]money.Dollars{"day": day, "month": month, "session": session} {
			if use := useOf(&f.Used, id, win); held > 0 && use.Spent >= held {
				setUse(&f.Used, id, win, budget.Use{Spent: use.Spent - held, Held: held})
			}
		}
		return err
	}}
}

// useOf is what setUse noted.
func useOf(u *budget.Usage, id, win string) budget.Use {
	kind, name, _ := strings.Cut(id, ":")
	of := budget.NodeUsage{Day: u.Day, Month: u.Month}
	switch kind {
	case "host":
		return u.HostDay[name]
	case "agent":
		of = u.Agent
	case "team":
		of = u.Teams[name]
	}
	switch {
	case win == "day":
		return of.Day
	case win == "month":
		return of.Month
	case kind == "org":
		return u.Session
	}
	return budget.Use{}
}

// setUse notes what a window of a budget holds.
func setUse(u *budget.Usage, id, win string, use budget.Use) {
	kind, name, _ := strings.Cut(id, ":")
	switch {
	case id == "org" && win == "session":
		u.Session = use
	case id == "org" && win == "day":
		u.Day = use
	case id == "org" && win == "month":
		u.Month = use
	case kind == "host" && win == "day":
		u.HostDay[name] = use
	case kind == "agent" && win == "day":
		u.Agent.Day = use
	case kind == "agent" && win == "month":
		u.Agent.Month = use
	case kind == "team" && win == "day":
		u.Teams[name] = budget.NodeUsage{Day: use, Month: u.Teams[name].Month}
	case kind == "team" && win == "month":
		u.Teams[name] = budget.NodeUsage{Day: u.Teams[name].Day, Month: use}
	}
}

// fleetSessionLast is when the newest payment of the open session was made, or the session began.
const fleetSessionLast = `greatest(last_at, (SELECT max(created_at) FROM payments WHERE created_at >=
	last_at))`

// fleetUsed adds a window up from its payments: with what is held of it, which the kept windows do not tell.
func (t *tx) fleetUsed(w budget.Window) (use budget.Use, err error) {
	where, args := ` WHERE state <> 'failed' AND created_at >= ?`, []any{micros(w.Since)}
	for _, by := range []struct{ column, value string }{{"session", w.Session}, {"agent", w.Agent}} {
		if by.value != "" {
			where, args = where+` AND `+by.column+` = ?`, append(args, by.value)
		}
	}
	if w.Host != "" {
		where, args = where+` AND covers(?, host)`, append(args, w.Host)
	}
	err = t.forEach(func(row scanner) error {
		var agent string
		var of budget.Use
		err := row.Scan(&agent, &of.Spent, &of.Held)
		if w.Has(agent) {
			use.Spent, use.Held = use.Spent+of.Spent, use.Held+of.Held
		}
		return err
	}, `SELECT agent, coalesce(sum(usd - returned) FILTER (WHERE state = 'settled'), 0),
		coalesce(sum(usd - returned) FILTER (WHERE state <> 'settled'), 0) FROM payments`+where+` GROUP BY
		agent`, args...)
	return use, err
}

// maxHourly bounds how many payments of an hour are counted: more than any circuit breaker waits for.
const maxHourly = 100_000

// memoryReadings ask for what is known of a payee: with the keys that historyFor asks by.
func (e *fleet) memoryReadings(into *budget.PayeeHistory, q budget.Query) []reading {
	known, args, places := map[string][]byte{}, []any{}, []string{}
	get := func(key []byte) ([]byte, error) { //nolint:unparam // as historyFor has it
		if _, asked := known[string(key)]; !asked {
			known[string(key)] = nil
			args, places = append(args, key), append(places, "?")
		}
		return known[string(key)], nil
	}
	_, _ = historyFor(get, q) // which says what it asks for
	if len(args) == 0 {
		return nil
	}
	found := func(row scanner) (err error) {
		var key, value []byte
		if err := row.Scan(&key, &value); err != nil {
			return err
		}
		known[string(key)] = value
		*into, err = historyFor(get, q)
		return err
	}
	return []reading{{`SELECT key, value FROM memory WHERE key IN
		(` + strings.Join(places, ", ") + `)`, args, found}}
}

// refused is what a function's refusal means; nil: it is none of them.
func (e *fleet) refused(err error) error {
	var f *postgres.Failure
	if !errors.As(err, &f) || f.Kind != postgres.Refused {
		return nil
	}
	switch f.State {
	case "X4M01":
		return moved(f.Said())
	case "X4L01":
		return fmt.Errorf("%w: %s", ErrNotLeaseOwner, f.Said())
	case "X4T01":
		return fmt.Errorf("%w: %s", ErrTransition, f.Said())
	case "X4N01":
		return errNoPayment
	case "X4K01":
		return ErrSignedBefore
	case "X4C01":
		return x402.Errorf(
			x402.ClockSuspect,
			"this computer's clock and that of the ledger's server are more than %s apart",
			budget.ClockTolerance,
		).WithHint("the person sets this computer's clock, or the server's")
	case "X4V01":
		return x402.Errorf(x402.PolicyUnsealed, "%s", f.Said()).
			WithHint("the owner signs the fleet's rules: x402-wallet policy seal --fleet")
	}
	return nil
}

// refusedAs reports whether a function refused by a state.
func refusedAs(err error, state string) bool {
	var f *postgres.Failure
	return errors.As(err, &f) && f.State == state
}

// tell is err as callers of the money path know it.
func (e *fleet) tell(err error) error {
	if told := e.refused(err); told != nil {
		return told
	}
	return fleetErrorOr(err)
}

func (e *fleet) reserve(ctx context.Context, h Hold, owner string) (Payment, error) {
	p := h.Payment
	p.ID = orID(p.ID, e.now())
	p.LeaseOwner, p.Waiter, p.State = owner, owner, Reserved
	fresh := newID("ses_")
	p.Session = h.Decision.Session
	if p.Session == "" {
		p.Session = fresh
	}
	record := packPlain(p.Requirement, nil, nil)
	q := map[string]any{
		"writer":        e.Writer,
		"payment":       columnsOf(p, record),
		"session":       h.Decision.Session,
		"newSession":    fresh,
		"sessionCap":    (*int64)(h.SessionCap),
		"sessionIdle":   budget.SessionIdle.Microseconds(),
		"sessionDetail": toJSON(map[string]any{"id": fresh, "cap": h.SessionCap, "seal": digestOf(nil)}),
		"detail": toJSON(reservedDetail{Row: p.digest(), Key: p.IdempotencyKey,
			Stored: digestOf(record)}),
		"clock":         micros(e.now()),
		"tolerance":     budget.ClockTolerance.Microseconds(),
		"resume":        h.Resume,
		"prepaid":       h.Decision.Prepaid,
		"caps":          capsOf(h.Decision, e.now()),
		"low":           lowOf(h, e.now()),
		"rates":         ratesOf(h.Decision),
		"maxFailures":   h.Decision.MaxFailures,
		"failuresSince": micros(h.Decision.FailuresSince),
		"seller":        sellerOf(h.Decision, p),
		"funds":         map[string]any{},
		"approval":      map[string]any{},
	}
	if d := h.Funds.Delegated; d != nil && x402.IsSolana(p.Network) { // see seenDelegated
		q["delegated"] = map[string]any{"account": h.Funds.Source, "largest": d.String(),
			"detail": toJSON(map[string]any{"network": p.Network, "account": h.Funds.Source, "largest": d})}
	}
	if !p.ByVoucher() {
		q["funds"] = map[string]any{
			"source": h.Funds.Source,
			"free":   h.Funds.Free.String(),
			"readAt": micros(h.Funds.ReadAt),
		}
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
	held, err := e.payWhenSettled(ctx, `reserve(?::json)`, toJSON(q))
	if err == nil {
		e.drives(1)
		return held, nil
	}
	return p, e.whyNotHeld(ctx, h, p, err)
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
		return taken(` WHERE idempotency_key = ? AND agent = ? AND state <>
			'failed'`, p.IdempotencyKey, p.Agent)
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
	f, err := call(ctx, e, scanFreeze, selectFreeze+` AND (account = '' OR network = ? AND account = ?)
		ORDER BY account LIMIT 1`, p.Network, p.Source)
	if err != nil {
		return moved("a freeze was lifted")
	}
	return f.refusal()
}

// pay runs a function that answers with the payment as it then stands. An error of the server is returned as
// it is.
func (e *fleet) pay(ctx context.Context, function string, args ...any) (Payment, error) {
	return call(ctx, e, scanPayment, `SELECT `+paymentColumns+
		`, record, receipt, chain_proof FROM `+function, args...)
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
		caps = append(
			caps,
			map[string]any{
				"budget": id,
				"win":    win,
				"starts": starts,
				"limit":  int64(c.Limit),
				"alert": map[string]any{
					"id":      newTimedID("alr_", now),
					"subject": c.Title(),
					"win":     c.Window.Since.Format(time.DateOnly),
				},
			},
		)
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

// windowOf names a window as the ledger keeps it.
func windowOf(w budget.Window) (id, win string, starts int64) {
	id, win, starts = "org", "month", micros(w.Since)
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
			rates = append(
				rates,
				map[string]any{
					"budget":    r.Window.Node(),
					"most":      r.Max,
					"per":       r.Per.Microseconds(),
					"notBefore": micros(r.NotBefore),
				},
			)
		}
	}
	return rates
}

// sellerOf is what a decision needs to be so still of its payee.
func sellerOf(d budget.Decision, p Payment) map[string]any {
	expected := map[string]any{"known": d.PayeeKnown, "unchanged": d.PayeeUnchanged,
		"payeeKey":  hex.EncodeToString(payeeKey(p.Network, p.PayTo)),
		"hereKey":   hex.EncodeToString(paidHereKey(p.Host, p.Network, p.Asset, p.PayTo)),
		"sellerKey": hex.EncodeToString(sellerKey(p.Host, p.Network, p.Asset)),
		"priceKey":  hex.EncodeToString(priceKey(p.Resource()))}
	if d.MinLastPrice != nil {
		expected["minPrice"] = hex.EncodeToString(binary.BigEndian.AppendUint64(nil, uint64(*d.MinLastPrice)))
	}
	return expected
}

// drives counts the payments of this process that are under way: while there are any, it says that it lives.
func (e *fleet) drives(more int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.driving = max(0, e.driving+more)
}

// submit puts a signed payment on the servers' disks. signedBy is the digest of the message that the unlock
// agent signs; "": this process has what is sent.
func (e *fleet) submit(
	ctx context.Context,
	s *Store,
	p Payment,
	signed Signed,
	signedBytes string,
	k Keyholder,
) error {
	row, facts, err := e.signing(ctx, p, k)
	if err != nil {
		return err
	}
	q, err := e.submission(row, facts, p, signed, signedBytes, k)
	switch {
	case err != nil:
		return err
	case signed.Channel == nil:
		_, err = call(ctx, e, scanNumber, `SELECT submit(?::json)`, q)
	default:
		err = s.txRows(ctx, func(t *tx) error { return t.submitThrough(*signed.Channel, row, q, k) })
	}
	return e.notSubmitted(ctx, p, err)
}

// signing is a payment that was signed, as it stands, and what k has to know to permit that: in one round
// trip.
func (e *fleet) signing(
	ctx context.Context,
	p Payment,
	k Keyholder,
) (row Payment, f budget.Facts, err error) {
	if k.Permit == nil { // nobody is asked
		row, err = call(ctx, e, scanPayment, selectPayment+` WHERE id = ?`, p.ID)
		return row, f, none(err, errNoPayment)
	}
	query := k.Query(p)
	query.At = p.Created
	facts, err := e.facts(ctx, Question{Rules: query}, &p, reading{selectPayment + ` WHERE id =
		?`, []any{p.ID},
		func(found scanner) (err error) {
			row, err = scanPayment(found)
			return err
		}})
	switch {
	case err != nil:
		return row, f, err
	case row.ID == "":
		return row, f, errNoPayment
	case row.State == Reserved && !(row.Created.Equal(p.Created) && row.Session == p.Session):
		return row, f, corrupt("payment %s is not the one that was signed", row.ID)
	}
	return row, facts.Facts, nil
}

// submission is the argument of the function submit, for a payment as it stands, if it may be signed.
func (e *fleet) submission(row Payment, facts budget.Facts, p Payment, signed Signed, signedBytes string,
	k Keyholder) (string, error) {
	if signedBytes != "" {
		signed.Payload, signed.Requirement = nil, row.Requirement
	}
	record := signed.record()
	q := map[string]any{
		"writer":       e.Writer,
		"operation":    newID("op_"),
		"id":           p.ID,
		"unique":       hex.EncodeToString(record.unique),
		"record":       base64.StdEncoding.EncodeToString(record.packed),
		"storedDetail": toJSON(map[string]string{"stored": record.stored}),
	}
	if signedBytes == "" {
		q["leaseOwner"] = e.name()
	}
	q["completes"] = signedBytes == "" && row.Payload == nil &&
		toJSON(row.Evidence) == toJSON(signed.Evidence)
	if row.State == Reserved {
		if err := e.permitted(row, facts, p, signed, record, signedBytes, k, q); err != nil {
			return "", err
		}
	}
	return toJSON(q), nil
}

// notSubmitted is what an error of the function submit means.
func (e *fleet) notSubmitted(ctx context.Context, p Payment, err error) error {
	var f *postgres.Failure
	switch {
	case err == nil:
		return nil
	case errors.As(err, &f) && f.State == "X4F01":
		return e.frozen(ctx, p)
	case errors.As(err, &f) && f.Kind == postgres.Violated && strings.Contains(f.Constraint, "unique_key"):
		return ErrSignedBefore
	}
	return e.tell(err)
}

// permitted asks who holds the key whether a payment may be signed, as it was reserved, and adds to the call
// what is remembered of it.
func (e *fleet) permitted(
	row Payment,
	facts budget.Facts,
	asSigned Payment,
	signed Signed,
	record signedRecord,
	signedBytes string,
	k Keyholder,
	q map[string]any,
) error {
	if k.Permit == nil {
		return errNobodyRecorded()
	}
	if signed.Channel == nil { // else where the channel's row is locked
		if err := (*channelStep)(nil).checkOwners(row, k); err != nil {
			return err
		}
	}
	g := signature{SignedBytes: signedBytes, Submitted: signedBytes == "", Row: row.digest()}
	if g.Row != asSigned.digest() {
		return corrupt("payment %s is not the one that was signed", row.ID)
	}
	if err := k.Permit(row, facts); err != nil {
		return err
	}
	g.Created, g.Key, g.SessionCap = micros(row.Created), row.IdempotencyKey, facts.Session.Cap
	g.Unique, g.Evidence, g.Stored = encodeDigest(record.unique), record.evidence, record.stored
	g.terms = row.terms()
	if signed.Channel != nil {
		g.Voucher = signed.Channel.voucher()
	}
	var entries []map[string]string
	for _, entry := range remembered(row.ID, g) {
		entries = append(
			entries,
			map[string]string{"key": hex.EncodeToString(entry.key), "value": hex.EncodeToString(entry.value)},
		)
	}
	q["memory"], q["detail"] = entries, toJSON(g)
	return nil
}

// finish records what became known of a payment.
func (e *fleet) finish(ctx context.Context, id string, o Outcome, more map[string]any) (Payment, error) {
	q, body := e.ending(id, o, more)
	p, err := e.pay(ctx, `finish(?::json, ?)`, q, body)
	if isViolated(err, "approvals_open") { // somebody asked while the approval was given back: now it is not
		p, err = e.pay(ctx, `finish(?::json, ?)`, q, body)
	}
	if err == nil && (o.ReleaseLease || o.State == Failed) {
		e.drives(-1)
	}
	if err != nil {
		return p, e.tell(err)
	}
	return p, nil
}

func isViolated(err error, constraint string) bool {
	var f *postgres.Failure
	return errors.As(err, &f) && f.Kind == postgres.Violated && f.Constraint == constraint
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
		q["contentDetail"] = toJSON(
			contentDetail{SHA256: encodeDigest(o.packed.content[:]), Bytes: int64(len(body)),
				Status: int64(c.Status), Type: c.Type, Truncated: c.Truncated},
		)
	}
	for name, value := range more {
		q[name] = value
	}
	return toJSON(q), body
}

// release ends a hold of which nothing was signed.
func (e *fleet) release(ctx context.Context, id, why string) error {
	_, err := e.finish(
		ctx,
		id,
		Outcome{State: Failed, Note: why, ReleaseLease: true, ClearWaiter: true},
		map[string]any{
			"release":    true,
			"leaseOwner": e.name(),
			"detail":     toJSON(map[string]string{"why": why}),
		},
	)
	return err
}

// expire records that what was signed can never settle, or that it came to less than was signed for.
func (e *fleet) expire(
	ctx context.Context,
	id string,
	asked x402.Evidence,
	c *Charge,
	o Outcome,
) (Payment, error) {
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
		return row, x402.Errorf(
			x402.PolicyDenied,
			"payment %s promised something out of a channel that an owner funds: "+
				"that counts for good",
			id,
		).WithHint("the channel can be funded again, and then it can be claimed")
	case row.IdempotencyKey != "":
		more["keyEntry"] = hex.EncodeToString(idempotencyKey(row.Agent, row.IdempotencyKey))
	}
	return e.finish(ctx, id, o, more)
}

func (e *fleet) lease(ctx context.Context, do, id string, more map[string]any) (bool, error) {
	q := map[string]any{"writer": e.Writer, "operation": newID("op_"), "do": do, "id": id}
	for name, value := range more {
		q[name] = value
	}
	n, err := call(ctx, e, scanNumber, `SELECT lease(?::json)`, toJSON(q))
	if err != nil {
		return false, e.tell(err)
	}
	return n == 1, nil
}

// name is this process's id, "" before its first payment.
func (e *fleet) name() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.self
}

// head is how far the chain of this home has come, and what is frozen.
func (t *tx) fleetHead() (h Head, err error) {
	// not the rows whose commit nobody waited for: a checkpoint must not name what a power cut may take back
	err = t.row(`SELECT coalesce(max(upto), 0), (SELECT coalesce(max(seq), 0) FROM freezes) FROM lifts`).
		Scan(&h.Lifted, &h.Frozen)
	if err == nil {
		err = none(t.row(`SELECT seq, hash FROM audit WHERE writer = ? AND event NOT IN ('reserved',
			'session', 'approval used',
			'delivered', 'keyed') ORDER BY seq DESC LIMIT 1`, t.fleet.Writer).Scan(&h.Seq, &h.Hash), nil)
	}
	if err == nil && h.Frozen > h.Lifted {
		h.Freezes, err = t.frozen(h.Lifted, h.Frozen)
	}
	return h, err
}

// has reports whether the chain of this home has a row.
func (t *tx) fleetHas(h Head) (bool, error) {
	if h.Seq == 0 { // of a home that has written nothing
		return true, nil
	}
	var hash []byte
	err := t.row(`SELECT hash FROM audit WHERE writer = ? AND seq = ?`, t.fleet.Writer, h.Seq).Scan(&hash)
	return err == nil && bytes.Equal(hash, h.Hash), none(err, nil)
}

// HasSigned reports whether a signature is on this home's chain; on SQLite it is the ledger's only one.
func (s *Store) HasSigned(ctx context.Context) (bool, error) {
	return readOnce(ctx, s, func(t *tx) (bool, error) {
		if t.fleet == nil {
			return t.is(`SELECT EXISTS (SELECT 1 FROM audit WHERE event = 'signed')`)
		}
		return t.is(`SELECT EXISTS (SELECT 1 FROM audit WHERE writer = ? AND event =
			'signed')`, t.fleet.Writer)
	})
}
