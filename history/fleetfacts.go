package history

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"x402-wallet/budget"
	"x402-wallet/history/postgres"
	"x402-wallet/x402/money"
)

// What a decision needs to know, read from a fleet's ledger at one moment and in one round trip.

// reading is a part of the facts: a query, and what becomes of each row of its answer.
type reading struct {
	query string
	args  []any
	take  func(row scanner) error
}

// read runs queries at one moment, in one round trip. What moment names is there for each of them.
func (e *fleet) read(ctx context.Context, moment postgres.Statement, list []reading) error {
	statements := make([]postgres.Statement, len(list))
	for i, r := range list {
		statements[i] = postgres.Statement{Query: r.query, Args: r.args}
	}
	return e.until(ctx, func(ctx context.Context) error {
		return e.pool.With(ctx, func(c *postgres.Conn) error {
			answers, err := c.Together(ctx, moment, statements)
			if err != nil {
				return err
			}
			for i, answer := range answers {
				for _, row := range answer {
					if err := list[i].take(readRow(row)); err != nil {
						return answered{err}
					}
				}
			}
			return nil
		})
	})
}

// readRow is a row of an answer of read.
type readRow postgres.Record

// Scan stores its columns.
func (r readRow) Scan(into ...any) (err error) {
	if len(into) != len(r) {
		return fmt.Errorf("%d places for %d columns", len(into), len(r))
	}
	for i, place := range into {
		if data, isBytes := place.(*[]byte); isBytes {
			*data, err = postgres.Record(r).Bytes(i)
		} else {
			err = assign(place, r[i])
		}
		if err != nil {
			return fmt.Errorf("column %d: %w", i+1, err)
		}
	}
	return nil
}

