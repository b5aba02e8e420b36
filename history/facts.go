package history

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"time"

	"x402-wallet/budget"
	"x402-wallet/x402/money"
)

// Question says what of the ledger has to be known before a payment is decided on.
type Question struct {
	Rules   budget.Query
	Payment Payment             // its idempotency key, fingerprint, network and source are looked at
	Resume  bool                // as Hold.Resume
	Quotes  [][sha256.Size]byte // whose approvals are wanted
}

// Facts are what the ledger knew at one moment.
type Facts struct {
	budget.Facts
	Purchase  *Payment   // that the key or the request belongs to already (AlreadyPaying); nil: none
	Frozen    *Freeze    // that stops payments from the source; nil: none
	Content   ContentUse // of whose quota something has to be left
	Approvals []Approval // good ones of the quotes, in their order
	// Head is the audit chain's last row. As long as that is the last one, nothing that a decision
	// rests on has changed, for all of that is written into the chain.
	Head int64
	// Rules is, in a fleet, the version of the owner's newest.
	Rules int64
}

// Refusal is why the payment cannot be held whatever the owner's rules say: *AlreadyPaying, or
// WALLET_FROZEN, or LEDGER_UNAVAILABLE where what is bought could not be kept.
func (f Facts) Refusal() error {
	if f.Purchase != nil {
		return &AlreadyPaying{Payment: *f.Purchase}
	}
	if f.Frozen != nil {
		return f.Frozen.refusal()
	}
	return f.Content.Refusal()
}

// Facts reads what a decision needs in one consistent reading. It locks nothing: what was read may
// be out of date when it returns, and Reserve answers ErrMoved where that matters. In a fleet POLICY_UNSEALED
// says that the owner signed other rules than those of GoBy: what would be decided by these, be it a refusal,
// no longer holds.
func (s *Store) Facts(ctx context.Context, q Question) (Facts, error) {
	if s.fleet != nil {
		f, err := s.fleet.facts(ctx, q, nil)
		if err == nil && q.Payment.Network != "" {
			err = s.fleet.goesBy(f.Rules)
		}
		f.Content.Quota = s.contentQuota
		return f, fleetErrorOr(err)
	}
	f, err := readWarm(ctx, s, func(t *tx) (Facts, error) { return t.facts(q) })
	f.Content.Quota = s.contentQuota
	return f, err
}

func (t *tx) facts(q Question) (f Facts, err error) {
	clock := t.Now
	f.Head, err = t.notBeforeLedger()
	if err != nil {
		return f, err
	}
	f.Purchase, err = t.purchase(q.Payment, q.Resume)
	if err != nil {
		return f, err
	}
	if q.Payment.Network != "" { // a report asks for no payment
		f.Frozen, err = t.frozenBy(q.Payment.Network, q.Payment.Source)
		if err != nil {
			return f, err
		}
		f.Content, err = t.contentUse()
		if err != nil {
			return f, err
		}
	}
	f.Facts, err = t.budgetFacts(q.Rules)
	if err != nil {
		return f, err
	}
	f.Behind = t.Now.Sub(clock)
	for _, quote := range q.Quotes {
		a, err := t.approvalOf(quote)
		if err != nil {
			return f, err
		}
		if a != nil {
			f.Approvals = append(f.Approvals, *a)
		}
	}
	return f, nil
}

// budgetFacts is the part of the facts that package budget decides by.
func (t *tx) budgetFacts(q budget.Query) (f budget.Facts, err error) {
	f.Now = t.Now
	f.Session, err = t.session()
	if err != nil {
		return f, err
	}
	at := q.At
	if at.IsZero() {
		at = t.Now
	}
	f.Used, err = t.usage(f.Session.ID, q, at)
	if err != nil {
		return f, err
	}
	if q.Rate > 0 {
		f.LastMinute, err = t.count(t.Now.Add(-budget.RateWindow))
		if err != nil {
			return f, err
		}
		if f.LastMinute >= q.Rate {
			f.RateSince, err = t.newest(q.Rate)
			if err != nil {
				return f, err
			}
		}
	}
	f.NodeRates, err = t.nodeRates(q)
	if err != nil {
		return f, err
	}
	if q.MaxFailures > 0 || q.BusyHour {
		f.LastUnfreeze, err = t.lastUnfreeze()
		if err != nil {
			return f, err
		}
	}
	if q.MaxFailures > 0 {
		f.ConsecutiveFailures, err = t.consecutiveFailures(f.LastUnfreeze, q.MaxFailures)
		if err != nil {
			return f, err
		}
	}
	if q.BusyHour {
		hour := budget.RateLimit{Per: budget.BusyWindow, NotBefore: f.LastUnfreeze}
		f.LastHour, err = t.count(hour.Since(t.Now))
		if err != nil {
			return f, err
		}
	}
	if q.Subscription != "" {
		f.Subscription, err = t.subscriptionUse(q.Subscription)
		if err != nil {
			return f, err
		}
	}
	f.Payee, err = historyFor(t.recall, q)
	return f, err
}