// facts reads what a decision needs. of is the payment that the facts are for and do not count; nil: none,
// and the windows are those of now. more is read at the same moment.
func (e *fleet) facts(ctx context.Context, q Question, of *Payment, more ...reading) (Facts, error) {
	var f Facts
	r := factReadings{list: more, of: of}
	r.moment(&f, e.now())
	if of == nil {
		r.purchase(&f, q)
	}
	if q.Payment.Network != "" {
		r.freeze(&f, q.Payment)
	}
	r.budgets(&f.Facts, q.Rules)
	r.approvals(&f, q)
	if err := e.read(ctx, momentOf(q.Rules, of), r.list); err != nil {
		return Facts{}, err
	}
	if f.Session.ID == "" || f.Facts.Now.Sub(f.Session.Last) >= budget.SessionIdle {
		f.Session, f.Used.Session = budget.Session{Started: f.Facts.Now, Last: f.Facts.Now}, budget.Use{}
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
	if q.Subscription != "" {
		less(&f.Subscription.Use)
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

// momentOf is the row "moment", which each reading of the facts may join: the ledger's time; that whose
// windows are meant, with where these begin; and the session that is meant, the open one or the payment's.
func momentOf(q budget.Query, of *Payment) postgres.Statement {
	at, session, args := `now`, `s.ended = 0`, []any(nil)
	switch {
	case !q.At.IsZero():
		at, args = `?::bigint`, []any{micros(q.At)}
	case of != nil:
		at, args = `?::bigint`, []any{micros(of.Created)}
	}
	if of != nil {
		session, args = `s.id = ?`, append(args, of.Session)
	}
	return postgres.Statement{Query: `moment AS MATERIALIZED (SELECT now, upto, day_of(upto) AS day,
		month_of(upto) AS month, s.id AS session, started_at, last_at, cap, number
		FROM (SELECT now, ` + at + ` AS upto FROM ledger_now() AS now) AS times
		LEFT JOIN sessions s ON ` + session + `)`, Args: args}
}

// factReadings gathers the readings of one decision's facts.
type factReadings struct {
	list []reading
	of   *Payment // which the facts are for; nil: none
}

func (r *factReadings) ask(query string, args []any, take func(row scanner) error) {
	r.list = append(r.list, reading{query, args, take})
}

// moment asks for what is one row: the time of the windows, how far this computer's clock is from the
// server's, which rules the owner signed last, the session, and how much content is stored.
func (r *factReadings) moment(f *Facts, clock time.Time) {
	r.ask(`SELECT upto, now, coalesce((SELECT version FROM rules ORDER BY version DESC LIMIT 1), 0),
			coalesce(session, ''), coalesce(started_at, 0), `+fleetSessionLast("moment.session")+`, cap,
			stored, owed
		FROM moment, content_use`, nil,
		func(row scanner) error {
			var at, ledger, started int64
			var last *int64
			err := row.Scan(&at, &ledger, &f.Rules, &f.Session.ID, &started, &last, &f.Session.Cap,
				&f.Content.Stored, &f.Content.Owed)
			f.Facts.Now, f.Behind = fromMicros(at), fromMicros(ledger).Sub(clock)
			if last != nil {
				f.Session.Started, f.Session.Last = fromMicros(started), fromMicros(*last)
			}
			return err
		})
}

// purchase asks for the payment that this purchase would be again: by its key, or else one that was left.
func (r *factReadings) purchase(f *Facts, q Question) {
	found := func(row scanner) error {
		p, err := scanPayment(row)
		if f.Purchase == nil {
			f.Purchase = &p
		}
		return err
	}
	if key := q.Payment.IdempotencyKey; key != "" {
		r.ask(selectPayment+` WHERE idempotency_key = ? AND agent = ? AND state <> 'failed'`,
			[]any{key, q.Payment.Agent}, found)
	}
	if q.Resume {
		r.ask(selectPayment+` WHERE fingerprint = ? AND (`+resumable+`) AND waiter = '' AND delivered = 0
			ORDER BY created_at DESC LIMIT 1`, []any{q.Payment.Fingerprint[:]}, found)
	}
}

func (r *factReadings) freeze(f *Facts, p Payment) {
	r.ask(selectFreezesOf, []any{p.Network, p.Source}, func(row scanner) error {
		frozen, err := scanFreeze(row)
		if f.Frozen == nil || frozen.Account == "" {
			f.Frozen = &frozen
		}
		return err
	})
}

// approvals asks for those that were given to one of the quotes.
func (r *factReadings) approvals(f *Facts, q Question) {
	for _, quote := range q.Quotes {
		r.ask(selectApproval+` WHERE quote = ? AND state = 'approved'
			AND expires_at > (SELECT now FROM moment)`, []any{quote[:]}, func(row scanner) error {
			a, err := scanApproval(row)
			f.Approvals = append(f.Approvals, a)
			return err
		})
	}
}

// budgets asks for the part that package budget decides by.
func (r *factReadings) budgets(f *budget.Facts, q budget.Query) {
	f.Used.HostDay, f.Used.Teams = map[string]budget.Use{}, map[string]budget.NodeUsage{}
	f.NodeRates = map[string]budget.RateUse{}
	ids := budgetsOf(q)
	r.counters(f, ids)
	r.held(f, ids)
	r.rates(f, q)
	if q.EachAgent {
		r.agents(f, q)
	}
	r.breakers(f, q)
	r.payee(&f.Payee, q)
	if q.Subscription != "" {
		r.subscription(&f.Subscription, q.Subscription)
	}
}

// budgetsOf are the budgets that a question is about, as the ledger names them.
func budgetsOf(q budget.Query) []any {
	ids := []any{Organisation}
	for _, entry := range q.HostEntries {
		ids = append(ids, "host:"+entry)
	}
	if q.Agent != "" {
		ids = append(ids, "agent:"+q.Agent)
	}
	for _, team := range q.Teams {
		ids = append(ids, "team:"+team)
	}
	return ids
}

// counters asks for what the kept windows hold: what was spent, and what is held of that.
func (r *factReadings) counters(f *budget.Facts, ids []any) {
	places := strings.TrimSuffix(strings.Repeat("?, ", len(ids)), ", ")
	r.ask(`SELECT budget, win, used FROM moment, counters WHERE budget IN (`+places+`)
			AND starts = CASE win WHEN 'day' THEN day WHEN 'month' THEN month ELSE number END`,
		ids, func(row scanner) error {
			var id, win string
			var used money.Dollars
			err := row.Scan(&id, &win, &used)
			setUse(&f.Used, id, win, budget.Use{Spent: used})
			return err
		})
}

// held asks what of the windows is held, which counters took for spent.
func (r *factReadings) held(f *budget.Facts, ids []any) {
	windows := []struct{ name, condition string }{{"day", `created_at >= day`}, {"month", `created_at >= month`},
		{"session", `payments.session = moment.session`}}
	var sums []string
	for n := range ids {
		for _, w := range windows {
			sums = append(sums, fmt.Sprintf(`coalesce(sum(usd - returned)
				FILTER (WHERE ?%d = ANY (budgets) AND %s), 0)`, n+1, w.condition))
		}
	}
	r.ask(`SELECT `+strings.Join(sums, ", ")+` FROM moment, payments WHERE `+unfinished+`
		AND seq BETWEEN 0 AND 9223372036854775807 /* two ends: few rows, so by the index */`,
		ids, func(row scanner) error {
			held := make([]money.Dollars, len(sums))
			places := make([]any, len(sums))
			for n := range held {
				places[n] = &held[n]
			}
			err := row.Scan(places...)
			for n, h := range held {
				id, win := ids[n/len(windows)].(string), windows[n%len(windows)].name
				if use := useOf(&f.Used, id, win); h > 0 && use.Spent >= h {
					setUse(&f.Used, id, win, budget.Use{Spent: use.Spent - h, Held: h})
				}
			}
			return err
		})
}

// rates asks how often was paid lately, where something bounds that.
func (r *factReadings) rates(f *budget.Facts, q budget.Query) {
	ago := func(d time.Duration) string { return fmt.Sprintf(`upto - %d`, d.Microseconds()) }
	if q.Rate > 0 {
		r.made(ago(budget.RateWindow), Organisation, q.Rate, func(n int, oldest time.Time) {
			f.LastMinute, f.RateSince = n, oldest
		})
	}
	for _, limit := range q.NodeRates {
		node := limit.Window.Node()
		r.made(ago(limit.Per), node, limit.Max, func(n int, oldest time.Time) {
			f.NodeRates[node] = budget.RateUse{LastMinute: n, Since: oldest}
		})
	}
}

// made asks how many payments out of a budget were made since a moment, up to so many, and when the oldest of
// so many was. For a payment that is there it counts those before it.
func (r *factReadings) made(since, id string, most int, take func(n int, oldest time.Time)) {
	upTo, without := `9223372036854775807`, ""
	if r.of != nil {
		upTo, without = `upto`, r.of.ID
	}
	r.ask(fmt.Sprintf(`SELECT n, CASE WHEN n < %[3]d THEN 0 ELSE made_first(%[1]s, %[2]s, ?1, ?2, %[3]d) END
		FROM moment, made_since(%[1]s, %[2]s, ?1, ?2) AS n`, since, upTo, most),
		[]any{id, without}, func(row scanner) error {
			var n int
			var oldest int64
			err := row.Scan(&n, &oldest)
			if n < most {
				take(n, time.Time{})
			} else {
				take(n, fromMicros(oldest))
			}
			return err
		})
}

// agents asks what each agent used on a day and in its month, and adds up what the teams did.
func (r *factReadings) agents(f *budget.Facts, q budget.Query) {
	f.Used.Agents = map[string]budget.NodeUsage{}
	inDay, inMonth := map[string]budget.Use{}, map[string]budget.Use{}
	sum := func(state, since string) string {
		return `coalesce(sum(usd - returned) FILTER (WHERE state ` + state + ` 'settled'
			AND created_at >= ` + since + `), 0)`
	}
	sums := strings.Join([]string{sum("=", "day"), sum("<>", "day"), sum("=", "month"),
		sum("<>", "month")}, ", ")
	r.ask(`SELECT agent, `+sums+` FROM moment, payments WHERE created_at >= month AND agent <> ''
		AND state <> 'failed' GROUP BY agent`, nil, func(row scanner) error {
		var agent string
		var use budget.NodeUsage
		err := row.Scan(&agent, &use.Day.Spent, &use.Day.Held, &use.Month.Spent, &use.Month.Held)
		f.Used.Agents[agent], inDay[agent], inMonth[agent] = use, use.Day, use.Month
		maps.Copy(f.Used.Teams, teamsOf(q, inDay, inMonth))
		return err
	})
}

// maxHourly bounds how many payments of an hour are counted: more than any circuit breaker waits for.
const maxHourly = 100_000

// lastLift is when the last freeze was lifted: the circuit breakers count from there.
const lastLift = `coalesce((SELECT l.at FROM lifts l WHERE l.at <= now ORDER BY l.upto DESC LIMIT 1), 0)`

// breakers asks for what the circuit breakers go by.
func (r *factReadings) breakers(f *budget.Facts, q budget.Query) {
	if q.MaxFailures <= 0 && !q.BusyHour {
		return
	}
	r.ask(`SELECT `+lastLift+` FROM moment`, nil, func(row scanner) error {
		var at int64
		err := row.Scan(&at)
		f.LastUnfreeze = fromMicros(at)
		return err
	})
	if q.MaxFailures > 0 {
		r.ask(`SELECT failures_since(`+lastLift+`, ?) FROM moment`, []any{q.MaxFailures},
			func(row scanner) error { return row.Scan(&f.ConsecutiveFailures) })
	}
	if q.BusyHour {
		since := fmt.Sprintf(`greatest(upto - %d, %s)`, budget.BusyWindow.Microseconds(), lastLift)
		r.made(since, Organisation, maxHourly, func(n int, _ time.Time) { f.LastHour = n })
	}
}

// payee asks for what is known of a payee: by the keys that historyFor asks by.
func (r *factReadings) payee(into *budget.PayeeHistory, q budget.Query) {
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
		return
	}
	r.ask(`SELECT key, value FROM memory WHERE key IN (`+strings.Join(places, ", ")+`)`, args,
		func(row scanner) (err error) {
			var key, value []byte
			if err := row.Scan(&key, &value); err != nil {
				return err
			}
			known[string(key)] = value
			*into, err = historyFor(get, q)
			return err
		})
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
	case kind == Organisation:
		return u.Session
	}
	return budget.Use{}
}

// setUse notes what a window of a budget holds.
func setUse(u *budget.Usage, id, win string, use budget.Use) {
	kind, name, _ := strings.Cut(id, ":")
	switch {
	case id == Organisation && win == "session":
		u.Session = use
	case id == Organisation && win == "day":
		u.Day = use
	case id == Organisation && win == "month":
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

// fleetSessionLast is when the newest payment of the open session was made, or the session began: the newest
// of all is in it, or none is. A clock that was set back makes it older than the session. The ledger says it,
// because a team's login does not see what the others paid.
func fleetSessionLast(session string) string { return `coalesce(newest_of(` + session + `), last_at)` }

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
		coalesce(sum(usd - returned) FILTER (WHERE state <> 'settled'), 0) FROM payments`+where+`
		GROUP BY agent`, args...)
	return use, err
}