// usage sums the windows of a time: of a session, of its day and month, of hosts on that day, and those of an
// agent and of teams.
func (t *tx) usage(session string, q budget.Query, at time.Time) (u budget.Usage, err error) {
	day, month := budget.DayOf(at), budget.MonthOf(at)
	err = t.row(`SELECT * FROM
		(SELECT coalesce(sum(spent), 0), coalesce(sum(held), 0) FROM totals
			WHERE scope = 'session' AND key = ?1 AND ?1 <> ''),
		(SELECT coalesce(sum(spent) FILTER (WHERE day >= ?2), 0),
			coalesce(sum(held) FILTER (WHERE day >= ?2), 0),
			coalesce(sum(spent), 0), coalesce(sum(held), 0) FROM totals
			WHERE scope = 'all' AND key = '' AND day >= ?3)`,
		session, dayNumber(day), dayNumber(month)).
		Scan(&u.Session.Spent, &u.Session.Held, &u.Day.Spent, &u.Day.Held, &u.Month.Spent, &u.Month.Held)
	if err != nil {
		return u, err
	}
	u.HostDay = map[string]budget.Use{}
	for _, host := range q.HostEntries {
		u.HostDay[host], err = t.used(budget.Window{Host: host, Since: day})
		if err != nil {
			return u, err
		}
	}
	if q.Agent != "" {
		u.Agent.Day, err = t.used(budget.Window{Agent: q.Agent, Since: day})
		if err == nil {
			u.Agent.Month, err = t.used(budget.Window{Agent: q.Agent, Since: month})
		}
		if err != nil {
			return u, err
		}
	}
	err = t.addNodes(&u, q, day, month)
	return u, err
}

// session is the session that is open now; its ID is empty when the next payment will begin one.
func (t *tx) session() (budget.Session, error) {
	var s budget.Session
	var started, last int64
	var limit sql.NullInt64
	newest := `last_at`
	if t.fleet != nil {
		newest = fleetSessionLast(`sessions.id`)
	}
	err := t.row(`SELECT id, started_at, `+newest+`, cap FROM sessions WHERE ended = 0
		ORDER BY started_at DESC LIMIT 1`).Scan(&s.ID, &started, &last, &limit)
	if errors.Is(err, sql.ErrNoRows) {
		return budget.Session{Started: t.Now, Last: t.Now}, nil
	}
	if err != nil {
		return s, err
	}
	s.Started, s.Last = fromMicros(started), fromMicros(last)
	if limit.Valid {
		s.Cap = (*money.Dollars)(&limit.Int64)
	}
	if t.Now.Sub(s.Last) >= budget.SessionIdle {
		return budget.Session{Started: t.Now, Last: t.Now}, nil
	}
	return s, nil
}

// used sums a window: of a session, of an agent, of a team, of a host, or of all. Windows begin with a UTC
// day.
func (t *tx) used(w budget.Window) (use budget.Use, err error) {
	if t.fleet != nil {
		return t.fleetUsed(w)
	}
	const sums = `SELECT coalesce(sum(spent), 0), coalesce(sum(held), 0) FROM `
	day := dayNumber(w.Since)
	var row scanner
	switch {
	case w.Session != "":
		row = t.row(sums+`totals WHERE scope = 'session' AND key = ? AND day >= ?`, w.Session, day)
	case w.Agent != "":
		row = t.row(sums+`totals WHERE scope = 'agent' AND key = ? AND day >= ?`, w.Agent, day)
	case w.Team != "":
		agents, err := t.agentSums(w.Since)
		return w.Teams.Sum(w.Team, agents), err
	case w.Host != "":
		// with any port; in two parts, because for an OR SQLite would read all hosts
		row = t.row(sums+`(SELECT spent, held FROM totals WHERE scope = 'host' AND key = ?1 AND day >= ?4
			UNION ALL SELECT spent, held FROM totals WHERE scope = 'host' AND key > ?2 AND key < ?3 AND day >= ?4)`,
			w.Host, w.Host+":", w.Host+";", day)
	default:
		row = t.row(sums+`totals WHERE scope = 'all' AND key = '' AND day >= ?`, day)
	}
	err = row.Scan(&use.Spent, &use.Held)
	return use, err
}

// dayNumber is a time's day as the table totals counts them: since 1970, in UTC.
func dayNumber(t time.Time) int64 { return micros(t) / (24 * time.Hour).Microseconds() }

// count counts the payments made after since, failed ones too. They are numbered without a gap, in
// the order of their times.
func (t *tx) count(since time.Time) (n int, err error) {
	err = t.row(`SELECT coalesce((SELECT max(seq) FROM payments), 0) -
		coalesce((SELECT seq FROM payments WHERE created_at <= ?
			ORDER BY created_at DESC, seq DESC LIMIT 1), 0)`, micros(since)).Scan(&n)
	return n, err
}

// newest is when the nth newest payment was made; zero where there are fewer.
func (t *tx) newest(n int) (time.Time, error) {
	var at int64
	err := t.row(`SELECT created_at FROM payments WHERE seq = 1 + (SELECT max(seq) FROM payments) - ?`, n).
		Scan(&at)
	return fromMicros(at), none(err, nil)
}

// notBeforeLedger moves the transaction's time up to the newest payment: windows never open
// backwards. It returns the audit chain's last row.
func (t *tx) notBeforeLedger() (head int64, err error) {
	if t.known.newest == 0 {
		err = t.row(`SELECT coalesce((SELECT max(created_at) FROM payments), 0),
			coalesce((SELECT max(seq) FROM audit), 0)`).Scan(&t.known.newest, &head)
		t.known.head = max(t.known.head, head)
	}
	if at := fromMicros(t.known.newest); at.After(t.Now) {
		t.Now = at
	}
	return t.known.head, err
}
